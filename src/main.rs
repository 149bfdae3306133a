//! The `hotcount` command.

fn main() {}
