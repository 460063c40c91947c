//! The Firefox Profiler's file: a track a thread, calls as markers, blocked time as samples weighted in milliseconds.

use std::collections::HashMap;
use std::time::Duration;

use fxprof_processed_profile::{
    CategoryColor, CategoryHandle, CpuDelta, Frame, FrameFlags, FrameInfo, Marker,
    MarkerFieldFlags, MarkerFieldFormat, MarkerLocations, MarkerTiming, Profile,
    ReferenceTimestamp, SamplingInterval, StackHandle, StaticSchemaMarker, StaticSchemaMarkerField,
    StringHandle, ThreadHandle, Timestamp, WeightType,
};

use super::{frame_text, outermost_first};
use crate::report::TraceReport;
use crate::report::schema::{Slow, TargetKind, TraceMethod};
use crate::syscall::SyscallClass;

/// A slow call in the marker chart and table.
struct CallMarker {
    name: StringHandle,
    category: CategoryHandle,
    texts: [StringHandle; 4],
    cpu_ms: f64,
    queued_ms: f64,
}

impl StaticSchemaMarker for CallMarker {
    const UNIQUE_MARKER_TYPE_NAME: &'static str = "Syscall";
    const CHART_LABEL: Option<&'static str> = Some("{marker.name} {marker.data.target}");
    const TOOLTIP_LABEL: Option<&'static str> = Some("{marker.data.call}");
    const TABLE_LABEL: Option<&'static str> = Some("{marker.data.call}");
    const FIELDS: &'static [StaticSchemaMarkerField] = &[
        field("call", "Call", MarkerFieldFormat::String),
        field("target", "File or peer", MarkerFieldFormat::String),
        field("result", "Result", MarkerFieldFormat::String),
        field("how", "Counts as", MarkerFieldFormat::String),
        field("cpu", "On a CPU", MarkerFieldFormat::Duration),
        field("queued", "Waiting for a CPU", MarkerFieldFormat::Duration),
    ];

    fn name(&self, _profile: &mut Profile) -> StringHandle {
        self.name
    }

    fn category(&self, _profile: &mut Profile) -> CategoryHandle {
        self.category
    }

    fn string_field_value(&self, field: u32) -> StringHandle {
        self.texts.get(field as usize).copied().unwrap_or(self.name)
    }

    fn number_field_value(&self, field: u32) -> f64 {
        if field == 4 { self.cpu_ms } else { self.queued_ms }
    }
}

/// A hop of a wait that was followed across processes.
struct HopMarker {
    name: StringHandle,
    text: StringHandle,
}

impl StaticSchemaMarker for HopMarker {
    const UNIQUE_MARKER_TYPE_NAME: &'static str = "WaitHop";
    const CHART_LABEL: Option<&'static str> = Some("{marker.data.hop}");
    const TABLE_LABEL: Option<&'static str> = Some("{marker.data.hop}");
    const FIELDS: &'static [StaticSchemaMarkerField] =
        &[field("hop", "What it waited for", MarkerFieldFormat::String)];

    fn name(&self, _profile: &mut Profile) -> StringHandle {
        self.name
    }

    fn category(&self, _profile: &mut Profile) -> CategoryHandle {
        CategoryHandle::OTHER
    }

    fn string_field_value(&self, _field: u32) -> StringHandle {
        self.text
    }

    fn number_field_value(&self, _field: u32) -> f64 {
        0.0
    }
}

/// A slow call on a file, in the profiler's own row for these.
struct FileMarker {
    name: StringHandle,
    texts: [StringHandle; 3],
}

impl StaticSchemaMarker for FileMarker {
    const UNIQUE_MARKER_TYPE_NAME: &'static str = "FileIO";
    const LOCATIONS: MarkerLocations = MarkerLocations::MARKER_CHART
        .union(MarkerLocations::MARKER_TABLE)
        .union(MarkerLocations::TIMELINE_FILEIO);
    const TABLE_LABEL: Option<&'static str> =
        Some("{marker.data.operation} {marker.data.filename}");
    const FIELDS: &'static [StaticSchemaMarkerField] = &[
        field("operation", "Operation", MarkerFieldFormat::String),
        field("filename", "Filename", MarkerFieldFormat::String),
        field("source", "Source", MarkerFieldFormat::String),
    ];

    fn name(&self, _profile: &mut Profile) -> StringHandle {
        self.name
    }

    fn category(&self, _profile: &mut Profile) -> CategoryHandle {
        CategoryHandle::OTHER
    }

    fn string_field_value(&self, field: u32) -> StringHandle {
        self.texts.get(field as usize).copied().unwrap_or(self.name)
    }

    fn number_field_value(&self, _field: u32) -> f64 {
        0.0
    }
}

const fn field(
    key: &'static str,
    label: &'static str,
    format: MarkerFieldFormat,
) -> StaticSchemaMarkerField {
    StaticSchemaMarkerField { key, label, format, flags: MarkerFieldFlags::SEARCHABLE }
}

fn at(ns: u64) -> Timestamp {
    Timestamp::from_nanos_since_reference(ns)
}

/// Writes the profile as JSON; profiler.firefox.com opens it.
///
/// # Errors
///
/// Whatever `serde_json` reports; the types here give it no reason.
pub fn render(report: &TraceReport) -> serde_json::Result<String> {
    let began =
        ReferenceTimestamp::from_duration_since_unix_epoch(Duration::from_millis(report.began_ms));
    let product = report.main().map_or("unjank trace", |main| report.program(main.process));
    let mut profile = Profile::new(product, began, SamplingInterval::from_millis(1));
    profile.set_os_name(&report.provenance.kernel);
    profile.set_symbolicated(true);
    let categories: HashMap<SyscallClass, CategoryHandle> = SyscallClass::ALL
        .into_iter()
        .map(|class| (class, profile.add_category(class.word(), colour(class))))
        .collect();
    let mut processes = HashMap::new();
    for process in &report.processes {
        let handle =
            profile.add_process(report.program(process.id), process.id, at(process.start_ns));
        if let Some(end) = process.end_ns {
            profile.set_process_end_time(handle, at(end));
        }
        processes.insert(process.id, handle);
    }
    let mut threads: Vec<Option<ThreadHandle>> = Vec::new();
    for thread in &report.threads {
        let process = *processes.entry(thread.process).or_insert_with(|| {
            profile.add_process(report.program(thread.process), thread.process, at(thread.start_ns))
        });
        let handle = profile.add_thread(process, thread.id, at(thread.start_ns), thread.main);
        profile.set_thread_name(handle, &thread.name);
        if let Some(end) = thread.end_ns {
            profile.set_thread_end_time(handle, at(end));
        }
        profile.set_thread_samples_weight_type(handle, WeightType::TracingMs);
        profile.set_thread_show_markers_in_timeline(handle, true);
        threads.push(Some(handle));
    }
    for slow in &report.slow {
        if let Some(Some(thread)) = threads.get(slow.thread as usize) {
            add(&mut profile, report, slow, *thread, &categories);
        }
    }
    for chain in &report.chains {
        let thread = report.threads.iter().position(|thread| thread.id == chain.thread);
        let Some(Some(thread)) = thread.and_then(|at| threads.get(at)) else { continue };
        for (number, (hop, sentence)) in chain.hops.iter().zip(&chain.sentences).enumerate() {
            let name = profile.intern_string(&format!("Wait, hop {number}"));
            let text = profile.intern_string(sentence);
            let timing = MarkerTiming::Interval(at(hop.from_ns), at(hop.to_ns));
            mark(&mut profile, *thread, timing, HopMarker { name, text }, None);
        }
    }
    for slow in &report.slow {
        let Some(Some(thread)) = threads.get(slow.thread as usize) else { continue };
        let Some(operation) = report.operation_text(slow) else { continue };
        let name = profile.intern_string("Operation of io_uring");
        let text = profile.intern_string(&operation);
        let timing =
            MarkerTiming::Interval(at(slow.at_ns), at(slow.at_ns.saturating_add(slow.wall_ns)));
        mark(&mut profile, *thread, timing, HopMarker { name, text }, None);
    }
    let mut json = serde_json::to_value(&profile)?;
    in_milliseconds(&mut json);
    serde_json::to_string(&json).map(|text| text + "\n")
}

fn colour(class: SyscallClass) -> CategoryColor {
    match class {
        SyscallClass::Sync => CategoryColor::Red,
        SyscallClass::Names => CategoryColor::Blue,
        SyscallClass::Data => CategoryColor::Green,
        SyscallClass::Wait => CategoryColor::Orange,
        SyscallClass::Network => CategoryColor::Purple,
        SyscallClass::Process | SyscallClass::Other => CategoryColor::Gray,
    }
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds with a fraction")]
fn add(
    profile: &mut Profile,
    report: &TraceReport,
    slow: &Slow,
    thread: ThreadHandle,
    categories: &HashMap<SyscallClass, CategoryHandle>,
) {
    let class = report.calls.get(slow.call as usize).map_or(SyscallClass::Other, |kind| kind.class);
    let category = categories.get(&class).copied().unwrap_or(CategoryHandle::OTHER);
    let name = profile.intern_string(report.call_name(slow.call));
    let stack = stack(profile, report, slow, thread, category, name);
    let target = slow.target.and_then(|at| report.target_name(at)).unwrap_or_default();
    let result = match (&slow.error, slow.result) {
        (Some(error), _) => error.clone(),
        (None, Some(value)) => value.to_string(),
        (None, None) if slow.running => "still running".to_owned(),
        (None, None) => "?".to_owned(),
    };
    let how = match slow.how {
        TraceMethod::Stall => "a stall",
        TraceMethod::Idle => "idle",
        TraceMethod::Child => "a wait for a watched child",
    };
    let texts = [&*slow.arguments, &target, &result, how].map(|text| profile.intern_string(text));
    let timing =
        || MarkerTiming::Interval(at(slow.at_ns), at(slow.at_ns.saturating_add(slow.wall_ns)));
    let ms = |ns: Option<u64>| ns.unwrap_or(0) as f64 / 1e6;
    let marker = CallMarker {
        name,
        category,
        texts,
        cpu_ms: ms(slow.cpu_ns),
        queued_ms: ms(slow.queued_ns),
    };
    mark(profile, thread, timing(), marker, stack);
    let is_file = slow
        .target
        .and_then(|at| report.targets.get(at as usize))
        .is_some_and(|target| target.kind == TargetKind::File);
    // A call that had to wait for a processor did no input or output meanwhile.
    if is_file && !slow.is_mostly_elsewhere() {
        let texts = [report.call_name(slow.call), &target, "unjank trace"]
            .map(|text| profile.intern_string(text));
        let name = profile.intern_string("FileIO");
        mark(profile, thread, timing(), FileMarker { name, texts }, stack);
    }
    if slow.how == TraceMethod::Stall {
        let elsewhere = if slow.is_mostly_elsewhere() { slow.elsewhere_ns() } else { 0 };
        let ran = slow.cpu_ns.unwrap_or(0).saturating_add(elsewhere);
        let blocked = slow.wall_ns.saturating_sub(ran);
        // The library takes whole weights; they are made milliseconds when it has written them.
        let weight = i32::try_from(blocked / 1000).unwrap_or(i32::MAX);
        let cpu = CpuDelta::from_nanos(slow.cpu_ns.unwrap_or(0));
        profile.add_sample(thread, at(slow.at_ns), stack, cpu, weight);
    }
}

fn mark<T: Marker>(
    profile: &mut Profile,
    thread: ThreadHandle,
    timing: MarkerTiming,
    marker: T,
    stack: Option<StackHandle>,
) {
    let marker = profile.add_marker(thread, timing, marker);
    profile.set_marker_stack(thread, marker, stack);
}

/// Adds a call's stack, the call itself innermost.
fn stack(
    profile: &mut Profile,
    report: &TraceReport,
    slow: &Slow,
    thread: ThreadHandle,
    category: CategoryHandle,
    call: StringHandle,
) -> Option<StackHandle> {
    let names: Vec<StringHandle> = outermost_first(report, slow)
        .map(|frame| profile.intern_string(&frame_text(frame)))
        .chain([call])
        .collect();
    let frames = names.into_iter().map(|name| FrameInfo {
        frame: Frame::Label(name),
        category_pair: category.into(),
        flags: FrameFlags::empty(),
    });
    profile.intern_stack_frames(thread, frames)
}

/// Turns the weights of samples from microseconds into milliseconds.
fn in_milliseconds(profile: &mut serde_json::Value) {
    let threads = profile.get_mut("threads").and_then(|threads| threads.as_array_mut());
    for thread in threads.into_iter().flatten() {
        let weights =
            thread.pointer_mut("/samples/weight").and_then(|weights| weights.as_array_mut());
        for weight in weights.into_iter().flatten() {
            if let Some(us) = weight.as_f64() {
                *weight = serde_json::Value::from(us / 1000.0);
            }
        }
    }
}
