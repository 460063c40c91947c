//! `unjank doctor`: measures this machine's interactive paths.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use probe::doctor::machine::{Machine, Waiting};
use probe::doctor::{Diagnosis, PROBES, Probe, Tools, diagnose, json, page, text};
use probe::report::paint::Tone;
use probe::report::paragraph::wrap;
use probe::report::provenance::Provenance;
use session::clock::{Clock, SystemClock};

use super::new_file::NewFile;
use super::{interrupt, screen};
use crate::error::{Error, Kind, Verdict};

/// Measure what makes this desktop wait, and say what helps.
///
/// Changes nothing: what it writes is removed again, and settings are tried on a copy.
/// Exits with 0 if everything fits, 1 if something misses its frame or is broken, 2 on an error.
#[derive(Debug, Args)]
#[command(before_help = "Example: unjank doctor --only storage")]
pub(crate) struct Doctor {
    /// Run only these probes, separated by commas.
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = names())]
    only: Vec<String>,
    /// The time that one step may take, for example 8.3ms.
    #[arg(long, value_name = "TIME", value_parser = frame, default_value = "16.667ms")]
    frame: Duration,
    /// Also write a page with the picture into this file; it must not exist.
    #[arg(short, long, value_name = "FILE.html")]
    output: Option<PathBuf>,
    /// Print one JSON document (docs/doctor.md has its fields).
    #[arg(long)]
    json: bool,
}

fn names() -> clap::builder::PossibleValuesParser {
    PROBES
        .iter()
        .map(|probe| clap::builder::PossibleValue::new(probe.name()).help(probe.about()))
        .into()
}

impl Doctor {
    pub(crate) fn run(self) -> Result<Verdict, Error> {
        let page = self.output.as_deref().map(NewFile::make).transpose()?;
        let machine = machine();
        let clock = SystemClock::start();
        let stop = interrupt::flag();
        let probes: Vec<&dyn Probe> = PROBES
            .iter()
            .copied()
            .filter(|probe| {
                self.only.is_empty() || self.only.iter().any(|name| name == probe.name())
            })
            .collect();
        let progress = screen::Progress::start();
        let tools = Tools { clock: &clock, frame: self.frame, stop: &stop };
        let diagnosis = diagnose(&probes, &machine, &tools, &mut |now| {
            progress.step(&format!("{}: {}", now.probe, now.text), now.done, now.whole);
        });
        progress.end();
        let provenance = Provenance::of_this_machine(super::command_line(), clock.now());
        let written = page.map(|file| file.write(&page::render(&diagnosis, &provenance)));
        self.print(&diagnosis, &provenance)?;
        written.transpose()?;
        if diagnosis.interrupted {
            return Err(Error::new(Kind::User, "finish").because("interrupted"));
        }
        Ok(if diagnosis.is_bad() { Verdict::No } else { Verdict::Yes })
    }

    fn print(&self, diagnosis: &Diagnosis, provenance: &Provenance) -> Result<(), Error> {
        let output = if self.json {
            json::render(diagnosis, provenance)
                .map_err(|error| Error::new(Kind::Internal, "write the document").because(error))?
        } else {
            let (width, paint) = (screen::width(), screen::paint());
            let mut output = text::render(diagnosis, width, paint);
            output.push('\n');
            for line in provenance.lines() {
                output.push_str(&paint.set(Tone::Dim, wrap(&line, width, "").trim_end()));
                output.push('\n');
            }
            output
        };
        let mut stdout = if self.json { screen::json() } else { screen::stdout() };
        stdout.write_all(output.as_bytes())?;
        Ok(stdout.flush()?)
    }
}

/// Reads a duration with its unit: `8.3ms`, `16.7 ms`, `8300us`, `0.0083s`.
pub(crate) fn frame(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let split =
        text.find(|letter: char| letter.is_alphabetic() || letter == 'µ').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let said = "say a number and s, ms or us, for example 8.3ms";
    let scale = match unit {
        "s" => 1.0,
        "ms" => 1e-3,
        "us" | "µs" => 1e-6,
        _ => return Err(said.to_owned()),
    };
    let seconds: f64 = number.trim().parse().map_err(|_| said.to_owned())?;
    match Duration::try_from_secs_f64(seconds * scale) {
        Ok(time) if time >= Duration::from_micros(1) => Ok(time),
        _ => Err("a frame is longer than a microsecond".to_owned()),
    }
}

/// Reads the session's directories and addresses from the environment.
#[expect(clippy::disallowed_methods, reason = "the command reads the environment")]
fn machine() -> Machine {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = absolute("HOME");
    let below_home = |path: &str| home.as_ref().map(|home| home.join(path));
    let runtime_dir = absolute("XDG_RUNTIME_DIR");
    let data_dirs =
        variable("XDG_DATA_DIRS").unwrap_or(OsString::from("/usr/local/share:/usr/share"));
    // Without the variable, libdbus and systemd agree on this socket.
    let socket = runtime_dir.as_ref().map(|dir| dir.join("bus")).filter(|path| path.exists());
    let preloaded = variable("LD_PRELOAD").filter(|_| variable("UNJANK_RELAX_DIR").is_some());
    let config_home = absolute("XDG_CONFIG_HOME").or_else(|| below_home(".config"));
    let is_next = config_home.as_ref().is_some_and(|config| config.join(RELAXED).exists());
    let recents = match preloaded.as_deref().and_then(relax_library) {
        Some(library) => Waiting::Relaxed(library),
        None if is_next => Waiting::RelaxedNext,
        None => Waiting::Usual,
    };
    let bus_address = variable("DBUS_SESSION_BUS_ADDRESS")
        .and_then(|address| address.into_string().ok())
        .or_else(|| socket.map(|path| format!("unix:path={}", path.display())));
    Machine {
        config_home,
        recents,
        cache_home: absolute("XDG_CACHE_HOME").or_else(|| below_home(".cache")),
        state_home: absolute("XDG_STATE_HOME").or_else(|| below_home(".local/state")),
        data_home: absolute("XDG_DATA_HOME").or_else(|| below_home(".local/share")),
        temp_dir: absolute("TMPDIR").unwrap_or_else(|| PathBuf::from("/tmp")),
        data_dirs: std::env::split_paths(&data_dirs).filter(|path| path.is_absolute()).collect(),
        dconf_profile: variable("DCONF_PROFILE"),
        session_variables: ["DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "SSH_AUTH_SOCK"]
            .into_iter()
            .filter_map(|name| Some((name.to_owned(), variable(name)?.into_string().ok()?)))
            .collect(),
        program_dir: std::env::current_exe().ok().and_then(|path| Some(path.parent()?.to_owned())),
        catalogue: crate::daemon::index::places::sources(None),
        uid: rustix::process::geteuid().as_raw(),
        home,
        runtime_dir,
        bus_address,
    }
}

/// What `unjank recent relax --session on` writes below the directory of settings.
const RELAXED: &str = "environment.d/60-unjank-relax.conf";

/// Finds the relax library among those that are put in front of programs.
fn relax_library(preloaded: &OsStr) -> Option<PathBuf> {
    let names = preloaded.as_bytes().split(|byte| matches!(byte, b':' | b' '));
    let paths = names.map(|name| Path::new(OsStr::from_bytes(name)));
    let mut ours = paths.filter(|path| {
        path.file_name()
            .is_some_and(|name| name == "libunjank_relax.so" || name == "libunjank-relax.so")
    });
    ours.find(|path| path.exists()).map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use probe::report::grade::FRAME;

    use super::*;

    #[test]
    fn a_frame_has_a_unit() {
        assert_eq!(frame("8.3ms"), Ok(Duration::from_micros(8300)));
        assert_eq!(frame("8300 us"), Ok(Duration::from_micros(8300)));
        assert_eq!(frame("0.0083s"), Ok(Duration::from_micros(8300)));
        assert_eq!(frame("16.667ms"), Ok(FRAME));
        for wrong in ["8.3", "fast", "-1ms", "0ms", "NaNms", "infs"] {
            assert!(frame(wrong).is_err(), "{wrong}");
        }
    }
}
