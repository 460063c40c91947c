//! `unjank trace watch`: tells live of each time that a program's first thread stands still.

use std::io::Write;
use std::time::Duration;

use clap::Args;
use report::figure::{Quantity, duration};
use report::paint::{Paint, Tone};
use trace::recording::{Backend, Target};
use trace::report::spelling::spell;
use trace::stack::names::Frame;
use trace::watch::{self, BusyStep, Stall, StallKind, WatchEvent, WatchOptions, WatchTarget};

use super::options::{backend, sources, told};
use crate::cli::{interrupt, screen};
use crate::error::{Error, Verdict};

/// Print each stall of a program's main thread, live.
///
/// Cheap enough to run
/// all day; no thread is stopped. Ends with the process, or with Ctrl-C; with a name, programs that start later are observed, too.
#[derive(Debug, Args)]
#[command(before_help = "Example: unjank trace watch plasmashell")]
pub(super) struct Watch {
    /// Print stalls of at least this length.
    #[arg(long, value_name = "TIME", default_value = "50ms", value_parser = ::report::duration::parse)]
    threshold: Duration,
    /// The backend: bpf or peek.
    #[arg(long, value_name = "BACKEND", value_parser = backend)]
    backend: Option<Backend>,
    /// Print the whole stack of each, not only the frame to blame.
    #[arg(long)]
    stacks: bool,
    /// A process ID or name.
    #[arg(value_name = "PID|NAME")]
    subject: String,
}

impl Watch {
    pub(super) fn run(self) -> Result<Verdict, Error> {
        let subject = match self.subject.parse() {
            Ok(process) => WatchTarget::Process(process),
            Err(_) => WatchTarget::Named(self.subject.clone()),
        };
        let options = WatchOptions {
            recorder: Some(super::options::recorder()),
            subject,
            threshold: self.threshold,
            backend: self.backend,
            sources: sources(),
        };
        let stop = interrupt::flag();
        let paint = screen::paint();
        let mut failed = None;
        let summary = watch::watch(&options, &stop, &mut |event| {
            let text = tell(&event, &self.subject, paint, self.stacks);
            let mut stdout = screen::stdout();
            if let Err(error) = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
                failed = Some(error);
                stop.store(true, std::sync::atomic::Ordering::Relaxed);
            }
        });
        if let Some(error) = failed {
            return Err(error.into());
        }
        let summary = summary.map_err(|error| told(&error))?;
        let lost = match summary.lost {
            0 => String::new(),
            lost => format!(", {lost} lost"),
        };
        writeln!(
            screen::stdout(),
            "{} {} printed{lost}; {} idle waits ({} in total) not printed",
            summary.reported,
            if summary.reported == 1 { "stall" } else { "stalls" },
            summary.idle_waits,
            duration(summary.idle)
        )?;
        Ok(Verdict::Yes)
    }
}

/// Writes an event in a line, or in several with its stack.
fn tell(event: &WatchEvent, subject: &str, paint: Paint, stacks: bool) -> String {
    match event {
        WatchEvent::NotYet => paint.set(
            Tone::Dim,
            &format!("no process is called {} yet; waiting for one\n", spell(subject.as_bytes())),
        ),
        WatchEvent::Found { process, executable, backend } => {
            let mut text =
                format!("watching {} ({process}) by {}\n", spell(executable), backend.name());
            if *backend == Backend::Peek {
                text.push_str(UNSEEN);
            }
            paint.set(Tone::Dim, &text)
        }
        WatchEvent::Ended { process } => paint.set(Tone::Dim, &format!("{process} has ended\n")),
        WatchEvent::Refused { process } => {
            paint.set(Tone::Warn, &format!("{process} may not be traced\n"))
        }
        WatchEvent::Stall(stall) => stall_line(stall, paint, stacks),
        WatchEvent::Busy(step) => busy_line(step, paint, stacks),
        WatchEvent::Stopped { at, length, goes_on, .. } => {
            let so_far = if *goes_on { " so far" } else { "" };
            let length = format!("about {}{so_far}", duration(*length));
            format!("{}{} stopped or frozen\n", time_of_day(*at), paint.set(Tone::Bad, &length))
        }
    }
}

/// What sampling from outside does not see, and what does.
const UNSEEN: &str = "not seen by peek: time on a processor, and stalls of many short calls; `sudo unjank trace watch …` sees them\n";

/// Writes the time of a stall, of day.
fn time_of_day(at: std::time::SystemTime) -> String {
    jiff::Timestamp::try_from(at).map_or_else(
        |_| String::new(),
        |at| at.to_zoned(jiff::tz::TimeZone::system()).strftime("%H:%M:%S%.3f ").to_string(),
    )
}

/// Writes a time in which no call was long, with what it went to and the function that most of it was in.
fn busy_line(step: &BusyStep, paint: Paint, stacks: bool) -> String {
    let so_far = if step.goes_on { " so far" } else { "" };
    let length = format!("{}{so_far}", duration(step.length));
    let mut text = format!(
        "{}{} without a look for events",
        time_of_day(step.at),
        paint.set(Tone::Bad, &length)
    );
    if let Some((ran, ready)) = step.parts {
        let calls = step.length.saturating_sub(ran + ready + step.stopped);
        text.push_str(&format!(
            ": {} on a processor, {} ready without one, {} in short calls",
            duration(ran),
            duration(ready),
            duration(calls)
        ));
        if !step.stopped.is_zero() {
            text.push_str(&format!(", about {} stopped or frozen", duration(step.stopped)));
        }
    }
    text.push_str(&callers(&step.frames, step.blamed, paint, stacks));
    text
}

/// Writes the callers in one line from the frame to blame outwards, or all of them.
fn callers(frames: &[Frame], blamed: Option<usize>, paint: Paint, stacks: bool) -> String {
    let mut text = String::new();
    if stacks {
        text.push('\n');
        for (at, frame) in frames.iter().enumerate() {
            let tone = if blamed == Some(at) { Tone::Strong } else { Tone::Dim };
            let line = format!("  {} {}", frame.text(), frame.module);
            text.push_str(&paint.set(tone, line.trim_end()));
            text.push('\n');
        }
        return text;
    }
    // From the frame to blame outwards: who asked for it.
    for frame in frames.iter().skip(blamed.unwrap_or(0)).take(3) {
        text.push_str(&format!(" <- {}", frame.text()));
    }
    text.push('\n');
    text
}

#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
fn stall_line(stall: &Stall, paint: Paint, stacks: bool) -> String {
    let at = time_of_day(stall.at);
    let length = Quantity::Time.show(stall.call.wall_ns as f64);
    let (tone, length) = match (stall.goes_on(), stall.kind) {
        (true, _) => (Tone::Bad, format!("{length} so far")),
        (false, StallKind::Stall) => (Tone::Bad, length),
        (false, StallKind::Wait) => (Tone::Warn, length),
    };
    let mut text = format!("{at}{} in {}", paint.set(tone, &length), stall.call_name());
    if let Some(target) = &stall.target {
        text.push_str(&format!("({})", name(target)));
    }
    let queued_ns = stall.call.queued_ns.unwrap_or(0);
    if queued_ns > stall.call.wall_ns / 2 {
        // Others had the processor; the disk is not to blame.
        let queued = duration(Duration::from_nanos(queued_ns));
        text.push_str(&format!(", {queued} of it ready, without a processor"));
    } else if let Some(mount) = &stall.mount {
        text.push_str(&format!(" on {} {}", mount.kind, spell(&mount.source)));
    }
    text.push_str(&callers(&stall.frames, stall.blamed, paint, stacks));
    text
}

fn name(target: &Target) -> String {
    match target {
        Target::File { path, .. } => spell(path),
        Target::Files { from, to, .. } => format!("{} -> {}", spell(from), spell(to)),
        Target::Socket { peer, request: Some(request) } => format!("{request} of {peer}"),
        Target::Socket { peer, request: None } | Target::Display { peer, .. } => peer.clone(),
        Target::Lock { owner: Some(owner), .. } => format!("lock of thread {owner}"),
        Target::Lock { owner: None, .. } => "lock".to_owned(),
        Target::Child(process, command) => format!("child {process} {}", spell(command)),
        Target::Other(text) => text.clone(),
    }
}
