//! Adding, sealing and remembering at once: every receipt comes out once, with the right like.

use crate::buffer_sources::engine::aggregate::{Added, Aggregator, Config, Sealed};
use crate::mutants::Mutant;
use hotcount::like::batch::BatchKey;
use hotcount::like::event::Like;
use shuttle::thread;
use std::cmp::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// A receipt that knows its like.
type Receipt = Like;

/// The buffer, and what came out of it so far. The books are under a lock that the checker does not see: nothing is
/// scheduled while it is held.
struct Scene {
    buffer: Aggregator<Receipt>,
    books: Mutex<Books>,
}

#[derive(Default)]
struct Books {
    added: Vec<Like>,
    buffered: usize,
    folded: usize,
    known: Vec<Receipt>,
    sealed: Vec<(Like, Vec<Receipt>)>,
    /// What a lane has remembered, or is about to.
    durable: Vec<Like>,
}

fn like(user: &str, order: i64) -> Like {
    Like::new("p", user, &format!("e{order}"), order % 3 != 0, order)
}

fn newness(a: &Like, b: &Like) -> Ordering {
    a.membership().cmp_newness(&b.membership())
}

impl Scene {
    fn new(max_writes: usize, recent_likes: usize) -> Self {
        let config = Config { max_writes, recent_likes, ..Config::default() };
        Self { buffer: Aggregator::new(config), books: Mutex::default() }
    }

    fn books<T>(&self, write: impl FnOnce(&mut Books) -> T) -> T {
        write(&mut self.books.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds likes that arrived together.
    fn add(&self, likes: &[Like]) {
        let mut adder = self.buffer.adder(Instant::now());
        for like in likes {
            self.books(|books| books.added.push(like.clone()));
            match adder.add(like.clone(), like.clone()) {
                Added::Buffered => self.books(|books| books.buffered += 1),
                Added::Folded => self.books(|books| books.folded += 1),
                Added::Duplicate(receipt) => self.known(like, receipt, true),
                Added::Stale(receipt) => self.known(like, receipt, false),
            }
        }
    }

    /// A like that the buffer settles at once, as a duplicate or as stale.
    fn known(&self, like: &Like, receipt: Receipt, is_duplicate: bool) {
        self.books(|books| {
            let of_member = |durable: &&Like| durable.member() == like.member();
            let newest = books.durable.iter().filter(of_member).max_by(|a, b| newness(a, b));
            let newest = newest.expect("known, and no like of the member is durable");
            assert!(newness(like, newest).is_le(), "{like:?} is called known, and is newer than {newest:?}");
            assert_eq!(&receipt, like, "a receipt came back that is another's");
            let same_state = books.durable.iter().filter(of_member).any(|d| d.liked() == like.liked());
            assert!(same_state || !is_duplicate, "{like:?} is called a duplicate of nothing");
            books.known.push(receipt);
        });
    }

    /// Seals once, as a lane does, and answers whether anything waited.
    fn seal(&self) -> bool {
        self.sealed().is_some_and(|sealed| {
            self.settle(sealed);
            true
        })
    }

    fn sealed(&self) -> Option<Sealed<Receipt>> {
        self.buffer.seal(BatchKey::from_random(1))
    }

    /// Takes likes that wait aside, as a lane of that place does.
    fn seal_contended(&self) -> bool {
        self.buffer.seal_contended(BatchKey::from_random(2)).is_some_and(|sealed| {
            let likes = sealed.batch().likes().to_vec();
            self.settle(sealed);
            self.buffer.end_contended(&likes);
            true
        })
    }

    /// Seals once, and is told that others keep writing the members of it: their likes wait aside until it is settled.
    fn seal_and_set_aside(&self) {
        let Some(sealed) = self.sealed() else { return };
        let likes = sealed.batch().likes().to_vec();
        self.buffer.begin_contended(&likes);
        self.buffer.mark_contended(sealed.batch(), Instant::now());
        // Here it would wait for the store.
        thread::yield_now();
        self.settle(sealed);
        self.buffer.end_contended(&likes);
    }

    /// Seals once, commits, and remembers.
    fn seal_and_remember(&self) {
        let Some(sealed) = self.sealed() else { return };
        let batch = sealed.batch().clone();
        let durable = |books: &mut Books| books.durable.extend_from_slice(batch.likes());
        if Mutant::RemembersTooEarly.is_planted() {
            self.buffer.remember(&batch);
            // Here it would wait for the store.
            thread::yield_now();
            self.books(durable);
        } else {
            self.books(durable);
            self.buffer.remember(&batch);
        }
        self.settle(sealed);
    }

    /// Enters a batch in the books. Its likes must be the newest of what is settled with them.
    fn settle(&self, sealed: Sealed<Receipt>) {
        let likes = sealed.batch().likes().to_vec();
        for (like, receipts) in likes.into_iter().zip(sealed.into_receipts()) {
            assert_eq!(receipts.own.as_ref(), Some(&like), "a like was sealed without its own receipt");
            for folded in &receipts.folded {
                assert_eq!(folded.member(), like.member(), "a receipt of another member is settled with {like:?}");
                assert!(newness(folded, &like).is_le(), "{folded:?} is folded into {like:?}, which is older");
            }
            self.books(|books| books.sealed.push((like, receipts.into_iter().collect())));
        }
    }

    /// Takes what is left, and balances the books.
    fn balance(self) {
        while self.seal() || self.seal_contended() {}
        assert!(self.buffer.is_empty() && !self.buffer.contended_waiting());
        let Books { mut added, buffered, folded, known, sealed, .. } =
            self.books.into_inner().unwrap_or_else(PoisonError::into_inner);
        assert_eq!(buffered, sealed.len(), "as many likes as were buffered must be sealed");
        let with_others: usize = sealed.iter().map(|(_, receipts)| receipts.len() - 1).sum();
        assert_eq!(folded, with_others, "as many receipts as were folded must come with another like");
        let mut out: Vec<Like> = known.into_iter().chain(sealed.into_iter().flat_map(|(_, all)| all)).collect();
        let by_name = |a: &Like, b: &Like| (a.member(), a.order()).cmp(&(b.member(), b.order()));
        added.sort_by(by_name);
        out.sort_by(by_name);
        assert_eq!(out, added, "every receipt must come out once");
    }
}

/// Two adders of one member, and a lane.
pub(crate) fn twins_while_one_seals() {
    let scene = Scene::new(500, 0);
    thread::scope(|scope| {
        scope.spawn(|| scene.add(&[like("u", 1)]));
        scope.spawn(|| scene.add(&[like("u", 2)]));
        scene.seal();
    });
    scene.balance();
}

/// An adder of several likes that arrived together, whose likes join the line late, and a lane that seals twice.
pub(crate) fn likes_together_while_one_seals_twice() {
    let scene = Scene::new(500, 0);
    thread::scope(|scope| {
        scope.spawn(|| scene.add(&[like("u", 2), like("v", 1), like("u", 1)]));
        scope.spawn(|| scene.add(&[like("u", 3)]));
        scene.seal();
    });
    scene.balance();
}

/// A lane parts a like, which waits aside while its twin arrives; the lane of that place looks at any moment.
pub(crate) fn a_twin_while_one_is_set_aside() {
    let scene = Scene::new(500, 0);
    scene.add(&[like("u", 1)]);
    thread::scope(|scope| {
        scope.spawn(|| scene.add(&[like("u", 2)]));
        scope.spawn(|| scene.seal_contended());
        scene.seal_and_set_aside();
    });
    scene.balance();
}

/// A member is aside already: one lane puts its like there while another one takes what it finds, and a twin folds.
pub(crate) fn a_twin_while_two_lanes_meet_aside() {
    let scene = Scene::new(500, 0);
    scene.add(&[like("u", 1)]);
    scene.seal_and_set_aside();
    scene.add(&[like("u", 2), like("v", 1)]);
    thread::scope(|scope| {
        scope.spawn(|| scene.add(&[like("u", 3)]));
        scope.spawn(|| (0..2).for_each(|_| _ = scene.seal_contended()));
        scene.seal();
    });
    scene.balance();
}

/// Two lanes part a like each at once, and the lane of that place looks at any moment.
pub(crate) fn two_lanes_set_aside_at_once() {
    let scene = Scene::new(3, 0);
    scene.add(&[like("u", 1), like("v", 1)]);
    thread::scope(|scope| {
        scope.spawn(|| scene.seal_and_set_aside());
        scope.spawn(|| scene.seal_contended());
        scene.seal_and_set_aside();
    });
    scene.balance();
}

/// Two lanes share what one adder brings.
pub(crate) fn two_lanes_at_once() {
    let scene = Scene::new(3, 0);
    thread::scope(|scope| {
        scope.spawn(|| {
            scene.add(&[like("u", 1), like("v", 1)]);
            scene.add(&[like("u", 2)]);
        });
        scope.spawn(|| scene.seal());
        scene.seal();
    });
    scene.balance();
}

/// A like whose commit was answered is remembered while an older and a newer twin arrive.
pub(crate) fn twins_while_one_remembers() {
    let scene = Scene::new(500, 4);
    scene.add(&[like("u", 2)]);
    thread::scope(|scope| {
        scope.spawn(|| scene.add(&[like("u", 1), like("u", 3), like("u", 4)]));
        scene.seal_and_remember();
    });
    scene.balance();
}

/// Two lanes are answered in any order; what is remembered is the newer like.
pub(crate) fn two_lanes_remember() {
    let scene = Scene::new(500, 4);
    thread::scope(|scope| {
        for order in [1, 2] {
            let scene = &scene;
            scope.spawn(move || {
                scene.add(&[like("u", order)]);
                scene.seal_and_remember();
            });
        }
    });
    scene.seal_and_remember();
    let before = scene.books(|books| books.known.len());
    scene.add(&[like("u", 2), like("u", 1)]);
    let after = scene.books(|books| books.known.len());
    assert_eq!(after - before, 2, "the window went back to an older like");
    scene.balance();
}

/// More of everything than can be tried in every order.
pub(crate) fn a_crowd() {
    let scene = Scene::new(4, 4);
    thread::scope(|scope| {
        for adder in 0..3_i64 {
            let scene = &scene;
            scope.spawn(move || {
                scene.add(&[like("u", adder + 1), like("v", adder + 4), like("u", adder + 7)]);
                scene.add(&[like("w", adder + 1)]);
                scene.add(&[like("u", 10 - adder * 4)]);
            });
        }
        for _ in 0..2 {
            scope.spawn(|| (0..2).for_each(|_| scene.seal_and_remember()));
        }
        scope.spawn(|| scene.seal_and_set_aside());
        scope.spawn(|| (0..2).for_each(|_| _ = scene.seal_contended()));
    });
    scene.balance();
}
