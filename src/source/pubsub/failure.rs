//! What a failure of Pub/Sub means, and what to do about it, in one sentence.

use super::super::SourceError;
use super::{Access, Options};
use google_cloud_gax::client_builder;
use google_cloud_gax::error::rpc::Code;
use google_cloud_pubsub::Error;
use std::sync::atomic::{AtomicU32, Ordering};

/// How often a refusal is taken for a passing one before the worker stops: right after a subscription was made, a
/// permission granted or a server moved, one of these is no more than a blink.
const REFUSALS: u32 = 1;

/// How often credentials may be refused in a row: a token is renewed while the old one still runs out elsewhere.
const REFUSED_CREDENTIALS: u32 = 4;

/// Counts a stream number's refusals in a row; a delivery ends the row.
#[derive(Debug)]
pub(super) struct Patience(AtomicU32);

impl Patience {
    /// `seen` is whether the subscription is known to exist: the first refusal is only doubtful if it is.
    pub(super) fn new(seen: bool) -> Self {
        Self(AtomicU32::new(if seen { 0 } else { REFUSALS }))
    }

    /// A delivery came.
    pub(super) fn worked(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Turns the end of a stream into what the pipeline reads.
    pub(super) fn judge(&self, error: Error, options: &Options, access: &Access) -> SourceError {
        let transient = match class(&error) {
            Class::Passing => true,
            Class::Refused => self.0.fetch_add(1, Ordering::Relaxed) < REFUSALS,
            Class::Credentials => self.0.fetch_add(1, Ordering::Relaxed) < REFUSED_CREDENTIALS,
        };
        SourceError { transient, message: sentence(&error, options, access), source: Some(Box::new(error)) }
    }
}

/// Why there is no client.
pub(super) fn no_client(error: &client_builder::Error, access: &Access) -> String {
    if error.is_default_credentials() {
        return format!(
            "there are no credentials for Pub/Sub: run `gcloud auth application-default login`, set \
             GOOGLE_APPLICATION_CREDENTIALS, or set PUBSUB_EMULATOR_HOST to use an emulator ({error})"
        );
    }
    format!("no client for {} could be made: {error}", access.place())
}

/// The failure, and what to do.
pub(super) fn sentence(error: &Error, options: &Options, access: &Access) -> String {
    let Options { project, subscription, .. } = options;
    let name = options.name();
    let said = error.status().map_or_else(|| error.to_string(), |status| status.message.clone());
    match (class(error), code(error)) {
        (_, Some(Code::NotFound)) => format!(
            "there is no subscription '{subscription}' in the project '{project}' of {}: make it with `hotcount setup \
             --source {name} --store URL`, or correct the name ({said})",
            access.place()
        ),
        (_, Some(Code::PermissionDenied)) => format!(
            "this account may not consume {name}: grant it roles/pubsub.subscriber on the subscription, and see that \
             the Pub/Sub API is enabled in the project ({said})"
        ),
        (Class::Credentials, _) => format!(
            "{} does not accept the credentials: run `gcloud auth application-default login`, or set \
             GOOGLE_APPLICATION_CREDENTIALS to a key that is valid ({said})",
            access.place()
        ),
        (Class::Refused, _) => {
            format!(
                "{} refuses to deliver {name}: it must be a pull subscription that is attached to its topic ({said})",
                access.place()
            )
        }
        (Class::Passing, _) if error.status().is_none() => format!(
            "{} does not answer: check the network{} ({said})",
            access.place(),
            if access.is_emulator() { " and PUBSUB_EMULATOR_HOST" } else { "" }
        ),
        (Class::Passing, _) => format!("{} broke off a request for {name} ({said})", access.place()),
    }
}

fn code(error: &Error) -> Option<Code> {
    error.status().map(|status| status.code)
}

enum Class {
    /// Trying again may help, however often.
    Passing,
    /// Trying again once may help.
    Refused,
    /// Trying again a few times may help.
    Credentials,
}

/// The client library retries UNAVAILABLE, INTERNAL, ABORTED, RESOURCE_EXHAUSTED and DEADLINE_EXCEEDED itself and
/// hands everything else to us, also what a proxy on the way makes of a broken connection (UNKNOWN, CANCELLED).
fn class(error: &Error) -> Class {
    if error.is_authentication() {
        return if error.is_transient_and_before_rpc() { Class::Passing } else { Class::Credentials };
    }
    match code(error) {
        Some(
            Code::NotFound
            | Code::PermissionDenied
            | Code::InvalidArgument
            | Code::FailedPrecondition
            | Code::OutOfRange
            | Code::Unimplemented,
        ) => Class::Refused,
        Some(Code::Unauthenticated) => Class::Credentials,
        _ => Class::Passing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use google_cloud_gax::error::rpc::Status;

    fn failure(code: Code) -> Error {
        Error::service(Status::default().set_code(code).set_message("said"))
    }

    fn transient(patience: &Patience, code: Code) -> bool {
        let options = Options::parse("pubsub://demo/likes").unwrap();
        patience.judge(failure(code), &options, &Access::new(Some("127.0.0.1:1"))).transient
    }

    #[test]
    fn a_refusal_is_transient_once_and_again_after_a_delivery() {
        for code in [Code::NotFound, Code::PermissionDenied, Code::InvalidArgument, Code::FailedPrecondition] {
            let patience = Patience::new(true);
            assert_eq!([transient(&patience, code), transient(&patience, code)], [true, false], "{code:?}");
            patience.worked();
            assert!(transient(&patience, code), "{code:?}");
        }
    }

    #[test]
    fn a_refusal_of_what_nobody_has_seen_is_final() {
        assert!(!transient(&Patience::new(false), Code::NotFound));
    }

    #[test]
    fn credentials_are_tried_a_few_times() {
        let patience = Patience::new(true);
        let judged: Vec<bool> = (0..6).map(|_| transient(&patience, Code::Unauthenticated)).collect();
        assert_eq!(judged, [true, true, true, true, false, false]);
    }

    #[test]
    fn a_broken_connection_is_transient_however_often() {
        let patience = Patience::new(false);
        for code in [Code::Cancelled, Code::Unknown, Code::Unavailable, Code::DataLoss, Code::Internal] {
            assert!((0..50).all(|_| transient(&patience, code)), "{code:?}");
        }
    }

    #[test]
    fn every_sentence_says_what_to_do() {
        let options = Options::parse("pubsub://demo/likes").unwrap();
        let access = Access::new(Some("127.0.0.1:1"));
        for (code, expected) in [
            (Code::NotFound, "hotcount setup --source pubsub://demo/likes"),
            (Code::PermissionDenied, "grant it roles/pubsub.subscriber"),
            (Code::Unauthenticated, "gcloud auth application-default login"),
            (Code::FailedPrecondition, "pull subscription"),
        ] {
            let text = sentence(&failure(code), &options, &access);
            assert!(text.contains(expected), "{text}");
            assert!(text.contains("said"), "{text}");
        }
    }
}
