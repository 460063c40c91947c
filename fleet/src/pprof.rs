//! Hangs in the format of pprof: a sample for each stack, with the number of hangs and their time.
//!
//! The messages are those of pprof's `profile.proto`. A file is not compressed, which its readers take, too.

use std::collections::HashMap;

use hangs::model::Hang;
use prost::Message;
use report::text::{Charset, visible};

use crate::viewer::{ViewerFileError, check_length};

/// A number of the table of strings.
type Text = i64;

#[derive(Clone, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    kind: Text,
    #[prost(int64, tag = "2")]
    unit: Text,
}

#[derive(Clone, PartialEq, Message)]
struct Label {
    #[prost(int64, tag = "1")]
    key: Text,
    #[prost(int64, tag = "2")]
    text: Text,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    /// The innermost first.
    #[prost(uint64, repeated, tag = "1")]
    locations: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    values: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    labels: Vec<Label>,
}

#[derive(Clone, PartialEq, Message)]
struct Mapping {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "5")]
    file: Text,
    #[prost(bool, tag = "7")]
    has_functions: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function: u64,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint64, tag = "2")]
    mapping: u64,
    #[prost(message, repeated, tag = "4")]
    lines: Vec<Line>,
}

#[derive(Clone, PartialEq, Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: Text,
    #[prost(int64, tag = "3")]
    system_name: Text,
}

#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(message, repeated, tag = "1")]
    value_types: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    mappings: Vec<Mapping>,
    #[prost(message, repeated, tag = "4")]
    locations: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    functions: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    strings: Vec<String>,
    #[prost(int64, tag = "9")]
    time_ns: i64,
    #[prost(int64, tag = "10")]
    duration_ns: i64,
    #[prost(int64, repeated, tag = "13")]
    comments: Vec<Text>,
    #[prost(int64, tag = "14")]
    default_value_type: Text,
}

/// The values of a sample, with their units: hangs, their whole length, and their time off a processor.
const VALUES: [(&str, &str); 3] =
    [("hangs", "count"), ("length", "nanoseconds"), ("off_processor", "nanoseconds")];

/// What names things by numbers, from 1 on; strings from 0 on.
#[derive(Default)]
struct Tables {
    profile: Profile,
    strings: HashMap<String, Text>,
    modules: HashMap<String, u64>,
    functions: HashMap<String, u64>,
    locations: HashMap<(u64, u64), u64>,
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl Tables {
    /// Viewers print names on a terminal as they are, which would obey some of them.
    fn text(&mut self, text: &str) -> Text {
        let text = &*visible(text, Charset::Unicode);
        if let Some(number) = self.strings.get(text) {
            return *number;
        }
        let number = signed(self.strings.len() as u64);
        self.strings.insert(text.to_owned(), number);
        self.profile.strings.push(text.to_owned());
        number
    }

    fn module(&mut self, name: &str) -> u64 {
        if let Some(number) = self.modules.get(name) {
            return *number;
        }
        let (id, file) = (self.modules.len() as u64 + 1, self.text(name));
        self.modules.insert(name.to_owned(), id);
        self.profile.mappings.push(Mapping { id, file, has_functions: true });
        id
    }

    fn function(&mut self, name: &str) -> u64 {
        if let Some(number) = self.functions.get(name) {
            return *number;
        }
        let (id, name_number) = (self.functions.len() as u64 + 1, self.text(name));
        self.functions.insert(name.to_owned(), id);
        self.profile.functions.push(Function { id, name: name_number, system_name: name_number });
        id
    }

    fn location(&mut self, function: &str, module: &str) -> u64 {
        let (mapping, function) = (self.module(module), self.function(function));
        let next = self.locations.len() as u64 + 1;
        let id = *self.locations.entry((mapping, function)).or_insert(next);
        if id == next {
            self.profile.locations.push(Location { id, mapping, lines: vec![Line { function }] });
        }
        id
    }

    fn label(&mut self, key: &str, text: &str) -> Label {
        Label { key: self.text(key), text: self.text(text) }
    }
}

/// Returns a profile of hangs: the program is the outermost frame of each, so that one graph shows all of them.
///
/// Samples have the labels `program`, `cause` and, where it is known, `unit`. A hang whose stack is not known has its cause
/// as its only function. No label or function is a path.
///
/// # Errors
///
/// [`ViewerFileError::TooLong`]: it has more than `most` bytes; [`MOST_BYTES`] are what readers take.
///
/// [`MOST_BYTES`]: crate::viewer::MOST_BYTES
pub fn profile<'a>(
    hangs: impl IntoIterator<Item = &'a Hang>,
    most: usize,
) -> Result<Vec<u8>, ViewerFileError> {
    let mut tables = Tables::default();
    tables.text("");
    let types =
        VALUES.map(|(kind, unit)| ValueType { kind: tables.text(kind), unit: tables.text(unit) });
    tables.profile.default_value_type = types[1].kind;
    tables.profile.value_types = types.to_vec();
    let mut samples: HashMap<(Vec<u64>, String, &'static str, String), [u64; 3]> = HashMap::new();
    let mut order = Vec::new();
    let (mut first_ns, mut last_ns) = (u64::MAX, 0);
    for hang in hangs {
        first_ns = first_ns.min(hang.started_ns);
        last_ns = last_ns.max(hang.started_ns.saturating_add(hang.length_ns));
        let mut stack: Vec<u64> = hang
            .frames
            .iter()
            .map(|frame| tables.location(&frame.function, &frame.module))
            .collect();
        if stack.is_empty() {
            stack.push(tables.location(&format!("({})", hang.cause.words()), ""));
        }
        stack.push(tables.location(&hang.program, ""));
        let key = (stack, hang.program.clone(), hang.cause.word(), hang.unit.clone());
        let sums = samples.entry(key.clone()).or_insert_with(|| {
            order.push(key);
            [0; 3]
        });
        let off_ns = hang.length_ns.saturating_sub(hang.parts.processor_ns);
        for (sum, more) in sums.iter_mut().zip([1, hang.length_ns, off_ns]) {
            *sum = sum.saturating_add(more);
        }
    }
    // Readers add up all samples in a number with a sign.
    let highest = i64::MAX.cast_unsigned() / (order.len().max(1) as u64);
    for key in order {
        let sums = samples.get(&key).copied().unwrap_or_default();
        let values = sums.iter().map(|sum| signed(*sum.min(&highest))).collect();
        let (locations, program, cause, unit) = key;
        let mut labels = vec![tables.label("program", &program), tables.label("cause", cause)];
        if !unit.is_empty() {
            labels.push(tables.label("unit", &unit));
        }
        tables.profile.samples.push(Sample { locations, values, labels });
    }
    let comment = tables.text("hangs recorded by unjank; the outermost frame is the program");
    tables.profile.comments.push(comment);
    if first_ns < u64::MAX {
        tables.profile.time_ns = signed(first_ns);
        tables.profile.duration_ns = signed(last_ns - first_ns);
    }
    check_length(tables.profile.encode_to_vec(), most)
}
