//! Colours of names: `LS_COLORS` as `dircolors` writes it, and what GNU `ls` uses without it.

use super::charset::Charset;
use super::glob::Glob;

/// What a colour is for, by its two letters in `LS_COLORS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Role {
    Left,
    Right,
    End,
    Reset,
    Normal,
    File,
    Directory,
    Link,
    Fifo,
    Socket,
    BlockDevice,
    CharDevice,
    Missing,
    Orphan,
    Executable,
    #[expect(dead_code, reason = "Linux has no doors; the letters keep their place")]
    Door,
    SetUid,
    SetGid,
    Sticky,
    OtherWritable,
    StickyOtherWritable,
    Capability,
    HardLinks,
    ClearToEnd,
}

/// The roles in the order of their numbers, with their letters and what they are by default.
const ROLES: [(&[u8; 2], Option<&[u8]>); 24] = [
    (b"lc", Some(b"\x1b[")),
    (b"rc", Some(b"m")),
    (b"ec", None),
    (b"rs", Some(b"0")),
    (b"no", None),
    (b"fi", None),
    (b"di", Some(b"01;34")),
    (b"ln", Some(b"01;36")),
    (b"pi", Some(b"33")),
    (b"so", Some(b"01;35")),
    (b"bd", Some(b"01;33")),
    (b"cd", Some(b"01;33")),
    (b"mi", None),
    (b"or", None),
    (b"ex", Some(b"01;32")),
    (b"do", Some(b"01;35")),
    (b"su", Some(b"37;41")),
    (b"sg", Some(b"30;43")),
    (b"st", Some(b"37;44")),
    (b"ow", Some(b"34;42")),
    (b"tw", Some(b"30;42")),
    (b"ca", Some(b"30;41")),
    (b"mh", None),
    (b"cl", Some(b"\x1b[K")),
];

/// The terminals that `dircolors` knows to show colours.
const TERMINALS: [&str; 30] = [
    "Eterm",
    "ansi",
    "*color*",
    "con[0-9]*x[0-9]*",
    "cons25",
    "console",
    "cygwin",
    "*direct*",
    "dtterm",
    "gnome",
    "hurd",
    "jfbterm",
    "konsole",
    "kterm",
    "linux",
    "linux-c",
    "mlterm",
    "putty",
    "rxvt*",
    "screen*",
    "st",
    "terminator",
    "tmux*",
    "vt100",
    "xterm*",
    "alacritty*",
    "foot*",
    "wezterm*",
    "kitty*",
    "xterm-kitty",
];

/// Says whether a terminal called `term` shows colours.
pub(super) fn is_known_terminal(term: &str) -> bool {
    TERMINALS
        .iter()
        .any(|known| Glob::new(known.as_bytes(), Charset::Ascii).matches(term.as_bytes()))
}

/// The colours of names.
#[derive(Clone, Debug)]
pub(super) struct Colors {
    roles: [Option<Box<[u8]>>; 24],
    /// Ends of names with their colours, the last first.
    endings: Vec<Ending>,
    /// A link has the colour of what it points to.
    pub(super) links_as_targets: bool,
}

/// Why `LS_COLORS` was not understood.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ColorError {
    /// Two letters that mean nothing.
    #[error("unrecognized prefix: {0}")]
    Prefix(String),
    /// Not as `dircolors` writes it.
    #[error("it does not have the form of dircolors")]
    Syntax,
}

impl Default for Colors {
    fn default() -> Colors {
        Colors {
            roles: ROLES.map(|(_, color)| color.map(Box::from)),
            endings: Vec::new(),
            links_as_targets: false,
        }
    }
}

impl Colors {
    /// Reads the text of `LS_COLORS`.
    ///
    /// # Errors
    ///
    /// What is wrong with it; GNU ls then shows no colours.
    pub(super) fn parse(text: &[u8]) -> Result<Colors, ColorError> {
        let mut colors = Colors::default();
        let mut rest = text;
        while let Some((&first, after)) = rest.split_first() {
            match first {
                b':' => rest = after,
                b'*' => {
                    let (ending, after) = value(after, Until::Equals)?;
                    let after = after.strip_prefix(b"=").ok_or(ColorError::Syntax)?;
                    let (color, after) = value(after, Until::Colon)?;
                    colors.endings.push((ending.into(), color.into()));
                    rest = after;
                }
                _ => {
                    let (letters, after) = rest.split_at_checked(2).ok_or(ColorError::Syntax)?;
                    let after = after.strip_prefix(b"=").ok_or(ColorError::Syntax)?;
                    let role = ROLES.iter().position(|(known, _)| known.as_slice() == letters);
                    let prefix = || ColorError::Prefix(String::from_utf8_lossy(letters).into());
                    let role = role.ok_or_else(prefix)?;
                    let (color, after) = value(after, Until::Colon)?;
                    colors.roles[role] = Some(color.into());
                    rest = after;
                }
            }
        }
        colors.endings.reverse();
        if colors.of(Role::Link).is_some_and(|color| color.starts_with(b"target")) {
            colors.links_as_targets = true;
        }
        Ok(colors)
    }

    /// Returns the colour of `role`, if it has one at all.
    pub(super) fn of(&self, role: Role) -> Option<&[u8]> {
        self.roles[role as usize].as_deref()
    }

    /// Says whether the colour of `role` is one that can be seen.
    pub(super) fn shows(&self, role: Role) -> bool {
        self.of(role).is_some_and(|color| !matches!(color, b"" | b"0" | b"00"))
    }

    /// Returns the colour of the end of this name.
    pub(super) fn of_ending(&self, name: &[u8]) -> Option<&[u8]> {
        let fits = |ending: &[u8]| {
            name.len() >= ending.len()
                && name[name.len() - ending.len()..].eq_ignore_ascii_case(ending)
        };
        self.endings.iter().find(|(ending, _)| fits(ending)).map(|(_, color)| &**color)
    }

    /// Appends what switches `color` on.
    pub(super) fn begin(&self, color: &[u8], out: &mut Vec<u8>) {
        for part in [self.of(Role::Left), Some(color), self.of(Role::Right)] {
            out.extend_from_slice(part.unwrap_or_default());
        }
    }

    /// Appends what switches colours off.
    pub(super) fn end(&self, out: &mut Vec<u8>) {
        match self.of(Role::End) {
            Some(end) => out.extend_from_slice(end),
            None => self.begin(self.of(Role::Reset).unwrap_or_default(), out),
        }
    }

    /// Says whether a last reset, when all is written, would change nothing.
    pub(super) fn is_ansi(&self) -> bool {
        self.of(Role::Left) == Some(b"\x1b[") && self.of(Role::Right) == Some(b"m")
    }
}

/// The end of a name and its colour.
type Ending = (Box<[u8]>, Box<[u8]>);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    Equals,
    Colon,
}

/// Reads a text with the escapes of `dircolors`: `\e`, `\033`, `\x1b`, `^[`.
fn value(text: &[u8], until: Until) -> Result<(Vec<u8>, &[u8]), ColorError> {
    let mut out = Vec::new();
    let mut rest = text;
    loop {
        match rest {
            [] | [b':', ..] => return Ok((out, rest)),
            [b'=', ..] if until == Until::Equals => return Ok((out, rest)),
            [b'\\', letter, after @ ..] => {
                rest = after;
                let byte = match letter {
                    b'a' => 0x07,
                    b'b' => 0x08,
                    b'e' => 0x1b,
                    b'f' => 0x0c,
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'v' => 0x0b,
                    b'?' => 0x7f,
                    b'_' => b' ',
                    b'0'..=b'7' => {
                        let mut number = letter - b'0';
                        while let [digit @ b'0'..=b'7', after @ ..] = rest {
                            number = number.wrapping_mul(8).wrapping_add(digit - b'0');
                            rest = after;
                        }
                        number
                    }
                    b'x' | b'X' => {
                        let mut number = 0_u8;
                        while let Some(digit) =
                            rest.first().and_then(|byte| char::from(*byte).to_digit(16))
                        {
                            let digit = u8::try_from(digit).unwrap_or(0);
                            number = number.wrapping_mul(16).wrapping_add(digit);
                            rest = &rest[1..];
                        }
                        number
                    }
                    other => *other,
                };
                out.push(byte);
            }
            [b'\\'] => return Err(ColorError::Syntax),
            [b'^', letter, after @ ..] => {
                out.push(match letter {
                    b'@'..=b'~' => letter & 0o37,
                    b'?' => 0x7f,
                    _ => return Err(ColorError::Syntax),
                });
                rest = after;
            }
            [b'^'] => return Err(ColorError::Syntax),
            [byte, after @ ..] => {
                out.push(*byte);
                rest = after;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ending_that_fits_decides() {
        let colors = Colors::parse(b"di=01;35:*.gz=31:*.tar.gz=32:*.GZ=33:ln=target").unwrap();
        assert_eq!(colors.of(Role::Directory), Some(&b"01;35"[..]));
        assert_eq!(colors.of_ending(b"a.gz"), Some(&b"33"[..]));
        assert_eq!(colors.of_ending(b"gz"), None);
        assert!(colors.links_as_targets && !colors.shows(Role::File));
    }

    #[test]
    fn escapes_are_those_of_dircolors() {
        let colors = Colors::parse(b"lc=\\e[:rc=\\x6d:no=^[x:*\\*=1:cl=\\033[K:ec=\\_").unwrap();
        assert_eq!(colors.of(Role::Left), Some(&b"\x1b["[..]));
        assert_eq!(colors.of(Role::Right), Some(&b"m"[..]));
        assert_eq!(colors.of(Role::Normal), Some(&b"\x1bx"[..]));
        assert_eq!(colors.of_ending(b"a*"), Some(&b"1"[..]));
        assert_eq!(colors.of(Role::End), Some(&b" "[..]));
        assert!(colors.is_ansi());
    }

    #[test]
    fn what_is_not_understood_is_said() {
        assert_eq!(Colors::parse(b"xx=1").unwrap_err(), ColorError::Prefix("xx".into()));
        for wrong in [&b"di"[..], b"di:1", b"*.gz", b"di=^", b"di=\\", b"d"] {
            assert_eq!(Colors::parse(wrong).unwrap_err(), ColorError::Syntax, "{wrong:?}");
        }
    }

    #[test]
    fn terminals_are_known_by_name() {
        assert!(is_known_terminal("xterm-256color") && is_known_terminal("linux"));
        assert!(!is_known_terminal("dumb") && !is_known_terminal(""));
    }
}
