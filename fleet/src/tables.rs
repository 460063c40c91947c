//! The tables and their columns; docs/fleet.md describes them.

use std::sync::Arc;

use arrow_array::builder::{
    BooleanBuilder, Int64Builder, ListBuilder, StringBuilder, StructBuilder,
    TimestampMicrosecondBuilder, UInt8Builder, UInt16Builder, UInt32Builder, UInt64Builder,
};
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{ArrowError, DataType, Field, Fields, Schema, TimeUnit};
use hangs::model::{CallShare, DiskUse, DiskUser, Hang, HangFrame, STEP_BOUNDS_NS};

use crate::facts::Fact;
use crate::identity::{RecordSource, hash_stack};

/// The names of the parts of a hang's time, in the order of [`part_times`].
pub const PART_NAMES: [&str; 10] = [
    "processor",
    "ready",
    "fault",
    "call",
    "lock",
    "stopped",
    "idle",
    "child",
    "tracer",
    "unknown",
];

/// Returns the parts of a hang's time in nanoseconds.
#[must_use]
pub fn part_times(hang: &Hang) -> [u64; 10] {
    let parts = &hang.parts;
    [
        parts.processor_ns,
        parts.ready_ns,
        parts.fault_ns,
        parts.call_ns,
        parts.lock_ns,
        parts.stopped_ns,
        parts.idle_ns,
        parts.child_ns,
        parts.tracer_ns,
        parts.unknown_ns,
    ]
}

fn moment_type() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

fn call_fields() -> Fields {
    Fields::from(vec![
        Field::new("call", DataType::Utf8, true),
        Field::new("blocked_us", DataType::Int64, true),
        Field::new("seen", DataType::UInt32, true),
        Field::new("object_kind", DataType::Utf8, true),
        Field::new("object", DataType::Utf8, true),
        Field::new("file_system", DataType::Utf8, true),
        Field::new("device", DataType::Utf8, true),
    ])
}

fn hop_fields() -> Fields {
    Fields::from(vec![
        Field::new("program", DataType::Utf8, true),
        Field::new("unit", DataType::Utf8, true),
        Field::new("call", DataType::Utf8, true),
        Field::new("function", DataType::Utf8, true),
        Field::new("waited_us", DataType::Int64, true),
    ])
}

fn frame_fields() -> Fields {
    Fields::from(vec![
        Field::new("function", DataType::Utf8, true),
        Field::new("module", DataType::Utf8, true),
    ])
}

fn list_of(fields: Fields) -> DataType {
    DataType::List(Arc::new(Field::new("item", DataType::Struct(fields), true)))
}

/// Microseconds, rounded down, as databases without unsigned numbers take them.
fn micros(nanoseconds: u64) -> i64 {
    i64::try_from(nanoseconds / 1000).unwrap_or(i64::MAX)
}

/// A table that grows by columns.
struct Columns {
    fields: Vec<Field>,
    arrays: Vec<ArrayRef>,
    rows: usize,
}

impl Columns {
    fn of(rows: usize) -> Columns {
        Columns { fields: Vec::new(), arrays: Vec::new(), rows }
    }

    fn push(&mut self, name: &str, kind: DataType, is_nullable: bool, array: ArrayRef) {
        self.fields.push(Field::new(name, kind, is_nullable));
        self.arrays.push(array);
    }

    fn texts<'a>(&mut self, name: &str, values: impl Iterator<Item = &'a str>) {
        let mut builder = StringBuilder::new();
        values.for_each(|value| builder.append_value(value));
        self.push(name, DataType::Utf8, false, Arc::new(builder.finish()));
    }

    fn optional_texts<'a>(&mut self, name: &str, values: impl Iterator<Item = Option<&'a str>>) {
        let mut builder = StringBuilder::new();
        // An empty text in the store says that nothing is known.
        values.for_each(|value| builder.append_option(value.filter(|text| !text.is_empty())));
        self.push(name, DataType::Utf8, true, Arc::new(builder.finish()));
    }

    fn times(&mut self, name: &str, values: impl Iterator<Item = u64>) {
        let mut builder = Int64Builder::new();
        values.for_each(|value| builder.append_value(micros(value)));
        self.push(name, DataType::Int64, false, Arc::new(builder.finish()));
    }

    fn kibibytes(&mut self, name: &str, values: impl Iterator<Item = Option<u64>>) {
        let mut builder = Int64Builder::new();
        let rounded = |bytes: u64| i64::try_from(bytes / 1024).unwrap_or(i64::MAX);
        values.for_each(|bytes| builder.append_option(bytes.map(rounded)));
        self.push(name, DataType::Int64, true, Arc::new(builder.finish()));
    }

    fn moments(&mut self, name: &str, values: impl Iterator<Item = u64>) {
        let mut builder = TimestampMicrosecondBuilder::new().with_data_type(moment_type());
        values.for_each(|value| builder.append_value(micros(value)));
        self.push(name, moment_type(), false, Arc::new(builder.finish()));
    }

    fn source(&mut self, source: &RecordSource) {
        self.texts("machine", std::iter::repeat_n(&*source.machine, self.rows));
        self.texts("store", std::iter::repeat_n(&*source.store, self.rows));
    }

    fn finish(self) -> Result<RecordBatch, ArrowError> {
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        RecordBatch::try_new_with_options(Arc::new(Schema::new(self.fields)), self.arrays, &options)
    }
}

/// Returns how many bytes of text the row of a hang has, about.
#[must_use]
pub fn text_bytes(hang: &Hang) -> usize {
    let calls = hang.calls.iter().map(|call| {
        let texts = call
            .object
            .as_ref()
            .map_or(0, |object| object.name.len() + object.file_system.len() + object.device.len());
        call.call.len() + texts
    });
    let blamed = hang.blamed_frame().map_or(0, |frame| frame.function.len() + frame.module.len());
    let hops = hang.chain.iter().flat_map(|chain| &chain.hops);
    let hops =
        hops.map(|hop| hop.program.len() + hop.unit.len() + hop.call.len() + hop.function.len());
    let disks = hang.disk_use.iter().flat_map(|used| &used.programs);
    let disks = disks.map(|user| user.program.len());
    let further = calls.chain(hops).chain(disks).sum::<usize>();
    hang.program.len() + hang.unit.len() + blamed + further
}

/// Returns a row for each hang.
///
/// # Errors
///
/// The columns do not fit together, which is a fault of ours.
pub fn hang_rows(source: &RecordSource, hangs: &[&Hang]) -> Result<RecordBatch, ArrowError> {
    let mut columns = Columns::of(hangs.len());
    let all = || hangs.iter().copied();
    // The call that is named and its object are of one share, which need not be the first.
    let longest = || all().map(Hang::longest_call);
    let object = || all().map(Hang::object);

    let mut ids = UInt64Builder::new();
    all().for_each(|hang| ids.append_value(source.hang_id(hang)));
    columns.push("id", DataType::UInt64, false, Arc::new(ids.finish()));
    columns.source(source);
    columns.moments("started", all().map(|hang| hang.started_ns));
    columns.times("length_us", all().map(|hang| hang.length_ns));
    columns.times("uncertain_us", all().map(|hang| hang.uncertain_ns));
    let mut goes_on = BooleanBuilder::new();
    all().for_each(|hang| goes_on.append_value(hang.goes_on));
    columns.push("goes_on", DataType::Boolean, false, Arc::new(goes_on.finish()));
    let mut processes = UInt32Builder::new();
    all().for_each(|hang| processes.append_value(hang.process));
    columns.push("process", DataType::UInt32, false, Arc::new(processes.finish()));
    columns.texts("program", all().map(|hang| &*hang.program));
    columns.optional_texts("unit", all().map(|hang| Some(&*hang.unit)));
    columns.texts("cause", all().map(|hang| hang.cause.word()));
    for (at, name) in PART_NAMES.into_iter().enumerate() {
        columns.times(&format!("{name}_us"), all().map(|hang| part_times(hang)[at]));
    }
    columns.optional_texts("call", longest().map(|call| call.map(|call| &*call.call)));
    let mut blocked = Int64Builder::new();
    longest().for_each(|call| blocked.append_option(call.map(|call| micros(call.blocked_ns))));
    columns.push("blocked_us", DataType::Int64, true, Arc::new(blocked.finish()));
    let mut seen = UInt32Builder::new();
    longest().for_each(|call| seen.append_option(call.map(|call| call.seen)));
    columns.push("seen", DataType::UInt32, true, Arc::new(seen.finish()));
    let kinds = object().map(|object| object.map(|object| object.kind.word()));
    columns.optional_texts("object_kind", kinds);
    columns.optional_texts("object", object().map(|object| object.map(|o| &*o.name)));
    let systems = object().map(|object| object.map(|object| &*object.file_system));
    columns.optional_texts("file_system", systems);
    columns.optional_texts("device", object().map(|object| object.map(|o| &*o.device)));
    columns.push("more_calls", list_of(call_fields()), false, call_lists(all().map(more_calls)));
    let mut stacks = UInt64Builder::new();
    all().for_each(|hang| stacks.append_option(hash_stack(&hang.frames, hang.blamed)));
    columns.push("stack", DataType::UInt64, true, Arc::new(stacks.finish()));
    let blamed = || all().map(Hang::blamed_frame);
    columns.optional_texts("function", blamed().map(|frame| frame.map(|frame| &*frame.function)));
    columns.optional_texts("module", blamed().map(|frame| frame.map(|frame| &*frame.module)));
    for (at, name) in ["processors", "disks", "memory"].into_iter().enumerate() {
        let mut shares = UInt16Builder::new();
        all().for_each(|hang| shares.append_option(hang.pressure.map(|shares| shares[at])));
        let name = format!("{name}_pressure");
        columns.push(&name, DataType::UInt16, true, Arc::new(shares.finish()));
    }
    let mut unseen = UInt8Builder::new();
    all().for_each(|hang| unseen.append_value(hang.unseen.0));
    columns.push("unseen", DataType::UInt8, false, Arc::new(unseen.finish()));
    columns.optional_texts("waited_for", all().map(Hang::waited_for));
    columns.push("chain", list_of(hop_fields()), true, hop_lists(all()));
    let ends = all().map(|hang| hang.chain.as_ref().map(|chain| &*chain.end));
    columns.optional_texts("chain_end", ends);
    let used = || all().map(|hang| hang.disk_use.as_ref());
    let total = |used: &DiskUse| used.read_bytes.saturating_add(used.written_bytes);
    columns.kibibytes("disk_kib", used().map(|used| used.map(total)));
    let most = || used().map(|used| used?.programs.first());
    columns.optional_texts("disk_program", most().map(|user| user.map(|user| &*user.program)));
    let of_one = |user: &DiskUser| user.read_bytes.saturating_add(user.written_bytes);
    columns.kibibytes("disk_program_kib", most().map(|user| user.map(of_one)));
    columns.finish()
}

/// Adds a value to a field of a struct, whose builder has the type that the schema says.
macro_rules! append {
    ($item:expr, $at:expr, $builder:ty, $value:expr) => {
        if let Some(builder) = $item.field_builder::<$builder>($at) {
            builder.append_option($value);
        }
    };
}

/// Returns the calls of a hang but the one that is named, the longest first.
fn more_calls(hang: &Hang) -> impl Iterator<Item = &CallShare> {
    let longest = hang.longest_call();
    let is_other = move |call: &&CallShare| longest.is_none_or(|named| !std::ptr::eq(*call, named));
    hang.calls.iter().filter(is_other)
}

fn call_lists<'a>(lists: impl Iterator<Item = impl Iterator<Item = &'a CallShare>>) -> ArrayRef {
    let mut builder = ListBuilder::new(StructBuilder::from_fields(call_fields(), 0));
    for calls in lists {
        for call in calls {
            let object = call.object.as_ref();
            let text = |text: &'a str| Some(text).filter(|text| !text.is_empty());
            let item = builder.values();
            append!(item, 0, StringBuilder, Some(&*call.call));
            append!(item, 1, Int64Builder, Some(micros(call.blocked_ns)));
            append!(item, 2, UInt32Builder, Some(call.seen));
            append!(item, 3, StringBuilder, object.map(|object| object.kind.word()));
            append!(item, 4, StringBuilder, object.and_then(|object| text(&object.name)));
            append!(item, 5, StringBuilder, object.and_then(|object| text(&object.file_system)));
            append!(item, 6, StringBuilder, object.and_then(|object| text(&object.device)));
            item.append(true);
        }
        builder.append(true);
    }
    Arc::new(builder.finish())
}

/// Returns for each hang the threads behind that of the hang itself in the chain of its longest wait, or null if none was followed.
fn hop_lists<'a>(hangs: impl Iterator<Item = &'a Hang>) -> ArrayRef {
    let mut builder = ListBuilder::new(StructBuilder::from_fields(hop_fields(), 0));
    for hang in hangs {
        let hops = hang.chain.as_ref().and_then(|chain| chain.hops.get(1..));
        for hop in hops.into_iter().flatten() {
            let text = |text: &'a str| Some(text).filter(|text| !text.is_empty());
            let item = builder.values();
            append!(item, 0, StringBuilder, text(&hop.program));
            append!(item, 1, StringBuilder, text(&hop.unit));
            append!(item, 2, StringBuilder, text(&hop.call));
            append!(item, 3, StringBuilder, text(&hop.function));
            append!(item, 4, Int64Builder, Some(micros(hop.waited_ns)));
            item.append(true);
        }
        builder.append(hops.is_some());
    }
    Arc::new(builder.finish())
}

/// A stack with its hash and the index of the frame to blame.
pub type HashedStack<'a> = (u64, Option<u32>, &'a [HangFrame]);

/// Returns a row for each stack.
///
/// # Errors
///
/// As [`hang_rows`].
pub fn stack_rows(stacks: &[HashedStack<'_>]) -> Result<RecordBatch, ArrowError> {
    let mut columns = Columns::of(stacks.len());
    let mut hashes = UInt64Builder::new();
    let mut blamed = UInt32Builder::new();
    let mut lists = ListBuilder::new(StructBuilder::from_fields(frame_fields(), 0));
    for (hash, blames, frames) in stacks {
        hashes.append_value(*hash);
        blamed.append_option(*blames);
        for frame in *frames {
            let item = lists.values();
            append!(item, 0, StringBuilder, Some(&*frame.function));
            append!(item, 1, StringBuilder, Some(&*frame.module));
            item.append(true);
        }
        lists.append(true);
    }
    columns.push("stack", DataType::UInt64, false, Arc::new(hashes.finish()));
    columns.push("blamed", DataType::UInt32, true, Arc::new(blamed.finish()));
    columns.push("frames", list_of(frame_fields()), false, Arc::new(lists.finish()));
    columns.finish()
}

/// For how long one program, or any, was watched on one day.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct WatchedDay {
    /// The program; none for the recorder itself and whatever it watched.
    pub program: Option<String>,
    /// For how long the recorder ran, in nanoseconds; 0 for one program.
    pub recorder_ns: u64,
    /// For how long it was watched, in nanoseconds; for one program those of several processes are added.
    pub watched_ns: u64,
    /// How many steps were longer than a frame, by class.
    pub steps: [u64; STEP_BOUNDS_NS.len() + 1],
    /// Hangs that were seen and not stored.
    pub lost: u64,
}

/// Returns a row for each program of a day.
///
/// # Errors
///
/// As [`hang_rows`].
pub fn watched_rows(source: &RecordSource, days: &[WatchedDay]) -> Result<RecordBatch, ArrowError> {
    let mut columns = Columns::of(days.len());
    columns.source(source);
    let mut programs = StringBuilder::new();
    days.iter().for_each(|day| programs.append_option(day.program.as_deref()));
    columns.push("program", DataType::Utf8, true, Arc::new(programs.finish()));
    columns.times("recorder_us", days.iter().map(|day| day.recorder_ns));
    columns.times("watched_us", days.iter().map(|day| day.watched_ns));
    let item = Arc::new(Field::new("item", DataType::Int64, true));
    let mut steps = ListBuilder::new(Int64Builder::new()).with_field(Arc::clone(&item));
    for day in days {
        for count in day.steps {
            steps.values().append_value(i64::try_from(count).unwrap_or(i64::MAX));
        }
        steps.append(true);
    }
    columns.push("steps", DataType::List(item), false, Arc::new(steps.finish()));
    let mut lost = Int64Builder::new();
    days.iter().for_each(|day| lost.append_value(i64::try_from(day.lost).unwrap_or(i64::MAX)));
    columns.push("lost", DataType::Int64, false, Arc::new(lost.finish()));
    columns.finish()
}

/// Returns a row for each fact of a machine.
///
/// # Errors
///
/// As [`hang_rows`].
pub fn fact_rows(source: &RecordSource, facts: &[Fact]) -> Result<RecordBatch, ArrowError> {
    let mut columns = Columns::of(facts.len());
    columns.source(source);
    columns.moments("seen", facts.iter().map(|fact| fact.seen_ns));
    columns.texts("name", facts.iter().map(|fact| &*fact.name));
    columns.texts("value", facts.iter().map(|fact| &*fact.value));
    columns.finish()
}
