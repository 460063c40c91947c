//! `unjank trace`: from "it is slow" to the call, the file and the code path to blame; a file for each command.

mod ab;

use std::time::Duration;

use clap::{Args, Subcommand};

use crate::error::{Error, Verdict};

/// Find the system calls that make a program wait.
#[derive(Debug, Args)]
pub(crate) struct Trace {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Ab(ab::Ab),
}

impl Trace {
    pub(crate) fn run(self) -> Result<Verdict, Error> {
        match self.command {
            Command::Ab(command) => command.run(),
        }
    }
}

/// Reads a time with its unit: `50ms`, `100 us`, `2s`, `1m`.
fn time(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let split =
        text.find(|letter: char| letter.is_alphabetic() || letter == 'µ').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let scale = match unit {
        "m" | "min" => 60.0,
        "s" => 1.0,
        "ms" => 1e-3,
        "us" | "µs" => 1e-6,
        "ns" => 1e-9,
        _ => return Err("say a number and s, ms or us, for example 100us".to_owned()),
    };
    let seconds: f64 = number.trim().parse().map_err(|_| format!("{number:?} is no number"))?;
    Duration::try_from_secs_f64(seconds * scale).map_err(|_| format!("{text} is no time"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_unit() {
        assert_eq!(time("100us"), Ok(Duration::from_micros(100)));
        assert_eq!(time("0.5 ms"), Ok(Duration::from_micros(500)));
        assert_eq!(time("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(time("0s"), Ok(Duration::ZERO));
        for wrong in ["100", "soon", "-1ms", "1e400s", "NaNs"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }
}
