//! A database of a test's own on Google's emulator, behind a wire that the test can spoil.

use super::*;
use hotcount::store::Options;
use hotcount::store::firestore::rpc::Grpc;
use hotcount::store::firestore::{Address, Firestore};
use support::emulators::{firestore, unique};

pub(crate) struct Place {
    /// The store, behind the wire.
    pub(crate) store: Arc<Firestore>,
    pub(crate) proxy: Proxy,
    pub(crate) address: Address,
    /// The client that goes past the wire.
    pub(crate) grpc: Grpc,
}

impl Place {
    /// `None` where there is no emulator. `rule` decides about every call of the store.
    pub(crate) async fn spoiled(rule: impl Fn(&Call<'_>) -> Verdict + Send + Sync + 'static) -> Option<Self> {
        let (host, project) = (firestore()?, unique("incident"));
        let proxy = Proxy::start(&host, rule).await;
        let url = |host: &str| format!("firestore://{project}?emulator={host}");
        let store = Firestore::connect(&url(proxy.host()), &Options::default()).await.expect("the emulator is there");
        let address = Address::parse(&url(&host), "like-counter", None).expect("the URL is right");
        let grpc = Grpc::connect(&address).await.expect("the emulator is there");
        Some(Self { store: Arc::new(store), proxy, address, grpc })
    }
}
