//! The capture of sysprof (`.syscap`): slow calls as marks, stalls as samples of their stacks.
//!
//! The format is that of `sysprof-capture-types.h`, version 1, with times of the monotonic clock,
//! so that `sysprof-cli --merge` puts it beside the marks of GTK.

use std::collections::HashMap;

use super::{frame_text, outermost_first};
use crate::report::TraceReport;
use crate::report::schema::{Slow, TraceMethod};

const MAGIC: u32 = 0xFDCA_975E;
const VERSION: u32 = 1;
const LITTLE_ENDIAN: u32 = 1 << 8;

// Types of frames.
const SAMPLE: u32 = 2;
const PROCESS: u32 = 4;
const EXIT: u32 = 6;
const JITMAP: u32 = 7;
const MARK: u32 = 10;

/// Addresses with these bits are names of the capture's own.
const NAMED: u64 = 0xE000_0000_0000_0000;
/// The length of a frame is a number of 16 bits, a multiple of 8.
const LONGEST_FRAME: usize = 0xFFF8;
/// The bytes before what a frame holds.
const FRAME_HEADER: usize = 24;
/// A stall is a sample for each millisecond, or for a longer time if there would be more than these.
const MOST_SAMPLES: u64 = 50_000;

/// A capture that is being written.
#[derive(Default)]
struct Capture {
    bytes: Vec<u8>,
    names: HashMap<String, u64>,
    /// Names that no frame has told yet.
    untold: Vec<(u64, String)>,
}

/// Returns `text` in a field of `size` bytes, of which the last is zero.
fn field(text: &str, size: usize) -> Vec<u8> {
    let mut bytes = up_to(text, size - 1).to_vec();
    bytes.resize(size, 0);
    bytes
}

/// Returns the beginning of `text` that is no longer than `size` bytes, up to a zero byte.
fn up_to(text: &str, size: usize) -> &[u8] {
    let text = text.split('\0').next().unwrap_or_default();
    let fits = |end: &usize| text.is_char_boundary(*end);
    let end = (0..=size.min(text.len())).rev().find(fits).unwrap_or(0);
    &text.as_bytes()[..end]
}

impl Capture {
    /// Adds a frame; what does not fit is left out.
    fn frame(&mut self, kind: u32, process: u32, at_ns: u64, content: &[u8]) {
        let content = &content[..content.len().min(LONGEST_FRAME - FRAME_HEADER)];
        let len = (FRAME_HEADER + content.len()).next_multiple_of(8);
        self.bytes.extend(u16::try_from(len).unwrap_or(u16::MAX).to_le_bytes());
        // No processor is known.
        self.bytes.extend((-1_i16).to_le_bytes());
        self.bytes.extend(process.to_le_bytes());
        self.bytes.extend(at_ns.to_le_bytes());
        self.bytes.extend(kind.to_le_bytes());
        self.bytes.extend([0; 4]);
        self.bytes.extend(content);
        self.bytes.resize(self.bytes.len() + len - FRAME_HEADER - content.len(), 0);
    }

    /// Adds a name with a frame, which must end before the capture's limit of a name.
    fn name(&mut self, name: String) -> u64 {
        let next = NAMED | (self.names.len() as u64 + 1);
        *self.names.entry(name).or_insert_with_key(|name| {
            self.untold.push((next, name.clone()));
            next
        })
    }

    fn tell_names(&mut self, at_ns: u64) {
        const LONGEST_NAME: usize = 4000;
        let untold = std::mem::take(&mut self.untold);
        for names in untold.chunks(LONGEST_FRAME / (LONGEST_NAME + 16)) {
            let mut content = u32::try_from(names.len()).unwrap_or(0).to_le_bytes().to_vec();
            for (address, name) in names {
                content.extend(address.to_le_bytes());
                content.extend(up_to(name, LONGEST_NAME));
                content.push(0);
            }
            self.frame(JITMAP, 0, at_ns, &content);
        }
    }

    fn mark(&mut self, process: u32, at_ns: u64, length_ns: u64, texts: [&str; 3]) {
        let [group, name, message] = texts;
        let mut content = length_ns.to_le_bytes().to_vec();
        content.extend(field(group, 24));
        content.extend(field(name, 40));
        content.extend(up_to(message, 8000));
        content.push(0);
        self.frame(MARK, process, at_ns, &content);
    }
}

/// Writes the capture; sysprof opens it.
#[must_use]
pub fn render(report: &TraceReport) -> Vec<u8> {
    let began = report.began_monotonic_ns.unwrap_or(0);
    let at = |ns: u64| began.saturating_add(ns);
    let mut capture = Capture::default();
    capture.bytes.extend(MAGIC.to_le_bytes());
    capture.bytes.extend((VERSION | LITTLE_ENDIAN).to_le_bytes());
    capture.bytes.extend(field(&report.began(), 64));
    capture.bytes.extend(began.to_le_bytes());
    capture.bytes.extend(at(report.length_ns).to_le_bytes());
    capture.bytes.extend([0; 168]);
    for process in &report.processes {
        let mut content = up_to(&process.command, 8000).to_vec();
        content.push(0);
        capture.frame(PROCESS, process.id, at(process.start_ns), &content);
        if let Some(end) = process.end_ns {
            capture.frame(EXIT, process.id, at(end), &[]);
        }
    }
    for mark in &report.marks {
        capture.mark(mark.process, at(mark.at_ns), 0, ["mark", &mark.name, ""]);
    }
    let is_stall = |slow: &&Slow| slow.how == TraceMethod::Stall;
    // A report from elsewhere may have any times: the sum needs room, and no step is beyond a number of 64 bits.
    let stalled = report.slow.iter().filter(is_stall).map(|slow| u128::from(slow.wall_ns));
    let step = stalled.sum::<u128>() / u128::from(MOST_SAMPLES);
    let step_ns = u64::try_from(step).unwrap_or(u64::MAX).max(1_000_000);
    for slow in &report.slow {
        let Some(thread) = report.threads.get(slow.thread as usize) else { continue };
        let group = match slow.how {
            TraceMethod::Stall => "stall",
            TraceMethod::Idle => "idle",
            TraceMethod::Child => "waits for a child",
        };
        let call = report.call_name(slow.call);
        let texts = [group, call, &message(report, slow)];
        capture.mark(thread.process, at(slow.at_ns), slow.wall_ns, texts);
        if !is_stall(&slow) {
            continue;
        }
        let mut stack = vec![capture.name(call.to_owned())];
        let frames: Vec<String> = outermost_first(report, slow).map(frame_text).collect();
        stack.extend(frames.into_iter().rev().map(|frame| capture.name(frame)));
        capture.tell_names(at(slow.at_ns));
        stack.truncate(1000);
        let mut content = (u32::try_from(stack.len()).unwrap_or(0)).to_le_bytes().to_vec();
        content.extend(thread.id.to_le_bytes());
        content.extend(stack.iter().flat_map(|address| address.to_le_bytes()));
        for number in 0..slow.wall_ns.div_ceil(step_ns) {
            capture.frame(
                SAMPLE,
                thread.process,
                at(slow.at_ns.saturating_add(number * step_ns)),
                &content,
            );
        }
    }
    capture.bytes
}

/// Says what a call worked on and which function made it.
fn message(report: &TraceReport, slow: &Slow) -> String {
    let stack = slow.stack.and_then(|at| report.stacks.get(at as usize));
    let blamed = stack.and_then(|stack| stack.frames.get(stack.blamed? as usize));
    let blamed = blamed.and_then(|at| report.frames.get(*at as usize));
    let parts = [
        slow.target.and_then(|at| report.target_name(at)),
        slow.error.clone(),
        blamed.map(|frame| format!("in {}", frame.name)),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}
