//! A cell: one combination of disk, queue, background and its manners.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How the background behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LoadClass {
    /// There is none.
    Unloaded,
    /// As it is.
    Plain,
    /// In the idle I/O class, as `ionice -c3`.
    Idle,
    /// Under `unjank run`.
    Run,
}

impl LoadClass {
    /// Returns its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            LoadClass::Unloaded => "unloaded",
            LoadClass::Plain => "plain",
            LoadClass::Idle => "idle",
            LoadClass::Run => "run",
        }
    }
}

impl FromStr for LoadClass {
    type Err = String;

    fn from_str(text: &str) -> Result<LoadClass, String> {
        [LoadClass::Plain, LoadClass::Idle, LoadClass::Run]
            .into_iter()
            .find(|class| class.name() == text)
            .ok_or_else(|| "one of plain, idle, run".to_owned())
    }
}

/// How write-back is throttled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Throttling {
    /// As the kernel chooses for disk and scheduler.
    Default,
    /// Not at all.
    Off,
    /// To this target, in microseconds.
    FigureTarget(u64),
}

impl Throttling {
    /// Returns the target that is to be set; `None` leaves it to the kernel.
    #[must_use]
    pub fn wbt_lat_usec(self) -> Option<u64> {
        match self {
            Throttling::Default => None,
            Throttling::Off => Some(0),
            Throttling::FigureTarget(usec) => Some(usec),
        }
    }
}

impl fmt::Display for Throttling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Throttling::Default => f.write_str("default"),
            Throttling::Off => f.write_str("off"),
            Throttling::FigureTarget(usec) => write!(f, "{usec}"),
        }
    }
}

impl FromStr for Throttling {
    type Err = String;

    fn from_str(text: &str) -> Result<Throttling, String> {
        match text {
            "default" => Ok(Throttling::Default),
            "off" => Ok(Throttling::Off),
            number => match number.parse() {
                Ok(0) => Ok(Throttling::Off),
                Ok(usec) => Ok(Throttling::FigureTarget(usec)),
                Err(_) => Err("default, off, or a target in microseconds".to_owned()),
            },
        }
    }
}

impl From<Throttling> for String {
    fn from(throttling: Throttling) -> String {
        throttling.to_string()
    }
}

impl TryFrom<String> for Throttling {
    type Error = String;

    fn try_from(text: String) -> Result<Throttling, String> {
        text.parse()
    }
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// The time of a launch.
    Launch,
    /// The time of one whole job on a machine where nothing else happens.
    Whole,
    /// Bytes a second that the background writes when nothing else happens.
    Alone,
    /// The same while launches take half of the time.
    Shared,
}

impl Measure {
    /// Returns its name on the command line and in records.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Measure::Launch => "launch",
            Measure::Whole => "whole",
            Measure::Alone => "alone",
            Measure::Shared => "shared",
        }
    }
}

impl FromStr for Measure {
    type Err = String;

    fn from_str(text: &str) -> Result<Measure, String> {
        [Measure::Launch, Measure::Whole, Measure::Alone, Measure::Shared]
            .into_iter()
            .find(|measure| measure.name() == text)
            .ok_or_else(|| "one of launch, whole, alone, shared".to_owned())
    }
}

/// One combination.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct MatrixCell {
    /// What is measured.
    pub measure: Measure,
    /// The disk: `model:emmc`, or the directory on one.
    pub disk: String,
    /// The scheduler; `kept` is the one that was there.
    pub scheduler: String,
    /// The throttling.
    pub wbt: Throttling,
    /// What works in the background; empty where nothing does.
    pub background: String,
    /// How it behaves.
    pub class: LoadClass,
    /// What is launched.
    pub foreground: String,
}

impl MatrixCell {
    /// Returns the cell without a background that this one is compared with.
    #[must_use]
    pub fn unloaded(&self) -> MatrixCell {
        MatrixCell { class: LoadClass::Unloaded, background: String::new(), ..self.clone() }
    }

    /// Returns what the cell's queue is called: `none, throttling off`.
    #[must_use]
    pub fn queue(&self) -> String {
        match self.wbt {
            Throttling::Default => self.scheduler.clone(),
            Throttling::Off => format!("{}, throttling off", self.scheduler),
            Throttling::FigureTarget(usec) => format!("{}, throttling {usec} µs", self.scheduler),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for text in ["default", "off", "2000"] {
            assert_eq!(text.parse::<Throttling>().unwrap().to_string(), text);
        }
        assert_eq!("0".parse(), Ok(Throttling::Off));
        assert!("slow".parse::<Throttling>().is_err() && "-1".parse::<Throttling>().is_err());
        assert_eq!("run".parse(), Ok(LoadClass::Run));
        assert!("unloaded".parse::<LoadClass>().is_err(), "it is always measured");
        assert_eq!("shared".parse(), Ok(Measure::Shared));
    }
}
