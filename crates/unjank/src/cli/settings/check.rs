//! `check` and `salvage`: is a database whole, and what can be had from one that is not.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use gvdb::Salvaged;
use report::paint::Tone;
use report::paragraph::{counted, wrap};
use serde::Serialize;
use settings::inspection::{self, ChecksumState, DatabaseReport, DatabaseState};
use settings::profile::SettingsProfile;
use store::publish::publish;

use super::environment;
use crate::cli::screen;
use crate::cli::screen::sayln;
use crate::error::{Error, FailureCategory, Verdict};

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
    /// The damaged file, which is not changed.
    file: PathBuf,
    /// Write the readable keys as a new database, which must not exist.
    #[arg(short, long, conflicts_with = "print")]
    output: Option<PathBuf>,
    /// Print the readable keys as a key file, as `dump` does.
    #[arg(long)]
    print: bool,
}

#[derive(Debug, Serialize)]
struct Document {
    schema: &'static str,
    files: Vec<DatabaseReport>,
}

impl Check {
    pub(super) fn run(self, out: &mut dyn Write) -> Result<Verdict, Error> {
        let disk = store::disk::real();
        let (paths, asked) = match &self.file {
            Some(file) => (vec![file.clone()], true),
            None => {
                let environment = environment::read();
                let profile = SettingsProfile::choose(&environment, None);
                (profile.databases.iter().map(|found| found.file(&environment)).collect(), false)
            }
        };
        let mut files = Vec::new();
        for path in paths {
            files.push(match disk.read(&path) {
                Ok(bytes) => DatabaseReport::of(&path, &bytes),
                Err(error) if error.kind() == io::ErrorKind::NotFound && !asked => {
                    DatabaseReport::missing(&path)
                }
                Err(error) => return Err(cannot("read", &path).because(error)),
            });
        }
        let damaged = files.iter().filter(|file| file.state == DatabaseState::Damaged).count();
        let printed = if self.json {
            super::print_json(&Document { schema: SCHEMA, files }, out)
        } else {
            print_all(&files, damaged, out)
        };
        screen::verdict_stays(printed)?;
        Ok(if damaged == 0 { Verdict::Yes } else { Verdict::No })
    }
}

fn print_all(files: &[DatabaseReport], damaged: usize, out: &mut dyn Write) -> Result<(), Error> {
    let summary = match (files.len(), damaged) {
        (0, _) => "The profile has no databases.".to_owned(),
        (n, 0) => format!("{} checked, no damage found.", counted(n, "database")),
        (n, _) => format!("{damaged} of {} damaged.", counted(n, "database")),
    };
    writeln!(out, "{summary}\n")?;
    files.iter().try_for_each(|file| print(file, out))?;
    Ok(out.flush()?)
}

fn print(file: &DatabaseReport, out: &mut dyn Write) -> Result<(), Error> {
    let (width, paint) = (screen::width(), screen::paint());
    let keys = counted(file.keys, "key");
    let (tone, word, text) = match file.state {
        DatabaseState::Missing => (Tone::Dim, "missing", "nothing was stored yet".to_owned()),
        DatabaseState::Intact => {
            let checksum = match (file.checksum, file.generation) {
                (ChecksumState::Good, Some(generation)) => {
                    format!("checksum good, generation {generation}")
                }
                _ => "no checksum: another program wrote it".to_owned(),
            };
            (Tone::Good, "intact", format!("{keys}, {checksum}"))
        }
        DatabaseState::Damaged => {
            let cause = file.cause.as_deref().unwrap_or_default();
            let readable = counted(file.readable, "key");
            (Tone::Bad, "damaged", format!("{cause}; {readable} can still be read"))
        }
    };
    let path = file.path.display().to_string();
    let path = screen::shown(&path);
    writeln!(out, "{}  {path}", paint.set(tone, &format!("{word:<7}")))?;
    write!(out, "{}", wrap(&text, width, "         "))?;
    if file.state == DatabaseState::Damaged {
        sayln!(out, "         unjank settings salvage {path} --print")?;
    }
    Ok(())
}

impl Salvage {
    pub(super) fn run(self, out: &mut dyn Write) -> Result<Verdict, Error> {
        let disk = store::disk::real();
        let bytes =
            disk.read(&self.file).map_err(|error| cannot("read", &self.file).because(error))?;
        let found = gvdb::salvage(&bytes);
        let whole = DatabaseReport::of(&self.file, &bytes).state == DatabaseState::Intact;
        if self.print {
            let (file, left_out) = inspection::key_file(&found);
            for key in left_out {
                // It fails only if stderr is closed.
                drop(sayln!(
                    screen::stderr(),
                    "unjank: warning: left out {key}: its name cannot be in a key file"
                ));
            }
            out.write_all(&file.to_bytes())?;
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

fn write_new(found: &Salvaged, damaged: &[u8], output: &Path) -> Result<(), Error> {
    if output.symlink_metadata().is_ok() {
        return Err(cannot("write", output)
            .because("it exists")
            .hint("choose a file that does not exist"));
    }
    let image = inspection::salvaged_image(found, damaged)
        .map_err(|error| cannot("write", output).because(error))?;
    let path =
        std::path::absolute(output).map_err(|error| cannot("write", output).because(error))?;
    publish(&*store::disk::real(), &path, &image)
        .map_err(|error| cannot("write", output).because(error))?;
    Ok(())
}

fn cannot(verb: &str, path: &Path) -> Error {
    Error::new(FailureCategory::User, format!("{verb} {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gvdb::gvariant::Variant;

    #[test]
    fn the_summary_of_a_whole_file_counts_its_keys() {
        let keys: Vec<_> = (0..40).map(|n| (format!("/k{n:02}"), Variant::from(n))).collect();
        let entries = keys.iter().map(|(key, value)| (&**key, value.as_bytes()));
        let image = gvdb::write(entries, &gvdb::Image { locks: &[], generation: Some(1) }).unwrap();
        let text = summary(&gvdb::salvage(&image), true);
        assert_eq!(text, "The file is not damaged; it has 40 keys.");
    }
}
