//! `-l`: a line for each entry, with columns as wide as the widest of the group.

use std::path::Path;

use listing::EntryKind;

use super::entry::{Entry, Group, Known, Mark, letters};
use super::moment::Times;
use super::name::Names;
use super::options::Options;
use super::owners::Owners;
use super::size::{count_digits, right, spaces};

/// The widths of a group's columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Widths {
    pub(super) inode: usize,
    pub(super) blocks: usize,
    links: usize,
    user: usize,
    group: usize,
    author: usize,
    major: usize,
    minor: usize,
    size: usize,
    marks: bool,
}

impl Widths {
    /// Measures a group.
    pub(super) fn of(group: &Group, options: &Options, owners: &mut Owners) -> Widths {
        let mut widths = Widths::default();
        let mut text = Vec::new();
        // The widest number is the largest, so digits are counted once.
        let (mut inode, mut links, mut size) = (0, 0, 0);
        for entry in group.measured().filter(|entry| entry.known == Known::All) {
            inode = inode.max(entry.inode);
            links = links.max(entry.links);
            if entry.is_device() {
                let (major, minor) = entry.device();
                widths.major = widths.major.max(count_digits(major));
                widths.minor = widths.minor.max(count_digits(minor));
                widths.size = widths.size.max(widths.major + 2 + widths.minor);
            } else if size < entry.size || size == 0 {
                size = entry.size;
                text.clear();
                options.size_style.write(entry.size.into(), &mut text);
                widths.size = widths.size.max(text.len());
            } else if matches!(options.size_style, super::size::SizeStyle::Human(_)) {
                text.clear();
                options.size_style.write(entry.size.into(), &mut text);
                widths.size = widths.size.max(text.len());
            }
            if options.owner || options.author {
                let width = owners.user(entry.user).width();
                widths.user = widths.user.max(width);
            }
            if options.group {
                widths.group = widths.group.max(owners.group(entry.group).width());
            }
            widths.marks |= entry.mark == Mark::Acl;
        }
        widths.author = widths.user;
        widths.links = count_digits(links.into());
        if group.measured().all(|entry| entry.known != Known::All) {
            (widths.links, widths.size) = (0, 0);
        } else {
            widths.inode = count_digits(inode);
        }
        widths.blocks = if options.blocks { blocks_width(group, options) } else { 0 };
        widths
    }

    /// Measures what stands before names in the other layouts.
    pub(super) fn before_names(group: &Group, options: &Options) -> Widths {
        let mut widths = Widths::default();
        if options.inode {
            let known = group.measured().filter(|entry| entry.known == Known::All);
            widths.inode = known.map(|entry| count_digits(entry.inode)).max().unwrap_or(1);
        }
        if options.blocks {
            widths.blocks = blocks_width(group, options);
        }
        widths
    }
}

fn blocks_width(group: &Group, options: &Options) -> usize {
    let mut text = Vec::new();
    let mut widest = 0;
    for entry in group.measured().filter(|entry| entry.known == Known::All) {
        text.clear();
        options.block_style.write(u128::from(entry.blocks) * 512, &mut text);
        widest = widest.max(text.len());
    }
    widest
}

/// Appends the inode number and the blocks of an entry, as far as they were asked for, each in its width.
pub(super) fn before_name(entry: &Entry, widths: Widths, options: &Options, out: &mut Vec<u8>) {
    let known = entry.known == Known::All;
    if options.inode {
        if known {
            right(entry.inode, widths.inode, out);
        } else {
            unknown(widths.inode, out);
        }
        out.push(b' ');
    }
    if options.blocks {
        if known {
            let start = out.len();
            options.block_style.write(u128::from(entry.blocks) * 512, out);
            align_right(start, widths.blocks, out);
        } else {
            unknown(widths.blocks, out);
        }
        out.push(b' ');
    }
}

/// Appends the line of an entry, without its end.
pub(super) fn write(
    group: &Group,
    entry: &Entry,
    directory: &Path,
    line: &mut Line<'_, '_>,
    out: &mut Vec<u8>,
) {
    let (options, widths) = (line.options, line.widths);
    line.names.begin_line(out);
    let mut start = out.len();
    before_name(entry, widths, options, out);
    let known = entry.known == Known::All;
    permissions(entry, widths.marks, out);
    out.push(b' ');
    if known {
        right(entry.links.into(), widths.links, out);
    } else {
        unknown(widths.links, out);
    }
    out.push(b' ');
    if options.owner {
        line.owners.user(entry.user).write(known, widths.user, out);
    }
    if options.group {
        line.owners.group(entry.group).write(known, widths.group, out);
    }
    if options.author {
        line.owners.user(entry.user).write(known, widths.author, out);
    }
    // GNU ls counts the columns of a name from here when it looks whether a line breaks.
    if options.owner || options.group || options.author {
        start = out.len();
    }
    if !known {
        unknown(widths.size, out);
    } else if entry.is_device() {
        let (major, minor) = entry.device();
        let blank = widths.size.saturating_sub(widths.major + 2 + widths.minor);
        right(major, widths.major + blank, out);
        out.extend_from_slice(b", ");
        right(minor, widths.minor, out);
    } else if options.size_style == super::size::SizeStyle::BYTES {
        right(entry.size, widths.size, out);
    } else {
        let at = out.len();
        options.size_style.write(entry.size.into(), out);
        align_right(at, widths.size, out);
    }
    out.push(b' ');
    if known {
        line.times.write(entry.time, out);
    } else {
        unknown(line.times.expected_width(), out);
    }
    out.push(b' ');
    let before_name = out.len();
    let column = before_name - start;
    let length = line.names.write(group, entry, directory, column, out);
    match group.link(entry) {
        Some(link) if entry.kind == EntryKind::Link => {
            out.extend_from_slice(b" -> ");
            line.names.write_target(group, entry, directory, column + length + 4, out);
            out.extend(line.names.target_indicator(link));
        }
        _ if entry.kind == EntryKind::Link => (),
        _ => out.extend(line.names.indicator(entry)),
    }
}

/// What lines of a group are written with.
pub(super) struct Line<'a, 'b> {
    pub(super) options: &'a Options,
    pub(super) widths: Widths,
    pub(super) owners: &'b mut Owners,
    pub(super) times: &'b mut Times,
    pub(super) names: &'b mut Names<'a>,
}

/// Appends the ten letters of type and permissions, and a mark if the group has any.
fn permissions(entry: &Entry, marks: bool, out: &mut Vec<u8>) {
    let letter = match entry.kind {
        EntryKind::Directory => b'd',
        EntryKind::Link => b'l',
        EntryKind::Pipe => b'p',
        EntryKind::Socket => b's',
        EntryKind::BlockDevice => b'b',
        EntryKind::CharacterDevice => b'c',
        EntryKind::File => b'-',
        EntryKind::Unknown => b'?',
    };
    if entry.known == Known::All {
        out.extend_from_slice(&letters(letter, entry.mode));
    } else {
        out.push(letter);
        out.extend_from_slice(b"?????????");
    }
    if marks {
        out.push(if entry.mark == Mark::Acl { b'+' } else { b' ' });
    }
}

fn unknown(width: usize, out: &mut Vec<u8>) {
    spaces(width.saturating_sub(1), out);
    out.push(b'?');
}

/// Moves what stands at `start` to the right end of `width` columns.
fn align_right(start: usize, width: usize, out: &mut Vec<u8>) {
    let length = out.len() - start;
    if length < width {
        spaces(width - length, out);
        out[start..].rotate_right(width - length);
    }
}
