//! What the embedded store finds on its disk. Checksums keep most damage away; what comes through is either read as it was
//! written, or called damaged.

#[allow(dead_code, reason = "the store uses all of it")]
#[path = "../../src/store/embedded/frame.rs"]
mod frame;
#[allow(dead_code, reason = "the store uses all of it")]
#[path = "../../src/store/embedded/layout.rs"]
mod layout;
#[allow(dead_code, reason = "the store uses all of it")]
#[path = "../../src/store/embedded/poison.rs"]
mod poison;

use super::dice::Dice;
use frame::{FRAME_HEAD, Operation, Tree};
use layout::kind;

/// The salt of the store whose log is read.
const SALT: u64 = 7;

/// The same bytes as everything that they could be.
pub fn disk(data: &[u8]) {
    keys(data);
    values(data);
    frames(data);
    operations(data);
    damaged_log(data);
    poison(data);
}

/// A key that names a post is the key of that post and no other.
fn keys(data: &[u8]) {
    if let Ok(length) = layout::prefix_len(data) {
        let (prefix, rest) = data.split_at(length);
        if let Ok(post) = layout::text_of(prefix) {
            assert_eq!(layout::prefix(data[0], &post), prefix, "{post:?}");
            assert!(rest.first() == Some(&0xFF) || data < layout::after_prefix(prefix.to_vec()).as_slice());
            if let Ok(user) = std::str::from_utf8(rest)
                && data[0] == kind::MEMBER
            {
                assert_eq!(layout::member_key(&post, user), data);
            }
        }
    }
    if data.first() == Some(&kind::EXPIRY)
        && let Ok((at_s, key)) = layout::expiry_of(data)
    {
        assert_eq!(layout::expiry_key(at_s, key), data);
    }
    let _ = layout::shard_of(data);
}

/// A value that is read is written with the same bytes, what a newer version added included.
fn values(data: &[u8]) {
    if let Ok((membership, added)) = layout::read_membership(data) {
        assert_eq!(layout::write_membership(membership, added), data);
    }
    if let Ok((numbers, added)) = layout::read_numbers::<3>(data, "three") {
        assert_eq!(layout::write_numbers(&numbers, added), data);
    }
    if let Ok(settings) = layout::read_settings(data) {
        assert_eq!(layout::read_settings(&layout::write_settings(&settings)), Ok(settings));
    }
}

/// Whole frames lie one behind the other; what is no frame is passed over.
fn frames(data: &[u8]) {
    let (mut at, mut after) = (0, 0);
    while let Some((place, frame)) = frame::next_frame(data, at, SALT, after) {
        assert!(place >= at && frame.number > after && frame.durable < frame.number);
        assert_eq!(frame.bytes(), FRAME_HEAD + frame.payload.len());
        (at, after) = (place + frame.bytes(), frame.number);
        assert!(at <= data.len());
    }
}

/// Operations that are read are written with the same bytes.
fn operations(data: &[u8]) {
    let Ok(read) = frame::operations(data).collect::<Result<Vec<_>, _>>() else { return };
    let mut again = Vec::new();
    read.iter().for_each(|operation| frame::push_operation(&mut again, *operation));
    assert_eq!(again, data);
}

/// Frames that are written come back; after one changed byte all come back but one.
fn damaged_log(data: &[u8]) {
    let mut dice = Dice(data);
    let place = usize::from(dice.byte()) << 8 | usize::from(dice.byte());
    let (mut log, mut payloads) = (Vec::new(), Vec::new());
    while !dice.is_empty() && payloads.len() < 20 {
        let tree = if dice.byte() & 1 == 0 { Tree::Rows } else { Tree::Quarantine };
        let (key, value) = (dice.some(), dice.some());
        let at = frame::begin(&mut log);
        frame::push_operation(&mut log, Operation { tree, key, value: (!value.is_empty()).then_some(value) });
        payloads.push(log[at + FRAME_HEAD..].to_vec());
        let number = payloads.len() as u64;
        frame::finish(&mut log, at, SALT, number, number - 1);
    }
    let count = |log: &[u8]| {
        let (mut at, mut whole) = (0, 0);
        while let Some((place, frame)) = frame::next_frame(log, at, SALT, 0) {
            assert_eq!(frame.payload, payloads[frame.number as usize - 1]);
            at = place + frame.bytes();
            whole += 1;
        }
        whole
    };
    assert_eq!(count(&log), payloads.len());
    if !log.is_empty() {
        let place = place % log.len();
        log[place] ^= 1 << (data.len() % 8);
        assert_eq!(count(&log), payloads.len() - 1);
    }
}

/// A quarantine entry that is read is written with the same meaning.
fn poison(data: &[u8]) {
    let Ok(entry) = poison::read(b"id", data) else { return };
    let (key, row) = poison::row("consumer", &entry).expect("it has an equal in JSON");
    assert_eq!(key, poison::key("consumer", "id"));
    let again = poison::read(b"id", &row).expect("what was written is read");
    assert_eq!(format!("{again:?}"), format!("{entry:?}"));
}
