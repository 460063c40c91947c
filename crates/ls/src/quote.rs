//! Quoting of names, each style as GNU `ls` has it.

use super::charset::{Charset, Piece, columns, is_printable};

/// A way to write names, by its name in `QUOTING_STYLE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// As they are.
    Literal,
    /// For a shell, where needed.
    Shell,
    /// For a shell.
    ShellAlways,
    /// For a shell, where needed, with `$'…'` for what cannot be printed.
    ShellEscape,
    /// For a shell, with `$'…'`.
    ShellEscapeAlways,
    /// As C writes strings.
    C,
    /// As C writes strings, with quotes only where needed.
    CMaybe,
    /// With backslashes, without quotes.
    Escape,
    /// As C, in the quotes of the locale.
    Locale,
    /// As C, in the quotes of the locale, or in double ones.
    Clocale,
}

impl Style {
    /// All styles with their names.
    pub(super) const NAMES: [(&'static str, Style); 10] = [
        ("literal", Style::Literal),
        ("shell", Style::Shell),
        ("shell-always", Style::ShellAlways),
        ("shell-escape", Style::ShellEscape),
        ("shell-escape-always", Style::ShellEscapeAlways),
        ("c", Style::C),
        ("c-maybe", Style::CMaybe),
        ("escape", Style::Escape),
        ("locale", Style::Locale),
        ("clocale", Style::Clocale),
    ];

    /// Finds a style by its name.
    pub(super) fn named(name: &str) -> Option<Style> {
        Style::NAMES.iter().find(|(known, _)| *known == name).map(|(_, style)| *style)
    }

    /// Says whether some names stand in quotes and others do not, so that columns need care.
    pub(super) fn is_variable(self) -> bool {
        matches!(self, Style::Shell | Style::ShellEscape | Style::CMaybe)
    }

    /// Says whether control characters are left for the terminal to see.
    fn leaves_controls(self) -> bool {
        matches!(self, Style::Literal | Style::Shell | Style::ShellAlways)
    }
}

/// What to do about characters that cannot be printed, in the styles that would leave them as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unprintable {
    /// Leave them.
    Keep,
    /// A question mark for each.
    QuestionMark,
}

/// How names are written.
#[derive(Clone, Debug)]
pub(super) struct Quoting {
    /// The style.
    pub(super) style: Style,
    /// How bytes are read.
    pub(super) charset: Charset,
    /// What to do about control characters.
    pub(super) unprintable: Unprintable,
    /// Characters that are quoted although the style would not.
    pub(super) also: &'static [u8],
}

/// What became of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Quoted {
    /// Columns on a terminal.
    pub(super) width: usize,
    /// Whether it is another text than the name.
    pub(super) changed: bool,
}

impl Quoting {
    /// Appends `name` in quotes as needed.
    pub(super) fn write(&self, name: &[u8], out: &mut Vec<u8>) -> Quoted {
        let start = out.len();
        if self.is_plain(name) {
            out.extend_from_slice(name);
            return Quoted { width: name.len(), changed: false };
        }
        self.quote(name, out);
        let written = &out[start..];
        // As GNU ls tells it: by length and first byte.
        let changed = written.len() != name.len() || written.first() != name.first();
        let further = self.unprintable == Unprintable::QuestionMark && self.style.leaves_controls();
        if further {
            let kept = out.split_off(start);
            return Quoted { width: question_marks(self.charset, &kept, out), changed };
        }
        Quoted { width: self.charset.width(written), changed }
    }

    /// Says whether the name is written as it is, without looking closely: most names are.
    fn is_plain(&self, name: &[u8]) -> bool {
        let plain = |byte: &u8| matches!(byte, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'_' | b'-' | b'+' | b',');
        let maybe = match self.style {
            Style::Literal => {
                return name.iter().all(|byte| (0x20..0x7f).contains(byte));
            }
            Style::Shell | Style::ShellEscape | Style::CMaybe | Style::Escape => true,
            _ => false,
        };
        maybe && !name.is_empty() && name.iter().all(plain)
    }

    fn quote(&self, name: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        let mut attempt = |shape: Shape, also: &[u8]| {
            out.truncate(start);
            shape.write(name, self.charset, also, out)
        };
        let shell = |escape, outer| Shape { kind: Kind::Shell(escape), outer };
        let (first, second) = match self.style {
            Style::Literal => {
                out.extend_from_slice(name);
                return;
            }
            Style::Shell => (shell(Escape::No, Outer::IfNeeded), shell(Escape::No, Outer::Always)),
            Style::ShellEscape => {
                (shell(Escape::Yes, Outer::IfNeeded), shell(Escape::Yes, Outer::Always))
            }
            Style::ShellAlways => (shell(Escape::No, Outer::Always), c(Outer::Always)),
            Style::ShellEscapeAlways => (shell(Escape::Yes, Outer::Always), c(Outer::Always)),
            Style::C => (c(Outer::Always), c(Outer::Always)),
            Style::CMaybe => (c(Outer::IfNeeded), c(Outer::Always)),
            Style::Escape => {
                let shape = Shape { kind: Kind::Bare, outer: Outer::IfNeeded };
                (shape, shape)
            }
            Style::Locale | Style::Clocale => {
                let quotes = match (self.charset, self.style) {
                    (Charset::Utf8 | Charset::Utf8Terminal, _) => {
                        Quotes { left: "‘", right: "’" }
                    }
                    (_, Style::Clocale) => Quotes { left: "\"", right: "\"" },
                    _ => Quotes { left: "'", right: "'" },
                };
                let shape = Shape { kind: Kind::C(quotes), outer: Outer::Always };
                (shape, shape)
            }
        };
        match attempt(first, self.also) {
            Attempt::Done => (),
            Attempt::NeedsOuter => {
                if attempt(second, &[]) == Attempt::BetterAsC {
                    attempt(c(Outer::Always), &[]);
                }
            }
            Attempt::BetterAsC => {
                attempt(c(Outer::Always), self.also);
            }
        }
    }
}

fn c(outer: Outer) -> Shape {
    Shape { kind: Kind::C(Quotes { left: "\"", right: "\"" }), outer }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outer {
    /// Without quotes; if that cannot be, say so.
    IfNeeded,
    Always,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Escape {
    Yes,
    No,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Quotes {
    left: &'static str,
    right: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Shell(Escape),
    C(Quotes),
    /// Backslashes alone.
    Bare,
}

/// One way through a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    kind: Kind,
    outer: Outer,
}

/// How a way through a name ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attempt {
    Done,
    /// It cannot be written without quotes around it.
    NeedsOuter,
    /// It has a single quote and nothing that double quotes would not hold as well.
    BetterAsC,
}

impl Shape {
    fn write(self, name: &[u8], charset: Charset, also: &[u8], out: &mut Vec<u8>) -> Attempt {
        let bare = self.outer == Outer::IfNeeded;
        let is_shell = matches!(self.kind, Kind::Shell(_));
        let escapes = self.kind != Kind::Shell(Escape::No);
        let quotes = match self.kind {
            Kind::Shell(_) => Quotes { left: "'", right: "'" },
            Kind::C(quotes) => quotes,
            Kind::Bare => Quotes { left: "", right: "" },
        };
        if !bare {
            out.extend_from_slice(quotes.left.as_bytes());
        }
        let needs_outer = bare && self.kind != Kind::Bare;
        let mut escaped = ShellEscape { open: false };
        let mut single_quote = false;
        let mut all_fit_c = true;
        let mut rest = name;
        while let Some((piece, length)) = charset.first(rest) {
            let (bytes, after) = rest.split_at(length);
            let is_first = rest.len() == name.len();
            rest = after;
            let byte = bytes[0];
            let right_quote = !is_shell
                && !quotes.right.is_empty()
                && escapes
                && bytes == quotes.right.as_bytes();
            if right_quote && needs_outer {
                return Attempt::NeedsOuter;
            }
            // Whether the character means itself in C's quotes and in the shell's double quotes alike.
            let mut fits_c = false;
            let letter = match byte {
                0x07 => Some(b'a'),
                0x08 => Some(b'b'),
                0x0c => Some(b'f'),
                b'\n' => Some(b'n'),
                b'\r' => Some(b'r'),
                b'\t' => Some(b't'),
                0x0b => Some(b'v'),
                _ => None,
            };
            if let Some(letter) = letter {
                if is_shell && needs_outer && matches!(byte, b'\n' | b'\r' | b'\t') {
                    return Attempt::NeedsOuter;
                }
                all_fit_c = false;
                if escapes {
                    if needs_outer {
                        return Attempt::NeedsOuter;
                    }
                    escaped.begin(is_shell, out);
                    out.push(letter);
                } else {
                    out.push(byte);
                }
                continue;
            }
            match byte {
                b'\\' if is_shell => {
                    if needs_outer {
                        return Attempt::NeedsOuter;
                    }
                }
                b'\\' if needs_outer => (),
                b'\\' => {
                    out.extend_from_slice(b"\\\\");
                    all_fit_c = false;
                    continue;
                }
                b'\'' => {
                    fits_c = true;
                    if is_shell {
                        single_quote = true;
                        if needs_outer {
                            return Attempt::NeedsOuter;
                        }
                        escaped.open = false;
                        // The quote that ends this one and the one that begins the next stand around it.
                        out.extend_from_slice(b"'\\'");
                    }
                }
                b'{' | b'}' if name.len() != 1 => (),
                b'#' | b'~' if !is_first => (),
                b'{' | b'}' | b'#' | b'~' | b' ' => {
                    fits_c = true;
                    if is_shell && needs_outer {
                        return Attempt::NeedsOuter;
                    }
                }
                b'!' | b'"' | b'$' | b'&' | b'(' | b')' | b'*' | b';' | b'<' | b'=' | b'>'
                | b'[' | b'^' | b'`' | b'|' => {
                    if is_shell && needs_outer {
                        return Attempt::NeedsOuter;
                    }
                }
                b'%'
                | b'+'
                | b','
                | b'-'
                | b'.'
                | b'/'
                | b'0'..=b'9'
                | b':'
                | b'A'..=b'Z'
                | b']'
                | b'_'
                | b'a'..=b'z' => fits_c = true,
                b'?' => {
                    if is_shell && needs_outer {
                        return Attempt::NeedsOuter;
                    }
                }
                _ => {
                    let printable = match piece {
                        Piece::Char(letter) => is_printable(letter),
                        Piece::Byte | Piece::Cut => false,
                    };
                    fits_c = printable;
                    if escapes && !printable {
                        if needs_outer {
                            return Attempt::NeedsOuter;
                        }
                        for byte in bytes {
                            escaped.begin(is_shell, out);
                            out.extend([byte >> 6, byte >> 3 & 7, byte & 7].map(|d| b'0' + d));
                        }
                        all_fit_c = false;
                        continue;
                    }
                }
            }
            let wanted = (bare || (escapes && !is_shell)) && also.contains(&byte);
            if right_quote || wanted {
                if needs_outer {
                    return Attempt::NeedsOuter;
                }
                out.push(b'\\');
            }
            escaped.end(out);
            out.extend_from_slice(bytes);
            all_fit_c &= fits_c;
        }
        if name.is_empty() && is_shell && needs_outer {
            return Attempt::NeedsOuter;
        }
        if is_shell && !bare && single_quote && all_fit_c {
            return Attempt::BetterAsC;
        }
        if !bare {
            out.extend_from_slice(quotes.right.as_bytes());
        }
        Attempt::Done
    }
}

/// Whether a `$'` stands open.
struct ShellEscape {
    open: bool,
}

impl ShellEscape {
    fn begin(&mut self, is_shell: bool, out: &mut Vec<u8>) {
        if is_shell && !self.open {
            out.extend_from_slice(b"'$'");
            self.open = true;
        }
        out.push(b'\\');
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        if self.open {
            out.extend_from_slice(b"''");
            self.open = false;
        }
    }
}

/// Copies `text` with a question mark for each character that cannot be printed; returns its width.
fn question_marks(charset: Charset, text: &[u8], out: &mut Vec<u8>) -> usize {
    let mut width = 0;
    let mut rest = text;
    while let Some((piece, length)) = charset.first(rest) {
        let shown = match piece {
            Piece::Char(letter) => columns(letter),
            Piece::Byte | Piece::Cut => None,
        };
        match shown {
            Some(columns) => {
                out.extend_from_slice(&rest[..length]);
                width += columns;
            }
            None => {
                out.push(b'?');
                width += 1;
            }
        }
        rest = &rest[length..];
    }
    width
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quoted(style: Style, name: &[u8]) -> String {
        let quoting = Quoting {
            style,
            charset: Charset::Utf8,
            unprintable: Unprintable::QuestionMark,
            also: b"",
        };
        let mut out = Vec::new();
        quoting.write(name, &mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn a_shell_reads_the_name_back() {
        let shell = |name: &[u8]| quoted(Style::ShellEscape, name);
        for (name, wanted) in [
            (&b"plain"[..], "plain"),
            (b"a b", "'a b'"),
            (b"it's", "\"it's\""),
            (b"it's $5", "'it'\\''s $5'"),
            (b"a\nb", "'a'$'\\n''b'"),
            (b"\n", "''$'\\n'"),
            (b"\xff", "''$'\\377'"),
            (b"a\\b", "'a\\b'"),
            (b"~", "'~'"),
            (b"a~", "a~"),
            (b"{", "'{'"),
            (b"{a}", "{a}"),
            ("é".as_bytes(), "é"),
            (b"?", "'?'"),
        ] {
            assert_eq!(shell(name), wanted);
        }
    }

    #[test]
    fn a_name_with_control_characters_cannot_drive_the_terminal() {
        let name = b"a\x1b[31m\xff";
        assert_eq!(quoted(Style::Literal, name), "a?[31m?");
        assert_eq!(quoted(Style::C, name), "\"a\\033[31m\\377\"");
        assert_eq!(quoted(Style::Escape, name), "a\\033[31m\\377");
        assert_eq!(quoted(Style::Locale, "a’b".as_bytes()), "‘a\\’b’");
        assert_eq!(quoted(Style::CMaybe, b"a\\b"), "a\\b");
        assert_eq!(quoted(Style::CMaybe, b"a\"b"), "\"a\\\"b\"");
    }
}
