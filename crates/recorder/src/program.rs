//! `unjank-recorder`: the arguments, the socket, and the log on stderr.

#![expect(clippy::disallowed_methods, reason = "a program without the command line of `unjank`")]

use std::error::Error;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use report::error::chain;
use report::text::{Charset, visible};
use rustix::fs::{Mode, chmod};

use crate::confine::confine;
use crate::service::{ServiceOptions, serve};

const HELP: &str = "\
Load programs into the kernel for users, each of whom records his own processes

Usage: unjank-recorder [--group NAME] [--bus ADDRESS] [--idle SECONDS]
                       [--quiet SECONDS] [--socket PATH]

systemd starts it when `unjank trace` or `unjank hangs record` of a user who is
not root connects to /run/unjank/recorder.sock. It needs CAP_BPF and CAP_PERFMON, and gives up all
else. polkit decides who is served (org.unjank.recorder.trace).

  --group NAME     serve the members of this group where polkit is not there
  --bus ADDRESS    the system bus
  --idle SECONDS   end when nobody was connected for so long; default 60
  --quiet SECONDS  end a session whose client asked for nothing for so long, since
                   it is stopped; default 600
  --socket PATH    listen here instead of at the socket that systemd passes
  -V, --version    print the version
";

/// The first descriptor that systemd passes (sd_listen_fds(3)).
const FIRST_PASSED: i32 = 3;

/// What the command line says.
#[derive(Debug, Default)]
struct Arguments {
    options: ServiceOptions,
    socket: Option<PathBuf>,
}

/// Runs the program with `arguments` (without the program's name), and returns the exit code.
#[must_use]
pub fn run(arguments: Vec<OsString>) -> ExitCode {
    let words: Option<Vec<String>> =
        arguments.into_iter().map(|word| word.into_string().ok()).collect();
    let done = match words.as_deref() {
        Some([word]) if word == "-h" || word == "--help" => print(HELP),
        Some([word]) if word == "-V" || word == "--version" => {
            print(concat!("unjank-recorder ", env!("CARGO_PKG_VERSION"), "\n"))
        }
        Some(words) => parse(words).and_then(start),
        None => Err("an argument is not UTF-8; see unjank-recorder --help".into()),
    };
    let Err(error) = done else { return ExitCode::SUCCESS };
    log(&chain(&*error));
    ExitCode::from(2)
}

fn print(text: &str) -> Result<(), Box<dyn Error>> {
    Ok(io::stdout().write_all(text.as_bytes())?)
}

/// Writes a line to stderr, which systemd passes to the journal.
fn log(line: &str) {
    // If stderr is closed, there is nobody to read it.
    let _ = writeln!(io::stderr(), "unjank-recorder: {}", visible(line, Charset::Unicode));
}

fn parse(words: &[String]) -> Result<Arguments, Box<dyn Error>> {
    let mut arguments = Arguments::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("'{word}' needs a value"))?;
        match word.as_str() {
            "--group" => arguments.options.access.group = Some(group(value)?),
            "--bus" => arguments.options.access.bus.clone_from(value),
            "--idle" => arguments.options.idle = Duration::from_secs(value.parse()?),
            "--quiet" => arguments.options.quiet = Duration::from_secs(value.parse()?),
            "--socket" => arguments.socket = Some(value.into()),
            _ => return Err(format!("'{word}' is no option; see unjank-recorder --help").into()),
        }
    }
    Ok(arguments)
}

/// Returns the number of a group: of its name in `/etc/group`, or as it stands.
fn group(name: &str) -> Result<u32, Box<dyn Error>> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let groups = std::fs::read_to_string("/etc/group")?;
    let found = groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok())?
    });
    found.ok_or_else(|| format!("there is no group '{name}'").into())
}

fn start(arguments: Arguments) -> Result<(), Box<dyn Error>> {
    let listener = listener(arguments.socket)?;
    confine()?;
    log("serves");
    serve(&listener, &arguments.options, &log)?;
    log("ends, since nobody is connected");
    Ok(())
}

/// Returns the socket on which callers are waited for.
fn listener(path: Option<PathBuf>) -> Result<OwnedFd, Box<dyn Error>> {
    let Some(path) = path else {
        let is_ours = |name: &str, wanted: &str| std::env::var(name).is_ok_and(|v| v == wanted);
        if is_ours("LISTEN_PID", &std::process::id().to_string()) && is_ours("LISTEN_FDS", "1") {
            let passed = sys::descriptor::inherited(FIRST_PASSED)?;
            sys::socket::check_messages(&passed)?;
            return Ok(passed);
        }
        return Err("there is no socket: systemctl start unjank-recorder.socket".into());
    };
    let listened = sys::socket::listen_at(&path).or_else(|error| {
        if error.kind() != io::ErrorKind::AddrInUse || !is_left(&path) {
            return Err(error);
        }
        std::fs::remove_file(&path)?;
        sys::socket::listen_at(&path)
    });
    let listener =
        listened.map_err(|error| format!("cannot listen at {}: {error}", path.display()))?;
    // Who may connect is asked of each caller.
    chmod(&path, Mode::from_raw_mode(0o666))?;
    Ok(listener)
}

/// Returns whether a service that has ended has left this socket: nobody listens at it any more.
fn is_left(path: &Path) -> bool {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|it| it.file_type().is_socket());
    let called = sys::socket::connect_now(path);
    is_socket && called.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_that_an_ended_service_left_is_replaced_and_nothing_else_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("recorder.sock");
        drop(listener(Some(path.clone())).unwrap());
        // A child that another test starts meanwhile has the first one's socket until it has executed its program.
        let began = std::time::Instant::now();
        let serves = loop {
            match listener(Some(path.clone())) {
                Ok(serves) => break serves,
                Err(error) => assert!(began.elapsed() < Duration::from_secs(60), "{error}"),
            }
            std::thread::park_timeout(Duration::from_millis(2));
        };
        assert!(listener(Some(path.clone())).is_err(), "another one serves here");
        sys::socket::connect_to(&path).unwrap();
        drop(serves);
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, b"somebody's").unwrap();
        assert!(listener(Some(path.clone())).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"somebody's");
    }

    fn parsed(words: &[&str]) -> Result<Arguments, Box<dyn Error>> {
        parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn arguments_are_understood_or_refused() {
        let arguments = parsed(&["--group", "root", "--idle", "5", "--socket", "/x"]).unwrap();
        assert_eq!(arguments.options.access.group, Some(0));
        assert_eq!(arguments.options.idle, Duration::from_secs(5));
        assert_eq!(arguments.socket, Some("/x".into()));
        assert_eq!(parsed(&["--group", "4711"]).unwrap().options.access.group, Some(4711));
        for wrong in
            [&["--group"][..], &["--idle", "soon"], &["--group", "nobody-has-this"], &["-x", "1"]]
        {
            assert!(parsed(wrong).is_err(), "{wrong:?}");
        }
    }
}
