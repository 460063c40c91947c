//! Names in columns, across or downwards, or with commas.

use std::path::Path;

use super::entry::{Entry, Group};
use super::long::{Widths, before_name};
use super::name::Names;
use super::options::{Layout, Options};
use super::size::count_digits;

/// No column is narrower: a character and two spaces.
const NARROWEST: usize = 3;

/// In which direction names follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Down,
    Across,
}

/// Writes the names of a group in the layout that was asked for.
pub(super) fn write(
    group: &Group,
    directory: &Path,
    options: &Options,
    names: &mut Names<'_>,
    out: &mut Vec<u8>,
) {
    if group.entries.is_empty() {
        return;
    }
    let widths = match options.layout {
        // Nothing is below the other with commas.
        Layout::Commas => Widths::default(),
        _ => Widths::before_names(group, options),
    };
    let mut cell = Cell { group, directory, options, widths, names };
    match options.layout {
        Layout::Down if options.width > 0 => cell.grid(Direction::Down, out),
        Layout::Across if options.width > 0 => cell.grid(Direction::Across, out),
        Layout::Down | Layout::Across => cell.separated(b' ', out),
        Layout::Commas => cell.separated(b',', out),
        _ => {
            for entry in &group.entries {
                cell.write(entry, 0, out);
                out.push(options.end);
            }
        }
    }
}

/// Writes names with what stands before and after them.
struct Cell<'a, 'b> {
    group: &'a Group,
    directory: &'a Path,
    options: &'a Options,
    widths: Widths,
    names: &'a mut Names<'b>,
}

impl Cell<'_, '_> {
    fn write(&mut self, entry: &Entry, column: usize, out: &mut Vec<u8>) {
        self.names.begin_line(out);
        before_name(entry, self.widths, self.options, out);
        self.names.write(self.group, entry, self.directory, column, out);
        out.extend(self.names.indicator(entry));
    }

    fn width(&mut self, entry: &Entry) -> usize {
        let mut width = self.names.width(self.group, entry);
        if self.options.inode {
            width += 1 + self.widths.inode.max(count_digits(entry.inode));
        }
        if self.options.blocks {
            let mut text = Vec::new();
            self.options.block_style.write(u128::from(entry.blocks) * 512, &mut text);
            width += 1 + self.widths.blocks.max(text.len());
        }
        width
    }

    fn grid(&mut self, direction: Direction, out: &mut Vec<u8>) {
        let lengths: Vec<usize> =
            (0..self.group.entries.len()).map(|at| self.width(&self.group.entries[at])).collect();
        let columns = columns(&lengths, self.options.width, direction);
        let rows = lengths.len().div_ceil(columns.len().max(1));
        for row in 0..rows {
            let mut position = 0;
            for (column, width) in columns.iter().enumerate() {
                let (at, next) = match direction {
                    Direction::Down => (column * rows + row, (column + 1) * rows + row),
                    Direction::Across => {
                        (row * columns.len() + column, row * columns.len() + column + 1)
                    }
                };
                let Some(entry) = self.group.entries.get(at) else { break };
                self.write(entry, position, out);
                if column + 1 < columns.len() && next < lengths.len() {
                    indent(position + lengths[at], position + width, self.options.tab, out);
                }
                position += width;
            }
            out.push(self.options.end);
        }
    }

    fn separated(&mut self, separator: u8, out: &mut Vec<u8>) {
        let line = self.options.width;
        let mut position = 0;
        for (at, entry) in self.group.entries.iter().enumerate() {
            let length = if line > 0 { self.width(entry) } else { 0 };
            if at > 0 {
                out.push(separator);
                if line == 0 || position + length + 2 < line {
                    position += 2;
                    out.push(b' ');
                } else {
                    position = 0;
                    out.push(self.options.end);
                }
            }
            self.write(entry, position, out);
            position += length;
        }
        out.push(self.options.end);
    }
}

/// Finds the most columns that fit a line, and their widths with the space between them.
fn columns(lengths: &[usize], line: usize, direction: Direction) -> Vec<usize> {
    let most = line.div_ceil(NARROWEST).max(1).min(lengths.len());
    // All candidates are tried from the widest on; the first that fits is the answer.
    (1..=most)
        .rev()
        .find_map(|count| {
            let widths = fit(lengths, count, line, direction);
            if count == 1 { Some(widths.unwrap_or_else(|| vec![0])) } else { widths }
        })
        .unwrap_or_default()
}

/// Returns the widths of `count` columns if they are narrower than the line.
fn fit(lengths: &[usize], count: usize, line: usize, direction: Direction) -> Option<Vec<usize>> {
    let mut widths = vec![NARROWEST; count];
    let mut whole = count * NARROWEST;
    let rows = lengths.len().div_ceil(count);
    for (at, length) in lengths.iter().enumerate() {
        let column = match direction {
            Direction::Down => at / rows,
            Direction::Across => at % count,
        };
        let wanted = length + if column + 1 == count { 0 } else { 2 };
        if widths[column] < wanted {
            whole += wanted - widths[column];
            widths[column] = wanted;
            if whole >= line {
                return None;
            }
        }
    }
    Some(widths)
}

/// Fills the line from one column to another, with tabulators where they reach.
fn indent(mut from: usize, to: usize, tab: usize, out: &mut Vec<u8>) {
    while from < to {
        if tab != 0 && to / tab > (from + 1) / tab {
            out.push(b'\t');
            from += tab - from % tab;
        } else {
            out.push(b' ');
            from += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_columns_as_fit() {
        assert_eq!(columns(&[1; 10], 20, Direction::Down), [3; 7]);
        assert_eq!(columns(&[30, 30], 20, Direction::Down).len(), 1);
        assert_eq!(columns(&[], 80, Direction::Across), Vec::<usize>::new());
    }

    #[test]
    fn a_tabulator_is_used_where_it_saves_something() {
        let mut out = Vec::new();
        indent(3, 18, 8, &mut out);
        assert_eq!(out, b"\t\t  ");
    }
}
