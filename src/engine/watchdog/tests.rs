use super::*;

fn looks(watchdog: &mut Watchdog, heartbeats: &Heartbeats, buffer: Buffer, many: u32) -> Vec<Finding> {
    (0..many).map(|_| watchdog.look(heartbeats, buffer)).last().unwrap_or_default()
}

const QUIET: Buffer = Buffer { waits: false, overdue: false };

#[test]
fn a_step_that_does_not_end_is_a_finding_and_then_a_standstill() {
    let (heartbeats, mut watchdog) = (Heartbeats::default(), Watchdog::default());
    let lane = heartbeats.add(Name::Lane(2));
    lane.working("waits for the store to answer");
    assert_eq!(looks(&mut watchdog, &heartbeats, QUIET, FINDING_AFTER), []);
    let found = watchdog.look(&heartbeats, QUIET);
    assert_eq!(found[0].to_string(), "lane 2 waits for the store to answer, for 35 s");
    assert!(!found[0].is_standstill());
    assert!(looks(&mut watchdog, &heartbeats, QUIET, STANDSTILL_AFTER)[0].is_standstill());
    lane.idle();
    assert_eq!(watchdog.look(&heartbeats, QUIET), []);
}

#[test]
fn many_short_steps_are_no_finding() {
    let (heartbeats, mut watchdog) = (Heartbeats::default(), Watchdog::default());
    let lane = heartbeats.add(Name::Lane(0));
    for _ in 0..3 * STANDSTILL_AFTER {
        lane.working("waits for the store to answer");
        assert_eq!(watchdog.look(&heartbeats, QUIET), []);
    }
}

#[test]
fn rest_is_no_finding_however_long() {
    let (heartbeats, mut watchdog) = (Heartbeats::default(), Watchdog::default());
    heartbeats.add(Name::Lane(0));
    heartbeats.add(Name::Stream(0)).is_open();
    assert_eq!(looks(&mut watchdog, &heartbeats, QUIET, 2 * STANDSTILL_AFTER), []);
}

#[test]
fn likes_that_no_idle_lane_takes_are_a_finding() {
    let (heartbeats, mut watchdog) = (Heartbeats::default(), Watchdog::default());
    let lane = heartbeats.add(Name::Lane(0));
    let overdue = Buffer { waits: true, overdue: true };
    assert_eq!(looks(&mut watchdog, &heartbeats, overdue, FINDING_AFTER).len(), 1);
    lane.working("waits for the store to answer");
    assert_eq!(looks(&mut watchdog, &heartbeats, overdue, FINDING_AFTER), [], "the lane is busy");
}

#[test]
fn room_that_nobody_gives_back_is_a_finding() {
    let (heartbeats, mut watchdog) = (Heartbeats::default(), Watchdog::default());
    let lane = heartbeats.add(Name::Lane(0));
    heartbeats.add(Name::Stream(0)).waits_for_room();
    lane.working("waits for the store to answer");
    assert_eq!(watchdog.look(&heartbeats, QUIET), [], "the lane will make room");
    lane.idle();
    assert_eq!(looks(&mut watchdog, &heartbeats, QUIET, FINDING_AFTER).len(), 1);
    assert_eq!(watchdog.look(&heartbeats, Buffer { waits: true, overdue: false }), [], "a batch will");
}

#[test]
fn a_stream_that_fails_again_and_again_is_a_finding_though_each_opening_succeeds() {
    let (heartbeats, mut watchdog) = (Heartbeats::default(), Watchdog::default());
    let stream = heartbeats.add(Name::Stream(3));
    let mut found = Vec::new();
    for _ in 0..FINDING_AFTER {
        stream.is_down("no route".to_owned());
        stream.is_open();
        found = watchdog.look(&heartbeats, QUIET);
    }
    assert_eq!(found[0].what, "stream 3 is not open: no route");
    stream.is_down("no route".to_owned());
    let found = looks(&mut watchdog, &heartbeats, QUIET, 2 * STANDSTILL_AFTER);
    assert!(!found[0].is_standstill(), "the broker may be back at any time");
    stream.is_open();
    watchdog.look(&heartbeats, QUIET);
    assert_eq!(watchdog.look(&heartbeats, QUIET), [], "open, and no failure since");
}

#[test]
fn no_stream_is_open_only_when_each_of_them_is_down() {
    let heartbeats = Heartbeats::default();
    let streams = [heartbeats.add(Name::Stream(0)), heartbeats.add(Name::Stream(1))];
    assert_eq!(heartbeats.all_streams_down(), None);
    streams.iter().for_each(|stream| stream.is_down("no route".to_owned()));
    assert_eq!(heartbeats.all_streams_down().as_deref(), Some("no route"));
    streams[1].is_open();
    assert_eq!(heartbeats.all_streams_down(), None);
}
