//! The probe of recent documents: the size and permissions of every store, the cost of one addition, and whether turning them off works.

mod replay;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forget::{self, StoreKind};
use recents::xbel::XbelDocument;
use recents::{
    Addition, AdditionOutcome, Privacy, RecentTime, Recents as List, RecentsFiles,
    RememberingProgram, Uri,
};
use sys::clock::SystemClock;

use self::replay::Syncs;
use super::finding::{Finding, MeasurementOutcome};
use super::machine::{Machine, RecentsSyncMode};
use super::remedy::Remedy;
use super::{Probe, ProbeStep, StepContext};
use report::figure::Quantity;
use report::paragraph::counted;
use report::samples::Samples;
use setup::SetupPart;
use sys::scratch::{self, TempDir};

const NAME: &str = "recents";
/// Times that each way of adding is tried.
const ROUNDS: usize = 7;
/// From so many bytes on, rewriting the shared list for each document is felt.
const LARGE: u64 = 512 << 10;

/// Looks at the lists of recent documents.
#[derive(Debug)]
pub struct RecentsProbe;

impl Probe for RecentsProbe {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        "size and mode of every list of recent documents, cost of one addition, off switches"
    }

    fn title(&self) -> &'static str {
        "Recent documents"
    }

    fn steps<'a>(&self, machine: &'a Machine) -> Vec<ProbeStep<'a>> {
        let Some(places) = places(machine) else { return Vec::new() };
        let (of_add, of_switch) = (places.clone(), places.clone());
        vec![
            ProbeStep::new("look at the lists", 200, move |_| stores(machine, &places)),
            ProbeStep::new("add a document", 800, move |tools| add(machine, &of_add, tools)),
            ProbeStep::new("try the off switch", 50, move |_| switch(&of_switch)),
        ]
    }
}

/// Returns where this user's lists are.
fn places(machine: &Machine) -> Option<RecentsFiles> {
    let data = machine.data_home.clone()?;
    Some(RecentsFiles {
        state: machine.state_home.as_ref()?.join("unjank/recents"),
        runtime: machine.runtime_dir.as_ref().map(|dir| dir.join("unjank/recents")),
        xbel: data.join("recently-used.xbel"),
        links: data.join("RecentDocuments"),
        data,
        config: machine.config_home.clone()?,
        config_dirs: Vec::new(),
        cache: machine.cache_home.clone()?,
        home: machine.home.clone()?,
        temporary: machine.temp_dir.clone(),
        dconf: machine.config_home.iter().map(|config| config.join("dconf/user")).collect(),
    })
}

/// Returns the directory of the lists, or the one above it in which the first program would make it.
fn existing(places: &RecentsFiles) -> PathBuf {
    // A list that was moved is a link to where it is.
    let moved = places.xbel.canonicalize().ok().and_then(|list| Some(list.parent()?.to_owned()));
    let below_home = || places.data.ancestors().take_while(|dir| dir.starts_with(&places.home));
    let made = || below_home().find(|dir| dir.is_dir()).unwrap_or(&places.data).to_owned();
    moved.unwrap_or_else(made)
}

/// Says how large each store is, and who else may read it.
fn stores(machine: &Machine, places: &RecentsFiles) -> Vec<Finding> {
    let mut findings = Vec::new();
    for store in forget::stores(places) {
        let title = store.kind.title();
        let size = Quantity::Size.show(as_figure(store.bytes));
        let note = format!("{size} in {}", counted(store.files, "file"));
        let measured = format!("looked at the files of {title}");
        let mut finding = match store.open_to_others.first() {
            Some(file) => {
                let mode = std::fs::metadata(file).map_or(0, |about| about.mode() & 0o777);
                let short = machine.short(file);
                let wrong = format!("{note}; {short} has mode {mode:o}: others may read it");
                let finding = Finding::new(NAME, title, measured, MeasurementOutcome::Note(wrong));
                finding.remedy(Remedy::CloseToOthers(file.clone()))
            }
            None => Finding::new(NAME, title, measured, MeasurementOutcome::Note(note)),
        };
        if store.kind == StoreKind::Xbel && store.bytes >= LARGE {
            finding = relax(
                finding.because("KDE's programs write all of it for each document that is opened"),
                machine,
            );
        }
        findings.push(finding);
    }
    if findings.is_empty() {
        let note = "nothing is remembered".to_owned();
        findings.push(Finding::new(
            NAME,
            "lists",
            "looked for every list",
            MeasurementOutcome::Note(note),
        ));
    }
    findings
}

#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn as_figure(bytes: u64) -> f64 {
    bytes as f64
}

/// Adds that programs need not wait, unless they do not wait already.
fn relax(finding: Finding, machine: &Machine) -> Finding {
    match machine.recents {
        RecentsSyncMode::Usual if machine.can_set_up() => {
            finding.remedy(Remedy::SetUp(SetupPart::Relax))
        }
        RecentsSyncMode::Usual => finding,
        RecentsSyncMode::RelaxedNext => {
            finding.hint("log out and in again: programs of the next login do not wait for it")
        }
        RecentsSyncMode::Relaxed(_) => finding,
    }
}

/// A way in which programs of others add a document.
struct AdditionMethod {
    name: &'static str,
    add: fn(&Path, &[u8], Syncs) -> std::io::Result<()>,
    how: &'static str,
    /// One of these libraries is there where its programs are.
    libraries: [&'static str; 2],
}

const WAYS: [AdditionMethod; 2] = [
    AdditionMethod {
        name: "as KDE's programs do",
        add: replay::kde,
        how: "the calls of KRecentDocument 5.103 repeated, four syncs",
        libraries: ["libKF5KIOCore.so.5", "libKF6KIOCore.so.6"],
    },
    AdditionMethod {
        name: "as GTK's programs do",
        add: replay::gtk,
        how: "the calls of GtkRecentManager repeated, two syncs, 250 ms after the caller went on",
        libraries: ["libgtk-3.so.0", "libgtk-4.so.1"],
    },
];

/// Returns whether a shared library is installed, where the linker of programs looks.
fn is_installed(library: &str) -> bool {
    let architecture = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    [&*architecture, "/usr/lib64", "/usr/lib"]
        .iter()
        .any(|dir| Path::new(dir).join(library).exists())
}

/// Measures one addition in each way that programs on this machine have, beside a copy of the user's list.
fn add(machine: &Machine, places: &RecentsFiles, tools: &StepContext<'_>) -> Vec<Finding> {
    let skipped = |why: String| {
        vec![Finding::new(
            NAME,
            "one add",
            "in a directory of our own",
            MeasurementOutcome::Skipped(why),
        )]
    };
    let dir = existing(places);
    let scratch = match scratch::within(&dir) {
        Ok(scratch) => scratch,
        Err(error) => return skipped(format!("{}: {error}", dir.display())),
    };
    let list = sys::regular_file::read(&places.xbel).unwrap_or_default();
    let entries = XbelDocument::parse(list.clone()).map_or(0, |list| list.bookmarks().len());
    let beside = format!("a list of {}", counted(entries, "entry"));
    let mut findings = Vec::new();
    let ways = WAYS.iter().filter(|way| way.libraries.iter().any(|library| is_installed(library)));
    for way in ways {
        let is_relaxed = matches!(machine.recents, RecentsSyncMode::Relaxed(_));
        let syncs = if is_relaxed { Syncs::Relaxed } else { Syncs::Waited };
        let mut samples = Samples::default();
        let mut failed = None;
        for _ in 0..ROUNDS {
            if tools.stopped() {
                break;
            }
            let (took, done) = tools.time(|| (way.add)(scratch.path(), &list, syncs));
            match done {
                Ok(()) => samples.push(took),
                Err(error) => failed = Some(error),
            }
        }
        let outcome = match failed {
            Some(error) => MeasurementOutcome::Skipped(error.to_string()),
            None => MeasurementOutcome::Time(samples),
        };
        let relaxed = if is_relaxed {
            ", those of the lists answered at once as in this session"
        } else {
            ""
        };
        let measured = format!("{}{relaxed}, beside a copy of {beside}", way.how);
        let finding = Finding::new(NAME, format!("one add {}", way.name), measured, outcome);
        let cause = "it writes the whole list, and waits for the disk";
        findings.push(relax(finding.because(cause), machine));
    }
    findings.push(ours(&scratch, places, tools).compared());
    findings
}

/// Returns a list in a directory of our own, with the rules of a directory of settings.
fn scratch_list(scratch: &TempDir, places: &RecentsFiles) -> List {
    let dir = scratch.path();
    let places = RecentsFiles {
        state: dir.join("state"),
        runtime: None,
        xbel: dir.join("data/recently-used.xbel"),
        links: dir.join("data/RecentDocuments"),
        data: dir.join("data"),
        config: dir.join("config"),
        config_dirs: Vec::new(),
        dconf: Vec::new(),
        ..places.clone()
    };
    let clock = Arc::new(SystemClock::start());
    List::new(places, RememberingProgram::Ordinary, store::disk::real(), clock)
}

fn addition(places: &RecentsFiles, list: &List) -> Option<Addition> {
    Some(Addition {
        uri: Uri::of_path(&places.home.join("a document of the doctor.txt")).ok()?,
        mime: Some("text/plain".into()),
        groups: Vec::new(),
        privacy: Privacy::Public,
        application: "org.unjank.Doctor".into(),
        exec: "unjank %u".into(),
        at: list.now(),
    })
}

fn ours(scratch: &TempDir, places: &RecentsFiles, tools: &StepContext<'_>) -> Finding {
    let mut list = scratch_list(scratch, places);
    let mut samples = Samples::default();
    let mut failed = None;
    for _ in 0..ROUNDS {
        let Some(addition) = addition(places, &list) else { break };
        let (took, done) = tools.time(|| list.add(&addition));
        match done {
            Ok(AdditionOutcome::Remembered) => samples.push(took),
            Ok(AdditionOutcome::Left(reason)) => {
                failed = Some(format!("the rules leave it out: {reason}"))
            }
            Err(error) => failed = Some(error.to_string()),
        }
    }
    let outcome = failed.map_or(MeasurementOutcome::Time(samples), MeasurementOutcome::Skipped);
    Finding::new(NAME, "one add by unjank", "an append to a journal of our own, no sync", outcome)
}

/// Tries our off switch, and looks whether those of KDE and GTK that are off were obeyed.
fn switch(places: &RecentsFiles) -> Vec<Finding> {
    let mut findings = vec![ours_off(places)];
    findings.extend(obeyed(places, "KDE", &places.config.join("kdeglobals"), is_kde_off));
    for version in ["gtk-3.0", "gtk-4.0"] {
        let file = places.config.join(version).join("settings.ini");
        findings.extend(obeyed(places, version, &file, is_gtk_off));
    }
    findings
}

fn says(text: &str, group: &str, key: &str, values: &[&str]) -> bool {
    let mut is_here = false;
    text.lines().map(str::trim).any(|line| {
        if line.starts_with('[') {
            is_here = line == format!("[{group}]");
        }
        let entry = line.split_once('=').map(|(key, value)| (key.trim(), value.trim()));
        is_here && entry.is_some_and(|(found, value)| found == key && values.contains(&value))
    })
}

fn is_kde_off(text: &str) -> bool {
    says(text, "RecentDocuments", "UseRecent", &["false", "0"])
}

fn is_gtk_off(text: &str) -> bool {
    says(text, "Settings", "gtk-recent-files-enabled", &["false", "0"])
}

/// Returns whether the shared list got an entry after a switch was turned off in this file.
fn obeyed(
    places: &RecentsFiles,
    name: &str,
    file: &Path,
    is_off: fn(&str) -> bool,
) -> Option<Finding> {
    let text = sys::regular_file::read_to_string(file).ok().filter(|text| is_off(text))?;
    drop(text);
    let since = std::fs::metadata(file).ok()?.modified().ok()?;
    let list =
        XbelDocument::parse(sys::regular_file::read(&places.xbel).unwrap_or_default()).ok()?;
    let since = RecentTime::of(since);
    let later = list.bookmarks().iter().filter_map(|bookmark| bookmark.entry());
    let later = later.filter(|entry| entry.last_used() > since).count();
    let measured = format!("compared the times of entries with that of {}", file.display());
    let title = format!("the off switch of {name}");
    Some(if later == 0 {
        let note = "nothing was recorded since it was turned off".to_owned();
        Finding::new(NAME, title, measured, MeasurementOutcome::Note(note))
    } else {
        let wrong = format!("{} recorded since it was turned off", counted(later, "document"));
        Finding::new(NAME, title, measured, MeasurementOutcome::Wrong(wrong))
            .because("KDE's programs up to 5.103 write the shared list whatever the switch says")
            .remedy(Remedy::ForgetRecent)
            .hint("start them by `unjank recent private`")
    })
}

/// Turns the switch off in a directory of our own, and adds.
fn ours_off(places: &RecentsFiles) -> Finding {
    let title = "the off switch of unjank";
    let measured = "added a document with UseRecent=false in a directory of our own";
    let dir = existing(places);
    let tried = scratch::within(&dir).and_then(|scratch| {
        let config = scratch.path().join("config");
        std::fs::create_dir(&config)?;
        let file =
            std::fs::File::options().write(true).create_new(true).open(config.join("kdeglobals"));
        std::io::Write::write_all(&mut file?, b"[RecentDocuments]\nUseRecent=false\n")?;
        let mut list = scratch_list(&scratch, places);
        let Some(addition) = addition(places, &list) else {
            return Err(std::io::ErrorKind::InvalidFilename.into());
        };
        let added = list.add(&addition).map_err(std::io::Error::other)?;
        Ok((added, scratch.path().join("state").join("journal").exists()))
    });
    let outcome = match tried {
        Ok((AdditionOutcome::Left(_), false)) => {
            MeasurementOutcome::Note("works: nothing was written".to_owned())
        }
        Ok(_) => MeasurementOutcome::Wrong("it is not obeyed".to_owned()),
        Err(error) => MeasurementOutcome::Skipped(format!("{}: {error}", dir.display())),
    };
    Finding::new(NAME, title, measured, outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_are_read_in_their_group_only() {
        assert!(is_kde_off("[A]\nx=1\n[RecentDocuments]\nUseRecent = false\n"));
        assert!(!is_kde_off("[A]\nUseRecent=false\n[RecentDocuments]\nUseRecent=true\n"));
        assert!(is_gtk_off("[Settings]\ngtk-recent-files-enabled=0\n"));
        assert!(!is_gtk_off(""));
    }
}
