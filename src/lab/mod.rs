//! What measures and proves: load whose outcome is known from a seed, and a model of Firestore's contention.

pub mod firestore_model;
pub mod load;
