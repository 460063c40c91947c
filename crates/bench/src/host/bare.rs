//! The floor: a client and a service in C that send the messages of a host command and do nothing else.

use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::HostServiceFixture;
use sys::scratch::{self, TempDir};

const SOURCE: &str = include_str!("../../peers/host_command.c");

/// The pair, compiled here: the client, and the service on a bus of its own.
#[derive(Debug)]
pub struct Bare {
    /// The program, which is either.
    pub program: PathBuf,
    /// The service.
    pub service: HostServiceFixture,
    // Dropped last: the program lies in it.
    _scratch: TempDir,
}

impl Bare {
    /// Compiles the program and starts its service, below `parent`; `None` where there is no C compiler.
    ///
    /// # Errors
    ///
    /// The program does not compile or does not serve.
    pub fn start(parent: &Path) -> io::Result<Option<Bare>> {
        let scratch = scratch::within(parent)?;
        let (source, program) =
            (scratch.path().join("host_command.c"), scratch.path().join("host_command"));
        let mut file =
            std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&source)?;
        io::Write::write_all(&mut file, SOURCE.as_bytes())?;
        let compiled =
            Command::new("cc").args(["-O2", "-static", "-o"]).args([&program, &source]).output();
        match compiled {
            Ok(output) if output.status.success() => {}
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                return Err(io::Error::other(format!("cc: {}: {said}", output.status)));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        }
        let service = HostServiceFixture::start(
            &[program.display().to_string(), "serve".to_owned()],
            parent,
        )?;
        Ok(Some(Bare { program, service, _scratch: scratch }))
    }
}
