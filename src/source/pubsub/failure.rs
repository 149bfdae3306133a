//! What a failure of Pub/Sub means, and what to do about it, in one sentence.

use super::super::SourceError;
use super::{Access, Options};
use crate::common::backoff::{HEALED_AFTER, InARow};
use crate::common::sync::Locked;
use google_cloud_gax::client_builder;
use google_cloud_gax::error::rpc::Code;
use google_cloud_pubsub::Error;
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

/// How often a refusal is taken for a passing one before the worker stops: right after a subscription was made, a
/// permission granted or a server moved, one of these is no more than a blink.
const REFUSALS: u32 = 1;

/// How often credentials may be refused in a row: a token is renewed while the old one still runs out elsewhere.
const REFUSED_CREDENTIALS: u32 = 4;

/// Counts a stream number's refusals in a row; a delivery ends the row, and on a quiet topic time does.
#[derive(Debug)]
pub(super) struct FailuresInARow(Mutex<Row>);

#[derive(Debug)]
struct Row {
    refusals: InARow,
    /// Whether the subscription is known to exist: the first refusal is only doubtful if it is.
    seen: bool,
    /// Whoever was not refused for long has a subscription too.
    began: Instant,
}

impl FailuresInARow {
    /// `seen` is whether the subscription is known to exist.
    pub(super) fn new(seen: bool, now: Instant) -> Self {
        Self(Mutex::new(Row { refusals: InARow::default(), seen, began: now }))
    }

    fn row(&self) -> MutexGuard<'_, Row> {
        // Each change under the lock is whole.
        self.0.locked()
    }

    /// A delivery came.
    pub(super) fn worked(&self) {
        let mut row = self.row();
        row.refusals.worked();
        row.seen = true;
    }

    /// Turns the end of a stream into what the pipeline reads.
    pub(super) fn judge(&self, error: Error, at: Instant, options: &Options, access: &Access) -> SourceError {
        let mut row = self.row();
        row.seen |= at.saturating_duration_since(row.began) >= HEALED_AFTER;
        let transient = match class(&error) {
            Class::Passing => true,
            Class::Refused => row.refusals.failed(at) <= REFUSALS && row.seen,
            Class::Credentials => row.refusals.failed(at) <= REFUSED_CREDENTIALS,
        };
        drop(row);
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

    fn transient(failures: &FailuresInARow, code: Code) -> bool {
        transient_at(failures, code, Instant::now())
    }

    fn transient_at(failures: &FailuresInARow, code: Code, at: Instant) -> bool {
        let options = Options::parse("pubsub://demo/likes").unwrap();
        failures.judge(failure(code), at, &options, &Access::new(Some("127.0.0.1:1"))).transient
    }

    /// A topic that brings nothing for months cannot end a row by a delivery.
    #[test]
    fn refusals_that_come_now_and_then_on_a_quiet_topic_are_not_in_a_row() {
        let (failures, mut at) = (FailuresInARow::new(true, Instant::now()), Instant::now());
        for code in [Code::NotFound, Code::PermissionDenied, Code::Unauthenticated].repeat(4) {
            assert!(transient_at(&failures, code, at), "{code:?}");
            at += HEALED_AFTER;
        }
        assert!(transient_at(&failures, Code::NotFound, at));
        assert!(!transient_at(&failures, Code::NotFound, at + HEALED_AFTER / 2), "this one is");
    }

    #[test]
    fn a_refusal_is_transient_once_and_again_after_a_delivery() {
        for code in [Code::NotFound, Code::PermissionDenied, Code::InvalidArgument, Code::FailedPrecondition] {
            let failures = FailuresInARow::new(true, Instant::now());
            assert_eq!([transient(&failures, code), transient(&failures, code)], [true, false], "{code:?}");
            failures.worked();
            assert!(transient(&failures, code), "{code:?}");
        }
    }

    #[test]
    fn a_refusal_of_what_nobody_has_seen_is_final() {
        assert!(!transient(&FailuresInARow::new(false, Instant::now()), Code::NotFound));
    }

    #[test]
    fn a_refusal_long_after_the_start_is_doubtful_whoever_was_allowed_to_look() {
        let (began, failures) = (Instant::now(), FailuresInARow::new(false, Instant::now()));
        assert!(transient_at(&failures, Code::NotFound, began + HEALED_AFTER * 2));
        assert!(!transient_at(&failures, Code::NotFound, began + HEALED_AFTER * 2));
    }

    #[test]
    fn credentials_are_tried_a_few_times() {
        let failures = FailuresInARow::new(true, Instant::now());
        let judged: Vec<bool> = (0..6).map(|_| transient(&failures, Code::Unauthenticated)).collect();
        assert_eq!(judged, [true, true, true, true, false, false]);
    }

    #[test]
    fn a_broken_connection_is_transient_however_often() {
        let failures = FailuresInARow::new(false, Instant::now());
        for code in [Code::Cancelled, Code::Unknown, Code::Unavailable, Code::DataLoss, Code::Internal] {
            assert!((0..50).all(|_| transient(&failures, code)), "{code:?}");
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
