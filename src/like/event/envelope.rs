//! Envelopes: what brokers and clouds put around an event, told by their own marks.
//!
//! | envelope | marks | the event |
//! |---|---|---|
//! | CloudEvents, structured | `specversion` | `data`, or `data_base64` |
//! | CloudEvents, binary | attributes or headers `ce-specversion`, `ce-id`, … | the payload |
//! | a wrapped Pub/Sub push | `message` and `subscription` | `message.data`, in Base64 |
//! | an SNS notification | `Type`: `Notification`, and `Message` | `Message` |
//!
//! Only an object without `eventId`, `postId` and `userId` is looked at: an event that happens to have a field `data` or
//! `message` is an event.

use super::Poison;
use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::SystemTime;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Envelopes that are looked into for a message id.
const MAX_LAYERS: usize = 3;

/// Attributes that are taken out of an envelope, at most, and the longest of their names and values: Pub/Sub's limits.
/// Whoever sends one over HTTP keeps to none, and a document of the quarantine has a limit.
const MAX_ATTRIBUTES: usize = 100;
const MAX_NAME_BYTES: usize = 256;
const MAX_VALUE_BYTES: usize = 1_024;

/// What is around an event that a broker has delivered over HTTP, as its own client would have said it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outside {
    /// The broker's id of the message.
    pub message_id: Option<String>,
    /// When it was published.
    pub published_at: Option<SystemTime>,
    /// Which delivery attempt this is.
    pub attempt: Option<u32>,
    /// The attributes of the message.
    pub attributes: Vec<(String, String)>,
    /// What the message holds.
    pub data: Vec<u8>,
}

/// What a CloudEvent says beside its data.
#[derive(Default)]
pub(super) struct Defaults<'a> {
    pub(super) id: Option<Cow<'a, str>>,
    pub(super) kind: Option<Cow<'a, str>>,
    pub(super) time: Option<Cow<'a, str>>,
}

impl<'a> Defaults<'a> {
    /// Of a CloudEvent in binary mode. Other attributes mean nothing here.
    pub(super) fn in_attributes(attributes: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let mut defaults = Self::default();
        let mut is_cloud_event = false;
        for (name, value) in attributes {
            match name {
                "ce-specversion" => is_cloud_event = true,
                "ce-id" => defaults.id = Some(value.into()),
                "ce-type" => defaults.kind = Some(value.into()),
                "ce-time" => defaults.time = Some(value.into()),
                _ => {}
            }
        }
        if is_cloud_event { defaults } else { Self::default() }
    }
}

/// The attributes of a CloudEvent in binary mode, from the headers of a request, for [`decode_with`](super::decode_with);
/// none where `ce-specversion` is missing. Values are percent-encoded.
pub fn attributes_of_headers<'a>(headers: impl Iterator<Item = (&'a str, &'a [u8])>) -> Vec<(String, String)> {
    let ours = headers.filter(|(name, value)| {
        name.len() <= MAX_NAME_BYTES
            && value.len() <= MAX_VALUE_BYTES
            && name.get(..3).is_some_and(|start| start.eq_ignore_ascii_case("ce-"))
    });
    let decoded = ours.take(MAX_ATTRIBUTES).map(|(name, value)| (name.to_ascii_lowercase(), percent_decoded(value)));
    let attributes: Vec<_> = decoded.collect();
    if attributes.iter().any(|(name, _)| name == "ce-specversion") { attributes } else { Vec::new() }
}

fn percent_decoded(value: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value;
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..2).filter(|_| first == b'%').and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.filter(|digits| !digits.starts_with('+')).and_then(|d| u8::from_str_radix(d, 16).ok());
        bytes.push(byte.unwrap_or(first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// An envelope that was opened.
pub(super) struct Envelope<'a> {
    pub(super) inside: Cow<'a, [u8]>,
    /// Where the event stands in it, for a reason.
    pub(super) place: &'static str,
    pub(super) defaults: Defaults<'a>,
    pub(super) outside: Outside,
}

/// Every field that is a mark or is needed, whatever it is.
#[derive(Deserialize)]
struct Marks<'a> {
    #[serde(borrow)]
    specversion: Option<&'a RawValue>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow, rename = "type")]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    time: Option<&'a RawValue>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    #[serde(borrow)]
    data_base64: Option<&'a RawValue>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    #[serde(borrow)]
    subscription: Option<&'a RawValue>,
    #[serde(borrow, rename = "deliveryAttempt")]
    delivery_attempt: Option<&'a RawValue>,
    #[serde(borrow, rename = "Type")]
    sns_type: Option<&'a RawValue>,
    #[serde(borrow, rename = "Message")]
    sns_message: Option<&'a RawValue>,
    #[serde(borrow, rename = "MessageId")]
    sns_message_id: Option<&'a RawValue>,
    #[serde(borrow, rename = "Timestamp")]
    sns_timestamp: Option<&'a RawValue>,
}

/// `message` of a push.
#[derive(Deserialize)]
struct Pushed<'a> {
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    #[serde(borrow, rename = "messageId")]
    message_id: Option<&'a RawValue>,
    #[serde(borrow, rename = "publishTime")]
    publish_time: Option<&'a RawValue>,
    #[serde(borrow)]
    attributes: Option<&'a RawValue>,
}

/// Opens an envelope; `None` where the marks of one are missing.
pub(super) fn open(text: &str) -> Option<Result<Envelope<'_>, Poison>> {
    let marks: Marks<'_> = serde_json::from_str(text).ok()?;
    if string(marks.specversion).is_some() {
        return Some(cloud_event(&marks));
    }
    if let (Some(message), Some(_)) = (marks.message, string(marks.subscription)) {
        let message = serde_json::from_str(message.get()).ok()?;
        return Some(push(&message, marks.delivery_attempt));
    }
    match (string(marks.sns_type)?.as_ref(), string(marks.sns_message)?) {
        ("Notification", message) => Some(Ok(Envelope {
            inside: bytes(message),
            place: "Message of an SNS notification",
            defaults: Defaults::default(),
            outside: Outside {
                message_id: message_id(marks.sns_message_id),
                published_at: time(marks.sns_timestamp),
                ..Outside::default()
            },
        })),
        ("SubscriptionConfirmation" | "UnsubscribeConfirmation", _) => {
            Some(Err(Poison::new("payload", "a confirmation of SNS, not an event: open its SubscribeURL yourself")))
        }
        _ => None,
    }
}

fn cloud_event<'a>(marks: &Marks<'a>) -> Result<Envelope<'a>, Poison> {
    let (inside, place) = match (marks.data_base64, marks.data) {
        (Some(_), _) => {
            let text = string(marks.data_base64);
            (text.as_deref().and_then(unbase64).map(Cow::Owned), "data_base64 of a CloudEvent")
        }
        (None, Some(data)) => {
            // Data that is not JSON stands as a string, and some write JSON as one too.
            let inside = string(Some(data)).map_or(Cow::Borrowed(data.get().as_bytes()), bytes);
            (Some(inside), "data of a CloudEvent")
        }
        (None, None) => return Err(Poison::new("payload", "a CloudEvent without data")),
    };
    let inside = inside.ok_or_else(|| Poison::new("payload", "not Base64").within(place))?;
    let defaults = Defaults { id: string(marks.id), kind: string(marks.kind), time: string(marks.time) };
    Ok(Envelope { inside, place, defaults, outside: Outside::default() })
}

fn push<'a>(message: &Pushed<'a>, attempt: Option<&RawValue>) -> Result<Envelope<'a>, Poison> {
    let place = "message.data of a Pub/Sub push";
    let data = string(message.data).ok_or_else(|| Poison::new("payload", "missing").within(place))?;
    let inside = unbase64(&data).ok_or_else(|| Poison::new("payload", "not Base64").within(place))?;
    let attributes = attributes(message.attributes);
    let named = |name: &str| {
        let found =
            attributes.iter().find(|(key, _)| key == name && attributes.iter().any(|(key, _)| key == "ce-specversion"));
        found.map(|(_, value)| Cow::Owned(value.clone()))
    };
    let defaults = Defaults { id: named("ce-id"), kind: named("ce-type"), time: named("ce-time") };
    let outside = Outside {
        message_id: message_id(message.message_id),
        published_at: time(message.publish_time),
        attempt: attempt.and_then(|attempt| serde_json::from_str(attempt.get()).ok()),
        attributes,
        data: Vec::new(),
    };
    Ok(Envelope { inside: inside.into(), place, defaults, outside })
}

/// What is around the event in `payload`, if something is: the innermost message of a broker.
#[must_use]
pub fn outside(payload: &[u8]) -> Option<Outside> {
    let mut inside = Cow::Borrowed(payload);
    let mut found = None;
    for _ in 0..MAX_LAYERS {
        let opened = std::str::from_utf8(&inside).ok().and_then(open);
        let Some(Ok(envelope)) = opened else { break };
        let (outside, next) = (envelope.outside, envelope.inside.into_owned());
        if outside != Outside::default() {
            found = Some(Outside { data: next.clone(), ..outside });
        }
        inside = Cow::Owned(next);
    }
    found
}

fn string(value: Option<&RawValue>) -> Option<Cow<'_, str>> {
    let text = value?.get();
    let inside = text.strip_prefix('"')?.strip_suffix('"')?;
    if !inside.contains('\\') {
        return Some(Cow::Borrowed(inside));
    }
    serde_json::from_str(text).ok().map(Cow::Owned)
}

fn message_id(value: Option<&RawValue>) -> Option<String> {
    string(value).filter(|id| !id.is_empty() && id.len() <= MAX_NAME_BYTES).map(Cow::into_owned)
}

fn bytes(text: Cow<'_, str>) -> Cow<'_, [u8]> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}

fn time(value: Option<&RawValue>) -> Option<SystemTime> {
    string(value).and_then(|text| OffsetDateTime::parse(&text, &Rfc3339).ok()).map(SystemTime::from)
}

fn attributes(value: Option<&RawValue>) -> Vec<(String, String)> {
    let all: BTreeMap<String, serde_json::Value> =
        value.and_then(|value| serde_json::from_str(value.get()).ok()).unwrap_or_default();
    let texts = all.into_iter().filter_map(|(name, value)| Some((name, value.as_str()?.to_owned())));
    let short = texts.filter(|(name, value)| name.len() <= MAX_NAME_BYTES && value.len() <= MAX_VALUE_BYTES);
    short.take(MAX_ATTRIBUTES).collect()
}

/// Base64 as protobuf's JSON may have it: either alphabet, padded or not.
fn unbase64(text: &str) -> Option<Vec<u8>> {
    const CONFIG: GeneralPurposeConfig =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, CONFIG);
    const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, CONFIG);
    let engine = if text.contains(['-', '_']) { URL_SAFE } else { STANDARD };
    engine.decode(text).ok()
}
