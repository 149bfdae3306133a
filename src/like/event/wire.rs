//! The event as it stands in JSON, before anything is known about it but that it is an object.

use super::OrderPolicy;
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;

/// The fields of an event, each whatever it is. Written by hand because a derived struct also reads a JSON array.
#[derive(Default)]
pub(super) struct Wire<'a> {
    pub(super) event_id: Scalar<'a>,
    pub(super) kind: Scalar<'a>,
    pub(super) post_id: Scalar<'a>,
    pub(super) user_id: Scalar<'a>,
    /// `occurredAt` or `version`, as the policy says.
    pub(super) order: Scalar<'a>,
}

impl<'a> Wire<'a> {
    /// Reads an object. A field that holds the order of another policy is not looked at.
    pub(super) fn read(text: &'a str, policy: OrderPolicy) -> Result<Self, serde_json::Error> {
        let mut json = serde_json::Deserializer::from_str(text);
        let wire = (&mut json).deserialize_map(WireVisitor(policy))?;
        json.end()?;
        Ok(wire)
    }
}

struct WireVisitor(OrderPolicy);

impl<'de> Visitor<'de> for WireVisitor {
    type Value = Wire<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Wire<'de>, A::Error> {
        let mut wire = Wire::default();
        while let Some(field) = map.next_key::<Field>()? {
            let (slot, name) = match (field, self.0) {
                (Field::EventId, _) => (&mut wire.event_id, "eventId"),
                (Field::Type, _) => (&mut wire.kind, "type"),
                (Field::PostId, _) => (&mut wire.post_id, "postId"),
                (Field::UserId, _) => (&mut wire.user_id, "userId"),
                (Field::OccurredAt, OrderPolicy::OccurredAt) => (&mut wire.order, "occurredAt"),
                (Field::Version, OrderPolicy::Version) => (&mut wire.order, "version"),
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            if !matches!(slot, Scalar::Absent) {
                return Err(A::Error::duplicate_field(name));
            }
            *slot = map.next_value()?;
        }
        Ok(wire)
    }
}

enum Field {
    EventId,
    Type,
    PostId,
    UserId,
    OccurredAt,
    Version,
    Unknown,
}

impl<'de> Deserialize<'de> for Field {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_identifier(FieldVisitor)
    }
}

struct FieldVisitor;

impl Visitor<'_> for FieldVisitor {
    type Value = Field;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Field, E> {
        Ok(match name {
            "eventId" => Field::EventId,
            "type" => Field::Type,
            "postId" => Field::PostId,
            "userId" => Field::UserId,
            "occurredAt" => Field::OccurredAt,
            "version" => Field::Version,
            _ => Field::Unknown,
        })
    }
}

/// A JSON value as far as a field needs it: text, an integer, or the name of what it is instead.
///
/// Borrowed from the payload wherever the text has no escapes. A value of the wrong kind is read all the same, so that
/// the reason can name the field.
#[derive(Default)]
pub(super) enum Scalar<'a> {
    #[default]
    Absent,
    /// Absent too, but two of them are still a field that came twice.
    Null,
    Text(Cow<'a, str>),
    Integer(i64),
    /// Above `i64::MAX`: legal as the decimal text of an id, not as a version.
    BigInteger(u64),
    Other(&'static str),
}

impl Scalar<'_> {
    pub(super) fn is_absent(&self) -> bool {
        matches!(self, Self::Absent | Self::Null)
    }

    pub(super) fn expected(&self, wanted: &str) -> String {
        match self {
            Scalar::Absent => format!("missing, must be {wanted}"),
            Scalar::Null => format!("missing (null), must be {wanted}"),
            Scalar::Text(_) => format!("must be {wanted}, not a string"),
            Scalar::Integer(_) | Scalar::BigInteger(_) => format!("must be {wanted}, not this integer"),
            Scalar::Other(kind) => format!("must be {wanted}, not {kind}"),
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Scalar<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScalarVisitor)
    }
}

struct ScalarVisitor;

impl<'de> Visitor<'de> for ScalarVisitor {
    type Value = Scalar<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_borrowed_str<E>(self, v: &'de str) -> Result<Self::Value, E> {
        Ok(Scalar::Text(Cow::Borrowed(v)))
    }

    fn visit_str<E>(self, v: &str) -> Result<Self::Value, E> {
        Ok(Scalar::Text(Cow::Owned(v.to_owned())))
    }

    fn visit_i64<E>(self, v: i64) -> Result<Self::Value, E> {
        Ok(Scalar::Integer(v))
    }

    fn visit_u64<E>(self, v: u64) -> Result<Self::Value, E> {
        Ok(i64::try_from(v).map_or(Scalar::BigInteger(v), Scalar::Integer))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(Scalar::Other("a number with a fraction or of over 64 bits"))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(Scalar::Other("a boolean"))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Scalar::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Scalar::Other("an array"))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Scalar::Other("an object"))
    }
}
