//! Opens the connection to Firestore, with the `firestore` crate wherever it can.

use super::address::Address;
use firestore::errors::FirestoreError;
use firestore::{FirestoreDb, FirestoreDbOptions};
use gcloud_sdk::google::firestore::v1::firestore_client::FirestoreClient;
use gcloud_sdk::google_cloud_auth::credentials::{Credentials, anonymous};
use gcloud_sdk::tonic::transport::{Channel, ClientTlsConfig};
use gcloud_sdk::{GCP_DEFAULT_SCOPES, GoogleAuthHeaders, GoogleAuthMiddleware, GoogleAuthMiddlewareLayer};
use std::time::Duration;
use tower_layer::Layer;

const SERVICE: &str = "https://firestore.googleapis.com";

/// How long connecting may take, and how often a connection is pinged: what the `firestore` crate takes.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
const KEEP_ALIVE: Duration = Duration::from_secs(60);

/// The raw client. An emulator is asked without credentials, the service with those of the environment (Application
/// Default Credentials).
///
/// The `firestore` crate over rustls trusts the public authorities alone. Where a company's own authority has signed what
/// answers, as a proxy's that looks into TLS, the connection is made once more with what the machine trusts.
pub(super) async fn connect(address: &Address) -> Result<FirestoreClient<GoogleAuthMiddleware>, FirestoreError> {
    let credentials = address.emulator().map(|_| anonymous::Builder::new().build());
    let url = match address.emulator() {
        Some(host) if host.contains("://") => host.to_owned(),
        Some(host) => format!("http://{host}"),
        None => SERVICE.to_owned(),
    };
    let options = FirestoreDbOptions::new(address.project().to_owned())
        .with_database_id(address.database().to_owned())
        .with_firebase_api_url(url.clone());
    let db = match credentials.clone() {
        Some(credentials) => FirestoreDb::with_options_auth(options, credentials).await,
        None => FirestoreDb::with_options(options).await,
    };
    match db {
        Ok(db) => Ok(db.client().get()),
        Err(_) if url.starts_with("https://") => Ok(trusting_the_machine(address, url, credentials).await?),
        Err(error) => Err(error),
    }
}

/// The same client over a connection that trusts the machine's certificates, those of `SSL_CERT_FILE` and `SSL_CERT_DIR`
/// where they are set, besides the public authorities.
async fn trusting_the_machine(
    address: &Address,
    url: String,
    credentials: Option<Credentials>,
) -> Result<FirestoreClient<GoogleAuthMiddleware>, gcloud_sdk::error::Error> {
    let channel = Channel::from_shared(url)?
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_keepalive(Some(KEEP_ALIVE))
        .keep_alive_timeout(KEEP_ALIVE)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_while_idle(true)
        .tls_config(ClientTlsConfig::new().with_enabled_roots())?
        .connect()
        .await?;
    let auth = match credentials {
        Some(credentials) => GoogleAuthHeaders::from(credentials),
        None => GoogleAuthHeaders::from_adc_with_scopes(GCP_DEFAULT_SCOPES.clone()).await?,
    };
    let middleware = GoogleAuthMiddlewareLayer::new(auth, Some(address.database_path()))?;
    Ok(FirestoreClient::new(middleware.layer(channel)))
}
