//! A JSON value over the bytes that it was decoded from: texts are borrowed, nothing is copied that is not asked for.

use std::borrow::Cow;

/// A value as JSON has them.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
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
    List(Vec<Value<'a>>),
    /// An object, its members in the order of the file.
    Object(Vec<(Cow<'a, str>, Value<'a>)>),
}

impl<'a> Value<'a> {
    /// Returns a member of an object; of several with one name the last, as Qt does.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value<'a>> {
        let Value::Object(members) = self else { return None };
        members.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// Returns the text, of a text.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        if let Value::Text(text) = self { Some(text) } else { None }
    }

    /// Returns the whole number, of a number; Qt writes some as fractions.
    #[must_use]
    pub fn whole(&self) -> Option<i64> {
        match self {
            Value::Int(value) => Some(*value),
            #[expect(
                clippy::cast_possible_truncation,
                reason = "what does not fit is the nearest that does"
            )]
            Value::Float(value) => Some(*value as i64),
            _ => None,
        }
    }

    /// Returns the members of a list; of anything else none.
    #[must_use]
    pub fn list(&self) -> &[Value<'a>] {
        if let Value::List(items) = self { items } else { &[] }
    }

    /// Returns the members of an object; of anything else none.
    #[must_use]
    pub fn members(&self) -> &[(Cow<'a, str>, Value<'a>)] {
        if let Value::Object(members) = self { members } else { &[] }
    }

    /// Returns it for `serde_json`, whose objects are sorted by name.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        match self {
            Value::Null => serde_json::Value::Null,
            Value::Bool(value) => (*value).into(),
            Value::Int(value) => (*value).into(),
            // JSON has no infinities; Qt writes null for them as well.
            Value::Float(value) => {
                serde_json::Number::from_f64(*value).map_or(serde_json::Value::Null, Into::into)
            }
            Value::Text(text) => (**text).into(),
            Value::List(items) => items.iter().map(Value::to_json).collect(),
            Value::Object(members) => members
                .iter()
                .map(|(name, value)| (name.clone().into_owned(), value.to_json()))
                .collect::<serde_json::Map<_, _>>()
                .into(),
        }
    }
}
