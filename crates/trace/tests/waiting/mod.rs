//! Programs that wait in a call until the test has looked at them.
#![allow(dead_code, reason = "each test uses a part of it")]
#![allow(clippy::unwrap_used, reason = "what cannot be set up fails the test")]

pub(crate) mod gdb;
pub(crate) mod recorded;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use unjank_trace::stack::KnownRegisters;

/// Rests for a moment between two looks at something: whoever looks without a pause takes a processor from what it waits for.
pub(crate) fn pause() {
    std::thread::park_timeout(Duration::from_millis(2));
}

/// A program that waits; it ends with the test.
pub(crate) struct Waiting {
    child: Child,
    /// The arguments of the call that it is blocked in.
    pub(crate) arguments: [u64; 6],
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

impl Waiting {
    /// Starts `command` and waits until it has written a byte and is blocked in the call `number`.
    pub(crate) fn start(command: &mut Command, number: u32) -> (Waiting, KnownRegisters) {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut waiting = Waiting { child, arguments: [0; 6] };
        waiting.child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let registers = waiting.blocked_in(number);
        (waiting, registers)
    }

    fn blocked_in(&mut self, number: u32) -> KnownRegisters {
        let path = format!("/proc/{}/syscall", self.child.id());
        loop {
            assert!(self.child.try_wait().unwrap().is_none(), "the program ended");
            let text = std::fs::read_to_string(&path).unwrap();
            let fields: Vec<&str> = text.split_whitespace().collect();
            if fields.first() == Some(&&*number.to_string()) && fields.len() == 9 {
                let hex = |at: usize| {
                    u64::from_str_radix(fields[at].trim_start_matches("0x"), 16).unwrap()
                };
                self.arguments = [1, 2, 3, 4, 5, 6].map(hex);
                return KnownRegisters::new(hex(8), hex(7));
            }
            pause();
        }
    }

    /// Its number.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }
}

/// A source below `tests/victims`.
pub(crate) fn victim(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/victims").join(name)
}

/// Builds a program of `tests/victims` in `dir`.
pub(crate) fn build(dir: &Path, source: &str, arguments: &[&str]) -> PathBuf {
    let program = dir.join(source.replace('.', "-"));
    let compiler = match source.rsplit('.').next() {
        Some("c") => "gcc",
        Some("cpp") => "g++",
        _ => "rustc",
    };
    let mut command = Command::new(compiler);
    command.args(arguments).arg("-o").arg(&program).arg(victim(source));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}
