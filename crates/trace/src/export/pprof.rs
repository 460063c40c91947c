//! The format of pprof: stalls by stack, with their number and time.
//!
//! The numbers of the fields are those of `profile.proto`; the file is not compressed, which its readers take, too.

use std::collections::HashMap;

use super::protobuf::Message;
use super::{SHORT_CALLS, outermost_first, short_calls};
use crate::report::TraceReport;
use crate::report::names::Frame;
use crate::report::schema::{Slow, TraceMethod};

// `Profile`
const SAMPLE_TYPE: u32 = 1;
const SAMPLE: u32 = 2;
const MAPPING: u32 = 3;
const LOCATION: u32 = 4;
const FUNCTION: u32 = 5;
const STRING: u32 = 6;
const TIME: u32 = 9;
const DURATION: u32 = 10;
const COMMENT: u32 = 13;
const DEFAULT_SAMPLE_TYPE: u32 = 14;

/// The values of a sample, with their units.
const VALUES: [(&str, &str); 4] = [
    ("stalls", "count"),
    ("wall", "nanoseconds"),
    ("processor", "nanoseconds"),
    ("ready", "nanoseconds"),
];

/// What was written already: strings, functions and locations are named by numbers.
#[derive(Default)]
struct Tables {
    strings: HashMap<String, u64>,
    functions: HashMap<(String, String), u64>,
    locations: HashMap<(Option<u32>, String, Option<String>), u64>,
    messages: Message,
}

impl Tables {
    fn add(&mut self, field: u32, message: Message) {
        self.messages = std::mem::take(&mut self.messages).message(field, message);
    }

    fn string(&mut self, text: &str) -> u64 {
        if let Some(number) = self.strings.get(text) {
            return *number;
        }
        let number = self.strings.len() as u64;
        self.strings.insert(text.to_owned(), number);
        self.messages = std::mem::take(&mut self.messages).text(STRING, text);
        number
    }

    fn function(&mut self, name: &str, file: &str) -> u64 {
        let key = (name.to_owned(), file.to_owned());
        if let Some(number) = self.functions.get(&key) {
            return *number;
        }
        let number = self.functions.len() as u64 + 1;
        self.functions.insert(key, number);
        let (name, file) = (self.string(name), self.string(file));
        let function = Message::default().number(1, number).number(2, name).number(3, name);
        self.add(FUNCTION, function.number(4, file));
        number
    }

    /// Returns the number of the place of a function, or of a call of the kernel, which has no module.
    fn location(&mut self, name: &str, line: Option<&str>, object: Option<u32>) -> u64 {
        let key = (object, name.to_owned(), line.map(str::to_owned));
        if let Some(number) = self.locations.get(&key) {
            return *number;
        }
        let number = self.locations.len() as u64 + 1;
        self.locations.insert(key, number);
        let (file, line) = line.and_then(|line| line.rsplit_once(':')).unwrap_or_default();
        let function = self.function(name, file);
        let line = Message::default().number(1, function).number(2, line.parse().unwrap_or(0));
        let mut location = Message::default().number(1, number);
        if let Some(object) = object {
            location = location.number(2, u64::from(object) + 1);
        }
        self.add(LOCATION, location.message(4, line));
        number
    }

    fn frame(&mut self, frame: &Frame) -> u64 {
        self.location(&frame.name, frame.line.as_deref(), frame.object)
    }

    /// Adds the labels that have a value to a sample.
    fn labelled<'a>(
        &mut self,
        mut sample: Message,
        labels: impl IntoIterator<Item = (&'a str, Option<String>)>,
    ) -> Message {
        for (key, value) in labels {
            if let Some(value) = value {
                let label = Message::default().number(1, self.string(key));
                sample = sample.message(3, label.number(2, self.string(&value)));
            }
        }
        sample
    }
}

/// Writes stalls as samples; `pprof -http=: FILE` and other programs open them.
#[must_use]
pub fn render(report: &TraceReport) -> Vec<u8> {
    let mut tables = Tables::default();
    // The first string is empty.
    tables.string("");
    for (name, unit) in VALUES {
        let (name, unit) = (tables.string(name), tables.string(unit));
        tables.add(SAMPLE_TYPE, Message::default().number(1, name).number(2, unit));
    }
    // The first module names the profile.
    let main =
        report.main().and_then(|main| report.processes.iter().find(|row| row.id == main.process));
    let mut modules: Vec<_> = report.modules.iter().enumerate().collect();
    modules.sort_by_key(|(_, module)| main.is_none_or(|main| main.executable != module.path));
    for (number, module) in modules {
        let path = tables.string(&module.path);
        let id = tables.string(module.build_id.as_deref().unwrap_or_default());
        let mapping = Message::default().number(1, number as u64 + 1).number(5, path).number(6, id);
        // Names and lines are there: nothing needs to look for symbols.
        let mapping = (7..=10).fold(mapping, |mapping, has| mapping.number(has, 1));
        tables.add(MAPPING, mapping);
    }
    for slow in report.slow.iter().filter(|slow| slow.how == TraceMethod::Stall) {
        let sample = sample(report, slow, &mut tables);
        tables.add(SAMPLE, sample);
    }
    for (thread, row, wall_ns) in short_calls(report) {
        let mut stack = vec![tables.location(SHORT_CALLS, None, None)];
        if let Some(row) = row {
            stack.push(tables.location(report.call_name(row.call), None, None));
            let frame = row.frame.and_then(|at| report.frames.get(at as usize));
            stack.extend(frame.map(|frame| tables.frame(frame)));
        }
        let count = row.map_or(0, |row| row.count);
        let sample = Message::default().packed(1, stack).packed(2, [count, wall_ns, 0, 0]);
        let target = row.and_then(|row| report.target_name(row.target?));
        let labels = [
            ("program", Some(report.program(thread.process).to_owned())),
            ("thread", Some(format!("{} {}", thread.name, thread.id))),
            ("target", target.filter(|_| row.is_some_and(|row| row.more_targets == 0))),
        ];
        let sample = tables.labelled(sample, labels);
        tables.add(SAMPLE, sample);
    }
    let mut comments = vec![report.verdict.clone()];
    if report.slow_left_out > 0 {
        comments.push(format!(
            "{} slow calls are only in the sums of the report",
            report.slow_left_out
        ));
    }
    let comments: Vec<u64> = comments.iter().map(|text| tables.string(text)).collect();
    let wall = tables.string("wall");
    tables
        .messages
        .packed(COMMENT, comments)
        .number(TIME, report.began_ms.saturating_mul(1_000_000))
        .number(DURATION, report.length_ns)
        .number(DEFAULT_SAMPLE_TYPE, wall)
        .into_bytes()
}

fn sample(report: &TraceReport, slow: &Slow, tables: &mut Tables) -> Message {
    let call = report.call_name(slow.call);
    let mut stack = vec![tables.location(call, None, None)];
    let frames: Vec<&Frame> = outermost_first(report, slow).collect();
    stack.extend(frames.iter().rev().map(|frame| tables.frame(frame)));
    let values = [1, slow.wall_ns, slow.cpu_ns.unwrap_or(0), slow.queued_ns.unwrap_or(0)];
    let sample = Message::default().packed(1, stack).packed(2, values);
    let thread = report.threads.get(slow.thread as usize);
    let target = slow.target.and_then(|at| report.target_name(at));
    let labels = [
        ("program", thread.map(|thread| report.program(thread.process).to_owned())),
        ("thread", thread.map(|thread| format!("{} {}", thread.name, thread.id))),
        ("target", target),
        ("error", slow.error.clone()),
    ];
    tables.labelled(sample, labels)
}
