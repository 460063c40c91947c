//! Records of the index as JSON, and JSON as names and values.

use serde_json::{Map, Value as Json, json};

use super::record::{IndexRecord, MemberValue};

impl IndexRecord<'_> {
    /// Returns the record as JSON: its path as `file`, the members that the index adds without their dot, those of the author under `properties`.
    #[must_use]
    pub fn to_json(self) -> Json {
        let mut own = Map::new();
        let mut properties = Map::new();
        if let Some(path) = self.path() {
            own.insert("file".into(), path.to_string_lossy().into());
        }
        for (name, value) in self.members() {
            let value = match value {
                MemberValue::Text(text) => json!(text),
                MemberValue::List(list) => json!(list.collect::<Vec<_>>()),
                MemberValue::Truth(truth) => json!(truth),
                MemberValue::Whole(number) => json!(number),
                MemberValue::Fraction(number) => json!(number),
                MemberValue::Bytes(bytes) if name == ".qt" => json!(bytes),
                MemberValue::Bytes(_) => continue,
            };
            match name.strip_prefix('.') {
                Some(name) => own.insert(name.to_owned(), value),
                None => properties.insert(name.to_owned(), value),
            };
        }
        own.insert("properties".into(), properties.into());
        own.into()
    }
}

/// Adds each text, number and list in a JSON value to `members`, under the names that lead to it, joined by points.
pub fn flatten(name: &str, value: &Json, members: &mut Vec<(String, String)>) {
    let below = |inner: &str| {
        if name.is_empty() { inner.to_owned() } else { format!("{name}.{inner}") }
    };
    let plain = |value: &Json| match value {
        Json::String(text) => text.clone(),
        other => other.to_string(),
    };
    match value {
        Json::Object(object) => {
            object.iter().for_each(|(inner, value)| flatten(&below(inner), value, members));
        }
        Json::Array(items) if items.iter().any(|item| item.is_object() || item.is_array()) => {
            items.iter().zip(1..).for_each(|(item, number): (_, u32)| {
                flatten(&below(&number.to_string()), item, members);
            });
        }
        Json::Array(items) => {
            let items: Vec<String> = items.iter().map(plain).collect();
            members.push((name.to_owned(), items.join("; ")));
        }
        other => members.push((name.to_owned(), plain(other))),
    }
}
