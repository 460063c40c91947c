//! `openmetrics --print` and `--listen PATH`.

use std::io::{self, Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use unjank_hangs_export::openmetrics::{CONTENT_TYPE, HangCounters};

use super::{Failure, Session, say};

/// How long a client may take for its request, and for reading the answer.
const PATIENCE: Duration = Duration::from_secs(5);
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
            None => print_text(&counters.render(&*session.disk, Path::new("/proc")))?,
            Some(path) => serve(session, &path, &mut counters)?,
        }
        Ok(())
    }
}

#[expect(clippy::disallowed_methods, reason = "this is where the program prints")]
fn print_text(text: &str) -> io::Result<()> {
    io::stdout().write_all(text.as_bytes())
}

/// Binds the socket. One that nobody listens to any more is replaced; any other file stays.
fn bind(path: &Path) -> Result<UnixListener, Failure> {
    let failed = |error: &io::Error| {
        Failure::new(format!("cannot listen on {path:?}: {}", report::error::chain(error)))
    };
    match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            let is_socket =
                path.symlink_metadata().is_ok_and(|about| about.file_type().is_socket());
            let refused = UnixStream::connect(path)
                .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
            if !(is_socket && refused) {
                return Err(failed(&error));
            }
            std::fs::remove_file(path).map_err(|error| failed(&error))?;
            UnixListener::bind(path).map_err(|error| failed(&error))
        }
        other => other.map_err(|error| failed(&error)),
    }
}

fn serve(session: &Session, path: &Path, counters: &mut HangCounters) -> Result<(), Failure> {
    let listener = bind(path)?;
    say(&format!("listening on {}", path.display()));
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => {
                let text = format!("cannot listen on {path:?}: {}", report::error::chain(&error));
                return Err(Failure::new(text));
            }
        };
        match session.stored() {
            Ok(stored) => counters.add(&stored),
            // What was counted stays true.
            Err(failure) => say(&failure.text),
        }
        // A client that goes away hurts nobody.
        let _ = answer(stream, &counters.render(&*session.disk, Path::new("/proc")));
    }
}

fn answer(mut stream: UnixStream, metrics: &str) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut request = Vec::new();
    let mut part = [0; 1024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let length = stream.read(&mut part)?;
        request.extend(&part[..length]);
        if length == 0 || request.len() > MAX_REQUEST {
            return Ok(());
        }
    }
    let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ');
    let (status, kind, body) = match (words.next(), words.next()) {
        (Some(b"GET"), Some(b"/metrics" | b"/")) => ("200 OK", CONTENT_TYPE, metrics),
        (Some(b"GET"), _) => ("404 Not Found", "text/plain", "not found: GET /metrics\n"),
        _ => ("405 Method Not Allowed", "text/plain", "only GET\n"),
    };
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )?;
    stream.flush()
}
