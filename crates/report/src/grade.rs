//! Grades: whether a step fits its frame, in a word, a shape and a colour.

use std::time::Duration;

use serde::Serialize;

use super::figure::nanoseconds;
use super::paint::Tone;
use super::samples::Samples;

/// The budget of one interactive step at 60 pictures a second.
pub const FRAME: Duration = Duration::from_micros(16_667);

/// Reads the time of a frame: `8.3ms`.
///
/// # Errors
///
/// Why it is none, in a sentence.
pub fn parse_frame(text: &str) -> Result<Duration, String> {
    match super::duration::parse(text) {
        Ok(time) if time < Duration::from_micros(1) => {
            Err("a frame is longer than a microsecond".to_owned())
        }
        other => other.map_err(|error| error.to_string()),
    }
}

/// How a step stands to its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Grade {
    /// Under half a frame.
    Fits,
    /// Up to one frame, or over it once in twenty times.
    Near,
    /// More than one frame.
    Misses,
}

impl Grade {
    /// Grades measurements in nanoseconds by their median; a p95 over the frame makes `Fits` to `Near`.
    #[must_use]
    pub fn of(samples: &Samples, frame: Duration) -> Grade {
        let frame = nanoseconds(frame);
        match samples.median() {
            median if median > frame => Grade::Misses,
            median if median >= frame / 2.0 || samples.p95() > frame => Grade::Near,
            _ => Grade::Fits,
        }
    }

    /// Returns the word: `fits`, `near`, `misses`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Grade::Fits => "fits",
            Grade::Near => "near",
            Grade::Misses => "misses",
        }
    }

    /// Returns the shape that stands for the word where there is no room.
    #[must_use]
    pub fn shape(self) -> &'static str {
        match self {
            Grade::Fits => "●",
            Grade::Near => "◐",
            Grade::Misses => "▲",
        }
    }

    /// Returns the tone in which the word is set.
    #[must_use]
    pub fn tone(self) -> Tone {
        match self {
            Grade::Fits => Tone::Good,
            Grade::Near => Tone::Warn,
            Grade::Misses => Tone::Bad,
        }
    }
}

/// Says how a person takes a wait: `felt` over 100 ms, `hung` over a second, nothing below.
#[must_use]
pub fn feeling(time_ns: f64) -> Option<&'static str> {
    match time_ns {
        time if time > 1e9 => Some("hung"),
        time if time > 1e8 => Some("felt"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_a_unit() {
        assert_eq!(parse_frame("8.3ms"), Ok(Duration::from_micros(8300)));
        assert_eq!(parse_frame("16.667ms"), Ok(FRAME));
        for wrong in ["8.3", "fast", "-1ms", "0ms", "NaNms", "infs"] {
            assert!(parse_frame(wrong).is_err(), "{wrong}");
        }
    }

    fn grade(millis: &[f64]) -> Grade {
        Grade::of(&millis.iter().map(|ms| ms * 1e6).collect(), Duration::from_millis(10))
    }

    #[test]
    fn half_a_frame_and_a_whole_one_are_the_borders() {
        assert_eq!(grade(&[4.9]), Grade::Fits);
        assert_eq!(grade(&[5.0]), Grade::Near);
        assert_eq!(grade(&[10.0]), Grade::Near);
        assert_eq!(grade(&[10.1]), Grade::Misses);
    }

    #[test]
    fn one_bad_time_in_twenty_is_not_called_fitting() {
        let mut times = vec![1.0; 18];
        times.extend([30.0, 30.0]);
        assert_eq!(grade(&times), Grade::Near);
        times.extend(vec![1.0; 40]);
        assert_eq!(grade(&times), Grade::Fits);
    }

    #[test]
    fn a_tenth_of_a_second_is_felt_and_a_second_hangs() {
        assert_eq!([0.09e9, 0.11e9, 1.1e9].map(feeling), [None, Some("felt"), Some("hung")]);
    }
}
