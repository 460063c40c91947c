//! A running program in which hangs are planted, and what it says of itself.

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use super::judge::{OwnGap, Span};
use super::process::OwnedProcess;
use crate::lab::{BenchError, cannot};
use crate::trace::exercise::now_ns;

/// Nothing that is planted takes longer, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a program says of a plant.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Outcome {
    /// It hung.
    Hung {
        /// When, by the program's own clock.
        span: Span,
        /// For how long its thread ran meanwhile.
        ran_ns: u64,
        /// For how long its thread was ready meanwhile.
        ready_ns: u64,
    },
    /// It could not be planted.
    Cannot(String),
}

/// A line that a program says.
#[derive(Clone, Debug, PartialEq)]
enum Said {
    Ready,
    Outcome(String, Outcome),
    Gap(OwnGap),
}

/// A running program.
#[derive(Debug)]
pub(super) struct HangingProgram {
    process: OwnedProcess,
    orders: ChildStdin,
    lines: Receiver<String>,
    gaps: Vec<OwnGap>,
}

impl HangingProgram {
    /// Starts it, and waits until its main loop runs.
    pub(super) fn start(mut command: Command) -> Result<HangingProgram, BenchError> {
        let name = command.get_program().to_owned();
        let failed = |error: std::io::Error| cannot(&name, error);
        let mut process = OwnedProcess::start(command.stdout(Stdio::piped())).map_err(failed)?;
        let (Some(output), Some(orders)) = process.streams() else {
            return Err(cannot(&name, "it has no streams"));
        };
        let (sender, lines) = channel();
        // It ends with the program, whose output it reads.
        sys::thread::spawn("bench-hangs-read", move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        })
        .map_err(failed)?;
        let mut program = HangingProgram { process, orders, lines, gaps: Vec::new() };
        match program.next(PATIENCE) {
            Ok(Some(Said::Ready)) => Ok(program),
            _ => Err(cannot(&name, "it does not reach its main loop")),
        }
    }

    /// Returns the process ID.
    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Has it hang, and waits for what it says of that.
    pub(super) fn order(&mut self, plant: &str, ms: u64) -> Result<Outcome, BenchError> {
        writeln!(self.orders, "{plant} {ms}").map_err(|error| cannot(plant, error))?;
        let until = now_ns().saturating_add(nanoseconds(PATIENCE));
        loop {
            let left = Duration::from_nanos(until.saturating_sub(now_ns()));
            match self.next(left)? {
                Some(Said::Outcome(name, outcome)) if name == plant => return Ok(outcome),
                Some(_) => {}
                None => return Err(cannot(plant, "the program does not answer")),
            }
        }
    }

    /// Lets it rest for so long.
    pub(super) fn rest(&mut self, rest: Duration) -> Result<(), BenchError> {
        let until = now_ns().saturating_add(nanoseconds(rest));
        loop {
            let left = Duration::from_nanos(until.saturating_sub(now_ns()));
            if self.next(left)?.is_none() {
                return Ok(());
            }
        }
    }

    /// Ends it, and returns the gaps that it saw itself.
    pub(super) fn end(mut self) -> Vec<OwnGap> {
        drop(self.orders);
        let until = now_ns().saturating_add(nanoseconds(PATIENCE));
        while now_ns() < until {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => {
                    if let Some(Said::Gap(gap)) = parse(&line) {
                        self.gaps.push(gap);
                    }
                }
                Err(_) => break,
            }
        }
        self.gaps
    }

    /// Returns the next thing that it says, if it says any in time, and keeps its gaps.
    fn next(&mut self, patience: Duration) -> Result<Option<Said>, BenchError> {
        let said = match self.lines.recv_timeout(patience) {
            Ok(line) => parse(&line),
            Err(RecvTimeoutError::Timeout) => return Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                let why = if self.process.is_alive() { "it says no more" } else { "it has ended" };
                return Err(cannot("the program that hangs", why));
            }
        };
        if let Some(Said::Gap(gap)) = said {
            self.gaps.push(gap);
        }
        // What is not known says nothing.
        Ok(Some(said.unwrap_or(Said::Ready)))
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn parse(line: &str) -> Option<Said> {
    let mut words = line.splitn(3, ' ');
    let kind = words.next()?;
    if kind == "ready" {
        return Some(Said::Ready);
    }
    let (second, rest) = (words.next()?, words.next()?);
    let numbers = || rest.split(' ').map(|number| number.parse::<u64>().ok());
    match kind {
        "cannot" => Some(Said::Outcome(second.to_owned(), Outcome::Cannot(rest.to_owned()))),
        "plant" => {
            let numbers: Option<Vec<u64>> = numbers().collect();
            let [from_ns, to_ns, ran_ns, ready_ns] = numbers?[..] else { return None };
            let hung = Outcome::Hung { span: Span { from_ns, to_ns }, ran_ns, ready_ns };
            Some(Said::Outcome(second.to_owned(), hung))
        }
        "step" | "late" => {
            let (from_ns, to_ns) = (second.parse().ok()?, rest.parse().ok()?);
            Some(Said::Gap(OwnGap { is_step: kind == "step", span: Span { from_ns, to_ns } }))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_says_is_read_and_what_is_not_known_is_passed_over() {
        let hung = Outcome::Hung { span: Span { from_ns: 10, to_ns: 40 }, ran_ns: 1, ready_ns: 2 };
        assert_eq!(parse("plant sync 10 40 1 2"), Some(Said::Outcome("sync".to_owned(), hung)));
        assert_eq!(
            parse("cannot swap there is none"),
            Some(Said::Outcome("swap".to_owned(), Outcome::Cannot("there is none".to_owned())))
        );
        let gap = OwnGap { is_step: false, span: Span { from_ns: 3, to_ns: 9 } };
        assert_eq!(parse("late 3 9"), Some(Said::Gap(gap)));
        for line in ["", "plant sync 1 2", "step 1", "hello world again"] {
            assert_eq!(parse(line), None, "{line}");
        }
    }
}
