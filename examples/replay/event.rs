//! One JSON text to one event: what the replay needs of it, and what is missing if it is none.
//!
//! Only a handful of fields is kept. All others are skipped without being built, so that an object of any kind, with
//! anything in it, will do.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// The three event types that change an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Added,
    Modified,
    Deleted,
}

impl Change {
    pub fn as_str(self) -> &'static str {
        match self {
            Change::Added => "ADDED",
            Change::Modified => "MODIFIED",
            Change::Deleted => "DELETED",
        }
    }
}

/// What the replay keeps of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// `namespace/name`, or `name` where there is no namespace: client-go's `MetaNamespaceKeyFunc`.
    pub key: Arc<str>,
    pub namespace: Box<str>,
    /// `None` if the stream's resourceVersion is missing or no number; its order can't be checked then.
    pub version: Option<u64>,
    /// `status.phase`, empty if there is none.
    pub phase: Box<str>,
    /// `metadata.creationTimestamp` as it was written.
    pub created: Option<Box<str>>,
}

/// One event of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Object(Change, Object),
    /// Progress mark of the server, with no object.
    Bookmark,
    /// The server ended the watch. The text is its `Status`.
    Error(String),
}

/// What is wrong with a complete frame; places are relative to it.
pub enum Fault {
    NotUtf8 { before: (u64, usize) },
    Json(serde_json::Error),
    NotAnEvent(String),
}

/// An event as the API server writes it. Only the fields that are used; all may be missing.
#[derive(Deserialize)]
struct RawEvent<'a> {
    #[serde(rename = "type", borrow)]
    change: Option<Text<'a>>,
    #[serde(borrow)]
    object: Option<RawObject<'a>>,
    #[serde(borrow)]
    kind: Option<Text<'a>>,
}

/// An object of any kind.
#[derive(Deserialize)]
struct RawObject<'a> {
    #[serde(borrow)]
    metadata: Option<RawMetadata<'a>>,
    #[serde(default)]
    status: Phase,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawMetadata<'a> {
    #[serde(borrow)]
    name: Option<Text<'a>>,
    #[serde(borrow)]
    namespace: Option<Text<'a>>,
    #[serde(borrow)]
    resource_version: Option<Text<'a>>,
    #[serde(borrow)]
    creation_timestamp: Option<Text<'a>>,
}

/// An ERROR event. Read apart from the others: what is a `Status` here may be anything in an object.
#[derive(Deserialize)]
struct RawError<'a> {
    #[serde(borrow)]
    object: Option<RawStatus<'a>>,
}

#[derive(Deserialize)]
struct RawStatus<'a> {
    code: Option<i64>,
    #[serde(borrow)]
    reason: Option<Text<'a>>,
    #[serde(borrow)]
    message: Option<Text<'a>>,
}

/// Borrowed where no escape has to be resolved. (serde borrows a bare `Cow` field, but no `Option<Cow>`.)
#[derive(Deserialize)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// `status.phase`, if the status is a map and its phase a text. Custom resources may have anything there.
#[derive(Default)]
struct Phase(Box<str>);

impl<'de> Deserialize<'de> for Phase {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PhaseVisitor)
    }
}

struct PhaseVisitor;

impl<'de> Visitor<'de> for PhaseVisitor {
    type Value = Phase;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a status")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Phase, A::Error> {
        let mut phase = Phase::default();
        while let Some(field) = map.next_key::<Text<'de>>()? {
            if field.0 == "phase" {
                let value: serde_json::Value = map.next_value()?;
                phase = Phase(value.as_str().unwrap_or_default().into());
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(phase)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Phase, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Phase::default())
    }

    fn visit_str<E>(self, _: &str) -> Result<Phase, E> {
        Ok(Phase::default())
    }

    fn visit_unit<E>(self) -> Result<Phase, E> {
        Ok(Phase::default())
    }

    fn visit_bool<E>(self, _: bool) -> Result<Phase, E> {
        Ok(Phase::default())
    }

    fn visit_i64<E>(self, _: i64) -> Result<Phase, E> {
        Ok(Phase::default())
    }

    fn visit_u64<E>(self, _: u64) -> Result<Phase, E> {
        Ok(Phase::default())
    }

    fn visit_f64<E>(self, _: f64) -> Result<Phase, E> {
        Ok(Phase::default())
    }
}

/// One frame to one event.
pub fn parse(frame: &[u8]) -> Result<Event, Fault> {
    let text = std::str::from_utf8(frame).map_err(|error| {
        let before = &frame[..error.valid_up_to()];
        let lines = before.iter().filter(|&&b| b == b'\n').count() as u64;
        let columns = before.iter().rev().take_while(|&&b| b != b'\n').count();
        Fault::NotUtf8 { before: (lines, columns) }
    })?;
    let raw: RawEvent<'_> = serde_json::from_str(text).map_err(Fault::Json)?;
    let change = match (raw.change.as_ref().map(|change| &*change.0), raw.kind) {
        (Some("ADDED"), _) => Change::Added,
        (Some("MODIFIED"), _) => Change::Modified,
        (Some("DELETED"), _) => Change::Deleted,
        (Some("BOOKMARK"), _) => return Ok(Event::Bookmark),
        (Some("ERROR"), _) => return Ok(Event::Error(server_error(text))),
        (_, Some(kind)) => {
            let kind = quoted(&kind.0);
            return Err(Fault::NotAnEvent(format!(
                "a plain object of kind {kind}, not a watch event: record with `kubectl get … --watch \
                 --output-watch-events -o json`"
            )));
        }
        (Some(other), None) => {
            let other = quoted(other);
            return Err(Fault::NotAnEvent(format!(
                "unknown event type {other}: expected ADDED, MODIFIED, DELETED, BOOKMARK or ERROR"
            )));
        }
        (None, None) => return Err(Fault::NotAnEvent("no watch event: the field `type` is missing".into())),
    };
    let RawObject { metadata, status } =
        raw.object.ok_or_else(|| Fault::NotAnEvent(format!("{} event without an object", change.as_str())))?;
    match metadata {
        Some(RawMetadata { name: Some(name), namespace, resource_version, creation_timestamp })
            if !name.0.is_empty() =>
        {
            let namespace = namespace.map_or(Cow::Borrowed(""), |namespace| namespace.0);
            let key = if namespace.is_empty() { name.0.into() } else { format!("{namespace}/{}", name.0).into() };
            let object = Object {
                key,
                namespace: namespace.into(),
                version: resource_version.and_then(|version| version.0.parse().ok()),
                phase: status.0,
                created: creation_timestamp.map(|created| created.0.into()),
            };
            Ok(Event::Object(change, object))
        }
        _ => Err(Fault::NotAnEvent(format!(
            "{} object without a name: metadata.name is missing or empty",
            change.as_str()
        ))),
    }
}

/// The server's `Status` in one line.
fn server_error(text: &str) -> String {
    let Ok(RawError { object: Some(status) }) = serde_json::from_str(text) else { return "no details".into() };
    let code = status.code.map(|code| code.to_string());
    let texts = [status.reason, status.message].into_iter().flatten().map(|text| quoted(&text.0));
    let parts: Vec<String> = code.into_iter().chain(texts).collect();
    if parts.is_empty() { "no details".into() } else { parts.join(" ") }
}

/// Text of the input for a message, in quotes: no control characters reach the terminal, and it stays short.
pub fn quoted(text: &str) -> String {
    format!("`{}`", shown(text, 80))
}

pub fn shown(text: &str, most: usize) -> String {
    let mut short: String = text.chars().take(most).flat_map(char::escape_debug).collect();
    if text.chars().nth(most).is_some() {
        short.push('…');
    }
    short
}
