//! Loads: what a plan expects, against a naive count of what it generates and against what a worker counts.

use hotcount::engine::pipeline;
use hotcount::engine::progress::Progress;
use hotcount::lab::load::drive::{Config as Drive, Ended, Watch, drive};
use hotcount::lab::load::{Config, ConfigError, Expectation, Faults, Kind, Plan, Shape};
use hotcount::like::event::{Like, OrderPolicy, decode};
use hotcount::like::membership::{Decision, decide};
use hotcount::read::reader;
use hotcount::source;
use hotcount::store::memory::Memory;
use hotcount::store::{Depth, Listing, Store};
use proptest::prelude::*;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
#[cfg(feature = "http")]
use std::time::Duration;
use std::time::SystemTime;
use tokio_util::sync::CancellationToken;

/// A little of every fault.
fn faults() -> Faults {
    Faults {
        redelivered: 0.2,
        retried: 0.1,
        double_clicked: 0.1,
        late: 0.05,
        shuffled: 0.5,
        poison: 0.02,
        oversized: 0.002,
    }
}

fn plan(change: impl FnOnce(&mut Config)) -> Plan {
    let mut config =
        Config { messages: 20_000, posts: 50, users: 700, unlikes: 0.2, faults: faults(), ..Config::default() };
    change(&mut config);
    Plan::new(config).expect("can be")
}

/// Counts a plan's messages one by one, as a worker would, and remembers everything.
struct Naive {
    counts: BTreeMap<String, i64>,
    members: HashMap<(String, String), Like>,
    poison: u64,
}

impl Naive {
    fn of(plan: &Plan, policy: OrderPolicy) -> Self {
        let mut naive = Self { counts: BTreeMap::new(), members: HashMap::new(), poison: 0 };
        let mut generator = plan.generate();
        let mut bytes = Vec::new();
        let seen_at = SystemTime::now();
        while let Some(message) = generator.write_next(&mut bytes) {
            let decoded = decode(&bytes, policy, seen_at);
            assert_eq!(decoded.is_err(), message.kind.is_poison(), "{message:?}");
            match decoded {
                Ok(like) => {
                    assert_eq!(message.post.map(|post| format!("post-{post}")).as_deref(), Some(like.post()));
                    naive.count(&like);
                }
                Err(_) => {
                    assert_eq!(message.post, None);
                    naive.poison += 1;
                }
            }
            bytes.clear();
        }
        naive
    }

    fn count(&mut self, like: &Like) {
        let member = (like.post().to_owned(), like.user().to_owned());
        let stored = self.members.get(&member);
        let count = self.counts.entry(like.post().to_owned()).or_default();
        if let Decision::Write { delta } = decide(stored.map(Like::membership), like) {
            *count += i64::from(delta);
            self.members.insert(member, like.clone());
        }
    }

    fn agrees_with(&self, expected: &Expectation) {
        let counts: BTreeMap<_, _> = expected.posts().map(|(post, n)| (post, i64::try_from(n).unwrap())).collect();
        assert_eq!(counts, self.counts);
        assert_eq!(expected.members(), self.members.len() as u64);
        assert_eq!(expected.liked(), self.members.values().filter(|like| like.liked()).count() as u64);
        assert_eq!(expected.totals().quarantined(), self.poison);
    }
}

fn any_shape() -> impl Strategy<Value = Shape> {
    prop_oneof![
        (0.0..=1.0).prop_map(|share| Shape::Viral { share }),
        (0.0..3.0).prop_map(|exponent| Shape::Zipf { exponent }),
        Just(Shape::Uniform),
        (0.0..=1.0).prop_map(|share| Shape::Flash { share }),
        Just(Shape::Toggle),
        (0.0..=1.0).prop_map(|share| Shape::Replay { share }),
    ]
}

prop_compose! {
    fn any_faults()(of_messages in prop::array::uniform5(0.0..0.25_f64), late in 0.0..=1.0, shuffled in 0.0..=1.0) -> Faults {
        // At most half of the sum is taken, so that what is left are likes.
        let [redelivered, retried, double_clicked, poison, oversized] = of_messages.map(|share| share * 0.6);
        Faults { redelivered, retried, double_clicked, late, shuffled, poison, oversized: oversized / 10.0 }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]
    #[test]
    fn every_shape_with_every_mix_of_faults_counts_what_its_plan_expects(
        shape in any_shape(),
        faults in any_faults(),
        messages in 1..1_500_u64,
        posts in 1..40_u64,
        users in 1..300_u64,
        unlikes in 0.0..=1.0,
        seed in any::<u64>(),
    ) {
        let config = Config { shape, faults, messages, posts, users, unlikes, oversized_bytes: 2_000, seed, ..Config::default() };
        let plan = Plan::new(config).expect("can be");
        let expected = plan.expect();
        for policy in [OrderPolicy::OccurredAt, OrderPolicy::Version] {
            Naive::of(&plan, policy).agrees_with(&expected);
        }
        let totals = expected.totals();
        prop_assert_eq!(totals.messages, plan.messages());
        prop_assert_eq!(
            totals.first + totals.redelivered + totals.retried + totals.double_clicked + totals.quarantined(),
            totals.messages
        );
    }
}

#[test]
fn without_an_order_a_plan_that_unlikes_nothing_counts_what_it_expects() {
    let plan = plan(|config| config.unlikes = 0.0);
    Naive::of(&plan, OrderPolicy::None).agrees_with(&plan.expect());
}

#[test]
fn a_redelivery_is_the_same_message_a_retry_the_same_event_and_a_double_click_the_same_wish() {
    let plan = plan(|_| ());
    let mut generator = plan.generate();
    let (mut messages, mut events, mut wishes) = (HashMap::new(), HashSet::new(), HashSet::new());
    let mut repeated = 0;
    loop {
        let mut bytes = Vec::new();
        let Some(message) = generator.write_next(&mut bytes) else { break };
        if message.kind.is_poison() {
            assert_eq!(messages.insert(message.number, bytes), None, "poison has a number of its own");
            continue;
        }
        let like = decode(&bytes, OrderPolicy::Version, SystemTime::now()).expect("an event");
        let wish = (like.post().to_owned(), like.user().to_owned(), like.liked());
        let same_message = messages.insert(message.number, bytes.clone());
        let same_event = !events.insert(like.event_id().to_owned());
        match message.kind {
            Kind::First => assert_eq!((same_message, same_event), (None, false)),
            Kind::Redelivered => assert_eq!(same_message, Some(bytes)),
            Kind::Retried => assert_eq!((same_message, same_event), (None, true)),
            _ => {
                assert_eq!((same_message, same_event), (None, false));
                assert!(wishes.contains(&wish), "{like:?}");
            }
        }
        repeated += u64::from(message.kind != Kind::First);
        wishes.insert(wish);
    }
    let totals = plan.expect().totals();
    assert_eq!(repeated, totals.redelivered + totals.retried + totals.double_clicked);
    assert!(repeated > 7_000, "{repeated}");
}

#[test]
fn a_seed_writes_the_same_bytes_again_and_another_seed_writes_others() {
    let bytes = |plan: &Plan| {
        let (mut generator, mut bytes) = (plan.generate(), Vec::new());
        while generator.write_next(&mut bytes).is_some() {
            bytes.push(b'\n');
        }
        bytes
    };
    let first = bytes(&plan(|_| ()));
    assert_eq!(first, bytes(&plan(|_| ())));
    assert_ne!(first, bytes(&plan(|config| config.seed = 2)));
    // An old day again is the same day, byte by byte, twice.
    let share = 0.5;
    let twice = bytes(&plan(|config| config.shape = Shape::Replay { share }));
    assert!(twice == [&first[..], &first[..]].concat(), "the second pass differs from the first");
    let (once, twice) = (plan(|_| ()).expect(), plan(|config| config.shape = Shape::Replay { share }).expect());
    assert!(once.posts().eq(twice.posts()));
    assert_eq!((once.members(), once.totals().messages * 2), (twice.members(), twice.totals().messages));
}

#[test]
fn a_toggle_storm_leaves_stale_likes_and_counts_that_are_not_trivial() {
    let plan = plan(|config| config.shape = Shape::Toggle);
    let expected = plan.expect();
    assert_eq!(expected.members(), 700, "a user toggles one post");
    assert!((1..700).contains(&expected.liked()), "{}", expected.liked());
}

#[test]
fn a_load_that_cannot_be_is_refused_with_a_sentence() {
    let refused = |change: &dyn Fn(&mut Config)| {
        let mut config = Config::default();
        change(&mut config);
        Plan::new(config).expect_err("cannot be").to_string()
    };
    type Change<'a> = &'a dyn Fn(&mut Config);
    let cases: [(Change<'_>, &str); 12] = [
        (&|c| c.messages = 0, "0 messages cannot be: use 1 to"),
        (&|c| c.posts = 0, "0 posts cannot be"),
        (&|c| c.posts = u64::MAX, "posts cannot be"),
        (&|c| c.users = 0, "0 users cannot be"),
        (&|c| c.shape = Shape::Viral { share: 1.5 }, "'of the shape' is 1.5"),
        (&|c| c.shape = Shape::Zipf { exponent: f64::NAN }, "exponent of zipf is NaN"),
        (&|c| c.faults.redelivered = -0.1, "'redelivered' is -0.1"),
        (&|c| c.faults.late = f64::NAN, "'late' is NaN"),
        (&|c| c.unlikes = 2.0, "'unlikes' is 2"),
        (&|c| c.faults = Faults { redelivered: 0.6, poison: 0.6, ..Faults::default() }, "1.2 together: at most 1"),
        (&|c| c.oversized_bytes = 10, "oversized payload of 10 bytes"),
        (&|c| c.post_prefix = "a/".to_owned(), "post prefix 'a/'"),
    ];
    for (change, sentence) in cases {
        let refusal = refused(change);
        assert!(refusal.contains(sentence), "{refusal}");
    }
    assert_eq!("zipf:1.2".parse(), Ok(Shape::Zipf { exponent: 1.2 }));
    assert_eq!("viral".parse(), Ok(Shape::Viral { share: 0.5 }));
    for text in ["virral", "viral:", "zipf:x", "uniform:1", ""] {
        assert_eq!(text.parse::<Shape>(), Err(ConfigError::UnknownShape(text.to_owned())));
    }
}

/// Compares a store with what a plan expects, post by post, and with its members.
async fn store_agrees(store: Arc<dyn Store>, expected: &Expectation) {
    let mut posts = 0;
    for (post, count) in expected.posts() {
        let tally = reader::tally(&*store, &post, Depth::ShardsAndMembers).await.expect("memory can be read");
        assert_eq!((tally.count, tally.members), (i64::try_from(count).unwrap(), Some(count)), "{post}");
        posts += u64::from(count > 0);
    }
    let listed: Vec<_> =
        futures::TryStreamExt::try_collect(reader::posts(store, Listing::Members)).await.expect("memory can be read");
    assert_eq!(listed.len() as u64, posts, "no post that nobody expects");
}

#[tokio::test]
async fn a_file_is_replayed_into_a_store_that_counts_what_the_plan_expects() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let plan = plan(|_| ());
    let target = hotcount::lab::load::target::connect(file.path().to_str().expect("UTF-8")).await.expect("a file");
    let watch = Watch::default();
    let ended = drive(&plan, &*target, &Drive::default(), &CancellationToken::new(), &watch).await;
    assert_eq!((ended, watch.accepted()), (Ended::Complete, plan.messages()));

    let source = Arc::new(source::jsonl::Jsonl::file(file.path()).await.expect("the file"));
    let (store, progress) = (Arc::new(Memory::default()), Arc::new(Progress::default()));
    let config = pipeline::Config::default();
    let report = pipeline::run(source, store.clone(), config, std::future::pending(), progress).await.expect("works");
    let expected = plan.expect();
    assert_eq!(report.counted.received, expected.totals().messages);
    assert_eq!(report.counted.poison, expected.totals().quarantined());
    store_agrees(store, &expected).await;
}

#[cfg(feature = "http")]
#[tokio::test]
async fn a_worker_on_http_counts_what_the_plan_expects() {
    let source = Arc::new(source::http::Http::new(Duration::from_secs(30)));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let config = pipeline::Config::default();
    let held = config.held();
    let routes = source.routes(&held);
    let mut face = tokio::task::JoinSet::new();
    face.spawn(async move { axum::serve(listener, routes).await });
    let (store, progress, shutdown) =
        (Arc::new(Memory::default()), Arc::new(Progress::default()), CancellationToken::new());
    let engine = pipeline::run_beside(
        held,
        source,
        store.clone(),
        config,
        shutdown.clone().cancelled_owned(),
        Arc::clone(&progress),
    );
    let engine = tokio::spawn(engine);

    let plan = plan(|config| config.messages = 5_000);
    let expected = plan.expect();
    let target = hotcount::lab::load::target::connect(&url).await.expect("a target");
    let watch = Watch::default();
    let ended = drive(&plan, &*target, &Drive::default(), &CancellationToken::new(), &watch).await;
    assert_eq!(ended, Ended::Complete, "{:?}", watch.trouble());
    assert_eq!((watch.accepted(), watch.poison()), (plan.messages(), expected.totals().quarantined()));
    assert_eq!(watch.latency().len(), plan.messages());
    // Accepted means durable: nothing has to be waited for.
    store_agrees(store, &expected).await;
    shutdown.cancel();
    assert_eq!(engine.await.expect("no panic").expect("works").counted.left, 0);
}

#[cfg(feature = "http")]
#[tokio::test]
async fn a_worker_that_is_not_there_is_given_up_with_a_sentence() {
    // Bound and dropped: nobody listens there.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    drop(listener);
    let target = hotcount::lab::load::target::connect(&url).await.expect("not asked yet");
    let config = Drive { give_up_after: Duration::from_millis(200), ..Drive::default() };
    let watch = Watch::default();
    let ended = drive(&plan(|_| ()), &*target, &config, &CancellationToken::new(), &watch).await;
    let Ended::GaveUp(why) = ended else { panic!("{ended:?}") };
    assert!(why.contains("is it running, with --source http: and --http?"), "{why}");
    assert_eq!(watch.accepted(), 0);
}
