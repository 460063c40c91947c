//! One name on the screen: its colour, its quotes, its link and the character that tells its type.

use std::path::Path;

use listing::EntryKind;

use super::color::{Colors, Role};
use super::entry::{Entry, Group, Known, Link, Mark, SET_GID, SET_UID, STICKY};
use super::options::{Indicators, Layout, Options};

/// Writes names; knows what was written before, for colours need that.
#[derive(Debug)]
pub(super) struct Names<'a> {
    options: &'a Options,
    /// Whether a colour has been used yet.
    pub(super) colored: bool,
    /// Whether a name of this group stands in quotes, and the others move aside.
    some_quoted: bool,
    scratch: Vec<u8>,
    /// What begins the addresses of hyperlinks: `file://host`.
    host: Vec<u8>,
}

/// Which text of an entry is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Text {
    Name,
    Target,
}

impl<'a> Names<'a> {
    /// Begins; nothing is written yet.
    pub(super) fn new(options: &'a Options) -> Names<'a> {
        let mut host = Vec::new();
        if options.hyperlinks {
            host.extend_from_slice(b"\x1b]8;;file://");
            let system = rustix::system::uname();
            percent(system.nodename().to_bytes(), b"", &mut host);
        }
        Names { options, colored: false, some_quoted: false, scratch: Vec::new(), host }
    }

    /// Returns another writer of the same group, for another thread.
    pub(super) fn again(&self) -> Names<'a> {
        Names { scratch: Vec::new(), host: self.host.clone(), ..*self }
    }

    /// Looks through the names of a group that is about to be written.
    pub(super) fn begin(&mut self, group: &Group) {
        self.some_quoted = false;
        if self.options.aligns_quotes() {
            self.some_quoted = group.entries.iter().any(|entry| {
                self.scratch.clear();
                self.options.quoting.write(group.name(entry), &mut self.scratch).changed
            });
        }
    }

    /// Returns the columns of an entry's name with its indicator.
    pub(super) fn width(&mut self, group: &Group, entry: &Entry) -> usize {
        self.scratch.clear();
        let quoted = self.options.quoting.write(group.name(entry), &mut self.scratch);
        let pad = usize::from(self.some_quoted && !quoted.changed);
        quoted.width + pad + usize::from(self.indicator(entry).is_some())
    }

    /// Appends the name of an entry at column `column`, and returns its length without colours; `directory` is what it is in.
    pub(super) fn write(
        &mut self,
        group: &Group,
        entry: &Entry,
        directory: &Path,
        column: usize,
        out: &mut Vec<u8>,
    ) -> usize {
        self.write_text(Text::Name, group, entry, directory, column, out)
    }

    /// Appends where a link leads, at column `column`.
    pub(super) fn write_target(
        &mut self,
        group: &Group,
        entry: &Entry,
        directory: &Path,
        column: usize,
        out: &mut Vec<u8>,
    ) {
        self.write_text(Text::Target, group, entry, directory, column, out);
    }

    fn write_text(
        &mut self,
        text: Text,
        group: &Group,
        entry: &Entry,
        directory: &Path,
        column: usize,
        out: &mut Vec<u8>,
    ) -> usize {
        let link = group.link(entry);
        let name = match (text, link) {
            (Text::Target, Some(link)) => &link.target,
            _ => group.name(entry),
        };
        if self.options.colors.is_none() && !self.options.hyperlinks && !self.some_quoted {
            let start = out.len();
            self.options.quoting.write(name, out);
            return out.len() - start;
        }
        self.scratch.clear();
        let quoted = self.options.quoting.write(name, &mut self.scratch);
        let pad = self.some_quoted && !quoted.changed;
        if pad && text == Text::Name {
            out.push(b' ');
        }
        let colors = self.options.colors.as_ref();
        let color = colors.and_then(|colors| color(colors, text, name, entry, link));
        if let (Some(colors), Some(color)) = (colors, color) {
            // The colour of normal text must not mix with this one.
            if colors.shows(Role::Normal) {
                self.colored = true;
                colors.begin(b"", out);
            }
            switch_on(colors, color, &mut self.colored, out);
        }
        let shown = &*self.scratch;
        if self.options.hyperlinks {
            // Quotes around some names stay outside, so that the links are as long as the names.
            let outside = self.some_quoted && !pad && shown.len() >= 2;
            let (first, inner, last) = match outside {
                true => (&shown[..1], &shown[1..shown.len() - 1], &shown[shown.len() - 1..]),
                false => (&shown[..0], shown, &shown[..0]),
            };
            out.extend_from_slice(first);
            out.extend_from_slice(&self.host);
            percent(&absolute(directory, group.name(entry)), b"/", out);
            out.push(0x07);
            out.extend_from_slice(inner);
            out.extend_from_slice(b"\x1b]8;;\x07");
            out.extend_from_slice(last);
        } else {
            out.extend_from_slice(shown);
        }
        let length = shown.len() + usize::from(pad);
        if let Some(colors) = colors
            && (color.is_some() || colors.shows(Role::Normal))
        {
            switch_off(colors, &mut self.colored, out);
            let line = self.options.width;
            if line > 0 && length > 0 && column / line != (column + length - 1) / line {
                out.extend_from_slice(colors.of(Role::ClearToEnd).unwrap_or_default());
            }
        }
        length
    }

    /// Switches the colour of normal text on, where there is one.
    pub(super) fn begin_line(&mut self, out: &mut Vec<u8>) {
        if let Some(colors) = &self.options.colors
            && colors.shows(Role::Normal)
        {
            switch_on(colors, colors.of(Role::Normal).unwrap_or_default(), &mut self.colored, out);
        }
    }

    /// Appends the heading of a directory.
    pub(super) fn heading(&self, directory: &Path, out: &mut Vec<u8>) {
        use std::os::unix::ffi::OsStrExt;
        let name = directory.as_os_str().as_bytes();
        if self.options.hyperlinks {
            out.extend_from_slice(&self.host);
            percent(&absolute(directory, b""), b"/", out);
            out.push(0x07);
        }
        self.options.heading_quoting.write(name, out);
        if self.options.hyperlinks {
            out.extend_from_slice(b"\x1b]8;;\x07");
        }
        out.extend_from_slice(b":\n");
    }

    /// Returns the character that tells an entry's type.
    pub(super) fn indicator(&self, entry: &Entry) -> Option<u8> {
        let mode = (entry.known == Known::All).then_some(entry.mode);
        indicator(self.options.indicators, entry.kind, mode)
    }

    /// Returns the character that tells the type of what a link leads to.
    pub(super) fn target_indicator(&self, link: &Link) -> Option<u8> {
        let mode = link.mode?;
        indicator(self.options.indicators, EntryKind::from_mode(mode), Some(mode))
    }

    /// Returns what puts the terminal back when all is written.
    pub(super) fn end(&self, out: &mut Vec<u8>) {
        if let Some(colors) = &self.options.colors
            && self.colored
            && !colors.is_ansi()
        {
            colors.begin(b"", out);
        }
    }
}

fn indicator(style: Indicators, kind: EntryKind, mode: Option<u16>) -> Option<u8> {
    match (style, kind) {
        (Indicators::None, _) => None,
        (_, EntryKind::Directory) => Some(b'/'),
        (Indicators::Slash, _) => None,
        (Indicators::Classify, EntryKind::File) if mode.is_some_and(|mode| mode & 0o111 != 0) => {
            Some(b'*')
        }
        (_, EntryKind::Link) => Some(b'@'),
        (_, EntryKind::Pipe) => Some(b'|'),
        (_, EntryKind::Socket) => Some(b'='),
        _ => None,
    }
}

/// Chooses the colour of a name, or of a link's target.
fn color<'a>(
    colors: &'a Colors,
    text: Text,
    name: &[u8],
    entry: &Entry,
    link: Option<&Link>,
) -> Option<&'a [u8]> {
    let target_mode = link.and_then(|link| link.mode);
    let (mode, leads) = match text {
        Text::Target => (target_mode, target_mode.is_some()),
        Text::Name if colors.links_as_targets && target_mode.is_some() => (target_mode, true),
        Text::Name => ((entry.known == Known::All).then_some(entry.mode), target_mode.is_some()),
    };
    let role = if text == Text::Target && !leads && colors.shows(Role::Missing) {
        Role::Missing
    } else {
        match mode {
            Some(mode) => of_mode(colors, mode, entry),
            None if text == Text::Target => Role::Orphan,
            None => of_kind(entry.kind),
        }
    };
    if role == Role::File
        && let Some(color) = colors.of_ending(name)
    {
        return Some(color);
    }
    let is_orphan =
        role == Role::Link && !leads && (colors.links_as_targets || colors.shows(Role::Orphan));
    colors.of(if is_orphan { Role::Orphan } else { role })
}

fn of_kind(kind: EntryKind) -> Role {
    match kind {
        EntryKind::Directory => Role::Directory,
        EntryKind::Link => Role::Link,
        EntryKind::Pipe => Role::Fifo,
        EntryKind::Socket => Role::Socket,
        EntryKind::BlockDevice => Role::BlockDevice,
        EntryKind::CharacterDevice => Role::CharDevice,
        EntryKind::File => Role::File,
        EntryKind::Unknown => Role::Orphan,
    }
}

fn of_mode(colors: &Colors, mode: u16, entry: &Entry) -> Role {
    let has = |bits: u16, role: Role| mode & bits == bits && colors.shows(role);
    match EntryKind::from_mode(mode) {
        EntryKind::File if has(SET_UID, Role::SetUid) => Role::SetUid,
        EntryKind::File if has(SET_GID, Role::SetGid) => Role::SetGid,
        EntryKind::File if entry.mark == Mark::Capability && colors.shows(Role::Capability) => {
            Role::Capability
        }
        EntryKind::File if mode & 0o111 != 0 && colors.shows(Role::Executable) => Role::Executable,
        EntryKind::File if entry.links > 1 && colors.shows(Role::HardLinks) => Role::HardLinks,
        EntryKind::Directory if has(STICKY | 0o002, Role::StickyOtherWritable) => {
            Role::StickyOtherWritable
        }
        EntryKind::Directory if has(0o002, Role::OtherWritable) => Role::OtherWritable,
        EntryKind::Directory if has(STICKY, Role::Sticky) => Role::Sticky,
        kind => of_kind(kind),
    }
}

/// Switches a colour on; before the first one, whatever a program before us left is switched off.
fn switch_on(colors: &Colors, color: &[u8], used: &mut bool, out: &mut Vec<u8>) {
    if !std::mem::replace(used, true) {
        colors.end(out);
    }
    colors.begin(color, out);
}

fn switch_off(colors: &Colors, used: &mut bool, out: &mut Vec<u8>) {
    *used = true;
    colors.end(out);
}

/// Appends bytes as RFC 3986 has them in addresses; those of `also` stay as they are.
fn percent(bytes: &[u8], also: &[u8], out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(byte) || also.contains(byte) {
            out.push(*byte);
        } else {
            out.extend([b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
    }
}

/// Returns the path of `name` in `directory` without links, as far as it leads.
fn absolute(directory: &Path, name: &[u8]) -> Vec<u8> {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let name = std::ffi::OsStr::from_bytes(name);
    let path = if name.is_empty() { directory.to_owned() } else { directory.join(name) };
    let found = path.canonicalize().or_else(|_| {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new(".")).canonicalize()?;
        // A link that leads nowhere is followed as far as it goes.
        let last = path.read_link().ok().or_else(|| path.file_name().map(std::path::PathBuf::from));
        Ok::<_, std::io::Error>(last.map_or(parent.clone(), |last| parent.join(last)))
    });
    found.unwrap_or(path).into_os_string().into_vec()
}

/// Says whether the modes of what links lead to are looked at.
pub(super) fn checks_targets(options: &Options) -> bool {
    let is_long = options.layout == Layout::Long;
    let by_color = options.colors.as_ref().is_some_and(|colors| {
        colors.shows(Role::Orphan)
            || (colors.shows(Role::Executable) && colors.links_as_targets)
            || (colors.shows(Role::Missing) && is_long)
    });
    by_color || options.dirs_first || (is_long && options.indicators >= Indicators::FileType)
}
