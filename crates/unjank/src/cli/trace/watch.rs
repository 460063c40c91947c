//! `unjank trace watch`: tells live of each time that a program's first thread stands still.

use std::io::Write;
use std::time::Duration;

use clap::Args;
use probe::report::figure::{Quantity, duration};
use probe::report::paint::{Paint, Tone};
use probe::trace::recording::{Backend, Target};
use probe::trace::report::spelling::spell;
use probe::trace::watch::{self, Block, Event, Kind as Stay, Options, Subject};

use super::options::{backend, sources, told};
use crate::cli::moment;
use crate::cli::{interrupt, screen};
use crate::error::{Error, Verdict};

/// Tell live of each block of a program's main thread.
///
/// Leave it on all day.
/// Nothing is stopped or slowed down. It ends with the process, or by Ctrl-C; by a name, programs that start later are watched too.
#[derive(Debug, Args)]
#[command(before_help = "Example: unjank trace watch plasmashell")]
pub(super) struct Watch {
    /// Tell of blocks at least this long.
    #[arg(long, value_name = "TIME", default_value = "50ms", value_parser = moment::duration)]
    threshold: Duration,
    /// How to watch: bpf or peek.
    #[arg(long, value_name = "BACKEND", value_parser = backend)]
    backend: Option<Backend>,
    /// Print the whole stack of each, not only who is to blame.
    #[arg(long)]
    stacks: bool,
    /// A process's number or name.
    #[arg(value_name = "PID|NAME")]
    subject: String,
}

impl Watch {
    pub(super) fn run(self) -> Result<Verdict, Error> {
        let subject = match self.subject.parse() {
            Ok(process) => Subject::Process(process),
            Err(_) => Subject::Named(self.subject.clone()),
        };
        let options = Options {
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
            "{} told{lost}; {} idle waits of {} in all were not",
            summary.told,
            summary.idle_waits,
            duration(summary.idle)
        )?;
        Ok(Verdict::Yes)
    }
}

/// Writes an event in a line, or in several with its stack.
fn tell(event: &Event, subject: &str, paint: Paint, stacks: bool) -> String {
    match event {
        Event::NotYet => paint.set(
            Tone::Dim,
            &format!("no process is called {} yet; waiting for one\n", spell(subject.as_bytes())),
        ),
        Event::Found { process, executable, backend } => paint.set(
            Tone::Dim,
            &format!("watching {} ({process}) by {}\n", spell(executable), backend.name()),
        ),
        Event::Ended { process } => paint.set(Tone::Dim, &format!("{process} has ended\n")),
        Event::Refused { process } => {
            paint.set(Tone::Warn, &format!("{process} may not be looked at\n"))
        }
        Event::Block(block) => told_block(block, paint, stacks),
    }
}

#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
fn told_block(block: &Block, paint: Paint, stacks: bool) -> String {
    let at = jiff::Timestamp::try_from(block.at).map_or_else(
        |_| String::new(),
        |at| at.to_zoned(jiff::tz::TimeZone::system()).strftime("%H:%M:%S%.3f ").to_string(),
    );
    let length = Quantity::Time.show(block.call.wall_ns as f64);
    let (tone, length) = match (block.goes_on(), block.kind) {
        (true, _) => (Tone::Bad, format!("{length} and on")),
        (false, Stay::Stall) => (Tone::Bad, length),
        (false, Stay::Wait) => (Tone::Warn, length),
    };
    let mut text = format!("{at}{} in {}", paint.set(tone, &length), block.call_name());
    if let Some(target) = &block.target {
        text.push_str(&format!("({})", name(target)));
    }
    if let Some(mount) = &block.mount {
        text.push_str(&format!(" on {} {}", mount.kind, spell(&mount.source)));
    }
    if stacks {
        text.push('\n');
        for (at, frame) in block.frames.iter().enumerate() {
            let tone = if block.blamed == Some(at) { Tone::Strong } else { Tone::Dim };
            let line = format!("  {} {}", frame.text(), frame.module);
            text.push_str(&paint.set(tone, line.trim_end()));
            text.push('\n');
        }
        return text;
    }
    // From the frame to blame outwards: who asked for it.
    let callers = block.frames.iter().skip(block.blamed.unwrap_or(0)).take(3);
    for frame in callers {
        text.push_str(&format!(" <- {}", frame.text()));
    }
    text.push('\n');
    text
}

fn name(target: &Target) -> String {
    match target {
        Target::File { path, .. } => spell(path),
        Target::Files { from, to, .. } => format!("{} -> {}", spell(from), spell(to)),
        Target::Socket { peer, request: Some(request) } => format!("{request} of {peer}"),
        Target::Socket { peer, request: None } => peer.clone(),
        Target::Lock { owner: Some(owner), .. } => format!("lock of thread {owner}"),
        Target::Lock { owner: None, .. } => "lock".to_owned(),
        Target::Child(process, command) => format!("child {process} {}", spell(command)),
        Target::Other(text) => text.clone(),
    }
}
