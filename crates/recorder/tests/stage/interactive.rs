//! A program of a user with a main loop, which hangs on command: that of the tests of crate `hangs`.
#![allow(clippy::unwrap_used, reason = "what cannot be set up fails the test")]
#![allow(clippy::disallowed_methods, reason = "a test stands for programs")]

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::SystemTime;

use super::{LONG, Stage, wait_until};

/// The program, and the display that it is connected to.
pub(crate) struct Interactive {
    child: Child,
    listener: UnixListener,
    display: UnixStream,
    /// The file of the program.
    pub(crate) program: PathBuf,
    log: PathBuf,
}

fn accept(listener: &UnixListener) -> UnixStream {
    let (display, _) = listener.accept().unwrap();
    display.set_read_timeout(Some(LONG)).unwrap();
    display
}

impl Interactive {
    /// Starts a program of its own file, and waits until it is connected.
    pub(crate) fn start(stage: &Stage, user: u32) -> Interactive {
        let dir = stage.dir_of(user);
        let made = |name: &str| {
            let names = (0..).map(|number| dir.join(format!("{name}{number}")));
            names.into_iter().find(|path| !path.exists()).unwrap()
        };
        let source =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../hangs/tests/interactive/program.c");
        // By its name it is told from those of others, also of other tests.
        let program = made(&format!("of-{user}-"));
        let built = Command::new("cc").args(["-g", "-O1", "-o"]).arg(&program).arg(source).status();
        assert!(built.unwrap().success(), "the program cannot be compiled");
        let socket = made("wayland-");
        let listener = UnixListener::bind(&socket).unwrap();
        std::fs::set_permissions(&socket, PermissionsExt::from_mode(0o777)).unwrap();
        let lock = program.with_extension("held");
        let mut command = stage.command_of(user, &program);
        let child = command.arg(&socket).arg(&lock).arg("poll").spawn().unwrap();
        let display = accept(&listener);
        let log = format!("{}.log", lock.display()).into();
        Interactive { child, listener, display, program, log }
    }

    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Has the program do something once it is at rest, and waits until it is done; returns when the command was given,
    /// in nanoseconds since 1970.
    pub(crate) fn order(&mut self, command: u8) -> u64 {
        self.wait_until_at_rest();
        let began_ns = self.begin(command);
        self.finished();
        began_ns
    }

    /// Has the program do something, whether it is at rest or not; returns when, in nanoseconds since 1970.
    pub(crate) fn begin(&mut self, command: u8) -> u64 {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        self.display.write_all(&[command]).unwrap();
        now.as_nanos().try_into().unwrap()
    }

    /// Returns the file that it locks.
    pub(crate) fn lock(&self) -> PathBuf {
        self.program.with_extension("held")
    }

    pub(crate) fn finished(&mut self) {
        self.display.read_exact(&mut [0]).unwrap();
    }

    /// Has the program execute its file again, as which it may be another one by now.
    pub(crate) fn execute_again(&mut self) {
        // Whoever it is then has to be able to write it.
        std::fs::remove_file(&self.log).unwrap();
        self.begin(b'x');
        self.display = accept(&self.listener);
        wait_until("it has begun again", || self.log.exists());
    }

    /// Returns whether the program waits in a function of the kernel whose name contains this.
    pub(crate) fn waits_in(&self, function: &str) -> bool {
        let path = format!("/proc/{}/wchan", self.child.id());
        std::fs::read_to_string(path).is_ok_and(|waits_in| waits_in.contains(function))
    }

    /// Waits until the program is in the wait of its main loop.
    pub(crate) fn wait_until_at_rest(&self) {
        let path = format!("/proc/{}/wchan", self.child.id());
        wait_until("the program waits", || {
            std::fs::read_to_string(&path).unwrap().contains("poll")
        });
    }

    /// The commands that it has done, with the moments before and after each in nanoseconds.
    pub(crate) fn noted(&self) -> Vec<(u8, u64, u64)> {
        let nanoseconds = |text: &str| {
            let (seconds, rest) = text.split_once('.').unwrap();
            seconds.parse::<u64>().unwrap() * 1_000_000_000 + rest.parse::<u64>().unwrap()
        };
        let log = std::fs::read_to_string(&self.log).unwrap();
        log.lines()
            .map(|line| {
                let words: Vec<&str> = line.split(' ').collect();
                (words[0].as_bytes()[0], nanoseconds(words[1]), nanoseconds(words[2]))
            })
            .collect()
    }
}

impl Drop for Interactive {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
