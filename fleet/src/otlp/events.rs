//! A hang as a log event: the names of the semantic conventions where there are any, `unjank.hang.*` otherwise.

use std::collections::BTreeMap;

use hangs::model::{Hang, ObjectKind};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{
    AnyValue, ArrayValue, InstrumentationScope, KeyValue, KeyValueList,
};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs, SeverityNumber};
use opentelemetry_proto::tonic::resource::v1::Resource;
use report::text::{Charset, visible};

use crate::identity::RecordSource;
use crate::tables::{PART_NAMES, part_times};

/// From this length on a program is said not to respond (`device.anr`), as on Android; below it the event is `app.jank`.
pub const NO_RESPONSE_NS: u64 = 5_000_000_000;
/// What the interface thread is called, as on Android: the store has no name of it.
const MAIN_THREAD: &str = "main";
/// What the name of a fact about the machine begins with.
const FACT: &str = "unjank.fact.";
/// The length from which the recorder keeps a hang, in seconds.
const THRESHOLD_S: f64 = 0.1;

pub(super) fn text(text: impl Into<String>) -> Value {
    Value::StringValue(text.into())
}

/// A moment as the protocol has it: receivers take it for a number with a sign.
pub(super) fn moment(unix_ns: u64) -> u64 {
    unix_ns.min(i64::MAX as u64)
}

fn number(number: u64) -> Value {
    Value::IntValue(i64::try_from(number).unwrap_or(i64::MAX))
}

pub(super) fn attribute(key: &str, value: Value) -> KeyValue {
    let value = Some(AnyValue { value: Some(value) });
    KeyValue { key: key.to_owned(), value, ..KeyValue::default() }
}

fn map(values: Vec<KeyValue>) -> AnyValue {
    AnyValue { value: Some(Value::KvlistValue(KeyValueList { values })) }
}

fn list(values: impl Iterator<Item = AnyValue>) -> Value {
    Value::ArrayValue(ArrayValue { values: values.collect() })
}

pub(super) fn seconds(nanoseconds: u64) -> f64 {
    std::time::Duration::from_nanos(nanoseconds).as_secs_f64()
}

/// Returns what a person reads first.
fn sentence(hang: &Hang) -> String {
    let place =
        hang.blamed_frame().map_or(String::new(), |frame| format!(", in {}", frame.function));
    let length = report::figure::duration(std::time::Duration::from_nanos(hang.length_ns));
    let sentence = format!("{} froze {length}: {}{place}", hang.program, hang.cause_words());
    visible(&sentence, Charset::Unicode).into_owned()
}

fn stack_text(hang: &Hang) -> String {
    // A line is one frame, whatever its names are.
    let lines = hang.frames.iter().map(|frame| {
        let line = format!("{} ({})", frame.function, frame.module);
        visible(&line, Charset::Unicode).into_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the attributes of a hang, without those that say nothing.
fn attributes(source: &RecordSource, facts: &[(String, String)], hang: &Hang) -> Vec<KeyValue> {
    let mut all = vec![
        // Another record with the same one is the same hang: receivers drop it.
        attribute("log.record.uid", text(format!("{:016x}", source.hang_id(hang)))),
        attribute("process.pid", number(hang.process.into())),
        attribute("process.executable.name", text(&*hang.program)),
        // The interface thread is the first one of its process.
        attribute("thread.id", number(hang.process.into())),
        attribute("thread.name", text(MAIN_THREAD)),
        attribute("unjank.hang.length_ns", number(hang.length_ns)),
        attribute("unjank.hang.uncertain_ns", number(hang.uncertain_ns)),
        attribute("unjank.hang.cause", text(hang.cause.word())),
        attribute("unjank.hang.goes_on", Value::BoolValue(hang.goes_on)),
    ];
    if hang.length_ns < NO_RESPONSE_NS {
        all.push(attribute("app.jank.frame_count", Value::IntValue(1)));
        all.push(attribute("app.jank.period", Value::DoubleValue(seconds(hang.length_ns))));
        all.push(attribute("app.jank.threshold", Value::DoubleValue(THRESHOLD_S)));
    }
    if !hang.frames.is_empty() {
        all.push(attribute("exception.stacktrace", text(stack_text(hang))));
    }
    if let Some(frame) = hang.blamed_frame() {
        all.push(attribute("code.function.name", text(&*frame.function)));
        all.push(attribute("unjank.hang.module", text(&*frame.module)));
    }
    if !hang.unit.is_empty() {
        all.push(attribute("unjank.hang.unit", text(&*hang.unit)));
    }
    for (name, time) in PART_NAMES.into_iter().zip(part_times(hang)).filter(|(_, time)| *time > 0) {
        all.push(attribute(&format!("unjank.hang.part.{name}_ns"), number(time)));
    }
    if let Some(object) = hang.object() {
        let is_path = object.kind == ObjectKind::File && object.name.starts_with('/');
        let name = if is_path { "file.path" } else { "unjank.hang.object" };
        all.push(attribute(name, text(&*object.name)));
        all.push(attribute("unjank.hang.object_kind", text(object.kind.word())));
        if !object.device.is_empty() {
            all.push(attribute("unjank.hang.device", text(&*object.device)));
        }
        if let Some(model) = model_of(facts, &object.device) {
            all.push(attribute("unjank.hang.disk_model", text(model)));
        }
        if !object.file_system.is_empty() {
            all.push(attribute("unjank.hang.file_system", text(&*object.file_system)));
        }
    }
    if !hang.calls.is_empty() {
        let calls = hang.calls.iter().map(|call| {
            let mut values = vec![
                attribute("call", text(&*call.call)),
                attribute("blocked_ns", number(call.blocked_ns)),
                attribute("seen", number(call.seen.into())),
            ];
            if let Some(object) = &call.object {
                values.push(attribute("object", text(&*object.name)));
                values.push(attribute("object_kind", text(object.kind.word())));
            }
            map(values)
        });
        all.push(attribute("unjank.hang.calls", list(calls)));
    }
    if let Some(program) = hang.waited_for() {
        all.push(attribute("unjank.hang.waited_for", text(program)));
    }
    if let Some(chain) = &hang.chain {
        let hops = chain.hops.iter().map(|hop| {
            let known = [("unit", &hop.unit), ("call", &hop.call), ("function", &hop.function)];
            let known = known.into_iter().filter(|(_, value)| !value.is_empty());
            let mut values = vec![attribute("program", text(&*hop.program))];
            values.extend(known.map(|(name, value)| attribute(name, text(&**value))));
            values.push(attribute("waited_ns", number(hop.waited_ns)));
            map(values)
        });
        all.push(attribute("unjank.hang.chain", list(hops)));
        all.push(attribute("unjank.hang.chain_end", text(&*chain.end)));
    }
    if let Some(used) = &hang.disk_use {
        all.push(attribute("unjank.hang.disk.read_bytes", number(used.read_bytes)));
        all.push(attribute("unjank.hang.disk.written_bytes", number(used.written_bytes)));
        let programs = used.programs.iter().map(|user| {
            map(vec![
                attribute("program", text(&*user.program)),
                attribute("read_bytes", number(user.read_bytes)),
                attribute("written_bytes", number(user.written_bytes)),
            ])
        });
        all.push(attribute("unjank.hang.disk.programs", list(programs)));
    }
    let names = ["processors", "disks", "memory"];
    for (name, share) in hang.pressure.into_iter().flat_map(|shares| names.into_iter().zip(shares))
    {
        let share = Value::DoubleValue(f64::from(share) / 10_000.0);
        all.push(attribute(&format!("unjank.hang.pressure.{name}"), share));
    }
    all
}

/// Returns the model of a device, where it is among the facts.
fn model_of<'a>(facts: &'a [(String, String)], device: &str) -> Option<&'a str> {
    let is_meant = |name: &str| name.strip_prefix("disk:") == Some(device);
    facts.iter().rev().find(|(name, _)| is_meant(name)).map(|(_, model)| &**model)
}

fn record(source: &RecordSource, facts: &[(String, String)], hang: &Hang) -> LogRecord {
    let name = if hang.length_ns < NO_RESPONSE_NS { "app.jank" } else { "device.anr" };
    LogRecord {
        time_unix_nano: moment(hang.started_ns),
        // The recorder sees a hang at its end.
        observed_time_unix_nano: moment(hang.ended_ns()),
        severity_number: SeverityNumber::Warn.into(),
        severity_text: "WARN".to_owned(),
        body: Some(AnyValue { value: Some(text(sentence(hang))) }),
        attributes: attributes(source, facts, hang),
        event_name: name.to_owned(),
        ..LogRecord::default()
    }
}

/// Returns what all records of a machine have: who it is, and what is so on it now.
pub(super) fn resource(source: &RecordSource, facts: &[(String, String)]) -> Resource {
    let mut attributes = vec![
        attribute("service.name", text("unjank-hangs")),
        attribute("service.version", text(env!("CARGO_PKG_VERSION"))),
        attribute("service.instance.id", text(source.file_stem())),
        attribute("host.id", text(&*source.machine)),
    ];
    // A name stands once among attributes, and the last one holds, whoever calls this.
    let facts: BTreeMap<&str, &str> =
        facts.iter().map(|(name, value)| (&**name, &**value)).collect();
    if let Some(system) = facts.get("system") {
        let (name, version) = system.split_once(' ').unwrap_or((system, ""));
        attributes.push(attribute("os.type", text("linux")));
        attributes.push(attribute("os.name", text(name)));
        if !version.is_empty() {
            attributes.push(attribute("os.version", text(version)));
        }
    }
    let named = facts.iter().map(|(name, value)| attribute(&format!("{FACT}{name}"), text(*value)));
    attributes.extend(named);
    Resource { attributes, ..Resource::default() }
}

/// Returns what says which program made the records.
pub(super) fn scope() -> InstrumentationScope {
    InstrumentationScope {
        name: "unjank-export".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    }
}

/// Returns the request that tells these hangs, with facts about the machine by their names.
#[must_use]
pub fn request(
    source: &RecordSource,
    facts: &[(String, String)],
    hangs: &[&Hang],
) -> ExportLogsServiceRequest {
    let log_records = hangs.iter().map(|hang| record(source, facts, hang)).collect();
    let scope_logs = vec![ScopeLogs { scope: Some(scope()), log_records, ..ScopeLogs::default() }];
    let resource = Some(resource(source, facts));
    let logs = ResourceLogs { resource, scope_logs, ..ResourceLogs::default() };
    ExportLogsServiceRequest { resource_logs: vec![logs] }
}
