//! One cell of the matrix: what fails, on which side of its effect, at which attempt, on which store.

use gcloud_sdk::tonic::Code;
use hotcount::store::ErrorClass;
use std::fmt;

/// What the worker is told instead of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    Code(Code),
    /// Nothing: the connection breaks.
    Broken,
}

impl Failure {
    /// All codes of gRPC but OK, and a broken connection.
    pub(crate) const ALL: [Self; 17] = [
        Self::Code(Code::Cancelled),
        Self::Code(Code::Unknown),
        Self::Code(Code::InvalidArgument),
        Self::Code(Code::DeadlineExceeded),
        Self::Code(Code::NotFound),
        Self::Code(Code::AlreadyExists),
        Self::Code(Code::PermissionDenied),
        Self::Code(Code::ResourceExhausted),
        Self::Code(Code::FailedPrecondition),
        Self::Code(Code::Aborted),
        Self::Code(Code::OutOfRange),
        Self::Code(Code::Unimplemented),
        Self::Code(Code::Internal),
        Self::Code(Code::Unavailable),
        Self::Code(Code::DataLoss),
        Self::Code(Code::Unauthenticated),
        Self::Broken,
    ];

    /// The class that the failure belongs to. A store without gRPC fails by it.
    pub(crate) fn class(self) -> ErrorClass {
        let Self::Code(code) = self else { return ErrorClass::Unknown };
        match code {
            Code::Aborted | Code::ResourceExhausted => ErrorClass::DidNotCommit,
            Code::Unauthenticated => ErrorClass::Unauthenticated,
            Code::InvalidArgument | Code::OutOfRange => ErrorClass::Rejected,
            Code::PermissionDenied | Code::Unimplemented => ErrorClass::Fatal,
            Code::NotFound | Code::AlreadyExists | Code::FailedPrecondition => ErrorClass::Fatal,
            _ => ErrorClass::Unknown,
        }
    }
}

/// On which side of its effect a commit fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    BeforeApplying,
    AfterApplying,
}

/// The attempt that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// The first of the whole batch.
    First,
    /// The one after a failure, of the same batch.
    Retried,
    /// The first of a part, after the whole had failed three times.
    PartOfAFailing,
    /// The first of a part, after the whole had been refused twice for what is in it.
    PartOfARefused,
    /// Each of so many in a row, probes included. The store works again after them.
    EachInARow(usize),
}

/// What the store holds before the batch comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    /// Nothing: the batch is committed without a look.
    Nothing,
    /// Members that the batch likes again and takes away: memberships are read first.
    Members,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Memory,
    Embedded,
    Firestore,
}

/// Printed when it fails.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell {
    pub(crate) store: Kind,
    pub(crate) failure: Failure,
    pub(crate) when: When,
    pub(crate) at: At,
    pub(crate) before: Before,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { store, failure, when, at, before } = self;
        write!(f, "{store:?}, {failure:?} {when:?}, attempt {at:?}, stored before: {before:?}")
    }
}

impl Cell {
    /// All cells of one store, but those of failures in a row.
    pub(crate) fn all(store: Kind, attempts: &[At]) -> Vec<Self> {
        let mut cells = Vec::new();
        for failure in Failure::ALL {
            for when in [When::BeforeApplying, When::AfterApplying] {
                for &at in attempts {
                    for before in [Before::Nothing, Before::Members] {
                        cells.push(Self { store, failure, when, at, before });
                    }
                }
            }
        }
        cells
    }
}
