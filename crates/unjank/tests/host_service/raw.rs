//! Host commands as bytes on a private bus: either service, and a client that can say anything.
#![allow(dead_code, unreachable_pub, reason = "each test uses the part it needs")]
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a fixture that cannot be set up fails the test; it stands for other programs"
)]

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use rustix::process::{Pid, Signal, kill_process};
use tokio::runtime::Runtime;
use zbus::message::Type;
use zbus::{Connection, DynamicType, Fd, Message, MessageStream};

use crate::fixture::{Bus, OURS, has, pause};

/// The service that we stand in for.
pub const ORIGINAL: &str = "/usr/libexec/flatpak-session-helper";
/// Its client.
pub const SPAWN: &str = "/usr/libexec/flatpak-xdg-utils/flatpak-spawn";
const NAME: &str = "org.freedesktop.Flatpak";
pub const PATH: &str = "/org/freedesktop/Flatpak/Development";
pub const INTERFACE: &str = "org.freedesktop.Flatpak.Development";

/// How long anything may take on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(50);

/// Waits until something holds; says whether it did in time.
pub fn until(mut condition: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if condition() {
            return true;
        }
        pause();
    }
    false
}

/// Which service is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    Ours,
    Original,
}

/// A service on a bus of its own.
pub struct Host {
    pub bus: Bus,
    service: Child,
}

impl Host {
    /// Starts a service; `None` where a program is missing.
    pub fn start(which: Which) -> Option<Host> {
        if !has(&[SPAWN, ORIGINAL]) {
            return None;
        }
        let bus = Bus::start()?;
        Some(Host::on(bus, which))
    }

    /// Starts a service on this bus.
    pub fn on(bus: Bus, which: Which) -> Host {
        let command = match which {
            Which::Ours => {
                let mut command = bus.command(OURS);
                command.args(["--names", "flatpak"]);
                command
            }
            Which::Original => bus.command(ORIGINAL),
        };
        Host::by(bus, command)
    }

    /// Starts our service with so few descriptors that it has to ask for more.
    pub fn with_few_descriptors() -> Option<Host> {
        Host::limited("-Sn 128")
    }

    /// Starts our service with so many descriptors and no more.
    pub fn with_descriptors(most: u32) -> Option<Host> {
        Host::limited(&format!("-n {most}"))
    }

    fn limited(limit: &str) -> Option<Host> {
        if !has(&[SPAWN]) {
            return None;
        }
        let bus = Bus::start()?;
        let mut command = bus.command("sh");
        let script = format!("ulimit {limit}; exec \"$0\" --names flatpak");
        command.args(["-c", &script, OURS]);
        Some(Host::by(bus, command))
    }

    /// Starts a service by this command.
    pub fn by(bus: Bus, mut command: Command) -> Host {
        let service = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let host = Host { bus, service };
        host.bus.client().wait_for_owner(NAME).unwrap();
        host
    }

    pub fn pid(&self) -> u32 {
        self.service.id()
    }

    /// Ends the service as a crash would.
    pub fn kill(&mut self) {
        self.service.kill().unwrap();
        self.service.wait().unwrap();
    }

    /// The unmodified client.
    pub fn spawn(&self, words: &[&str]) -> Command {
        let mut command = self.bus.command(SPAWN);
        command.arg("--host").args(words);
        command
    }

    /// Connects.
    pub fn raw(&self) -> Raw {
        Raw::connect(self.bus.address())
    }

    /// How many descriptors the service has.
    pub fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid())).unwrap().count()
    }

    /// The children of the service.
    pub fn children(&self) -> Vec<u32> {
        children(self.pid())
    }

    /// How many children of the service have ended and were not waited for.
    pub fn zombies(&self) -> usize {
        children(self.pid()).into_iter().filter(|pid| state(*pid) == Some('Z')).count()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // The original leaves a server of certificates behind when it is killed.
        let _ = kill_process(Pid::from_child(&self.service), Signal::TERM);
        let _ = self.service.wait();
        // A command without `--watch-bus` goes on, also where a test has failed before it ended it.
        let address = format!("DBUS_SESSION_BUS_ADDRESS={}", self.bus.address());
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else { continue };
            let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
            let is_of_bus =
                environment.split(|byte| *byte == 0).any(|line| line == address.as_bytes());
            if let Some(pid) = Pid::from_raw(pid).filter(|_| is_of_bus) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
}

fn children(pid: u32) -> Vec<u32> {
    let mut all = Vec::new();
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten() {
        let text = std::fs::read_to_string(task.unwrap().path().join("children"));
        all.extend(
            text.unwrap_or_default().split_whitespace().map(|pid| pid.parse::<u32>().unwrap()),
        );
    }
    all
}

/// The state letter of a process.
pub fn state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat[stat.rfind(')')? + 2..].chars().next()
}

/// An error of a call: its name and its text.
pub type Refused = (String, String);

/// One connection that calls what it wants.
pub struct Raw {
    runtime: Runtime,
    connection: Connection,
    stream: MessageStream,
    /// Ends that were told before somebody asked.
    ends: HashMap<u32, Vec<u32>>,
}

/// A command as it is put on the wire.
pub struct Wanted<'a> {
    pub directory: &'a [u8],
    pub words: Vec<Vec<u8>>,
    pub descriptors: Vec<(u32, BorrowedFd<'a>)>,
    pub variables: Vec<(&'a str, &'a str)>,
    pub flags: u32,
}

/// `sh -c script`.
pub fn shell(script: &str) -> Wanted<'static> {
    let words = ["sh\0".into(), "-c\0".into(), format!("{script}\0")];
    Wanted {
        directory: b"/tmp\0",
        words: words.map(String::into_bytes).into(),
        descriptors: Vec::new(),
        variables: Vec::new(),
        flags: 0,
    }
}

impl Raw {
    pub fn connect(address: &str) -> Raw {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let built =
            runtime.block_on(async { zbus::connection::Builder::address(address).build().await });
        let connection = built.unwrap();
        let stream = MessageStream::from(&connection);
        Raw { runtime, connection, stream, ends: HashMap::new() }
    }

    /// Calls a method and returns its answer.
    pub fn call<B>(
        &mut self,
        path: &str,
        interface: &str,
        method: &str,
        body: &B,
    ) -> Result<Message, Refused>
    where
        B: serde::Serialize + DynamicType,
    {
        let call = Message::method_call(path, method)
            .destination(NAME)
            .interface(interface)
            .build(body)
            .unwrap();
        self.send(&call)
    }

    /// Sends a call and returns its answer.
    pub fn send(&mut self, call: &Message) -> Result<Message, Refused> {
        let serial = call.primary_header().serial_num();
        self.runtime.block_on(self.connection.send(call)).map_err(failed)?;
        loop {
            let message = self.next()?;
            let header = message.header();
            if header.reply_serial() != Some(serial) {
                self.hear(&message);
                continue;
            }
            if header.message_type() == Type::Error {
                let name = header.error_name().unwrap().to_string();
                let text = message.body().deserialize::<&str>().unwrap_or_default().to_owned();
                return Err((name, text));
            }
            return Ok(message);
        }
    }

    fn next(&mut self) -> Result<Message, Refused> {
        let next = async { tokio::time::timeout(PATIENCE, self.stream.next()).await };
        match self.runtime.block_on(next) {
            Ok(Some(Ok(message))) => Ok(message),
            Ok(Some(Err(error))) => Err(failed(error)),
            Ok(None) => Err(("closed".to_owned(), String::new())),
            Err(_) => Err(("no answer".to_owned(), String::new())),
        }
    }

    fn hear(&mut self, message: &Message) {
        let header = message.header();
        if header.member().is_some_and(|member| member.as_str() == "HostCommandExited") {
            let (pid, status): (u32, u32) = message.body().deserialize().unwrap();
            self.ends.entry(pid).or_default().push(status);
        }
    }

    /// Starts a command.
    pub fn command(&mut self, wanted: &Wanted<'_>) -> Result<u32, Refused> {
        let descriptors: HashMap<u32, Fd<'_>> =
            wanted.descriptors.iter().map(|(target, fd)| (*target, Fd::from(*fd))).collect();
        let variables: HashMap<&str, &str> = wanted.variables.iter().copied().collect();
        let body = (wanted.directory, &wanted.words, descriptors, variables, wanted.flags);
        let answer = self.call(PATH, INTERFACE, "HostCommand", &body)?;
        Ok(answer.body().deserialize().unwrap())
    }

    /// Sends a signal to a command.
    pub fn signal(&mut self, pid: u32, signal: u32, to_group: bool) -> Result<(), Refused> {
        self.call(PATH, INTERFACE, "HostCommandSignal", &(pid, signal, to_group)).map(drop)
    }

    /// Waits for the end of a command and returns its wait status.
    pub fn end(&mut self, pid: u32) -> Result<u32, Refused> {
        loop {
            if let Some(ends) = self.ends.get_mut(&pid)
                && let Some(status) = ends.pop()
            {
                return Ok(status);
            }
            let message = self.next()?;
            self.hear(&message);
        }
    }

    /// Runs a command to its end.
    pub fn run(&mut self, wanted: &Wanted<'_>) -> Result<u32, Refused> {
        let pid = self.command(wanted)?;
        self.end(pid)
    }

    /// Runs a command and returns what it writes.
    pub fn output(&mut self, wanted: &Wanted<'_>) -> Result<String, Refused> {
        let (mut read, write) = std::io::pipe().unwrap();
        let mut descriptors = wanted.descriptors.clone();
        descriptors.push((1, write.as_fd()));
        let pid = self.command(&Wanted {
            directory: wanted.directory,
            words: wanted.words.clone(),
            descriptors,
            variables: wanted.variables.clone(),
            flags: wanted.flags,
        })?;
        drop(write);
        let mut text = String::new();
        std::io::Read::read_to_string(&mut read, &mut text).unwrap();
        self.end(pid)?;
        Ok(text)
    }

    /// Leaves the bus without a word.
    pub fn leave(self) {}
}

fn failed(error: impl std::fmt::Display) -> Refused {
    ("failed".to_owned(), error.to_string())
}
