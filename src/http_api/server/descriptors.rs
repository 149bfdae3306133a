//! How many connections the limit of file descriptors leaves.

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

/// Descriptors that a worker has open before anybody connects: the runtime's, the listener, standard streams, the client's
/// of a store or a source.
const SPARE: usize = 16;

/// Fewer would serve nobody.
const LEAST: usize = 4;

/// As many connections as `asked`, or as the limit of open files leaves: half of it belongs to the store, which opens files
/// while it works and cannot go on without them.
#[must_use]
pub fn connections_beside_the_store(asked: usize) -> usize {
    beside(asked, getrlimit(Resource::Nofile).current)
}

fn beside(asked: usize, descriptors: Option<u64>) -> usize {
    let Some(descriptors) = descriptors.and_then(|number| usize::try_from(number).ok()) else { return asked };
    asked.min((descriptors / 2).saturating_sub(SPARE)).max(LEAST)
}

/// Whether a call failed because no descriptor was left to this process, or to the machine.
pub(super) fn are_missing(error: &std::io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_descriptors_are_the_stores() {
        assert_eq!(beside(1_024, Some(64)), 16);
        assert_eq!(beside(1_024, Some(1_024)), 496);
        assert_eq!(beside(1_024, Some(1 << 20)), 1_024);
        assert_eq!(beside(1_024, None), 1_024);
        assert_eq!(beside(1_024, Some(8)), LEAST);
    }
}
