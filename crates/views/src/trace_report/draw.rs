//! How the browser of a report looks: the verdict, the tabs, a list or details, and what keys do.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table};
use report::paint::Tone;
use report::paragraph;
use report::table::cut;
use trace::report::text;
use trace::report::view::{BrowserList, ViewOrder};
use unicode_width::UnicodeWidthStr;

use super::browser::{Mode, ReportBrowser};
use crate::screen::{first_shown, fold, style};

/// Columns between two columns of a list.
const GAP: usize = 2;
/// The first column keeps so much; the last ones give way.
const NAME: usize = 24;
/// The lowest screen on which air is left between the parts.
const HIGH: u16 = 20;

/// Draws all of it, whatever the size, and notes how many rows fit.
pub(super) fn draw(browser: &mut ReportBrowser<'_>, frame: &mut Frame<'_>) {
    let area = frame.area();
    if area.is_empty() {
        return;
    }
    let width = usize::from(area.width);
    let air = u16::from(area.height >= HIGH);
    let verdict = verdict(&browser.report.verdict, width, usize::from(area.height / 5));
    let height = u16::try_from(verdict.len()).unwrap_or(u16::MAX);
    let tabs = u16::from(area.height > 3);
    let parts = [
        Constraint::Length(height),
        Constraint::Length(air),
        Constraint::Length(tabs),
        Constraint::Min(1),
        Constraint::Length(u16::from(area.height > 1)),
    ];
    let [top, _, middle, body, bottom] = Layout::vertical(parts).areas(area);
    let strong = style(Tone::Strong, browser.paint);
    let verdict = verdict.into_iter().map(Line::from).collect::<Vec<_>>();
    frame.render_widget(Paragraph::new(verdict).style(strong), top);
    let place = match browser.mode {
        Mode::Details => details(browser, frame, body),
        Mode::List | Mode::Filter => list(browser, frame, body),
    };
    self::tabs(browser, frame, middle, &place);
    frame.render_widget(help(browser, width), bottom);
}

/// Breaks the verdict into at most `most` lines; a cut one says so.
fn verdict(text: &str, width: usize, most: usize) -> Vec<String> {
    let wrapped = paragraph::wrap(text, width, "");
    let mut lines: Vec<String> = wrapped.lines().take(most).map(str::to_owned).collect();
    if wrapped.lines().count() > most
        && let Some(last) = lines.last_mut()
    {
        while last.width() + 2 > width && last.pop().is_some() {}
        last.push_str(" …");
    }
    lines
}

/// Draws the names of the lists, or of the one where there is no room, and at the right where one is in it.
fn tabs(browser: &ReportBrowser<'_>, frame: &mut Frame<'_>, area: Rect, place: &str) {
    let width = usize::from(area.width);
    let mut spans = Vec::new();
    for (at, list) in BrowserList::ALL.into_iter().enumerate() {
        let name = format!(" {} {} ", at + 1, list.title());
        let is_shown = list == browser.view.list();
        let mark = Modifier::REVERSED | Modifier::BOLD;
        let look = if is_shown { Style::new().add_modifier(mark) } else { Style::new() };
        spans.push((is_shown, Span::styled(name, look)));
    }
    let whole: usize = spans.iter().map(|(_, span)| span.width()).sum();
    if whole + 1 + place.width() > width {
        spans.retain(|(is_shown, _)| *is_shown);
    }
    let names: Line<'_> = spans.into_iter().map(|(_, span)| span).collect();
    let left = names.width();
    frame.render_widget(names, area);
    if let Some(gap) = width.checked_sub(left + place.width()).filter(|gap| *gap > 0) {
        let gap = u16::try_from(left + gap).unwrap_or(u16::MAX);
        let dim = style(Tone::Dim, browser.paint);
        // A line's style is that of its whole area.
        let right = Rect { x: area.x + gap, width: area.width - gap, ..area };
        frame.render_widget(Line::styled(place.to_owned(), dim), right);
    }
}

/// Draws the rows around the cursor and returns where it is.
fn list(browser: &mut ReportBrowser<'_>, frame: &mut Frame<'_>, area: Rect) -> String {
    let height = usize::from(area.height.saturating_sub(1));
    browser.page = height.max(1);
    let view = &browser.view;
    let (cursor, all) = (view.cursor(), view.rows().len());
    browser.top = first_shown(browser.top, cursor, all, browser.page);
    if all == 0 {
        let text = match view.filter() {
            "" => "There is none.".to_owned(),
            word => format!("None has \"{word}\" in it or in its stacks."),
        };
        frame.render_widget(Line::from(text), area);
        return "0".to_owned();
    }
    let widths = widths(browser, usize::from(area.width));
    let heading = |(at, heading): (usize, &&str)| aligned(at, titled(browser, at, heading));
    let dim = style(Tone::Dim, browser.paint);
    let headings = view.list().headings().iter().take(widths.len());
    let header = Row::new(headings.enumerate().map(heading)).style(dim);
    let graded = graded(view.list(), widths.len());
    let rows = view.rows().iter().enumerate().skip(browser.top).take(height);
    let rows = rows.map(|(at, row)| {
        let cells = row.cells.iter().zip(&widths).enumerate().map(|(column, (text, width))| {
            let cell = aligned(column, cut(text, usize::from(*width)));
            let tone = text::tone(browser.report, row.worst_ns);
            if column == graded && !row.is_idle && at != cursor {
                return cell.style(style(tone, browser.paint));
            }
            cell
        });
        let look = match () {
            () if at == cursor => Style::new().add_modifier(Modifier::REVERSED),
            () if row.is_idle => dim,
            () => Style::new(),
        };
        Row::new(cells).style(look)
    });
    let spacing = u16::try_from(GAP).unwrap_or(1);
    let table = Table::new(rows, widths.iter().map(|width| Constraint::Length(*width)));
    frame.render_widget(table.header(header).column_spacing(spacing), area);
    format!("{} of {all}", cursor + 1)
}

/// Returns the column that is coloured by the longest call: its own, or what is beside the name.
fn graded(list: BrowserList, shown: usize) -> usize {
    let own = list.headings().iter().position(|heading| *heading == "longest");
    own.filter(|column| *column < shown).unwrap_or(1)
}

/// Writes a heading, with an arrow if the list is sorted by it.
fn titled(browser: &ReportBrowser<'_>, column: usize, heading: &str) -> String {
    match browser.view.sort() {
        (by, ViewOrder::Largest) if by == column => format!("{heading} ↓"),
        (by, ViewOrder::Smallest) if by == column => format!("{heading} ↑"),
        _ => heading.to_owned(),
    }
}

/// Aligns names left and figures right.
fn aligned(column: usize, text: String) -> Cell<'static> {
    let line = Line::from(text);
    Cell::from(if column == 0 { line } else { line.right_aligned() })
}

/// Returns the widths of the columns that are shown; the last ones are left out where the screen is narrow.
fn widths(browser: &ReportBrowser<'_>, width: usize) -> Vec<u16> {
    let view = &browser.view;
    let headings = view.list().headings().iter().enumerate().skip(1);
    let figures = headings.map(|(column, heading)| {
        let cells = view.rows().iter().filter_map(|row| row.cells.get(column));
        // Room for the arrow is kept, so that nothing moves when the order changes.
        cells.map(|cell| cell.width()).max().unwrap_or(0).max(heading.width() + 2)
    });
    let mut left = width.saturating_sub(NAME);
    let mut shown = Vec::new();
    for figure in figures {
        match left.checked_sub(figure + GAP) {
            Some(rest) => left = rest,
            // One figure is shown as long as there is any room: it is what the list is sorted by.
            None if shown.is_empty() => left = 0,
            None => break,
        }
        shown.push(figure);
    }
    let taken: usize = shown.iter().map(|figure| figure + GAP).sum();
    let narrow = |width: usize| u16::try_from(width).unwrap_or(u16::MAX);
    let name = width.saturating_sub(taken).max(1);
    std::iter::once(name).chain(shown).map(narrow).collect()
}

/// Draws the details of a row and returns which lines are seen.
fn details(browser: &mut ReportBrowser<'_>, frame: &mut Frame<'_>, area: Rect) -> String {
    let height = usize::from(area.height).max(1);
    browser.page = height;
    let mut lines = Vec::new();
    for (at, line) in browser.details.iter().enumerate() {
        let is_strong = at == 0 || line.starts_with('→');
        let tone = if is_strong { Tone::Strong } else { Tone::Plain };
        let folded = fold(line, usize::from(area.width)).into_iter();
        lines.extend(folded.map(|part| Line::styled(part, style(tone, browser.paint))));
    }
    let all = lines.len();
    browser.scroll = browser.scroll.min(all.saturating_sub(height));
    let seen: Vec<Line<'_>> = lines.into_iter().skip(browser.scroll).take(height).collect();
    let last = browser.scroll + seen.len();
    frame.render_widget(Paragraph::new(seen), area);
    format!("line {}-{last} of {all}", browser.scroll + 1)
}

/// Returns the last line: the filter as it is typed, or what keys do, as many as there is room for.
fn help(browser: &ReportBrowser<'_>, width: usize) -> Line<'static> {
    let word = browser.view.filter();
    let keys: &[&str] = match browser.mode {
        Mode::List => {
            &["q leave", "Enter details", "/ filter", "s S sort", "Tab list", "↑↓ PgUp PgDn move"]
        }
        Mode::Filter => &["Enter keep", "Esc all", "Ctrl-C leave"],
        Mode::Details => &["q leave", "Esc back", "↑↓ PgUp PgDn move", "Tab list"],
    };
    let mut spans = Vec::new();
    if browser.mode == Mode::Filter || !word.is_empty() {
        // The end is what is being typed.
        let room = width.saturating_sub(4);
        let hidden = word.chars().count().saturating_sub(room);
        let end: String = word.chars().skip(hidden).collect();
        let typed = if browser.mode == Mode::Filter { "▏" } else { "" };
        spans.push(Span::styled(format!("/{end}{typed}  "), style(Tone::Strong, browser.paint)));
    }
    let mut left = width.saturating_sub(spans.iter().map(Span::width).sum());
    for key in keys {
        let Some(rest) = left.checked_sub(key.width()) else { break };
        spans.push(Span::styled((*key).to_owned(), style(Tone::Dim, browser.paint)));
        spans.push(Span::raw("   "));
        left = rest.saturating_sub(3);
    }
    spans.into_iter().collect()
}
