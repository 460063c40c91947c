//! `unjank setup` without a part: which are on, and what each would bring.

use std::io::Write;

use ::setup::SetupPart;
use ::setup::session::LiveSession;
use ::setup::state::{PartState, system_manifest_error};
use doctor::gains::KeptFigures;
use report::paint::Tone;
use report::paragraph::wrap;
use serde::Serialize;

use super::state;
use super::{Place, place};
use crate::cli::document;
use crate::cli::screen::{self, sayln};
use crate::error::{Error, Verdict};

/// How it is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Text,
    List,
    Json,
}

impl Form {
    pub(super) fn of(list: bool, json: bool) -> Form {
        match (list, json) {
            (_, true) => Form::Json,
            (true, false) => Form::List,
            (false, false) => Form::Text,
        }
    }
}

#[derive(Serialize)]
struct Document {
    parts: Vec<PartEntry>,
}

#[derive(Serialize)]
struct PartEntry {
    part: &'static str,
    state: &'static str,
    summary: &'static str,
    /// The command that switches it on, or takes it back.
    command: String,
    /// What the doctor measured, and when: none if it measured nothing of it.
    figures: Vec<FigureEntry>,
}

#[derive(Serialize)]
struct FigureEntry {
    step: String,
    median_ns: f64,
    n: usize,
    measured_at: String,
}

pub(super) fn run(place: &Place, form: Form) -> Result<Verdict, Error> {
    // A manifest that cannot be used is an error of the command that asks for it.
    drop(super::read(&*store::disk::real(), place.layout()?)?);
    if let Some(error) = system_manifest_error() {
        writeln!(
            screen::stderr(),
            "unjank: cannot read what is on for every user, and a part that is shown as off may be on: {}",
            report::error::chain(&error)
        )?;
    }
    let states = state::of_session().all();
    let kept = KeptFigures::read(&*store::disk::real(), kept_path().as_deref());
    match form {
        Form::Json => print_json(&states, &kept)?,
        Form::List => {
            let mut out = screen::stdout();
            for (part, state) in &states {
                writeln!(out, "{}\t{}", part.name(), state.word())?;
            }
        }
        Form::Text => print(&states, &kept)?,
    }
    Ok(Verdict::Yes)
}

/// Returns where the doctor keeps its figures.
pub(crate) fn kept_path() -> Option<std::path::PathBuf> {
    place::directories().map(|directories| directories.state.join(doctor::gains::FILE))
}

fn command(part: SetupPart, state: PartState) -> String {
    let own = super::text::own_command();
    match state {
        PartState::Off if part == SetupPart::Trace => {
            format!("sudo {own} setup --system {}", part.name())
        }
        PartState::Off => format!("{own} setup {}", part.name()),
        PartState::System => format!("sudo {own} undo --system {}", part.name()),
        PartState::User | PartState::Elsewhere => format!("{own} undo {}", part.name()),
    }
}

fn print_json(states: &[(SetupPart, PartState)], kept: &KeptFigures) -> Result<(), Error> {
    let entry = |(part, state): &(SetupPart, PartState)| {
        let figures = kept.of_part(*part).into_iter().map(|figure| FigureEntry {
            step: figure.step.clone(),
            median_ns: figure.median_ns,
            n: figure.n,
            measured_at: figure.date.clone(),
        });
        PartEntry {
            part: part.name(),
            state: state.word(),
            summary: part.summary(),
            command: command(*part, *state),
            figures: figures.collect(),
        }
    };
    document::print("unjank.setup/1", &Document { parts: states.iter().map(entry).collect() })
}

fn print(states: &[(SetupPart, PartState)], kept: &KeptFigures) -> Result<(), Error> {
    let (width, paint) = (screen::width(), screen::paint());
    let session = LiveSession::connect(place::runtime().as_deref());
    let mut out = screen::stdout();
    let on: Vec<&str> =
        states.iter().filter(|(_, state)| state.is_on()).map(|(part, _)| part.name()).collect();
    let verdict = match on.len() {
        0 => "No part of unjank is on for this user.".to_owned(),
        _ => format!("On for this user: {}.", on.join(", ")),
    };
    writeln!(out, "{}", paint.set(Tone::Strong, wrap(&verdict, width, "").trim_end()))?;
    for (part, state) in states {
        let word = match state {
            PartState::Off => "off",
            PartState::User => "on",
            PartState::System => "on, for every user",
            PartState::Elsewhere => "on, not by `unjank setup`",
        };
        writeln!(out)?;
        writeln!(out, "{}  {word}", paint.set(Tone::Strong, &format!("{:9}", part.name())))?;
        write!(out, "{}", wrap(part.summary(), width, "  "))?;
        for line in kept.lines(*part) {
            write!(out, "{}", wrap(&line, width, "  "))?;
        }
        if state.is_on()
            && let Some(name) = part.bus_name()
            && let Some(owner) = session.owner(name).filter(|owner| !owner.is_ours())
        {
            let (program, pid, own) = (owner.name(), owner.pid, super::text::own_command());
            sayln!(
                out,
                "  {program} (process {pid}) answers {name} in this session; to end it now:"
            )?;
            sayln!(out, "    {own} setup --now {}", part.name())?;
        }
        // What a package brought, it takes away.
        if *state != PartState::Elsewhere {
            sayln!(out, "    {}", command(*part, *state))?;
        }
    }
    Ok(())
}
