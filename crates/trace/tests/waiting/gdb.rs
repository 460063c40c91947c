//! Stacks as gdb sees them, at system calls of a program that gdb runs.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use unjank_trace::stack::KnownRegisters;

/// A frame as gdb sees it.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) pc: u64,
    /// Where gdb says that the function begins.
    pub(crate) start: Option<u64>,
    /// The name; none where gdb says `??`.
    pub(crate) name: Option<String>,
}

/// What gdb says at one stop.
#[derive(Debug)]
pub(crate) struct Stop {
    pub(crate) process: u32,
    pub(crate) registers: KnownRegisters,
    pub(crate) frames: Vec<Seen>,
}

/// A gdb that runs a program; it ends with the test.
pub(crate) struct Gdb {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Drop for Gdb {
    fn drop(&mut self) {
        // At the end of its input gdb kills the program and leaves.
        self.input = None;
        let _rest = std::io::copy(&mut self.output, &mut std::io::sink());
        let _gone = self.child.wait();
    }
}

impl Gdb {
    /// Runs `command` under gdb in `dir`, to stop at `stops` of `calls` after the first `skip`.
    pub(crate) fn run(dir: &Path, command: &[&str], calls: &str, skip: i32, stops: usize) -> Gdb {
        let words: Vec<String> = command.iter().map(|word| format!("{word:?}")).collect();
        let settings = format!(
            "python command=[{}]; calls={calls:?}; skip={skip}; stops={stops}",
            words.join(",")
        );
        let mut child = Command::new("timeout")
            // Far above what any of these takes; a program that hangs fails the test and not the machine.
            .args(["-k", "5", "120", "gdb", "-nx", "-batch", "-ex", &settings, "-x"])
            .arg(super::victim("frames.py"))
            .current_dir(dir)
            .env("SHELL", "/bin/sh")
            .env("HOME", dir)
            .env("XDG_CONFIG_HOME", dir)
            .env("LC_ALL", "C")
            .env_remove("DEBUGINFOD_URLS")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        Gdb { child, input, output }
    }

    /// Waits for the next stop; none when the program has ended.
    pub(crate) fn next(&mut self) -> Option<Stop> {
        let mut stop: Option<Stop> = None;
        let mut line = Vec::new();
        loop {
            line.clear();
            if self.output.read_until(b'\n', &mut line).unwrap() == 0 {
                return None;
            }
            let text = String::from_utf8_lossy(&line);
            let mut words = text.trim_end().splitn(4, ' ');
            let kind = words.next().unwrap_or_default();
            let hex = |word: &str| u64::from_str_radix(word, 16).ok();
            if kind == "registers" {
                let mut all = text.split_whitespace().skip(1).map(|word| hex(word).unwrap());
                let mut next = || all.next().unwrap();
                let process = u32::try_from(next()).unwrap();
                let registers = KnownRegisters::new(next(), next()).bp(next());
                let registers = registers.kept([next(), next(), next(), next(), next()]);
                stop = Some(Stop { process, registers, frames: Vec::new() });
            } else if kind == "frame"
                && let Some(stop) = &mut stop
            {
                let pc = hex(words.next().unwrap()).unwrap();
                let start = hex(words.next().unwrap()).filter(|start| *start != u64::MAX);
                let name = words.next().map(str::to_owned).filter(|name| name != "??");
                stop.frames.push(Seen { pc, start, name });
            } else if kind == "end" && stop.is_some() {
                return stop;
            }
        }
    }

    /// Lets the program go on.
    pub(crate) fn go_on(&mut self) {
        if let Some(input) = &mut self.input {
            // A gdb that has left is noticed by the next wait.
            let _gone = input.write_all(b"\n");
        }
    }
}
