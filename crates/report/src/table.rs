//! Text tables: aligned on the decimal point, as wide as the screen allows.
//!
//! Cells may hold text of others: what a terminal would obey is escaped, and wide letters count as what they take.

use crate::paint::{Paint, Tone};
use crate::paragraph::wrap;
use crate::text::{self, Charset, columns, spelled};

/// How the cells of a column stand under one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// At the left edge; cut in the middle where the screen is too narrow.
    Text,
    /// By the decimal point, units under one another: `11.4 ms`.
    Point,
}

/// A cell: its text and how it is set.
#[derive(Clone, Debug, Default)]
pub struct TableCell {
    text: String,
    tone: Tone,
}

impl From<&str> for TableCell {
    fn from(text: &str) -> TableCell {
        TableCell { text: text.to_owned(), tone: Tone::Plain }
    }
}

impl From<String> for TableCell {
    fn from(text: String) -> TableCell {
        TableCell { text, tone: Tone::Plain }
    }
}

impl TableCell {
    /// Makes a cell in a tone.
    #[must_use]
    pub fn toned(tone: Tone, text: impl Into<String>) -> TableCell {
        TableCell { text: text.into(), tone }
    }
}

/// Rows under headings.
#[derive(Clone, Debug)]
pub struct TextTable {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<TableCell>>,
    /// The column that is cut, and how far.
    cut: Option<(usize, usize)>,
    ends_in_paths: bool,
}

const GAP: usize = 2;
/// A path in the last column is cut in the middle down to this before it goes.
const NARROWEST_LAST: usize = 16;
/// A text column is never cut below this, nor below half of a narrow screen, unless the table says so; before that the last column goes.
const NARROWEST_TEXT: usize = 36;

impl TextTable {
    /// Starts a table with these headings.
    #[must_use]
    pub fn new(columns: &[(&str, Align)]) -> TextTable {
        let columns = columns.iter().map(|(title, align)| ((*title).to_owned(), *align)).collect();
        TextTable { columns, rows: Vec::new(), cut: None, ends_in_paths: false }
    }

    /// Has the text column `at`, counted from 0, cut down to `width` columns before another one goes; otherwise it is the
    /// first text column that is cut.
    pub fn cut_first(&mut self, at: usize, width: usize) {
        self.cut = Some((at, width));
    }

    /// Has the texts of the last column, which are paths, cut in the middle before the column goes.
    pub fn ends_in_paths(&mut self) {
        self.ends_in_paths = true;
    }

    /// Adds a row; missing cells are empty.
    pub fn row(&mut self, cells: Vec<TableCell>) {
        self.rows.push(cells);
    }

    /// Writes the table, no line wider than `width` columns where that can be.
    ///
    /// Columns give way from the right; then one text column is cut in the middle.
    /// Which columns had no room stands below the table.
    #[must_use]
    pub fn render(&self, width: usize, paint: Paint) -> String {
        let charset = paint.charset();
        let titles: Vec<String> =
            self.columns.iter().map(|(title, _)| spelled(title, charset).into_owned()).collect();
        let laid: Vec<Vec<String>> =
            (0..self.columns.len()).map(|at| self.lay_out(at, charset)).collect();
        let mut widths: Vec<usize> = laid
            .iter()
            .zip(&titles)
            .map(|(cells, title)| {
                cells.iter().map(|cell| columns(cell)).max().unwrap_or(0).max(columns(title))
            })
            .collect();
        let first_text = || self.columns.iter().position(|(_, align)| *align == Align::Text);
        let cut = self.cut.or_else(|| Some((first_text()?, NARROWEST_TEXT)));
        let spare = |widths: &[usize]| {
            cut.map_or(0, |(at, narrowest)| {
                widths.get(at).map_or(0, |wide| wide.saturating_sub(narrowest.min(width / 2)))
            })
        };
        while widths.len() > 1 && total(&widths).saturating_sub(spare(&widths)) > width {
            let over = total(&widths) - spare(&widths) - width;
            let last = widths.len() - 1;
            let is_path = self.ends_in_paths && last + 1 == self.columns.len();
            if is_path && widths[last] >= NARROWEST_LAST + over {
                widths[last] -= over;
            } else {
                widths.pop();
            }
        }
        let over = total(&widths).saturating_sub(width);
        if let Some((at, _)) = cut.filter(|&(at, _)| at < widths.len()) {
            widths[at] -= over.min(spare(&widths));
        }
        let mut text = String::new();
        let heading = titles.iter().zip(&self.columns);
        let heading = heading.map(|(title, (_, align))| (title.clone(), *align, Tone::Dim));
        line(&mut text, heading, &widths, paint);
        for (number, row) in self.rows.iter().enumerate() {
            let cells = self.columns.iter().enumerate().map(|(at, (_, align))| {
                let tone = row.get(at).map_or(Tone::Plain, |cell| cell.tone);
                (laid[at][number].clone(), *align, tone)
            });
            line(&mut text, cells, &widths, paint);
        }
        if let Some(note) = no_room(&titles[widths.len()..]) {
            text.push_str(&paint.set(Tone::Dim, wrap(&note, width, "").trim_end()));
            text.push('\n');
        }
        text
    }

    /// Pads the cells of a column so that their points and units stand under one another.
    fn lay_out(&self, at: usize, charset: Charset) -> Vec<String> {
        let cells = self.rows.iter().map(|row| row.get(at).map_or("", |cell| &*cell.text));
        let cells: Vec<String> = cells.map(|cell| spelled(cell, charset).into_owned()).collect();
        if self.columns[at].1 == Align::Text {
            return cells;
        }
        let parts: Vec<Parts<'_>> = cells.iter().map(|cell| Parts::of(cell)).collect();
        let whole = parts.iter().map(|parts| columns(parts.whole)).max().unwrap_or(0);
        let fraction = parts.iter().map(|parts| columns(parts.fraction)).max().unwrap_or(0);
        parts
            .iter()
            .map(|parts| {
                let missing = whole - columns(parts.whole);
                let gap = fraction - columns(parts.fraction);
                // Only a unit that follows needs the fractions to be equally wide.
                let gap = if parts.unit.is_empty() { 0 } else { gap };
                format!("{:missing$}{}{}{:gap$}{}", "", parts.whole, parts.fraction, "", parts.unit)
            })
            .collect()
    }
}

/// Says which columns are not shown; nothing if all are.
fn no_room(titles: &[String]) -> Option<String> {
    // A heading that is a scale, and one that is empty, say nothing by themselves.
    let is_name = |title: &&str| title.contains(char::is_alphabetic);
    let names: Vec<&str> = titles.iter().map(|title| &**title).filter(is_name).collect();
    let (last, others) = names.split_last()?;
    let others = if others.is_empty() { String::new() } else { others.join(", ") + " and " };
    Some(format!("(no room for {others}{last})"))
}

/// A figure taken apart: `11`, `.4`, ` ms`.
struct Parts<'a> {
    whole: &'a str,
    fraction: &'a str,
    unit: &'a str,
}

impl<'a> Parts<'a> {
    fn of(text: &'a str) -> Parts<'a> {
        // `1/15`, `x 1.24` and `< 0.001` are one figure each: the unit begins after the last digit.
        let digits =
            text.rfind(|letter: char| letter.is_ascii_digit()).map_or(text.len(), |at| at + 1);
        let (number, unit) = text.split_at(digits);
        let (whole, fraction) = number.split_at(number.rfind('.').unwrap_or(number.len()));
        Parts { whole, fraction, unit }
    }
}

fn total(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1)
}

fn line(
    text: &mut String,
    cells: impl Iterator<Item = (String, Align, Tone)>,
    widths: &[usize],
    paint: Paint,
) {
    let mut line = String::new();
    let mut gap = 0;
    for ((cell, align, tone), &width) in cells.zip(widths) {
        let cell =
            if align == Align::Text { text::cut(&cell, width, paint.charset()) } else { cell };
        line.push_str(&" ".repeat(gap));
        line.push_str(&paint.set(tone, &cell));
        gap = GAP + width.saturating_sub(columns(&cell));
    }
    text.push_str(line.trim_end());
    text.push('\n');
}

/// Takes letters out of the middle until `text` is at most `width` columns wide, and puts `…` there.
#[must_use]
pub fn cut(text: &str, width: usize) -> String {
    text::cut(text, width, Charset::Unicode)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> TextTable {
        let mut table = TextTable::new(&[
            ("step", Align::Text),
            ("time", Align::Point),
            ("frames", Align::Point),
            ("verdict", Align::Text),
        ]);
        table.row(vec![
            "sync in ~/.config".into(),
            "430 ns".into(),
            "< 0.001".into(),
            TableCell::toned(Tone::Good, "● fits"),
        ]);
        table.row(vec![
            "replace in /srv/a/rather/long/path/to/it".into(),
            "11.4 ms".into(),
            "0.7".into(),
            "◐ near".into(),
        ]);
        table.row(vec![
            "write".into(),
            "2.17 s".into(),
            "130".into(),
            TableCell::toned(Tone::Bad, "▲ misses"),
        ]);
        table
    }

    #[test]
    fn points_and_units_stand_under_one_another() {
        insta::assert_snapshot!(table().render(100, Paint::Off), @r"
        step                                      time       frames   verdict
        sync in ~/.config                         430    ns  < 0.001  ● fits
        replace in /srv/a/rather/long/path/to/it   11.4  ms    0.7    ◐ near
        write                                       2.17 s   130      ▲ misses
        ");
    }

    #[test]
    fn a_narrow_screen_cuts_the_text_and_then_drops_the_last_column() {
        insta::assert_snapshot!(table().render(40, Paint::Off), @r"
        step                  time       frames
        sync in ~/.config     430    ns  < 0.001
        replace in…ath/to/it   11.4  ms    0.7
        write                   2.17 s   130
        (no room for verdict)
        ");
        insta::assert_snapshot!(table().render(58, Paint::Off), @r"
        step                                    time       frames
        sync in ~/.config                       430    ns  < 0.001
        replace in /srv/a/r…er/long/path/to/it   11.4  ms    0.7
        write                                     2.17 s   130
        (no room for verdict)
        ");
        assert!(table().render(40, Paint::Off).lines().all(|line| line.chars().count() <= 40));
    }

    #[test]
    fn the_column_that_a_table_names_is_cut() {
        let columns = [("when", Align::Text), ("command", Align::Text), ("took", Align::Point)];
        let mut table = TextTable::new(&columns);
        table.cut_first(1, 16);
        table.row(vec!["07:07:03".into(), "git commit --message=something".into(), "2 s".into()]);
        insta::assert_snapshot!(table.render(40, Paint::Off), @r"
        when      command                   took
        07:07:03  git commit -…e=something  2 s
        ");
        insta::assert_snapshot!(table.render(30, Paint::Off), @r"
        when      command
        07:07:03  git commit…something
        (no room for took)
        ");
    }

    #[test]
    fn a_path_in_the_last_column_is_cut_before_it_goes() {
        let columns =
            [("application", Align::Text), ("result", Align::Text), ("where", Align::Text)];
        let mut table = TextTable::new(&columns);
        table.ends_in_paths();
        let path = "/usr/share/applications/mimeinfo.cache:12";
        table.row(vec!["chromium.desktop".into(), "decides".into(), path.into()]);
        insta::assert_snapshot!(table.render(60, Paint::Off), @r"
        application       result   where
        chromium.desktop  decides  /usr/share/appli…imeinfo.cache:12
        ");
        assert!(table.render(42, Paint::Off).ends_with("\n(no room for where)\n"));
    }

    #[test]
    fn colour_does_not_move_a_column() {
        let bare = |text: String| {
            let mut plain = String::new();
            let mut rest = &*text;
            while let Some((before, after)) = rest.split_once('\x1b') {
                plain.push_str(before);
                rest = after.split_once('m').map_or("", |(_, rest)| rest);
            }
            plain + rest
        };
        assert_eq!(bare(table().render(80, Paint::On)), table().render(80, Paint::Off));
    }

    #[test]
    fn text_of_others_keeps_to_its_cell() {
        let mut table = TextTable::new(&[("name", Align::Text), ("size", Align::Point)]);
        table.row(vec!["日本語.txt".into(), "1 KiB".into()]);
        table.row(vec!["e\u{301}te\u{301}".into(), "22 KiB".into()]);
        table.row(vec!["a\x1b[31m\nforged".into(), "3 KiB".into()]);
        insta::assert_snapshot!(table.render(80, Paint::Off), @r"
        name               size
        日本語.txt          1 KiB
        été                22 KiB
        a\x1b[31m\nforged   3 KiB
        ");
        assert!(table.render(80, Paint::AsciiOff).is_ascii());
    }

    #[test]
    fn ascii_keeps_the_columns() {
        insta::assert_snapshot!(table().render(58, Paint::AsciiOff), @r"
        step                                    time       frames
        sync in ~/.config                       430    ns  < 0.001
        replace in /srv/a/...r/long/path/to/it   11.4  ms    0.7
        write                                     2.17 s   130
        (no room for verdict)
        ");
    }
}
