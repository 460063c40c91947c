//! Colour on a terminal, and only there.

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

/// Sets text in a tone, or leaves it as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paint {
    /// No escape sequences: a pipe, a file, `NO_COLOR`.
    Off,
    /// The eight colours of every terminal, which its user has made readable.
    On,
}

impl Paint {
    /// Returns `text` in `tone`.
    #[must_use]
    pub fn set(self, tone: Tone, text: &str) -> String {
        let code = match tone {
            Tone::Plain => return text.to_owned(),
            Tone::Strong => "1",
            Tone::Dim => "2",
            Tone::Good => "32",
            Tone::Warn => "33",
            Tone::Bad => "1;31",
        };
        match self {
            Paint::On if !text.is_empty() => format!("\x1b[{code}m{text}\x1b[0m"),
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
