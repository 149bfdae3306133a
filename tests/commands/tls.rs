//! One TLS stack: what the binary is linked with, what the lock file names, and whose certificates are trusted.

use crate::process::{hotcount, stderr, stdout};
use crate::support::emulators::{firestore, pubsub, unique};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, spawn_blocking};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

/// What every program for Linux has: C's library, its mathematics, the unwinder, and the loader.
const LINKED: [&str; 7] =
    ["linux-vdso.so", "linux-gate.so", "libc.so", "libm.so", "libgcc_s.so", "ld-linux", "/lib64/ld-linux"];

#[test]
fn the_binary_needs_no_library_beyond_those_of_every_program() {
    let Ok(output) = Command::new("ldd").arg(env!("CARGO_BIN_EXE_hotcount")).output() else {
        assert!(std::env::var_os("CI").is_none(), "there is no ldd");
        eprintln!("skipped: there is no ldd to look at the binary with");
        return;
    };
    let text = stdout(&output);
    assert!(output.status.success(), "{text}");
    for library in text.lines().map(str::trim) {
        let name = library.rsplit_once('/').map_or(library, |(_, name)| name);
        let known = LINKED.iter().any(|known| library.starts_with(known) || name.starts_with(known));
        assert!(known, "linked with {library}");
    }
    assert!(text.contains("libc.so"), "{text}");
}

#[test]
fn the_lock_file_names_no_second_tls_stack() {
    let lock = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.lock")).unwrap();
    let named = |name: &str| lock.matches(&format!("name = \"{name}\"\n")).count();
    for other in ["openssl", "openssl-sys", "native-tls", "hyper-tls", "tokio-native-tls", "schannel-sys"] {
        assert_eq!(named(other), 0, "{other}");
    }
    for own in ["rustls", "rustls-native-certs", "rustls-platform-verifier", "reqwest", "tonic"] {
        assert_eq!(named(own), 1, "{own}");
    }
}

/// Passes bytes on to `host` for whoever speaks TLS with it, under a certificate of an authority that nobody knows.
/// Answers with its `HOST:PORT` and the authority's certificate.
async fn behind_tls(host: &str) -> (String, String, AbortHandle) {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let own = CertificateParams::new(vec!["localhost".to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let mut config =
        ServerConfig::builder().with_no_client_auth().with_single_cert(vec![own.der().clone()], key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let host = host.to_owned();
    let serving = tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (acceptor, host) = (acceptor.clone(), host.clone());
            tokio::spawn(async move {
                // Whoever does not trust the certificate hangs up.
                let Ok(mut client) = acceptor.accept(client).await else { return };
                let mut server = TcpStream::connect(host).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    (format!("localhost:{port}"), authority.pem(), serving.abort_handle())
}

/// The command, with the certificates of a file as the machine's.
async fn trusting(certificates: &Path, arguments: Vec<String>) -> Output {
    let certificates = certificates.to_owned();
    spawn_blocking(move || {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        hotcount(&arguments).env("SSL_CERT_FILE", certificates).env_remove("SSL_CERT_DIR").output().unwrap()
    })
    .await
    .unwrap()
}

/// Runs the command with the certificate of the authority that signed, and with another one.
async fn only_for_whoever_trusts_the_authority(host: &str, command: impl Fn(&str) -> Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let (right, wrong) = (folder.path().join("right.pem"), folder.path().join("wrong.pem"));
    let (address, certificate, serving) = behind_tls(host).await;
    let (_, other, unused) = behind_tls(host).await;
    std::fs::write(&right, certificate).unwrap();
    std::fs::write(&wrong, other).unwrap();
    let trusted = trusting(&right, command(&address)).await;
    assert!(trusted.status.success(), "{}", stderr(&trusted));
    let stranger = trusting(&wrong, command(&address)).await;
    assert_eq!(stranger.status.code(), Some(2), "{}", stdout(&stranger));
    serving.abort();
    unused.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn firestore_behind_a_private_authority_is_reached_where_the_machine_trusts_it() {
    let Some(host) = firestore() else { return };
    let project = unique("private");
    only_for_whoever_trusts_the_authority(&host, |address| {
        let store = format!("firestore://{project}?emulator=https://{address}");
        ["count", "p", "--store", &store].map(str::to_owned).to_vec()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pubsub_behind_a_private_authority_is_reached_where_the_machine_trusts_it() {
    let Some(host) = pubsub() else { return };
    let subscription = unique("private");
    only_for_whoever_trusts_the_authority(&host, |address| {
        let source = format!("pubsub://demo/{subscription}?emulator=https://{address}");
        ["setup", "--store", "memory:", "--source", &source].map(str::to_owned).to_vec()
    })
    .await;
}
