//! Runs a protocol with every call failing in every way, and looks at every disk that results.

use rustix::io::Errno;

use super::{FaultEffect, SimDisk};

/// How much was explored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Explored {
    /// How often the protocol was run.
    pub runs: usize,
    /// How many disks were looked at after a power cut.
    pub images: usize,
}

/// Runs `protocol` on disks made by `seeded` and checks every outcome.
///
/// The runs: one without a fault; for each call one in which it and all after it fail, as when the disk goes or the
/// power is cut during it; for each call and each [`FaultEffect`] (one, of a call that changes nothing) one in which only it fails, and for each of those again
/// one for each later call at which the disk goes. After each run `running` is asked about the disk as readers see it
/// while the machine goes on, and `restarted` about each disk that a power cut at that moment may leave. Both get what
/// the protocol returned.
///
/// # Errors
///
/// The first complaint, with the calls that led to it.
pub fn explore<A>(
    seeded: impl Fn() -> SimDisk,
    protocol: impl Fn(&SimDisk) -> A,
    running: impl Fn(&SimDisk, &A) -> Result<(), String>,
    restarted: impl Fn(&SimDisk, &A) -> Result<(), String>,
) -> Result<Explored, String> {
    explore_every(1, seeded, protocol, running, restarted)
}

/// Does as [`explore`] does, but after a failing call the disk goes at every `step`-th later call only: a sample, for
/// protocols of many calls. The first of these calls differs from one failing call to the next, so that each is reached after some.
///
/// # Errors
///
/// The first complaint, with the calls that led to it.
pub fn explore_every<A>(
    step: usize,
    seeded: impl Fn() -> SimDisk,
    protocol: impl Fn(&SimDisk) -> A,
    running: impl Fn(&SimDisk, &A) -> Result<(), String>,
    restarted: impl Fn(&SimDisk, &A) -> Result<(), String>,
) -> Result<Explored, String> {
    let mut explored = Explored::default();
    let mut run =
        |fail: Option<(u64, FaultEffect)>, stop: Option<u64>| -> Result<Vec<String>, String> {
            let disk = seeded();
            if let Some((call, effect)) = fail {
                disk.fail_call(call, Errno::IO.raw_os_error(), effect);
            }
            if let Some(call) = stop {
                disk.stop_at(call, Errno::IO.raw_os_error());
            }
            let answer = protocol(&disk);
            let calls = disk.history();
            let context = |complaint: String| {
                let history = disk.history().join("\n  ");
                format!("{complaint}\nfailing {fail:?}, stopped at {stop:?}, after\n  {history}")
            };
            explored.runs += 1;
            let now = disk.fork();
            now.heal();
            running(&now, &answer).map_err(context)?;
            for image in disk.after_power_cut().map_err(|error| context(error.to_string()))? {
                explored.images += 1;
                restarted(&image, &answer)
                    .map_err(|complaint| context(format!("after a power cut: {complaint}")))?;
            }
            Ok(calls)
        };
    let calls = run(None, None)?;
    for stop in 0..calls.len() as u64 {
        run(None, Some(stop))?;
    }
    for (call, what) in (0..).zip(&calls) {
        let effects = match changes_nothing(what) {
            true => &[FaultEffect::Nothing][..],
            false => &[FaultEffect::Nothing, FaultEffect::Partial, FaultEffect::Whole],
        };
        for (effect, number) in effects.iter().zip(1..) {
            let calls = run(Some((call, *effect)), None)?;
            // The offset changes, else the same few calls, or distances to the failing one, were tried each time.
            let first = call + 1 + (call / step as u64 + number) % step as u64;
            for stop in (first..calls.len() as u64).step_by(step) {
                run(Some((call, *effect)), Some(stop))?;
            }
        }
    }
    Ok(explored)
}

/// Tells whether a call only answers, so that it is the same whether none, a part or all of it happens when it fails.
fn changes_nothing(call: &str) -> bool {
    const ANSWERS: [&str; 13] = [
        "read ",
        "stat ",
        "fstat ",
        "read_link ",
        "list ",
        "open ",
        "open_append ",
        "lock ",
        "log read ",
        "log read_at ",
        "append read ",
        "append fstat ",
        "open_log_unsynced ",
    ];
    ANSWERS.iter().any(|answer| call.starts_with(answer))
}
