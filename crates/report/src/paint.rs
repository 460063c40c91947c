//! Colour on a terminal, and only there.

use crate::text::Charset;

/// What a piece of text means for the reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    /// Ordinary text.
    #[default]
    Plain,
    /// What matters.
    Strong,
    /// What can be skipped.
    Dim,
    /// As it should be.
    Good,
    /// Close to a limit.
    Warn,
    /// Over a limit.
    Bad,
}

impl Tone {
    /// All tones.
    #[cfg(test)]
    pub(crate) const ALL: [Tone; 6] =
        [Tone::Plain, Tone::Strong, Tone::Dim, Tone::Good, Tone::Warn, Tone::Bad];

    /// Returns the parameters of the escape sequence that sets this tone; none for ordinary text.
    fn code(self) -> Option<&'static str> {
        match self {
            Tone::Plain => None,
            Tone::Strong => Some("1"),
            Tone::Dim => Some("2"),
            Tone::Good => Some("32"),
            Tone::Warn => Some("33"),
            Tone::Bad => Some("1;31"),
        }
    }
}

/// How the reader's terminal shows text: with colours or without, and in which characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paint {
    /// No escape sequences: a pipe, a file, `NO_COLOR`.
    Off,
    /// The eight colours of every terminal, which its user has made readable.
    On,
    /// As `Off`, in ASCII alone.
    AsciiOff,
    /// As `On`, in ASCII alone.
    AsciiOn,
}

impl Paint {
    /// Returns what shows tones if `is_coloured`, in these characters.
    #[must_use]
    pub fn new(is_coloured: bool, charset: Charset) -> Paint {
        match (is_coloured, charset) {
            (false, Charset::Unicode) => Paint::Off,
            (true, Charset::Unicode) => Paint::On,
            (false, Charset::Ascii) => Paint::AsciiOff,
            (true, Charset::Ascii) => Paint::AsciiOn,
        }
    }

    /// Says whether tones are shown.
    #[must_use]
    pub fn is_coloured(self) -> bool {
        matches!(self, Paint::On | Paint::AsciiOn)
    }

    /// Returns the characters that the reader's terminal shows.
    #[must_use]
    pub fn charset(self) -> Charset {
        match self {
            Paint::Off | Paint::On => Charset::Unicode,
            Paint::AsciiOff | Paint::AsciiOn => Charset::Ascii,
        }
    }

    /// Returns `text` in `tone`.
    #[must_use]
    pub fn set(self, tone: Tone, text: &str) -> String {
        match tone.code() {
            Some(code) if self.is_coloured() && !text.is_empty() => {
                format!("\x1b[{code}m{text}\x1b[0m")
            }
            _ => text.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_gets_no_escape_sequence() {
        assert_eq!(Paint::Off.set(Tone::Bad, "misses"), "misses");
        assert_eq!(Paint::On.set(Tone::Bad, "misses"), "\x1b[1;31mmisses\x1b[0m");
        assert_eq!(Paint::On.set(Tone::Plain, "x"), "x");
    }
}
