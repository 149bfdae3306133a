//! Events in envelopes.

use super::*;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};

fn event() -> Value {
    json!({"eventId": "e1", "type": "like.added", "postId": "p", "userId": "ü~?>7", "occurredAt": "2026-12-01T00:00:00Z"})
}

fn push(data: &str) -> Value {
    json!({"message": {"data": STANDARD.encode(data), "messageId": "11", "message_id": "11",
        "publishTime": "2026-12-01T00:00:01Z", "attributes": {"origin": "app"}},
        "subscription": "projects/demo/subscriptions/likes", "deliveryAttempt": 3})
}

fn cloud_event(data: &Value) -> Value {
    json!({"specversion": "1.0", "id": "c1", "source": "/app", "type": "like.removed", "time": "2026-12-01T00:00:09Z",
        "data": data})
}

fn notification(message: &str) -> Value {
    json!({"Type": "Notification", "MessageId": "m1", "TopicArn": "arn:aws:sns:eu:1:likes", "Message": message,
        "Timestamp": "2026-12-01T00:00:02.000Z", "Signature": "x"})
}

fn shown(envelope: &Value) -> Result<String, String> {
    read(&envelope.to_string()).map(|like| format!("{like:?}"))
}

const PLAIN: &str = "+ p ü~?>7 @1796083200000000000 e1";

#[test]
fn what_is_in_an_envelope_is_decoded_as_ever() {
    let text = event().to_string();
    let mut base64 = cloud_event(&Value::Null);
    base64.as_object_mut().unwrap().remove("data");
    base64["data_base64"] = STANDARD.encode(&text).into();
    let mut url_safe = push("");
    url_safe["message"]["data"] = URL_SAFE_NO_PAD.encode(&text).into();
    let envelopes = [
        event(),
        cloud_event(&event()),
        cloud_event(&text.clone().into()),
        base64,
        push(&text),
        url_safe,
        notification(&text),
        cloud_event(&push(&text)),
        push(&cloud_event(&event()).to_string()),
        cloud_event(&push(&cloud_event(&event()).to_string())),
        notification(&push(&text).to_string()),
    ];
    for envelope in envelopes {
        assert_eq!(shown(&envelope).as_deref(), Ok(PLAIN), "{envelope}");
        let printed = serde_json::to_string_pretty(&envelope).unwrap();
        assert_eq!(read(&printed).map(|like| format!("{like:?}")).as_deref(), Ok(PLAIN), "{printed}");
    }
}

#[test]
fn a_cloud_event_says_what_its_data_leaves_out() {
    let bare = json!({"postId": "p", "userId": "u"});
    assert_eq!(shown(&cloud_event(&bare)).as_deref(), Ok("- p u @1796083209000000000 c1"));
    let named = json!({"eventId": "e9", "type": null, "postId": "p", "userId": "u"});
    assert_eq!(shown(&cloud_event(&named)).as_deref(), Ok("- p u @1796083209000000000 e9"));
    let ce = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let attributes = [
        ce("ce-specversion", "1.0"),
        ce("ce-id", "c2"),
        ce("ce-type", "like.added"),
        ce("ce-time", "2026-12-01T00:00:00Z"),
    ];
    let decoded = |payload: &str, attributes: &[(String, String)]| {
        decode_with(payload.as_bytes(), attributes, OrderPolicy::OccurredAt, noon())
            .map(|like| format!("{like:?}"))
            .map_err(|poison| poison.to_string())
    };
    assert_eq!(decoded(&bare.to_string(), &attributes).as_deref(), Ok("+ p u @1796083200000000000 c2"));
    assert_eq!(decoded(&event().to_string(), &attributes).as_deref(), Ok(PLAIN), "the data wins");
    assert!(decoded(&bare.to_string(), &attributes[1..]).unwrap_err().starts_with("eventId: missing"), "no mark");
    let mut pushed = push(&bare.to_string());
    pushed["message"]["attributes"] =
        attributes.iter().cloned().collect::<std::collections::BTreeMap<_, _>>().into_iter().collect();
    assert_eq!(shown(&pushed).as_deref(), Ok("+ p u @1796083200000000000 c2"));
    let version = decode(cloud_event(&bare).to_string().as_bytes(), OrderPolicy::Version, noon());
    assert_eq!(version.unwrap_err().field, "version", "a time is no version");
}

#[test]
fn the_headers_of_a_request_are_the_attributes_of_a_cloud_event() {
    let of =
        |headers: &[(&str, &str)]| attributes_of_headers(headers.iter().map(|(name, value)| (*name, value.as_bytes())));
    let headers =
        [("Ce-Specversion", "1.0"), ("content-type", "application/json"), ("ce-id", "%C3%BC%20%zz%+1%"), ("ce", "x")];
    let expected = [("ce-specversion", "1.0"), ("ce-id", "ü %zz%+1%")];
    assert_eq!(of(&headers), expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    assert_eq!(of(&headers[1..]), [], "no mark");
}

/// The id and the time of a broker's message change with every retry of the publisher.
#[test]
fn what_a_broker_says_of_its_message_is_no_part_of_the_event() {
    let bare = json!({"type": "like.added", "postId": "p", "userId": "u", "eventId": null}).to_string();
    for envelope in [push(&bare), notification(&bare), cloud_event(&push(&bare))] {
        assert!(shown(&envelope).unwrap_err().starts_with("eventId: missing"), "{envelope}");
    }
}

#[test]
fn an_event_with_a_field_of_an_envelope_is_an_event() {
    let mut with = event();
    with["data"] = json!({"eventId": "inner"});
    with["message"] = push("{}")["message"].clone();
    with["subscription"] = "projects/demo/subscriptions/likes".into();
    with["specversion"] = "1.0".into();
    with["Type"] = "Notification".into();
    with["Message"] = "{}".into();
    assert_eq!(shown(&with).as_deref(), Ok(PLAIN));
    with["userId"] = Value::Null;
    assert!(shown(&with).unwrap_err().starts_with("userId: missing"));
    for (field, value) in [("data", event()), ("message", push("{}")["message"].clone()), ("Message", "{}".into())] {
        assert!(shown(&json!({field: value})).unwrap_err().starts_with("eventId: missing"), "{field} alone is no mark");
    }
}

#[test]
fn a_reason_names_the_place_in_the_envelope() {
    let broken = json!({"eventId": "e", "type": "like.added", "postId": "p", "occurredAt": "2026-12-01T00:00:00Z"});
    let missing = "userId: missing, must be a string or an integer";
    let text = broken.to_string();
    let mut without_data = push("");
    without_data["message"] = json!({"messageId": "11"});
    let mut no_base64 = push("");
    no_base64["message"]["data"] = "%".into();
    let confirmation = json!({"Type": "SubscriptionConfirmation", "Message": "You have chosen", "SubscribeURL": "x"});
    for (envelope, reason) in [
        (cloud_event(&broken), format!("{missing} (in data of a CloudEvent)")),
        (push(&text), format!("{missing} (in message.data of a Pub/Sub push)")),
        (notification(&text), format!("{missing} (in Message of an SNS notification)")),
        (cloud_event(&push(&text)), format!("{missing} (in message.data of a Pub/Sub push) (in data of a CloudEvent)")),
        (without_data, "payload: missing (in message.data of a Pub/Sub push)".to_owned()),
        (no_base64, "payload: not Base64 (in message.data of a Pub/Sub push)".to_owned()),
        (json!({"specversion": "1.0", "id": "1"}), "payload: a CloudEvent without data".to_owned()),
        (confirmation, "payload: a confirmation of SNS, not an event: open its SubscribeURL yourself".to_owned()),
    ] {
        assert_eq!(shown(&envelope), Err(reason), "{envelope}");
    }
}

#[test]
fn envelopes_inside_each_other_end_somewhere() {
    let nested = |layers: usize| (0..layers).fold(event(), |inside, _| cloud_event(&inside));
    assert_eq!(shown(&nested(4)).as_deref(), Ok(PLAIN));
    assert!(shown(&nested(5)).unwrap_err().starts_with("payload: envelopes inside each other"));
    assert!(shown(&nested(60)).unwrap_err().len() < 1_000);
}

/// Whoever sends an envelope may write any time into it.
#[test]
fn the_publish_time_in_an_envelope_bounds_nothing() {
    let at = |at: &str, published: &str| {
        let mut event = event();
        event["occurredAt"] = at.into();
        let mut envelope = push(&event.to_string());
        envelope["message"]["publishTime"] = published.into();
        shown(&envelope)
    };
    assert!(at("2026-12-01T00:00:00Z", "2001-01-01T00:00:00Z").is_ok());
    assert!(at("2099-01-01T00:00:00Z", "2099-01-01T00:00:00Z").unwrap_err().contains("ten minutes"));
}

#[test]
fn what_is_around_an_event_is_what_its_broker_says() {
    let around = |envelope: &Value| outside(envelope.to_string().as_bytes());
    let pushed = Outside {
        message_id: Some("11".to_owned()),
        published_at: Some(UNIX_EPOCH + Duration::from_secs(1_796_083_201)),
        attempt: Some(3),
        attributes: vec![("origin".to_owned(), "app".to_owned())],
        data: b"rubbish".to_vec(),
    };
    assert_eq!(around(&push("rubbish")), Some(pushed.clone()));
    assert_eq!(around(&cloud_event(&push("rubbish"))), Some(pushed));
    assert_eq!(around(&notification("{}")).and_then(|outside| outside.message_id).as_deref(), Some("m1"));
    let mut huge = push("{}");
    huge["message"]["messageId"] = "1".repeat(1_000).into();
    huge["message"]["attributes"] = (0..300).map(|n| (format!("{n:03}"), Value::from("x".repeat(n * 10)))).collect();
    let huge = around(&huge).expect("a push");
    assert_eq!((huge.message_id, huge.attributes.len()), (None, 100), "a document of the quarantine has a limit");
    assert_eq!((around(&event()), around(&cloud_event(&event())), outside(b"\xff")), (None, None, None));
}

proptest! {
    #[test]
    fn a_nearly_right_envelope_is_a_like_or_poison_and_never_a_panic(
        which in 0..4_usize, at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>(),
    ) {
        let text = event().to_string();
        let envelope = [cloud_event(&event()), push(&text), notification(&text), cloud_event(&push(&text))][which].to_string();
        let mut bytes = envelope.clone().into_bytes();
        *at.get_mut(&mut bytes) = byte;
        let _ = (decode(&bytes, OrderPolicy::OccurredAt, noon()), outside(&bytes));
        bytes.truncate(cut.index(envelope.len()));
        let _ = (decode(&bytes, OrderPolicy::OccurredAt, noon()), outside(&bytes));
    }
}
