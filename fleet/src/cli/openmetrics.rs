//! `openmetrics --print` and `--listen PATH`.

use std::io::{self, Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use rustix::fs::{Mode, fchmod};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};
use sys::clock::Clock;
use unjank_export::counters::HangCounters;
use unjank_export::openmetrics::{CONTENT_TYPE, render};

use super::{Failure, Session, say};

/// How long a client may take for its request and for reading the answer together: others wait behind it.
const PATIENCE: Duration = Duration::from_secs(5);
/// As many clients wait as the kernel takes.
const WAITING: i32 = 4096;
/// The longest request.
const MAX_REQUEST: usize = 8 << 10;

/// Print counts of hangs and the pressure on the machine, or serve them on a Unix socket
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(super) struct OpenMetrics {
    /// Print them once.
    #[arg(long)]
    print: bool,
    /// Serve them over HTTP on this Unix socket, until it is stopped.
    #[arg(long, value_name = "PATH")]
    listen: Option<PathBuf>,
}

impl OpenMetrics {
    pub(super) fn run(self, session: &Session) -> Result<(), Failure> {
        let mut counters = HangCounters::default();
        counters.add(&session.stored()?);
        match self.listen {
            None => print_text(&render(&counters.families(&*session.disk, Path::new("/proc"))))?,
            Some(path) => serve(session, &path, &mut counters)?,
        }
        Ok(())
    }
}

#[expect(clippy::disallowed_methods, reason = "this is where the program prints")]
fn print_text(text: &str) -> io::Result<()> {
    io::stdout().write_all(text.as_bytes())
}

/// Listens at a path where nothing is, for this user alone whatever the umask is.
fn listen_privately(path: &Path) -> io::Result<UnixListener> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // The name in the file system gets the permissions of the socket, less the umask.
    fchmod(&socket, Mode::from_raw_mode(0o600))?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, WAITING)?;
    Ok(socket.into())
}

/// Binds the socket. One that nobody listens to any more is replaced; any other file stays.
fn take_place(path: &Path) -> Result<UnixListener, Failure> {
    let failed = |error: &io::Error| {
        Failure::new(format!("cannot listen on {path:?}: {}", report::error::chain(error)))
    };
    match listen_privately(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            let is_socket =
                path.symlink_metadata().is_ok_and(|about| about.file_type().is_socket());
            let refused = UnixStream::connect(path)
                .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
            if !(is_socket && refused) {
                return Err(failed(&error));
            }
            std::fs::remove_file(path).map_err(|error| failed(&error))?;
            listen_privately(path).map_err(|error| failed(&error))
        }
        other => other.map_err(|error| failed(&error)),
    }
}

fn serve(session: &Session, path: &Path, counters: &mut HangCounters) -> Result<(), Failure> {
    let listener = take_place(path)?;
    say(&format!("listening on {}", path.display()));
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
                ) =>
            {
                continue;
            }
            Err(error) => {
                let text = format!("cannot listen on {path:?}: {}", report::error::chain(&error));
                return Err(Failure::new(text));
            }
        };
        let metrics = || {
            // Before it is read: what is erased meanwhile is missed the next time.
            let files = session.store_files();
            match session.stored() {
                Ok(stored) => counters.add_from(&stored, &files, session.now_ns()),
                // What was counted stays true.
                Err(failure) => {
                    say(&failure.text);
                    counters.note_unread();
                }
            }
            render(&counters.families(&*session.disk, Path::new("/proc")))
        };
        // A client that goes away hurts nobody.
        let _ = answer(stream, &session.clock, metrics);
    }
}

/// Answers a request; the counts are made once it has come.
fn answer(
    mut stream: UnixStream,
    clock: &dyn Clock,
    metrics: impl FnOnce() -> String,
) -> io::Result<()> {
    let until = clock.monotonic() + PATIENCE;
    // A timeout of the socket is that of one call: a client could send a byte in each.
    let left = || match until.saturating_sub(clock.monotonic()) {
        Duration::ZERO => Err(io::Error::from(io::ErrorKind::TimedOut)),
        left => Ok(Some(left)),
    };
    let mut request = Vec::new();
    let mut part = [0; 1024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        stream.set_read_timeout(left()?)?;
        let length = stream.read(&mut part)?;
        request.extend(&part[..length]);
        if length == 0 || request.len() > MAX_REQUEST {
            return Ok(());
        }
    }
    let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ');
    let (status, kind, body) = match (words.next(), words.next()) {
        (Some(b"GET"), Some(b"/metrics" | b"/")) => ("200 OK", CONTENT_TYPE, metrics()),
        (Some(b"GET"), _) => {
            ("404 Not Found", "text/plain", "not found: GET /metrics\n".to_owned())
        }
        _ => ("405 Method Not Allowed", "text/plain", "only GET\n".to_owned()),
    };
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
    let mut rest = answer.as_bytes();
    while !rest.is_empty() {
        stream.set_write_timeout(left()?)?;
        match stream.write(rest)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            length => rest = &rest[length..],
        }
    }
    Ok(())
}
