//! `check` and `salvage`: is a database whole, and what can be had from one that is not.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use probe::report::paint::Tone;
use probe::report::paragraph::{counted, wrap};
use serde::Serialize;
use session::keyfile::KeyFile;
use session::settings::profile::Profile;
use store::publish::publish;
use store::table::gvdb::{self, Image, Salvaged, Stamp, Table};

use super::environment;
use crate::cli::screen;
use crate::cli::screen::sayln;
use crate::error::{Error, Kind, Verdict};

/// The name and version of the JSON document; docs/settings.md has the fields.
const SCHEMA: &str = "unjank.settings.check/1";

#[derive(Debug, Args)]
pub(super) struct Check {
    /// A database file; without one, those of this session's profile.
    file: Option<PathBuf>,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct Salvage {
    /// The damaged file; it is only read.
    file: PathBuf,
    /// Write what can be read as a new database; it must not exist.
    #[arg(short, long, conflicts_with = "print")]
    output: Option<PathBuf>,
    /// Print what can be read as a key file, as `dump` does.
    #[arg(long)]
    print: bool,
}

#[derive(Debug, Serialize)]
struct Document {
    schema: &'static str,
    files: Vec<Report>,
}

/// What was found out about one file.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Report {
    path: PathBuf,
    state: State,
    /// What is wrong.
    cause: Option<String>,
    keys: usize,
    /// Keys that can be read although the file is damaged.
    readable: usize,
    checksum: Checksum,
    generation: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Intact,
    Damaged,
    Missing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Checksum {
    Good,
    Bad,
    /// Another program wrote the file.
    None,
}

impl Check {
    pub(super) fn run(self, out: &mut dyn Write) -> Result<Verdict, Error> {
        let disk = store::disk::real();
        let (paths, asked) = match &self.file {
            Some(file) => (vec![file.clone()], true),
            None => {
                let environment = environment::read();
                let profile = Profile::choose(&environment, None);
                (profile.databases.iter().map(|found| found.file(&environment)).collect(), false)
            }
        };
        let mut files = Vec::new();
        for path in paths {
            files.push(match disk.read(&path) {
                Ok(bytes) => report(&path, &bytes),
                Err(error) if error.kind() == io::ErrorKind::NotFound && !asked => missing(&path),
                Err(error) => return Err(cannot("read", &path).because(error)),
            });
        }
        let damaged = files.iter().filter(|file| file.state == State::Damaged).count();
        if self.json {
            super::print_json(&Document { schema: SCHEMA, files }, out)?;
        } else {
            let summary = match (files.len(), damaged) {
                (0, _) => "The profile has no databases.".to_owned(),
                (n, 0) => format!("{} checked, no damage found.", counted(n, "database")),
                (n, _) => format!("{damaged} of {} damaged.", counted(n, "database")),
            };
            writeln!(out, "{summary}\n")?;
            files.iter().try_for_each(|file| file.print(out))?;
        }
        Ok(if damaged == 0 { Verdict::Yes } else { Verdict::No })
    }
}

impl Report {
    fn print(&self, out: &mut dyn Write) -> Result<(), Error> {
        let (width, paint) = (screen::width(), screen::paint());
        let keys = counted(self.keys, "key");
        let (tone, word, text) = match self.state {
            State::Missing => (Tone::Dim, "missing", "nothing was stored yet".to_owned()),
            State::Intact => {
                let checksum = match (self.checksum, self.generation) {
                    (Checksum::Good, Some(generation)) => {
                        format!("checksum good, generation {generation}")
                    }
                    _ => "no checksum: another program wrote it".to_owned(),
                };
                (Tone::Good, "intact", format!("{keys}, {checksum}"))
            }
            State::Damaged => {
                let cause = self.cause.as_deref().unwrap_or_default();
                let readable = counted(self.readable, "key");
                (Tone::Bad, "damaged", format!("{cause}; {readable} can still be read"))
            }
        };
        let path = self.path.display().to_string();
        let path = screen::shown(&path);
        writeln!(out, "{}  {path}", paint.set(tone, &format!("{word:<7}")))?;
        write!(out, "{}", wrap(&text, width, "         "))?;
        if self.state == State::Damaged {
            sayln!(out, "         unjank settings salvage {path} --print")?;
        }
        Ok(())
    }
}

impl Salvage {
    pub(super) fn run(self, out: &mut dyn Write) -> Result<Verdict, Error> {
        let disk = store::disk::real();
        let bytes =
            disk.read(&self.file).map_err(|error| cannot("read", &self.file).because(error))?;
        let found = gvdb::salvage(&bytes);
        let whole = report(&self.file, &bytes).state == State::Intact;
        if self.print {
            out.write_all(&key_file(&found).to_bytes())?;
        } else if let Some(output) = &self.output {
            write_new(&found, &bytes, output)?;
            sayln!(out, "{}", summary(&found, whole))?;
            writeln!(out)?;
            sayln!(out, "Written to {}.", output.display())?;
        } else {
            sayln!(out, "{}", summary(&found, whole))?;
            let file = self.file.display();
            writeln!(out)?;
            sayln!(out, "To see them:   unjank settings salvage {file} --print")?;
            sayln!(out, "To keep them:  unjank settings salvage {file} -o NEW")?;
        }
        Ok(if whole { Verdict::Yes } else { Verdict::No })
    }
}

fn report(path: &Path, bytes: &[u8]) -> Report {
    let stamp = gvdb::stamp(bytes);
    let (checksum, generation) = match stamp {
        Stamp::Good { generation } => (Checksum::Good, Some(generation)),
        Stamp::Bad => (Checksum::Bad, None),
        Stamp::None => (Checksum::None, None),
    };
    let (cause, keys) = match Table::open(bytes) {
        Err(error) => (Some(error.to_string()), 0),
        Ok(table) => {
            let cause = table.check().err().map(|damage| damage.to_string());
            let wrong = || "the checksum is wrong".to_owned();
            (cause.or_else(|| (checksum == Checksum::Bad).then(wrong)), table.entries().count())
        }
    };
    let state = if cause.is_some() { State::Damaged } else { State::Intact };
    let readable = if cause.is_some() { gvdb::salvage(bytes).entries.len() } else { keys };
    Report { path: path.to_owned(), state, cause, keys, readable, checksum, generation }
}

fn missing(path: &Path) -> Report {
    Report {
        path: path.to_owned(),
        state: State::Missing,
        cause: None,
        keys: 0,
        readable: 0,
        checksum: Checksum::None,
        generation: None,
    }
}

fn summary(found: &Salvaged, whole: bool) -> String {
    let keys = counted(found.entries.len(), "key");
    if whole {
        return format!("The file is not damaged; it has {keys}.");
    }
    let mut text = format!("{keys} can be read");
    if !found.unproven.is_empty() {
        text += &format!(", {} of them with a value that nothing proves", found.unproven.len());
    }
    if found.suspect > 0 {
        text += &format!("; {} cannot", counted(found.suspect, "item"));
    }
    text + "."
}

fn key_file(found: &Salvaged) -> KeyFile {
    let mut file = KeyFile::new();
    for (key, value) in &found.entries {
        let Some((dir, name)) = key.rsplit_once('/') else { continue };
        let group = match dir.strip_prefix('/') {
            None | Some("") => "/",
            Some(group) => group,
        };
        if file.set(group, name, &value.print()).is_err() {
            // Nobody is left to be told when stderr is gone.
            drop(sayln!(
                screen::stderr(),
                "unjank: warning: left out {key}: its name cannot be in a key file"
            ));
        }
    }
    file
}

fn write_new(found: &Salvaged, damaged: &[u8], output: &Path) -> Result<(), Error> {
    if output.symlink_metadata().is_ok() {
        return Err(cannot("write", output).because("it exists").hint("name a new file"));
    }
    let locks: Vec<String> = Table::open(damaged)
        .ok()
        .and_then(|table| table.nested(".locks"))
        .map(|locks| locks.entries().map(|(key, _)| key).collect())
        .unwrap_or_default();
    let locks: Vec<&str> = locks.iter().map(String::as_str).collect();
    let entries = found.entries.iter().map(|(key, value)| (&**key, value.as_bytes()));
    let image = gvdb::write(entries, &Image { locks: &locks, generation: Some(1) })
        .map_err(|error| cannot("write", output).because(error))?;
    let path =
        std::path::absolute(output).map_err(|error| cannot("write", output).because(error))?;
    publish(&*store::disk::real(), &path, &image)
        .map_err(|error| cannot("write", output).because(error))?;
    Ok(())
}

fn cannot(verb: &str, path: &Path) -> Error {
    Error::new(Kind::User, format!("{verb} {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::table::gvariant::Variant;

    fn image(generation: Option<u64>) -> Vec<u8> {
        let keys: Vec<_> = (0..40).map(|n| (format!("/d{}/k{n:02}", n % 4), n)).collect();
        let mut values: Vec<_> = keys.iter().map(|(k, n)| (&**k, Variant::from(*n))).collect();
        values.sort_by_key(|(key, _)| *key);
        let entries = values.iter().map(|(key, value)| (*key, value.as_bytes()));
        gvdb::write(entries, &Image { locks: &[], generation }).unwrap()
    }

    #[test]
    fn a_whole_file_is_told_from_one_that_lost_anything() {
        let whole = image(Some(7));
        let good = report(Path::new("x"), &whole);
        assert_eq!((good.state, good.keys, good.generation), (State::Intact, 40, Some(7)));
        assert_eq!(report(Path::new("x"), &image(None)).checksum, Checksum::None);
        for end in 0..whole.len() {
            assert_eq!(report(Path::new("x"), &whole[..end]).state, State::Damaged, "cut at {end}");
        }
        for at in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 0x10;
            assert_eq!(report(Path::new("x"), &flipped).state, State::Damaged, "flipped at {at}");
        }
    }

    #[test]
    fn a_value_that_is_none_is_damage_even_without_a_checksum() {
        let mut bytes = image(None);
        let table = Table::open(&bytes).unwrap();
        let value = table.value("/d1/k01").unwrap();
        let at = value.as_ptr().addr() - bytes.as_ptr().addr() + value.len() - 1;
        bytes[at] = b's';
        let report = report(Path::new("x"), &bytes);
        assert_eq!((report.state, report.readable), (State::Damaged, 39));
    }

    #[test]
    fn what_is_salvaged_is_printed_as_a_key_file() {
        let found = gvdb::salvage(&image(Some(1)));
        let text = String::from_utf8(key_file(&found).to_bytes()).unwrap();
        assert!(text.starts_with("[d0]\nk00=0\nk04=4\n"), "{text}");
        assert_eq!(text.lines().filter(|line| line.contains('=')).count(), 40);
        assert_eq!(summary(&found, true), "The file is not damaged; it has 40 keys.");
    }
}
