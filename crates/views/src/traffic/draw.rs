//! How the live view looks: what is watched, the tabs, messages or figures, and what keys do.

use capture::live::{Answers, Flow, Tab};
use capture::model::Row as Message;
use capture::stats::{self, rate, size, time};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table};
use report::grade::FRAME;
use report::paint::Tone;
use report::table::cut;
use unicode_width::UnicodeWidthStr;
use wire::MessageType;

use super::browser::{Mode, TrafficBrowser};
use crate::screen::{first_shown, fold, harmless, style};

/// Draws all of it, whatever the size, and notes how many rows fit.
pub(super) fn draw(browser: &mut TrafficBrowser, frame: &mut Frame<'_>) {
    let area = frame.area();
    if area.is_empty() {
        return;
    }
    let parts = [
        Constraint::Length(u16::from(area.height > 2)),
        Constraint::Length(u16::from(area.height > 4)),
        Constraint::Min(1),
        Constraint::Length(u16::from(area.height > 1)),
    ];
    let [top, tabs, body, bottom] = Layout::vertical(parts).areas(area);
    frame.render_widget(status(browser, usize::from(area.width)), top);
    frame.render_widget(self::tabs(browser), tabs);
    browser.page = usize::from(body.height.saturating_sub(1)).max(1);
    match (browser.mode, browser.tab) {
        (Mode::Details, _) => details(browser, frame, body),
        (_, Tab::Messages) => messages(browser, frame, body),
        (_, Tab::Statistics) => figures(browser, frame, body),
        (_, Tab::Connections) => connections(browser, frame, body),
    }
    frame.render_widget(help(browser, usize::from(area.width)), bottom);
}

/// Says what is watched and how much of it there is.
fn status(browser: &TrafficBrowser, width: usize) -> Line<'static> {
    let model = browser.view.live().model();
    let lost: u64 = model.losses.iter().map(|loss| loss.count).sum();
    let mut text = format!("{} · {} messages", browser.title, model.end());
    if model.first() > 0 {
        text.push_str(&format!(" ({} kept)", model.len()));
    }
    if lost > 0 {
        text.push_str(&format!(" · {lost} lost"));
    }
    if browser.view.flow() == Flow::Paused {
        text.push_str(&format!(" · paused, {} wait", browser.view.waiting()));
    }
    if browser.is_over {
        text.push_str(" · the bus has ended");
    }
    Line::styled(
        cut(&harmless(&text, browser.paint.charset()), width),
        style(Tone::Strong, browser.paint),
    )
}

fn tabs(browser: &TrafficBrowser) -> Line<'static> {
    let tab = |(at, tab): (usize, Tab)| {
        let mark = Modifier::REVERSED | Modifier::BOLD;
        let look = if tab == browser.tab { Style::new().add_modifier(mark) } else { Style::new() };
        Span::styled(format!(" {} {} ", at + 1, tab.title()), look)
    };
    Tab::ALL.into_iter().enumerate().map(tab).collect()
}

/// Draws the messages around the cursor.
fn messages(browser: &mut TrafficBrowser, frame: &mut Frame<'_>, area: Rect) {
    let view = &browser.view;
    let (cursor, all) = (view.cursor(), view.rows().len());
    browser.top = first_shown(browser.top, cursor, all, browser.page);
    if all == 0 {
        let text = if view.typed().is_empty() {
            "Nothing was sent yet."
        } else {
            "Nothing that was sent fits the filter."
        };
        frame.render_widget(Line::from(text), area);
        return;
    }
    let model = view.live().model();
    let start_ns = model.rows().next().map_or(0, |(_, row)| row.at_ns);
    let width = usize::from(area.width);
    // The time and the answer keep their place; the ends go first on a narrow screen.
    let ends = if width >= 100 { width / 5 } else { (width / 6).max(8) };
    let shows_ends = width >= 60;
    let member = width.saturating_sub(12 + 10 + if shows_ends { 2 * ends + 4 } else { 2 });
    let rows = view.rows().iter().enumerate().skip(browser.top).take(browser.page);
    let rows = rows.filter_map(|(at, number)| {
        let row = model.row(*number)?;
        let named = model.named(row);
        let label = |peer| {
            cut(&harmless(&model.peers.label(peer, &model.texts), browser.paint.charset()), ends)
        };
        let interface = model.texts.get(named.interface);
        let name = match row.kind {
            MessageType::Error => {
                format!("▲ {} of {}", model.texts.get(row.error), model.texts.get(named.member))
            }
            kind => format!("{} {interface}.{}", mark(kind, row), model.texts.get(named.member)),
        };
        let (answer, tone) = answer(browser, row);
        let after = std::time::Duration::from_nanos(row.at_ns.saturating_sub(start_ns));
        let mut cells = vec![
            Cell::from(format!("{:10.4}", after.as_secs_f64())),
            Cell::from(cut(&harmless(&name, browser.paint.charset()), member)),
            Cell::from(Line::from(answer).right_aligned()).style(style(tone, browser.paint)),
        ];
        if shows_ends {
            cells.push(Cell::from(label(row.sender)));
            cells.push(Cell::from(label(row.receiver)));
        }
        let look =
            if at == cursor { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
        Some(Row::new(cells).style(look))
    });
    let narrow = |width: usize| Constraint::Length(u16::try_from(width).unwrap_or(u16::MAX));
    let mut widths = vec![narrow(10), narrow(member), narrow(10)];
    let mut headings = vec!["   seconds", "message", "    answer"];
    if shows_ends {
        widths.extend([narrow(ends), narrow(ends)]);
        headings.extend(["from", "to"]);
    }
    let header = Row::new(headings).style(style(Tone::Dim, browser.paint));
    frame.render_widget(Table::new(rows, widths).header(header).column_spacing(1), area);
}

fn mark(kind: MessageType, row: &Message) -> &'static str {
    match kind {
        MessageType::Call => "→",
        MessageType::Return => "←",
        MessageType::Error => "▲",
        MessageType::Signal if row.destination.is_some() => "⇢",
        MessageType::Signal => "◉",
        MessageType::Other(_) => "·",
    }
}

/// Says what became of a call: its time, an error, or nothing yet.
fn answer(browser: &TrafficBrowser, row: &Message) -> (String, Tone) {
    let model = browser.view.live().model();
    let late = u64::try_from(FRAME.as_nanos()).unwrap_or(u64::MAX);
    match (model.latency_ns(row), model.partner(row)) {
        (Some(took), Some(partner)) => {
            let has_failed = partner.kind == MessageType::Error || row.kind == MessageType::Error;
            let tone = match () {
                () if has_failed || took > late => Tone::Bad,
                () if took > late / 2 => Tone::Warn,
                () => Tone::Plain,
            };
            let text = if has_failed { format!("▲ {}", time(took)) } else { time(took) };
            (text, tone)
        }
        _ => match model.waited_ns(row) {
            Some(waited) if waited > late => (format!("… {}", time(waited)), Tone::Bad),
            Some(_) => ("…".to_owned(), Tone::Warn),
            None => (String::new(), Tone::Plain),
        },
    }
}

/// Draws methods and signals with their figures.
fn figures(browser: &mut TrafficBrowser, frame: &mut Frame<'_>, area: Rect) {
    let figures = browser.view.stats();
    let mut rows: Vec<[String; 6]> = Vec::new();
    for method in &figures.methods {
        let of = |ns: u64| method.wait(ns);
        rows.push([
            format!("→ {} of {}", method.member, method.service),
            method.calls.to_string(),
            of(method.waits.p50_ns),
            of(method.waits.p95_ns),
            of(method.waits.max_ns),
            if method.errors + method.unanswered == 0 {
                String::new()
            } else {
                format!("{}+{}", method.errors, method.unanswered)
            },
        ]);
    }
    for signal in &figures.signals {
        rows.push([
            format!("◉ {} of {}", signal.member, signal.service),
            signal.count.to_string(),
            rate(signal.count, figures.span_ns),
            size(signal.bytes),
            String::new(),
            String::new(),
        ]);
    }
    let headings = ["method or signal", "count", "p50, rate", "p95, bytes", "longest", "err+open"];
    let note = stats::verdict(figures);
    table(browser, frame, area, &note, headings, &rows);
}

/// Draws who is there, and who wakes whom.
fn connections(browser: &mut TrafficBrowser, frame: &mut Frame<'_>, area: Rect) {
    let figures = browser.view.stats();
    let rows: Vec<[String; 6]> = figures
        .services
        .iter()
        .map(|service| {
            [
                service.service.clone(),
                service.sent.to_string(),
                size(service.sent_bytes),
                service.received.to_string(),
                service.woken.to_string(),
                service.wakes.to_string(),
            ]
        })
        .collect();
    let note = figures.wakes.first().map_or("Nobody was woken.".to_owned(), |wake| {
        format!("{} woke {} {} times, with {}.", wake.from, wake.to, wake.count, wake.member)
    });
    let headings = ["connection", "sent", "bytes", "received", "woken", "wakes"];
    table(browser, frame, area, &note, headings, &rows);
}

fn table(
    browser: &mut TrafficBrowser,
    frame: &mut Frame<'_>,
    area: Rect,
    note: &str,
    headings: [&'static str; 6],
    rows: &[[String; 6]],
) {
    let parts = [Constraint::Length(u16::from(area.height > 3)), Constraint::Min(1)];
    let [top, body] = Layout::vertical(parts).areas(area);
    let width = usize::from(area.width);
    frame.render_widget(Line::from(cut(&harmless(note, browser.paint.charset()), width)), top);
    let height = usize::from(body.height.saturating_sub(1)).max(1);
    browser.page = height;
    browser.top = browser.top.min(rows.len().saturating_sub(height));
    let figure = 11;
    let columns = (width.saturating_sub(24) / figure).min(5);
    let name = width.saturating_sub(columns * figure).max(1);
    let shown = rows.iter().skip(browser.top).take(height).map(|row| {
        let figures = row[1..].iter().take(columns);
        let figures = figures.map(|text| Cell::from(Line::from(text.clone()).right_aligned()));
        Row::new(
            std::iter::once(Cell::from(cut(&harmless(&row[0], browser.paint.charset()), name)))
                .chain(figures),
        )
    });
    let narrow = |width: usize| Constraint::Length(u16::try_from(width).unwrap_or(u16::MAX));
    let widths = std::iter::once(narrow(name)).chain((0..columns).map(|_| narrow(figure - 1)));
    let heads = headings.iter().enumerate().take(columns + 1).map(|(at, text)| {
        let line = Line::from(*text);
        Cell::from(if at == 0 { line } else { line.right_aligned() })
    });
    let header = Row::new(heads).style(style(Tone::Dim, browser.paint));
    frame.render_widget(Table::new(shown, widths).header(header).column_spacing(1), body);
}

fn details(browser: &mut TrafficBrowser, frame: &mut Frame<'_>, area: Rect) {
    let height = usize::from(area.height).max(1);
    browser.page = height;
    let mut lines: Vec<Line<'_>> = Vec::new();
    for (at, line) in browser.details.iter().enumerate() {
        let is_strong = at == 0 || matches!(&**line, "body" | "answer");
        let tone = if is_strong { Tone::Strong } else { Tone::Plain };
        let folded =
            fold(&harmless(line, browser.paint.charset()), usize::from(area.width)).into_iter();
        lines.extend(folded.map(|part| Line::styled(part, style(tone, browser.paint))));
    }
    browser.scroll = browser.scroll.min(lines.len().saturating_sub(height));
    let shown: Vec<Line<'_>> = lines.into_iter().skip(browser.scroll).take(height).collect();
    frame.render_widget(Paragraph::new(shown), area);
}

/// Returns the last line: what is typed, what was done, or what keys do, as many as there is room for.
fn help(browser: &TrafficBrowser, width: usize) -> Line<'static> {
    let view = &browser.view;
    let strong = style(Tone::Strong, browser.paint);
    let answers =
        if view.answers() == Answers::Joined { "a answers apart" } else { "a answers joined" };
    let pause = if view.flow() == Flow::Paused { "p go on" } else { "p pause" };
    let keys: Vec<&str> = match browser.mode {
        Mode::List => {
            vec![
                "q leave",
                "Enter details",
                "/ filter",
                pause,
                "w save",
                answers,
                "Tab list",
                "c clear",
                "End newest",
            ]
        }
        Mode::Filter => vec!["Enter keep", "Esc all"],
        Mode::Save => vec!["Enter save", "Esc not"],
        Mode::Details => vec!["q leave", "Esc back", "↑↓ PgUp PgDn move"],
    };
    let mut spans = Vec::new();
    let end_of = |text: &str| {
        let hidden = text.chars().count().saturating_sub(width.saturating_sub(8));
        text.chars().skip(hidden).collect::<String>()
    };
    match browser.mode {
        Mode::Save => {
            spans.push(Span::styled(format!("into: {}▏  ", end_of(&browser.file)), strong))
        }
        Mode::Filter => {
            spans.push(Span::styled(format!("/{}▏  ", end_of(view.typed())), strong));
            if let Some(fault) = view.fault() {
                spans.push(Span::styled(format!("{fault}  "), style(Tone::Warn, browser.paint)));
            }
        }
        _ if !browser.note.is_empty() => {
            spans.push(Span::styled(
                format!("{}  ", harmless(&browser.note, browser.paint.charset())),
                strong,
            ));
        }
        _ if !view.typed().is_empty() => {
            spans.push(Span::styled(format!("/{}  ", end_of(view.typed())), strong));
        }
        _ => (),
    }
    let mut left = width.saturating_sub(spans.iter().map(Span::width).sum());
    for key in keys {
        let Some(rest) = left.checked_sub(key.width()) else { break };
        spans.push(Span::styled(key.to_owned(), style(Tone::Dim, browser.paint)));
        spans.push(Span::raw("   "));
        left = rest.saturating_sub(3);
    }
    spans.into_iter().collect()
}
