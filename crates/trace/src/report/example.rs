//! A recording in which everything happens that can, for tests of reports.
#![allow(clippy::unwrap_used, reason = "an example that cannot be made fails the test")]

use std::time::{Duration, SystemTime};

use super::names::{Confidence, Frame, Frames, Names};
use super::schema::TraceReport;
use super::{ReportOptions, build};
use crate::call::{CallEnd, StackId, TracedCall};
use crate::recorder::TraceRecorder;
use crate::recording::{
    Backend, CodeAddress, Exit, Module, RecordedMount, Recording, Stack, StackEnd, Target,
};
use crate::syscall;
use crate::timeline::{MajorFault, TimeSlice};
use report::provenance::Provenance;

/// Names frames by their address, as the example numbers them.
pub(crate) struct Example;

impl Names for Example {
    fn frames(&self, recording: &Recording, stack: StackId) -> Frames {
        let places = &recording.stacks[stack.0 as usize].frames;
        let name = |place: &CodeAddress| {
            let (name, module, folded) = match place.address {
                1 => ("fdatasync", "libc.so.6", true),
                2 => ("KRecentDocument::add(QUrl const&)", "libKF5KIOCore.so.5", false),
                3 => ("KConfig::sync()", "libKF5ConfigCore.so.5", false),
                4 => ("main", "kde-open5", false),
                5 => ("ppoll", "libc.so.6", true),
                6 => ("g_main_context_iterate", "libglib-2.0.so.0", true),
                _ => ("</script><b>\u{202e}", "evil\n", false),
            };
            Frame {
                name: name.to_owned(),
                module: Some(module.to_owned()),
                confidence: Confidence::Exact,
                folded,
                object: place.module,
                address: place.address,
                line: None,
            }
        };
        let frames: Vec<Frame> = places.iter().map(name).collect();
        let is_idle = frames.iter().any(|frame| frame.name.starts_with("g_main"));
        let blamed = frames.iter().position(|frame| !frame.folded);
        Frames { blamed, frames, is_idle, ..Frames::default() }
    }
}

/// A name that would be anything but a name where it is not treated as one.
pub(crate) const HOSTILE: &[u8] =
    b"/tmp/</script><script>alert(1)</script>&amp;\"'\xff\n\x1b[31m\xe2\x80\xae.desktop";

/// A launcher that syncs two files on its main thread, one of them with a hostile name, and has a child and a worker.
pub(crate) fn recording() -> Recording {
    let began = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_000_000);
    let words = [b"kde-open5".to_vec(), b"a file.html".to_vec()];
    let mut recorder = TraceRecorder::new(Backend::Seccomp, words.to_vec(), began);
    recorder.recording().threshold_ns = 100_000;
    recorder.recording().watched = "blocking".to_owned();
    recorder.recording().bias.subtracted_ns = 6_000;
    recorder.recording().bias.spread_ns = 400;
    recorder.recording().notes.push("calls of the vDSO cannot be seen".to_owned());
    for (id, parent, program) in [(10, None, "/usr/bin/kde-open5"), (12, Some(10), "/bin/true")] {
        let process = recorder.process(id);
        process.parent = parent;
        process.executable = program.as_bytes().to_vec();
        process.command = vec![program.as_bytes().to_vec()];
        recorder.thread(id, id, 0).name = super::names::last_component(program.as_bytes()).to_vec();
    }
    recorder.thread(11, 10, 1000).name = b"worker".to_vec();
    recorder.process_ended(12, Some(Exit::Code(3)), 400_000_000);
    let module = recorder.module(Module {
        path: b"/usr/bin/kde-open5".to_vec(),
        build_id: Some(vec![0xab, 0x01]),
        file: None,
        reached_by: None,
    });
    let stack = |recorder: &mut TraceRecorder, addresses: &[u64]| {
        let frame = |address: &u64| CodeAddress { module: Some(module), address: *address };
        let frames = addresses.iter().map(frame).collect();
        Some(recorder.stack(Stack { frames, end: StackEnd::Whole }))
    };
    let mount = Some(recorder.mount(RecordedMount {
        point: b"/".to_vec(),
        kind: "ext4".to_owned(),
        options: "rw,data=ordered".to_owned(),
        source: b"/dev/sda2".to_vec(),
        rotational: Some(true),
        scheduler: Some("bfq".to_owned()),
    }));
    let recent = b"/home/ana/.local/share/RecentDocuments/x.desktop".to_vec();
    let files = [recent, HOSTILE.to_vec()].map(|path| Target::File { path, mount });
    let [recent, hostile] = files.map(|file| recorder.target(file));
    let number = |name: &str| syscall::call_number(name).unwrap();
    let ms = 1_000_000;
    let slow = |name: &str, thread: u32, at_ms: u64, wall_ns: u64| TracedCall {
        process: if thread == 11 { 10 } else { thread },
        thread,
        number: number(name),
        arguments: [4, 0, 0, 0, 0, 0],
        outcome: CallEnd::Returned(0),
        start_ns: at_ms * ms,
        wall_ns,
        cpu_ns: Some(wall_ns / 10),
        queued_ns: Some(wall_ns / 20),
        stack: None,
        target: None,
    };
    let add = stack(&mut recorder, &[1, 2, 4]);
    let sync = stack(&mut recorder, &[1, 3, 4]);
    let idle = stack(&mut recorder, &[5, 6, 4]);
    let evil = stack(&mut recorder, &[1, 99]);
    recorder.call(TracedCall { stack: add, target: recent, ..slow("fdatasync", 10, 20, 134 * ms) });
    recorder.call(TracedCall {
        stack: sync,
        target: hostile,
        ..slow("fdatasync", 10, 200, 40 * ms)
    });
    recorder.call(TracedCall { stack: evil, target: hostile, ..slow("fsync", 10, 260, ms / 2) });
    recorder.call(TracedCall { stack: idle, ..slow("ppoll", 10, 300, 900 * ms) });
    recorder.call(slow("futex", 11, 1, 1100 * ms));
    recorder.call(TracedCall { outcome: CallEnd::Running, ..slow("wait4", 10, 1210, 50 * ms) });
    let missing = Target::File { path: b"/usr/share/icons/x.png".to_vec(), mount };
    let missing = recorder.target(missing);
    for at in 0..1375 {
        recorder.call(TracedCall {
            outcome: CallEnd::Failed(2),
            target: missing,
            ..slow("access", 10, 5, 2_000 + at)
        });
    }
    let timeline = recorder.recording().timelines.entry(10).or_default();
    for (from, to) in [(0, 20), (154, 200), (240, 300), (1200, 1210)] {
        let length_ns = (to - from) * ms;
        let processor_ns = length_ns / 2;
        let start_ns = from * ms;
        timeline.push(TimeSlice { start_ns, length_ns, processor_ns, ..TimeSlice::default() });
    }
    timeline.samples.extend(add.map(|stack| (170 * ms, stack)));
    timeline.sample_ns = 4 * ms;
    timeline.faults.extend(sync.map(|stack| MajorFault {
        at_ns: 250 * ms,
        stack,
        target: hostile,
    }));
    timeline.fault_count = 1;
    [10, 180, 199, 250].into_iter().for_each(|at| timeline.turned(at * ms));
    recorder.recording().unseen.push("what a test does not see".to_owned());
    recorder.finish(1_260 * ms)
}

pub(crate) fn provenance() -> Provenance {
    Provenance {
        command: "unjank trace -- kde-open5 'a file.html'".to_owned(),
        version: "0.1.0".to_owned(),
        date: "2026-11-18T08:26:40Z".to_owned(),
        kernel: "Linux 6.18.0".to_owned(),
        processor: "Example".to_owned(),
        processors: 2,
        memory_bytes: 1 << 34,
        optimised: true,
        profile: "dist".to_owned(),
    }
}

pub(crate) fn report() -> TraceReport {
    let options = ReportOptions { home: Some(b"/home/ana".to_vec()), ..ReportOptions::default() };
    build(&recording(), &Example, provenance(), &options)
}
