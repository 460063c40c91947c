//! What the recorder takes beside programs at rest.

use std::process::Stdio;
use std::time::Duration;

use super::Lab;
use super::judge::{ObservedProgram, judge};
use super::process::{OwnedProcess, memory};
use super::recorder::{HangRecorder, told, unix_offset_ns};
use crate::lab::{BenchError, Measuring, cannot};
use crate::row::{FigureRow, FigureTarget};
use crate::trace::exercise::now_ns;
use report::figure::Quantity;
use report::samples::Samples;

/// How many programs rest.
const PROGRAMS: [usize; 2] = [20, 5];
/// How many other processes of the session wait beside them.
const OTHERS: [usize; 2] = [300, 20];
/// How long the recorder reads what it needs of programs that are new, in seconds.
const SETTLING: [usize; 2] = [30, 5];
/// How long it is measured in a piece, in seconds.
const PIECE: [usize; 2] = [20, 3];
/// How many pieces a minute has.
const PIECES_A_MINUTE: usize = 3;

/// What was promised: percent of a processor, wake-ups a second, bytes.
const SHARE: f64 = 0.3;
const WAKE_UPS: f64 = 2.0;
const MEMORY: f64 = 30e6;
/// None; a quick run does not judge it, as it does what is exactly nothing.
const NO_HANG: f64 = 0.4;

pub(super) fn idle(lab: &Lab<'_>) -> Result<Vec<FigureRow>, BenchError> {
    let of = |[full, quick]: [usize; 2]| lab.effort.of(full, quick);
    let seconds = |both| Duration::from_secs(u64::try_from(of(both)).unwrap_or(1));
    let pieces = of([lab.minutes * PIECES_A_MINUTE, 1]);
    let offset = unix_offset_ns(lab.clock);
    let since = now_ns();
    let toolkits = lab.scene.toolkits.iter().cycle().take(of(PROGRAMS));
    let programs: Result<Vec<_>, _> = toolkits.map(|toolkit| lab.scene.rest(toolkit)).collect();
    let mut programs = programs?;
    let mut others = Vec::new();
    for _ in 0..of(OTHERS) {
        let mut command = lab.scene.command("sleep");
        let sleeps = OwnedProcess::start(command.arg("infinity").stdout(Stdio::null()));
        others.push(sleeps.map_err(|error| cannot("sleep", error))?);
    }
    let recorder = HangRecorder::start(&lab.scene)?;
    let failed = |error: std::io::Error| cannot("unjank hangs record", error);
    let mut samples = <[Samples; 3]>::default();
    if let Some(first) = programs.first_mut() {
        first.rest(seconds(SETTLING))?;
        for _ in 0..pieces {
            lab.go_on()?;
            let before = recorder.usage().map_err(failed)?;
            let began = now_ns();
            first.rest(seconds(PIECE))?;
            let after = recorder.usage().map_err(failed)?;
            #[expect(clippy::cast_precision_loss, reason = "exact up to 104 days")]
            let took = now_ns().saturating_sub(began) as f64;
            samples[0].push(100.0 * (after.ran_ns - before.ran_ns) / took);
            samples[1].push(1e9 * (after.waits - before.waits) / took);
            samples[2].push(memory(recorder.id()).map_err(failed)?);
        }
    }
    let of_service = lab.scene.served().map(|served| memory(served.service())).transpose();
    let of_service = of_service.map_err(failed)?;
    recorder.end()?;
    let processes = others.len();
    drop(others);
    let observed: Vec<ObservedProgram> = programs
        .into_iter()
        .map(|program| ObservedProgram { process: program.id(), gaps: program.end() })
        .collect();
    let count = observed.len();
    let told = told(&lab.scene, offset)?;
    let told: Vec<_> = told.into_iter().filter(|hang| hang.span.from_ns > since).collect();
    let judged = judge(&[], &told, &observed);
    let row = |id, title: &str, quantity, ours, most, note: &str| FigureRow {
        id,
        title: title.to_owned(),
        quantity,
        ours,
        peer: Samples::default(),
        target: Some(FigureTarget::Within(most)),
        note: note.to_owned(),
    };
    let [share, wake_ups, memory] = samples;
    #[expect(clippy::cast_precision_loss, reason = "there are some")]
    let false_hangs: Samples = [judged.false_hangs.len() as f64].into_iter().collect();
    let sum = if of_service.is_some() { "recorder and service together" } else { "all threads" };
    let beside = format!(
        "beside {count} programs at rest and {processes} other processes, {pieces} times {} s, the sum of {sum}",
        of(PIECE)
    );
    let of_memory = match of_service {
        Some(bytes) => {
            format!("VmRSS; the service for all users has {}", Quantity::Size.show(bytes))
        }
        None => "VmRSS".to_owned(),
    };
    Ok(vec![
        row("idle-processor", "processor at rest", Quantity::Share, share, SHARE, &beside),
        row(
            "idle-wake-ups",
            "wake-ups at rest",
            Quantity::Rate,
            wake_ups,
            WAKE_UPS,
            "how often a thread of it began to wait (voluntary_ctxt_switches)",
        ),
        row("idle-memory", "memory at rest", Quantity::Size, memory, MEMORY, &of_memory),
        row(
            "idle-false",
            "false hangs at rest",
            Quantity::Count,
            false_hangs,
            NO_HANG,
            &judged.false_hangs.join(", "),
        ),
    ])
}
