//! What `unjank setup` and `unjank undo` print for people.

use std::io::Write;
use std::path::Path;

use ::setup::plan::PlannedContents;
use ::setup::session::{LiveSession, NameHandover, OtherServices};
use ::setup::{AppliedStep, ReturnedStep, SetupLayout, SetupPart, StepEffect, UndoOutcome};
use host::activation;
use report::quoting::quoted;

use crate::cli::screen::{self, Output, sayln};
use crate::cli::service_files::service_directories;
use crate::error::Error;

/// Returns how this program is called, as it can be pasted.
pub(super) fn own_command() -> String {
    command_of(&std::env::current_exe().unwrap_or_default(), false)
}

/// Returns how the program at `path` is called: by its name, if a shell finds one and it is not a new one elsewhere.
pub(super) fn command_of(path: &Path, is_new: bool) -> String {
    let search = super::variable("PATH").unwrap_or_default();
    let mut found = std::env::split_paths(&search).map(|dir| dir.join("unjank"));
    let on_path = found.find(|candidate| candidate.is_file());
    if on_path.is_some_and(|found| !is_new || found == path) {
        return "unjank".to_owned();
    }
    quoted(&path.to_string_lossy())
}

/// Prints what is done, for people.
pub(super) struct ChangeReporter<'a> {
    pub(super) out: Output,
    layout: &'a SetupLayout,
    home: Option<&'a Path>,
    /// How our program is called.
    command: &'a str,
}

impl<'a> ChangeReporter<'a> {
    pub(super) fn new(
        layout: &'a SetupLayout,
        home: Option<&'a Path>,
        command: &'a str,
    ) -> ChangeReporter<'a> {
        ChangeReporter { out: screen::stdout(), layout, home, command }
    }

    /// Returns a path as a person knows it.
    pub(super) fn short(&self, path: &Path) -> String {
        match self.home.and_then(|home| path.strip_prefix(home).ok()) {
            Some(rest) if self.layout.root.is_none() => format!("~/{}", rest.display()),
            _ => path.display().to_string(),
        }
    }

    pub(super) fn preview(&mut self, steps: &[AppliedStep]) -> Result<(), Error> {
        for step in steps {
            let path = self.short(&self.layout.at(&step.path));
            let verb = match (step.effect, &step.contents) {
                (StepEffect::Keep, _) => {
                    sayln!(self.out, "would leave {path} as it is")?;
                    continue;
                }
                (StepEffect::Make, _) => "make",
                (StepEffect::Update, _) => "update",
                (StepEffect::Replace, _) => "replace, and keep for undo,",
            };
            match &step.contents {
                PlannedContents::CopyOf(from) => {
                    sayln!(self.out, "would {verb} {path} from {}", self.short(from))?;
                }
                PlannedContents::Link(target) => {
                    sayln!(self.out, "would {verb} {path}: a link to {}", target.display())?;
                }
                PlannedContents::Text(text) => {
                    sayln!(self.out, "would {verb} {path}:")?;
                    let old = step.before.as_deref().unwrap_or_default();
                    for (sign, lines) in [("-", old), ("+", text)] {
                        for line in String::from_utf8_lossy(lines).lines() {
                            sayln!(self.out, "  {sign} {line}")?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) fn was_off(&mut self, parts: &[SetupPart]) -> Result<(), Error> {
        for part in parts {
            sayln!(self.out, "{} was not switched on by `unjank setup`.", part.name())?;
        }
        Ok(())
    }

    pub(super) fn returned(&mut self, steps: &[ReturnedStep], mood: &str) -> Result<(), Error> {
        for step in steps {
            let at = self.layout.at(&step.path);
            let path = self.short(&at);
            match step.outcome {
                UndoOutcome::Removed => sayln!(self.out, "  {mood}removed {path}")?,
                UndoOutcome::Restored => sayln!(self.out, "  {mood}restored {path}")?,
                UndoOutcome::WasGone => sayln!(self.out, "  {path} was not in place any more")?,
                UndoOutcome::Changed => {
                    sayln!(
                        self.out,
                        "  kept {path}: somebody else has changed it since. To remove it: rm {}",
                        quoted(&at.to_string_lossy())
                    )?;
                }
                UndoOutcome::Needed => {
                    let by = step.needed_by.as_deref().unwrap_or(&step.path);
                    let by = self.short(&self.layout.at(by));
                    sayln!(self.out, "  kept {path}: {by} needs it")?;
                }
            }
        }
        Ok(())
    }

    /// Says what a part does in the session that runs, and what the next login brings.
    pub(super) fn effect(
        &mut self,
        part: SetupPart,
        session: Option<&LiveSession>,
        others: OtherServices,
    ) -> Result<(), Error> {
        let Some(session) = session else { return Ok(()) };
        match part {
            SetupPart::Settings | SetupPart::Host | SetupPart::Listing => {
                self.handover(part, &session.take_over(part, others))?;
            }
            SetupPart::Relax => {
                writeln!(self.out, "relax: programs do not wait from the next login on.")?;
                self.overridden(part)?;
            }
            SetupPart::Gsettings => {
                writeln!(self.out, "gsettings: programs use the module from the next login on.")?;
                self.overridden(part)?;
            }
            SetupPart::Index if session.start("unjank-index.path") => {
                writeln!(self.out, "index: it is watched from now on.")?;
            }
            SetupPart::Index => writeln!(self.out, "index: it is watched from the next login on.")?,
            SetupPart::Hangs => {
                let from = match session.start("unjank-hangs.service") {
                    true => "they are recorded from now on; unjank hangs shows them.",
                    false => {
                        "they are recorded from the next login on, where systemd runs the session; elsewhere have it start `unjank hangs record`."
                    }
                };
                let exactness = ::setup::hang_exactness(crate::cli::trace::recorder().exists());
                writeln!(self.out, "hangs: {from}\nhangs: {exactness}")?;
            }
            SetupPart::HangNotifications if session.start("unjank-hang-notifications.service") => {
                writeln!(
                    self.out,
                    "hang-notifications: hangs from 2 s on are shown from now on, where the part hangs records them."
                )?;
            }
            SetupPart::HangNotifications => {
                writeln!(
                    self.out,
                    "hang-notifications: hangs from 2 s on are shown from the next login on, where systemd runs the session and the part hangs records them; elsewhere have it start `unjank hangs watch --notify`."
                )?;
            }
            SetupPart::Run => {
                writeln!(self.out, "run: each unit is held from its next start on.")?;
            }
            SetupPart::Recents => {
                writeln!(self.out, "recents: the lists are in memory now.")?;
            }
            // Of one user nothing is put in place.
            SetupPart::Trace | SetupPart::Programs => {}
        }
        Ok(())
    }

    /// Names the files because of which a part would have no effect.
    fn overridden(&mut self, part: SetupPart) -> Result<(), Error> {
        for file in ::setup::environment::files_that_override(self.layout, part) {
            let (path, variable, part) = (self.short(&file.path), file.variable, part.name());
            sayln!(
                self.out,
                "{part}: {path} is read later and sets {variable} to something else, so that programs would not load the library."
            )?;
            match file.is_list {
                true => {
                    sayln!(self.out, "  Write there {variable}=...${{{variable}:+:${variable}}}")?
                }
                false => sayln!(self.out, "  Take that line out of it.")?,
            }
        }
        Ok(())
    }

    fn handover(&mut self, part: SetupPart, handover: &NameHandover) -> Result<(), Error> {
        let name = part.bus_name().unwrap_or_default();
        let next = activation::find(&service_directories(), name);
        if let Some((file, line)) = next.filter(|(_, line)| !activation::starts_ours(line)) {
            let file = self.short(&file);
            sayln!(self.out, "{name}: the bus would start {line}, because {file} comes first.")?;
        }
        match handover {
            NameHandover::NoBus => {
                sayln!(self.out, "{name}: from the next login on; there is no session bus here.")?;
            }
            NameHandover::NobodyHadIt => {
                sayln!(self.out, "{name}: the next call starts unjankd.")?;
            }
            NameHandover::WasOurs(owner) => {
                sayln!(self.out, "{name}: unjankd (process {}) answers it.", owner.pid)?;
            }
            NameHandover::Ended(owner) => {
                sayln!(
                    self.out,
                    "{name}: {} (process {}) has ended; the next call starts unjankd.",
                    owner.name(),
                    owner.pid
                )?;
            }
            NameHandover::StillTheirs(owner) => {
                sayln!(
                    self.out,
                    "{name}: {} (process {}) answers it in this session; from the next login on, unjankd.",
                    owner.name(),
                    owner.pid
                )?;
                sayln!(self.out, "  to end it now: {} setup --now {}", self.command, part.name())?;
            }
            NameHandover::HasCommands(_) => self.end(part, handover)?,
        }
        Ok(())
    }

    /// Says what became of a daemon of ours that was to end.
    pub(super) fn end(&mut self, part: SetupPart, handover: &NameHandover) -> Result<(), Error> {
        let name = part.bus_name().unwrap_or_default();
        match handover {
            NameHandover::Ended(owner) => {
                let next = activation::find(&service_directories(), name);
                let next = next.map_or("nobody answers the next call".to_owned(), |(_, line)| {
                    format!("the next call starts {line}")
                });
                let (program, pid) = (owner.name(), owner.pid);
                sayln!(
                    self.out,
                    "{name}: {program} (process {pid}) has stored everything and ended; {next}."
                )?;
            }
            NameHandover::HasCommands(owner) => {
                let (program, pid, end) = (owner.name(), owner.pid, owner.end_command(part));
                sayln!(
                    self.out,
                    "{name}: {program} (process {pid}) runs host commands and goes on until they have ended."
                )?;
                sayln!(self.out, "  to end it and them now: {end}")?;
            }
            _ => {}
        }
        Ok(())
    }

    pub(super) fn unread(&mut self, commands: &[&str]) -> Result<(), Error> {
        for command in commands {
            sayln!(self.out, "This did not work, and the next login does it: {command}")?;
        }
        Ok(())
    }
}
