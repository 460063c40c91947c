//! `unjank host shim`: links to `unjank-host`, or else to this program, that run the host's command of their name, or else the sandbox's own.

use report::quoting::quoted;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::{Args, Subcommand};
use host::client::life::HostOutcome;
use host::shims;
use report::paragraph::counted;

use super::order::here;
use super::{MISSING, finish, other, refused, say};
use crate::cli::screen::sayln;
use crate::cli::{document, screen};
use crate::error::{Error, FailureCategory, Verdict};

/// Tells a shim that it was called by one on the host: it must not ask the host again.
const INSIDE: &str = "UNJANK_SHIM";
/// The name and version of the JSON document; docs/host.md has the fields.
const SCHEMA: &str = "unjank.host.shims/1";

/// Make commands of the host available in the sandbox under their own names.
#[derive(Debug, Args)]
#[command(before_help = "Example: unjank host shim add git")]
pub(super) struct Shim {
    #[command(subcommand)]
    what: ShimCommand,
}

#[derive(Debug, Subcommand)]
enum ShimCommand {
    /// Add shims, which run the host's command, or the sandbox's own if that is not possible.
    Add(ShimName),
    /// List the shims.
    List(List),
    /// Remove shims.
    Remove(ShimName),
}

#[derive(Debug, Args)]
struct ShimName {
    /// The names of the commands, such as git.
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,
    /// The directory of the shims; by default unjank/shims in the user's data directory.
    #[arg(long)]
    dir: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct List {
    /// Also search this directory, besides the default one and the PATH.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

impl Shim {
    pub(super) fn run(self) -> Result<Verdict, Error> {
        let mut out = screen::stdout();
        match self.what {
            ShimCommand::Add(named) => add(&named, &mut out),
            ShimCommand::List(list) => show(&list, &mut out),
            ShimCommand::Remove(named) => remove(&named, &mut out),
        }
    }
}

fn add(named: &ShimName, out: &mut dyn Write) -> Result<Verdict, Error> {
    let dir = directory(named)?;
    // The small one starts sooner, and in every sandbox.
    let program = match super::small_program() {
        Some(program) => program,
        None => std::env::current_exe().map_err(|error| {
            Error::new(FailureCategory::Config, "find this program").because(error)
        })?,
    };
    std::fs::create_dir_all(&dir).map_err(|error| {
        Error::new(FailureCategory::User, format!("make {}", dir.display())).because(error)
    })?;
    for name in &named.names {
        let cannot =
            || Error::new(FailureCategory::User, format!("add a shim for {}", quoted(name)));
        shims::check_shim_name(name).map_err(|why| cannot().because(why))?;
        let link = dir.join(name);
        match std::os::unix::fs::symlink(&program, &link) {
            Ok(()) => (),
            Err(_) if is_shim(&link) => (),
            Err(error) => {
                return Err(cannot()
                    .because(error)
                    .hint(format!("move {} away, which exists already", link.display())));
            }
        }
        sayln!(out, "{name} now runs the host's command: {}", link.display())?;
    }
    let on_path = path().contains(&dir);
    if !on_path {
        let dir = quoted(&dir.to_string_lossy());
        writeln!(out, "\nPrograms find it once the directory is the first on their PATH:")?;
        sayln!(out, "  export PATH={dir}:\"$PATH\"")?;
        writeln!(out, "or, for an application of Flatpak:")?;
        sayln!(out, "  flatpak override --user --env=PATH={dir}:/app/bin:/usr/bin APP")?;
    }
    Ok(Verdict::Yes)
}

fn remove(named: &ShimName, out: &mut dyn Write) -> Result<Verdict, Error> {
    let dir = directory(named)?;
    for name in &named.names {
        let cannot =
            || Error::new(FailureCategory::User, format!("remove the shim for {}", quoted(name)));
        shims::check_shim_name(name).map_err(|why| cannot().because(why))?;
        let link = dir.join(name);
        if !is_shim(&link) {
            return Err(cannot()
                .because(format!("{} is not a shim", link.display()))
                .hint("list the shims with: unjank host shim list"));
        }
        std::fs::remove_file(&link).map_err(|error| cannot().because(error))?;
        sayln!(out, "Removed the shim of {name}: {}", link.display())?;
    }
    Ok(Verdict::Yes)
}

fn show(list: &List, out: &mut dyn Write) -> Result<Verdict, Error> {
    let mut dirs: Vec<PathBuf> = list.dir.iter().cloned().chain(default_directory()).collect();
    dirs.extend(path());
    let found = shims::find_shims(&dirs, is_shim, |name, path| {
        let first = super::programs(name).next().is_some_and(|it| it == path);
        (other(name), first)
    });
    if list.json {
        document::print_whole(&serde_json::json!({ "schema": SCHEMA, "shims": found }))?;
        return Ok(Verdict::Yes);
    }
    if found.is_empty() {
        writeln!(out, "There are no shims.")?;
        return Ok(Verdict::Yes);
    }
    sayln!(out, "{}", counted(found.len(), "shim"))?;
    for shim in found {
        let own = match &shim.sandbox_program {
            Some(own) => format!("else {}", own.display()),
            None => "nothing else has this name".to_owned(),
        };
        let off = if shim.is_first_on_path { "" } else { "; not what the PATH leads to" };
        sayln!(out, "  {}  {} ({own}{off})", shim.name, shim.path.display())?;
    }
    Ok(Verdict::Yes)
}

fn directory(named: &ShimName) -> Result<PathBuf, Error> {
    let given = named.dir.as_ref().map(|dir| std::path::absolute(dir).unwrap_or(dir.clone()));
    given.or_else(default_directory).ok_or_else(|| {
        Error::new(FailureCategory::Config, "find the data directory")
            .because("HOME is not set")
            .hint("give --dir")
    })
}

#[expect(clippy::disallowed_methods, reason = "the command reads the environment")]
fn default_directory() -> Option<PathBuf> {
    let absolute =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let data =
        absolute("XDG_DATA_HOME").or_else(|| Some(absolute("HOME")?.join(".local/share")))?;
    Some(data.join("unjank/shims"))
}

#[expect(clippy::disallowed_methods, reason = "the command reads the environment")]
fn path() -> Vec<PathBuf> {
    std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or_default()
}

/// Says whether `path` is a link to a client of host commands of ours.
fn is_shim(path: &Path) -> bool {
    let is_link = path.symlink_metadata().is_ok_and(|status| status.is_symlink());
    is_link && super::is_client(path)
}

/// Runs the host's command, if we were called through a shim.
pub(crate) fn run_as_called(arguments: &[OsString]) -> Option<ExitCode> {
    let called = Path::new(arguments.first()?);
    let name = called.file_name()?;
    if shims::RESERVED_NAMES.iter().any(|other| name == *other) {
        return None;
    }
    // A copy under another name is no shim, and nor is a name that somebody made up: there is a link.
    let link = if called.components().count() > 1 {
        Some(called.to_owned())
    } else {
        super::programs(name).next()
    };
    link.filter(|link| is_shim(link))?;
    Some(run_shim(name, arguments))
}

#[expect(clippy::disallowed_methods, reason = "the command reads the environment")]
fn run_shim(name: &OsStr, arguments: &[OsString]) -> ExitCode {
    let shown = name.to_string_lossy();
    let nowhere = |why: &str| {
        let error = Error::new(FailureCategory::Config, format!("run {}", quoted(&shown)))
            .because(why.to_owned());
        error.hint("install it on the host or in this sandbox").report();
        ExitCode::from(MISSING)
    };
    let own = || other(name).map(|program| become_own(&program, name, arguments));
    if std::env::var_os(INSIDE).is_some_and(|inside| inside == name) {
        return own().unwrap_or_else(|| nowhere("the host's own is this shim"));
    }
    let words: Vec<OsString> =
        std::iter::once(name.to_owned()).chain(arguments.iter().skip(1).cloned()).collect();
    let mut order = match here(&words) {
        Ok(order) => order,
        Err(error) => return super::trouble(&error),
    };
    order.environment.push((INSIDE.to_owned(), shown.clone().into_owned()));
    match super::run_on_host(&order) {
        // It did not begin, so the sandbox's own may.
        HostOutcome::NoBus(why) => {
            own().unwrap_or_else(|| nowhere(&format!("there is no bus ({why})")))
        }
        HostOutcome::Refused { name, text } => {
            own().unwrap_or_else(|| refused(&order, &name, &text))
        }
        outcome => finish(&order, outcome, super::Dies::BySignal),
    }
}

/// Becomes the sandbox's own program; returns only if that fails.
fn become_own(program: &Path, name: &OsStr, arguments: &[OsString]) -> ExitCode {
    let error = Command::new(program).arg0(name).args(arguments.iter().skip(1)).exec();
    say(&format!("unjank: cannot run {}: {error}\n", program.display()));
    ExitCode::from(super::DENIED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_name_alone_makes_no_shim() {
        assert!(run_as_called(&["made-up".into(), "x".into()]).is_none());
        assert!(
            run_as_called(&["/proc/self/exe".into()]).is_none()
                || is_shim(Path::new("/proc/self/exe"))
        );
    }
}
