//! A manual page from the definition of a command, as `mandoc -Tlint` wants it: dated, and with what to read next. `fleet/` makes its pages with this file, too.

use std::io;
use std::path::Path;

use clap::Command;
use clap_mangen::Man;
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// The widest line of text in a page's source.
const WIDEST: usize = 79;

/// What pages refer to besides the commands above and below them, by the name of the page.
pub(super) type Related = &'static [(&'static str, &'static [&'static str])];

/// Returns the day of `SOURCE_DATE_EPOCH`, in seconds as packages set it, else today's.
pub(super) fn day(epoch: Option<&str>) -> String {
    let given = epoch.and_then(|text| text.parse().ok());
    let moment = given.and_then(|seconds| Timestamp::from_second(seconds).ok());
    let moment = moment.unwrap_or_else(Timestamp::now);
    moment.to_zoned(TimeZone::UTC).date().to_string()
}

/// Writes the pages of a command, which is built, and of those below it.
///
/// # Errors
///
/// A page cannot be written; those before it are there.
pub(super) fn write_tree(
    command: &Command,
    parent: Option<&Command>,
    others: Related,
    dir: &Path,
    date: &str,
) -> io::Result<()> {
    let shown = |below: &&Command| !below.is_hide_set();
    for below in command.get_subcommands().filter(shown) {
        write_tree(below, Some(command), others, dir, date)?;
    }
    let name = page_name(command);
    let mut related: Vec<String> =
        command.get_subcommands().filter(shown).map(|below| reference(&page_name(below))).collect();
    let known = others.iter().find(|(page, _)| *page == name);
    related
        .extend(known.into_iter().flat_map(|(_, pages)| pages.iter().map(|&page| page.to_owned())));
    related.extend(parent.map(|parent| reference(&page_name(parent))));
    if parent.is_some() && !related.iter().any(|page| page == "unjank(1)") {
        related.push("unjank(1)".to_owned());
    }
    write_page(command, related, dir, date)
}

/// The name of a command's page: its words, joined.
fn page_name(command: &Command) -> String {
    command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned()
}

fn reference(name: &str) -> String {
    format!("{name}(1)")
}

/// Writes the page of a command, which is built.
///
/// # Errors
///
/// The page cannot be written.
pub(super) fn write_page(
    command: &Command,
    mut related: Vec<String>,
    dir: &Path,
    date: &str,
) -> io::Result<()> {
    let name = page_name(command);
    let page = Man::new(command.clone())
        .title(name.to_uppercase())
        .section("1")
        .date(date)
        .source(concat!("unjank ", env!("CARGO_PKG_VERSION")))
        .manual("unjank manual");
    let mut source = Vec::new();
    page.render(&mut source)?;
    let mut text = tidied(&String::from_utf8_lossy(&source));
    related.sort();
    related.dedup();
    text.push_str(".SH \"SEE ALSO\"\n");
    let count = related.len();
    for (at, page) in related.iter().enumerate() {
        let (page, section) = page.trim_end_matches(')').split_once('(').unwrap_or((page, "1"));
        let comma = if at + 1 < count { "," } else { "" };
        text.push_str(&format!(".BR {} ({section}){comma}\n", page.replace('-', "\\-")));
    }
    #[expect(clippy::disallowed_methods, reason = "a page can be written again")]
    std::fs::write(dir.join(format!("{name}.1")), text)
}

/// Returns the source of a page as `mandoc -Tlint` wants it: no white space at the end of a line, no break beside a gap, no long lines, and sections under their usual names.
fn tidied(source: &str) -> String {
    let mut lines: Vec<&str> = source.lines().map(str::trim_end).collect();
    lines.retain(|line| !line.is_empty());
    lines.dedup_by(|line, before| *line == ".br" && *before == ".br");
    let mut text = String::new();
    for (at, line) in lines.iter().enumerate() {
        let beside = |other: Option<&&str>| {
            other.is_some_and(|other| other.starts_with(".sp") || other.starts_with(".SH"))
        };
        let before = at.checked_sub(1).and_then(|at| lines.get(at));
        if *line == ".br" && (beside(before) || beside(lines.get(at + 1))) {
            continue;
        }
        match *line {
            ".SH EXTRA" => text.push_str(".SH NOTES\n"),
            line => wrap(line, &mut text),
        }
    }
    text
}

/// Appends a line, divided at spaces where that changes nothing for a formatter.
fn wrap(line: &str, text: &mut String) {
    if line.starts_with(['.', '\'']) || line.len() <= WIDEST {
        text.push_str(line);
        text.push('\n');
        return;
    }
    let mut width = 0;
    for word in line.split(' ') {
        // A line that begins with one of these would be a request.
        let may_begin = !word.is_empty() && !word.starts_with(['.', '\'']);
        if width > 0 && width + 1 + word.len() > WIDEST && may_begin {
            text.push('\n');
            width = 0;
        } else if width > 0 {
            text.push(' ');
            width += 1;
        }
        text.push_str(word);
        width += word.len();
    }
    text.push('\n');
}

#[cfg(test)]
#[test]
fn long_lines_are_divided_where_no_line_becomes_a_request() {
    let mut text = String::new();
    let long = format!("{} .gz 'quoted' end", "word ".repeat(15).trim_end());
    wrap(&long, &mut text);
    assert!(text.lines().all(|line| !line.starts_with(['.', '\''])), "{text}");
    assert_eq!(text.replace('\n', " ").trim_end(), long);
    assert_eq!(
        tidied(".sp\n.br\ntext  \n.br\nmore\n.SH EXTRA\nx\n"),
        ".sp\ntext\n.br\nmore\n.SH NOTES\nx\n"
    );
    assert_eq!(day(Some("86400")), "1970-01-02");
}
