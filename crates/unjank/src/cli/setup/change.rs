//! Parts are switched on and off: the files first, then the session that runs.

use std::io::Write;
use std::path::{Path, PathBuf};

use ::setup::gsettings::GSETTINGS_MODULE;
use ::setup::plan::{self, PlannedContents, PlannedFile, ProgramSource};
use ::setup::session::{LiveSession, NameHandover, OtherServices};
use ::setup::{
    AppliedStep, ForeignFiles, Installation, ReturnedStep, SetupLayout, SetupPart, SetupScope,
    StepEffect,
};
use report::quoting::quoted;
use rustix::fs::Mode;
use serde::Serialize;
use sys::clock::{Clock, SystemClock};

use super::text::{self, ChangeReporter};
use super::{Place, failed, owner, place};
use crate::cli::screen::sayln;
use crate::cli::{document, recent};
use crate::error::{Error, FailureCategory, Verdict};

/// What was asked for.
pub(super) struct Request {
    pub(super) parts: Vec<SetupPart>,
    pub(super) dry_run: bool,
    pub(super) as_json: bool,
    pub(super) place: Place,
    pub(super) others: OtherServices,
}

/// The switch of the part `recents`.
const VOLATILE: &str = "volatile";
const TRACE_ON: &str = "systemctl daemon-reload && systemctl start unjank-recorder.socket";
const TRACE_OFF: &str = "systemctl stop unjank-recorder.socket unjank-recorder.service";

#[derive(Serialize)]
struct Document {
    dry_run: bool,
    steps: Vec<Step>,
}

#[derive(Serialize)]
struct Step {
    path: PathBuf,
    effect: &'static str,
}

/// Puts parts in place.
pub(super) fn switch_on(
    request: &Request,
    foreign: ForeignFiles,
    from: Option<&Path>,
) -> Result<Verdict, Error> {
    // Nobody else writes what is run from here, whatever the caller's mask is.
    rustix::process::umask(Mode::from_raw_mode(0o022));
    let disk = store::disk::real();
    let layout = request.place.layout()?;
    refuse_recents_for_all(request, &layout)?;
    refuse_trace_for_one(request, &layout)?;
    let source = place::source(from, &layout)?;
    let what = || format!("switch on {}", names(&request.parts));
    let mut files: Vec<PlannedFile> = Vec::new();
    let mut empty = Vec::new();
    let is_copied = matches!(source, ProgramSource::Built(_));
    let is_implied = is_copied && !request.parts.contains(&SetupPart::Programs);
    let programs = is_implied.then_some(SetupPart::Programs);
    for part in programs.into_iter().chain(request.parts.iter().copied()) {
        let of_part = plan::files_of(part, &layout, &source);
        let of_part = of_part.map_err(|error| failed(&what(), error))?;
        if of_part.is_empty() && part == SetupPart::Run {
            empty.push(part);
        }
        files.extend(of_part);
    }
    let home = place::directories().map(|directories| directories.home);
    let program = match &source {
        ProgramSource::Installed { programs, .. } => programs.join("unjank"),
        ProgramSource::Built(_) => layout.programs.join("unjank"),
    };
    let command = text::command_of(&program, is_copied);
    let mut tell = ChangeReporter::new(&layout, home.as_deref(), &command);
    if request.dry_run {
        let installation = super::read(&*disk, layout.clone())?;
        let steps = installation.preview(&files, foreign);
        let steps = steps.map_err(|error| failed(&what(), error))?;
        if request.as_json {
            return print_json(request, applied(&steps), Verdict::Yes);
        }
        tell.preview(&steps)?;
        if request.parts.contains(&SetupPart::Recents) {
            writeln!(
                tell.out,
                "would move the lists of recent documents to memory: unjank recent volatile on"
            )?;
        }
        return Ok(Verdict::Yes);
    }
    let (steps, switched) = {
        let mut installation = Installation::open(&*disk, layout.clone(), owner(&layout))
            .map_err(|error| failed(&what(), error))?;
        // What is put together for a package is on for nobody yet.
        if layout.root.is_none() {
            installation = installation.dated(SystemClock::start().now());
        }
        let steps =
            installation.switch_on(&files, foreign).map_err(|error| failed(&what(), error))?;
        let switched = match request.parts.contains(&SetupPart::Recents) {
            true => switch_recents_on(&mut installation, &source)?,
            false => false,
        };
        (steps, switched)
    };
    let session = live(&layout);
    let unread = session.as_ref().map_or(Vec::new(), LiveSession::reload);
    if request.as_json {
        for part in &request.parts {
            let _ = session.as_ref().map(|session| session.take_over(*part, request.others));
        }
        return print_json(request, applied(&steps), Verdict::Yes);
    }
    let is_for = if layout.scope == SetupScope::User { "this user" } else { "every user" };
    sayln!(tell.out, "On for {is_for}: {}.", names(&request.parts))?;
    let is_program = |step: &AppliedStep| matches!(step.contents, PlannedContents::CopyOf(_));
    let are_new = steps.iter().any(|step| is_program(step) && step.effect != StepEffect::Keep);
    if are_new && from.is_none() {
        sayln!(
            tell.out,
            "The programs are copied to {}, because they run from the directory of a build.",
            tell.short(&layout.programs)
        )?;
    }
    for step in steps.iter().filter(|step| step.effect != StepEffect::Keep) {
        sayln!(tell.out, "  {} {}", step.effect.name(), tell.short(&layout.at(&step.path)))?;
    }
    if steps.iter().all(|step| step.effect == StepEffect::Keep) && !switched && empty.is_empty() {
        writeln!(tell.out, "Everything was in place already.")?;
    }
    for part in &empty {
        sayln!(
            tell.out,
            "{}: no unit that is known to work in the background is installed here.",
            part.name()
        )?;
    }
    if layout.scope == SetupScope::System && layout.root.is_none() {
        writeln!(tell.out, "Each user has it from the next login on.")?;
        if request.parts.contains(&SetupPart::Run) {
            writeln!(tell.out, "run: it takes effect after: systemctl daemon-reload")?;
        }
        if request.parts.contains(&SetupPart::Trace) {
            writeln!(tell.out, "trace: it takes effect after: {TRACE_ON}")?;
        } else if request.parts.contains(&SetupPart::Hangs) {
            writeln!(
                tell.out,
                "hangs: of users who are not root they have their exact length with the recorder service: {command} setup --system trace"
            )?;
        }
    }
    for part in &request.parts {
        tell.effect(*part, session.as_ref(), request.others)?;
    }
    tell.unread(&unread)?;
    if layout.root.is_none() {
        let place = match (&request.place.prefix, layout.scope) {
            (Some(prefix), _) => format!(" --prefix {}", quoted(&prefix.to_string_lossy())),
            (None, SetupScope::System) => " --system".to_owned(),
            (None, SetupScope::User) => String::new(),
        };
        let undo = format!("{command} undo{place} {}", words(&request.parts));
        sayln!(tell.out, "To take it back: {}", undo.trim_end())?;
    }
    Ok(Verdict::Yes)
}

/// Takes parts back.
pub(super) fn switch_off(request: &Request) -> Result<Verdict, Error> {
    rustix::process::umask(Mode::from_raw_mode(0o022));
    let disk = store::disk::real();
    let layout = request.place.layout()?;
    let home = place::directories().map(|directories| directories.home);
    let mut tell = ChangeReporter::new(&layout, home.as_deref(), "unjank");
    let looked_at = super::read(&*disk, layout.clone())?;
    let is_any = request.parts.is_empty();
    let asked = if is_any { looked_at.parts() } else { request.parts.clone() };
    let parts: Vec<SetupPart> =
        asked.iter().copied().filter(|part| looked_at.is_on(*part)).collect();
    let what = || format!("take back {}", names(&parts));
    let off: Vec<SetupPart> = asked.into_iter().filter(|part| !parts.contains(part)).collect();
    if request.dry_run || parts.is_empty() {
        let steps = match parts.is_empty() {
            true => Vec::new(),
            false => looked_at.preview_off(&parts).map_err(|error| failed(&what(), error))?,
        };
        let verdict = verdict_of(&steps);
        if request.as_json {
            return print_json(request, returned(&steps), verdict);
        }
        if !request.dry_run && looked_at.has_leftovers() {
            // A run that was killed before its first step has left its lock.
            let opened = Installation::open(&*disk, layout.clone(), owner(&layout));
            drop(opened.map_err(|error| failed(&what(), error))?);
        }
        tell.was_off(&off)?;
        if is_any && parts.is_empty() {
            writeln!(tell.out, "`unjank setup` has switched nothing on.")?;
        }
        tell.returned(&steps, "would be ")?;
        if parts.contains(&SetupPart::Recents) && are_recents_to_go_back(&looked_at)? {
            writeln!(
                tell.out,
                "would move the lists of recent documents back to the disk: unjank recent volatile off"
            )?;
        }
        return Ok(verdict);
    }
    drop(looked_at);
    let session = live(&layout);
    for part in &parts {
        session.iter().for_each(|session| session.hold(*part));
    }
    let steps = {
        let mut installation = Installation::open(&*disk, layout.clone(), owner(&layout))
            .map_err(|error| failed(&what(), error))?;
        switch_recents_back(&mut installation, &parts)?;
        installation.switch_off(&parts).map_err(|error| failed(&what(), error))?
    };
    let unread = session.as_ref().map_or(Vec::new(), LiveSession::reload);
    let ended: Vec<(SetupPart, NameHandover)> = match &session {
        None => Vec::new(),
        Some(session) => {
            // The daemon ends when its files are gone, so that the next call starts what serves from now on.
            let ended = |part: &SetupPart| Some((*part, session.end_ours(*part)?));
            parts.iter().filter_map(ended).collect()
        }
    };
    let verdict = verdict_of(&steps);
    if request.as_json {
        return print_json(request, returned(&steps), verdict);
    }
    tell.was_off(&off)?;
    sayln!(tell.out, "Taken back: {}.", names(&parts))?;
    tell.returned(&steps, "")?;
    for (part, handover) in &ended {
        tell.end(*part, handover)?;
    }
    if parts.contains(&SetupPart::Relax) {
        writeln!(
            tell.out,
            "relax: programs that are started after the next login load no library."
        )?;
    }
    if parts.contains(&SetupPart::Gsettings) {
        let is_module = |step: &ReturnedStep| step.path.ends_with(GSETTINGS_MODULE);
        let is_gone = steps.iter().any(|step| is_module(step) && !step.is_left());
        let until = match is_gone {
            true => ", and before it warn that ours is missing",
            false => "",
        };
        sayln!(
            tell.out,
            "gsettings: programs that are started after the next login use dconf's module{until}."
        )?;
    }
    if parts.contains(&SetupPart::Trace) && layout.root.is_none() {
        writeln!(tell.out, "trace: it ends after: {TRACE_OFF}")?;
    }
    tell.unread(&unread)?;
    Ok(verdict)
}

/// Moves the lists of recent documents to memory, and records what was so before.
fn switch_recents_on(
    installation: &mut Installation<'_>,
    source: &ProgramSource,
) -> Result<bool, Error> {
    let was_on = recent::is_volatile()?;
    installation
        .record_switch(SetupPart::Recents, VOLATILE, was_on)
        .map_err(|error| failed("record what is switched", error))?;
    if was_on {
        return Ok(false);
    }
    let daemon = match source {
        ProgramSource::Installed { programs, .. } => programs.join("unjankd"),
        ProgramSource::Built(_) => place_of_daemon()
            .ok_or_else(|| Error::new(FailureCategory::Config, "find this user's directories"))?,
    };
    if let Err(error) = recent::switch_volatile_on(&daemon) {
        if !recent::is_volatile().unwrap_or(true) {
            installation
                .forget_switches(SetupPart::Recents)
                .map_err(|error| failed("forget what was not switched", error))?;
        }
        return Err(error);
    }
    Ok(true)
}

fn place_of_daemon() -> Option<PathBuf> {
    Some(SetupLayout::of_user(&place::directories()?).programs.join("unjankd"))
}

/// Moves the lists back to the disk, if they were there before.
fn switch_recents_back(
    installation: &mut Installation<'_>,
    parts: &[SetupPart],
) -> Result<(), Error> {
    if !parts.contains(&SetupPart::Recents) {
        return Ok(());
    }
    if are_recents_to_go_back(installation)? {
        recent::switch_volatile_off()?;
    }
    installation
        .forget_switches(SetupPart::Recents)
        .map_err(|error| failed("forget what was switched", error))
}

/// Says whether the lists are in memory and were on the disk before.
fn are_recents_to_go_back(installation: &Installation<'_>) -> Result<bool, Error> {
    let switches = installation.switches(SetupPart::Recents);
    let was_off = switches.iter().any(|switch| switch.name == VOLATILE && !switch.before);
    Ok(was_off && recent::is_volatile()?)
}

fn refuse_trace_for_one(request: &Request, layout: &SetupLayout) -> Result<(), Error> {
    if layout.scope == SetupScope::User && request.parts.contains(&SetupPart::Trace) {
        return Err(Error::new(FailureCategory::User, "switch on trace for one user")
            .hint("sudo unjank setup --system trace"));
    }
    Ok(())
}

fn refuse_recents_for_all(request: &Request, layout: &SetupLayout) -> Result<(), Error> {
    let is_for_all = layout.scope == SetupScope::System || layout.root.is_some();
    if is_for_all && request.parts.contains(&SetupPart::Recents) {
        return Err(Error::new(FailureCategory::User, "switch on recents for every user")
            .because(std::io::Error::other("each user decides where the lists are"))
            .hint("unjank setup recents, as that user"));
    }
    Ok(())
}

/// Returns the session that runs, if these files are its own.
fn live(layout: &SetupLayout) -> Option<LiveSession> {
    let is_own = layout.scope == SetupScope::User && layout.root.is_none();
    is_own.then(|| LiveSession::connect(place::runtime().as_deref()))
}

fn names(parts: &[SetupPart]) -> String {
    let names: Vec<&str> = parts.iter().map(|part| part.name()).collect();
    names.join(", ")
}

fn words(parts: &[SetupPart]) -> String {
    let names = parts.iter().filter(|part| **part != SetupPart::Programs);
    names.map(|part| part.name()).collect::<Vec<_>>().join(" ")
}

fn print_json(request: &Request, steps: Vec<Step>, verdict: Verdict) -> Result<Verdict, Error> {
    document::print("unjank.setup.change/1", &Document { dry_run: request.dry_run, steps })?;
    Ok(verdict)
}

fn verdict_of(steps: &[ReturnedStep]) -> Verdict {
    if steps.iter().any(ReturnedStep::is_left) { Verdict::No } else { Verdict::Yes }
}

fn applied(steps: &[AppliedStep]) -> Vec<Step> {
    steps.iter().map(|step| Step { path: step.path.clone(), effect: step.effect.name() }).collect()
}

fn returned(steps: &[ReturnedStep]) -> Vec<Step> {
    let steps = steps.iter();
    steps.map(|step| Step { path: step.path.clone(), effect: step.outcome.name() }).collect()
}
