//! A JSON value over the bytes that it was decoded from: texts are borrowed, nothing is copied that is not asked for.

use std::borrow::Cow;

/// A value as JSON has them.
#[derive(Clone, Debug, PartialEq)]
pub enum JsonValue<'a> {
    /// `null`, and what JSON cannot say.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// A text.
    Text(Cow<'a, str>),
    /// A list.
    List(Vec<JsonValue<'a>>),
    /// An object, its members in the order of the file.
    Object(Vec<(Cow<'a, str>, JsonValue<'a>)>),
}

impl<'a> JsonValue<'a> {
    /// Returns a member of an object; of several with one name the last, as Qt does.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&JsonValue<'a>> {
        let JsonValue::Object(members) = self else { return None };
        members.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// Returns the text, of a text.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        if let JsonValue::Text(text) = self { Some(text) } else { None }
    }

    /// Returns the whole number, of a number; Qt writes some as fractions.
    #[must_use]
    pub fn whole(&self) -> Option<i64> {
        match self {
            JsonValue::Int(value) => Some(*value),
            #[expect(
                clippy::cast_possible_truncation,
                reason = "what does not fit is the nearest that does"
            )]
            JsonValue::Float(value) => Some(*value as i64),
            _ => None,
        }
    }

    /// Returns the members of a list; of anything else none.
    #[must_use]
    pub fn list(&self) -> &[JsonValue<'a>] {
        if let JsonValue::List(items) = self { items } else { &[] }
    }

    /// Returns the members of an object; of anything else none.
    #[must_use]
    pub fn members(&self) -> &[(Cow<'a, str>, JsonValue<'a>)] {
        if let JsonValue::Object(members) = self { members } else { &[] }
    }

    /// Returns it for `serde_json`, whose objects are sorted by name.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        match self {
            JsonValue::Null => serde_json::Value::Null,
            JsonValue::Bool(value) => (*value).into(),
            JsonValue::Int(value) => (*value).into(),
            // JSON has no infinities; Qt writes null for them as well.
            JsonValue::Float(value) => {
                serde_json::Number::from_f64(*value).map_or(serde_json::Value::Null, Into::into)
            }
            JsonValue::Text(text) => (**text).into(),
            JsonValue::List(items) => items.iter().map(JsonValue::to_json).collect(),
            JsonValue::Object(members) => members
                .iter()
                .map(|(name, value)| (name.clone().into_owned(), value.to_json()))
                .collect::<serde_json::Map<_, _>>()
                .into(),
        }
    }
}
