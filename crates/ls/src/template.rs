//! `--format '{size} {name}'`: a line for each entry by a template.

use std::path::Path;

use jiff::tz::TimeZone;
use listing::{Attributes, EntryKind};

use super::entry::{Entry, Group, Known, letters};
use super::moment::{Moment, TimeStyle, Times};
use super::owners::Owners;
use super::quote::{Quoting, Style, Unprintable};
use super::size::{SizeStyle, digits, zero_padded};

/// A template that was understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Template(Vec<Part>);

/// Why a template was not.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// It is neither a word that is known nor has a field.
    #[error("{0:?} is neither a format nor a template: a template has fields such as {{name}}")]
    NoField(String),
    /// A brace without its other.
    #[error("unclosed brace in the template")]
    Open,
    /// A field that there is not.
    #[error("unknown field {0:?}; see docs/ls.md")]
    Unknown(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(Vec<u8>),
    Name,
    /// The name in quotes for a shell.
    Quoted,
    Path,
    Extension,
    Target,
    Kind,
    Permissions,
    Mode,
    Inode,
    Links,
    User,
    Group,
    UserNumber,
    GroupNumber,
    Size(SizeStyle),
    Disk(SizeStyle),
    Blocks,
    Device,
    Time(Which, Option<String>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Modified,
    Accessed,
    Changed,
    Born,
}

impl Template {
    /// Reads a template: text, `{field}`, `{field:how}`, `{{` and `}}`, and `\n`, `\t`, `\0`, `\\`.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub(super) fn parse(text: &[u8]) -> Result<Template, TemplateError> {
        let mut parts = Vec::new();
        let mut plain = Vec::new();
        let mut rest = text;
        while let Some((&byte, after)) = rest.split_first() {
            rest = after;
            match (byte, after) {
                (b'{', [b'{', after @ ..]) | (b'}', [b'}', after @ ..]) => {
                    plain.push(byte);
                    rest = after;
                }
                (b'{', after) => {
                    let end = after.iter().position(|byte| *byte == b'}');
                    let end = end.ok_or(TemplateError::Open)?;
                    if !plain.is_empty() {
                        parts.push(Part::Text(std::mem::take(&mut plain)));
                    }
                    let field = String::from_utf8_lossy(&after[..end]);
                    parts.push(
                        part(&field).ok_or_else(|| TemplateError::Unknown(field.into_owned()))?,
                    );
                    rest = &after[end + 1..];
                }
                (b'}', _) => return Err(TemplateError::Open),
                (b'\\', [letter @ (b'n' | b't' | b'0' | b'\\'), after @ ..]) => {
                    plain.push(match letter {
                        b'n' => b'\n',
                        b't' => b'\t',
                        b'0' => 0,
                        _ => b'\\',
                    });
                    rest = after;
                }
                _ => plain.push(byte),
            }
        }
        if parts.is_empty() {
            return Err(TemplateError::NoField(String::from_utf8_lossy(text).into_owned()));
        }
        if !plain.is_empty() {
            parts.push(Part::Text(plain));
        }
        Ok(Template(parts))
    }

    /// Says whether more than names and types is asked for.
    pub(super) fn needs_attributes(&self) -> bool {
        self.0.iter().any(|part| {
            !matches!(
                part,
                Part::Text(_)
                    | Part::Name
                    | Part::Quoted
                    | Part::Path
                    | Part::Extension
                    | Part::Kind
            )
        })
    }

    /// Says whether a link's target is asked for.
    pub(super) fn needs_targets(&self) -> bool {
        self.0.contains(&Part::Target)
    }

    /// Appends the line of an entry, without its end.
    pub(super) fn write(
        &self,
        group: &Group,
        entry: &Entry,
        directory: Option<&Path>,
        writer: &mut Writer,
        out: &mut Vec<u8>,
    ) {
        let name = group.name(entry);
        let known = group.detail(entry).filter(|_| entry.known == Known::All);
        for part in &self.0 {
            match (part, known) {
                (Part::Text(text), _) => out.extend_from_slice(text),
                (Part::Name, _) => writer.name(name, out),
                (Part::Quoted, _) => drop(writer.quoting.write(name, out)),
                (Part::Path, _) => {
                    use std::os::unix::ffi::OsStrExt;
                    if let Some(directory) = directory {
                        let name = std::ffi::OsStr::from_bytes(name);
                        writer.name(directory.join(name).as_os_str().as_bytes(), out);
                    } else {
                        writer.name(name, out);
                    }
                }
                (Part::Extension, _) => {
                    let dot = name.iter().rposition(|byte| *byte == b'.').filter(|at| *at > 0);
                    writer.name(dot.map_or(b"", |at| &name[at + 1..]), out);
                }
                (Part::Kind, _) => out.extend_from_slice(word(entry.kind).as_bytes()),
                (Part::Target, _) => match group.link(entry) {
                    Some(link) => writer.name(&link.target, out),
                    None if entry.known == Known::Failed || entry.kind == EntryKind::Link => {
                        out.push(b'?');
                    }
                    None => {}
                },
                (_, None) => out.push(b'?'),
                (part, Some(known)) => writer.attribute(part, known, out),
            }
        }
    }
}

/// What the fields of a template are written with.
#[derive(Debug)]
pub(super) struct Writer {
    quoting: Quoting,
    /// Names unchanged, with question marks on a terminal for what it would obey.
    plain: Quoting,
    owners: Owners,
    zone: TimeZone,
    now: fn() -> Moment,
    /// A writer of times for each format that was used.
    times: Vec<(String, Times)>,
}

impl Writer {
    /// Writes for a reader in `zone` at the moments that `now` tells.
    pub(super) fn new(quoting: &Quoting, zone: TimeZone, now: fn() -> Moment) -> Writer {
        let style = Style::ShellEscape;
        let plain = Quoting { style: Style::Literal, also: b"", ..quoting.clone() };
        let quoting = Quoting { style, unprintable: Unprintable::Keep, ..quoting.clone() };
        Writer { quoting, plain, owners: Owners::by_name(), zone, now, times: Vec::new() }
    }

    fn name(&self, name: &[u8], out: &mut Vec<u8>) {
        self.plain.write(name, out);
    }

    fn attribute(&mut self, part: &Part, known: &Attributes, out: &mut Vec<u8>) {
        match part {
            Part::Permissions => {
                out.extend_from_slice(&letters(letter(known.kind), known.mode)[1..]);
            }
            Part::Mode => out.extend_from_slice(format!("{:04o}", known.mode & 0o7777).as_bytes()),
            Part::Inode => digits(known.inode, out),
            Part::Links => digits(known.links, out),
            Part::UserNumber => digits(known.user, out),
            Part::GroupNumber => digits(known.group, out),
            Part::User => match self.owners.user(known.user).name() {
                Some(name) => out.extend_from_slice(name),
                None => digits(known.user, out),
            },
            Part::Group => match self.owners.group(known.group).name() {
                Some(name) => out.extend_from_slice(name),
                None => digits(known.group, out),
            },
            Part::Size(style) => style.write(known.size.into(), out),
            Part::Disk(style) => style.write(u128::from(known.blocks) * 512, out),
            Part::Blocks => digits(known.blocks, out),
            Part::Device => {
                digits(known.device.0, out);
                out.push(b':');
                digits(known.device.1, out);
            }
            Part::Time(which, format) => {
                let stamp = match which {
                    Which::Modified => known.modified,
                    Which::Accessed => known.accessed,
                    Which::Changed => known.changed,
                    Which::Born => known.born,
                };
                let time = Moment { seconds: stamp.seconds, nanos: stamp.nanoseconds };
                match format {
                    Some(format) => self.times_of(format).write(time, out),
                    None => seconds(time, out),
                }
            }
            _ => (),
        }
    }

    fn times_of(&mut self, format: &str) -> &mut Times {
        let at = self.times.iter().position(|(known, _)| known == format);
        let at = at.unwrap_or_else(|| {
            let style = TimeStyle::parse(format, false).unwrap_or_else(|| TimeStyle::Own {
                recent: format.to_owned(),
                older: format.to_owned(),
            });
            let times = Times::new(style, self.zone.clone(), self.now);
            self.times.push((format.to_owned(), times));
            self.times.len() - 1
        });
        &mut self.times[at].1
    }
}

/// Appends seconds since 1970 with nine decimals.
fn seconds(time: Moment, out: &mut Vec<u8>) {
    let nanos = i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanos);
    if nanos < 0 {
        out.push(b'-');
    }
    digits(nanos.unsigned_abs() / 1_000_000_000, out);
    out.push(b'.');
    zero_padded(u64::try_from(nanos.unsigned_abs() % 1_000_000_000).unwrap_or(0), 9, out);
}

fn part(field: &str) -> Option<Part> {
    let (name, how) = field.split_once(':').map_or((field, None), |(name, how)| (name, Some(how)));
    let style = || match how {
        None => Some(SizeStyle::BYTES),
        Some("h") => Some(SizeStyle::Human(1024)),
        Some("si") => Some(SizeStyle::Human(1000)),
        Some(block) => SizeStyle::parse(block),
    };
    let time = |which| Some(Part::Time(which, how.map(str::to_owned)));
    let plain = |part| how.is_none().then_some(part);
    match name {
        "name" if how == Some("q") => Some(Part::Quoted),
        "name" => plain(Part::Name),
        "path" => plain(Part::Path),
        "extension" => plain(Part::Extension),
        "target" => plain(Part::Target),
        "type" => plain(Part::Kind),
        "permissions" => plain(Part::Permissions),
        "mode" => plain(Part::Mode),
        "inode" => plain(Part::Inode),
        "links" => plain(Part::Links),
        "user" => plain(Part::User),
        "group" => plain(Part::Group),
        "uid" => plain(Part::UserNumber),
        "gid" => plain(Part::GroupNumber),
        "size" => style().map(Part::Size),
        "disk" => style().map(Part::Disk),
        "blocks" => plain(Part::Blocks),
        "device" => plain(Part::Device),
        "modified" => time(Which::Modified),
        "accessed" => time(Which::Accessed),
        "changed" => time(Which::Changed),
        "born" => time(Which::Born),
        _ => None,
    }
}

/// Returns the word for a type, as `--json` has it too.
pub(super) fn word(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::File => "file",
        EntryKind::Directory => "directory",
        EntryKind::Link => "link",
        EntryKind::Pipe => "pipe",
        EntryKind::Socket => "socket",
        EntryKind::BlockDevice => "block-device",
        EntryKind::CharacterDevice => "character-device",
        EntryKind::Unknown => "unknown",
    }
}

fn letter(kind: EntryKind) -> u8 {
    match kind {
        EntryKind::Directory => b'd',
        EntryKind::Link => b'l',
        _ => b'-',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_is_text_and_fields() {
        let parse = |text: &str| Template::parse(text.as_bytes());
        assert_eq!(
            parse("a{{{name}\\t{size:h}}}").unwrap().0,
            [
                Part::Text(b"a{".to_vec()),
                Part::Name,
                Part::Text(b"\t".to_vec()),
                Part::Size(SizeStyle::Human(1024)),
                Part::Text(b"}".to_vec()),
            ]
        );
        assert_eq!(
            parse("{modified:%Y-%m}").unwrap().0,
            [Part::Time(Which::Modified, Some("%Y-%m".into()))]
        );
        assert_eq!(parse("long-ish").unwrap_err(), TemplateError::NoField("long-ish".into()));
        assert_eq!(parse("{name").unwrap_err(), TemplateError::Open);
        assert_eq!(parse("name}").unwrap_err(), TemplateError::Open);
        assert_eq!(parse("{nam}").unwrap_err(), TemplateError::Unknown("nam".into()));
        assert_eq!(parse("{size:x}").unwrap_err(), TemplateError::Unknown("size:x".into()));
    }

    #[test]
    fn times_before_1970_are_negative() {
        let mut out = Vec::new();
        seconds(Moment { seconds: -1, nanos: 500_000_000 }, &mut out);
        seconds(Moment { seconds: 1, nanos: 5 }, &mut out);
        assert_eq!(out, b"-0.5000000001.000000005");
    }
}
