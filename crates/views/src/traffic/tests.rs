//! The live view on screens of all sizes, without a terminal and without a bus.

use capture::capture::{CaptureEvent, CaptureTime, CapturedMessage};
use capture::filter::Filter;
use capture::live::Tab;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use report::paint::Paint;
use wire::Endian;
use wire::MessageType;
use wire::write::{Draft, Marshal};

use super::browser::{Mode, TrafficBrowser};
use crate::screen::{Show, ViewControl};

fn take(browser: &mut TrafficBrowser, at_us: u64, draft: Draft<'_>, text: &str) {
    let mut body = Marshal::new(Endian::Little);
    body.text(text);
    let body = body.bytes();
    let bytes = Draft { signature: "s", body: &body, ..draft }.bytes();
    let length = u32::try_from(bytes.len()).unwrap();
    let at = CaptureTime(1_795_271_100_000_000_000 + at_us * 1000);
    browser.view.take(&CaptureEvent::Message(CapturedMessage {
        at,
        bus: 0,
        length,
        bytes: &bytes,
    }));
}

fn sample() -> TrafficBrowser {
    let mut browser =
        TrafficBrowser::new(Filter::default(), "", "the session bus".to_owned(), Paint::Off);
    let call = |serial: u32, member: &'static str| Draft {
        path: "/org/example",
        interface: "org.example.I",
        member,
        sender: ":1.1",
        destination: "org.example.Echo",
        ..Draft::new(MessageType::Call, serial)
    };
    let answer = |serial: u32| Draft {
        reply_serial: serial,
        sender: ":1.2",
        destination: ":1.1",
        ..Draft::new(MessageType::Return, serial + 100)
    };
    take(&mut browser, 0, call(1, "Say"), "hello");
    take(&mut browser, 1500, answer(1), "world");
    take(&mut browser, 2000, call(2, "Wait"), "");
    let failed =
        Draft { kind: MessageType::Error, error_name: "org.example.Error.Late", ..answer(2) };
    take(&mut browser, 42_000, failed, "too late");
    let tick = Draft {
        path: "/org/example",
        interface: "org.example.I",
        member: "Tick",
        sender: ":1.2",
        ..Draft::new(MessageType::Signal, 9)
    };
    take(&mut browser, 50_000, tick, "tock");
    browser.view.refresh();
    browser
}

fn press(browser: &mut TrafficBrowser, codes: &[KeyCode]) {
    for code in codes {
        assert_eq!(browser.press(KeyEvent::from(*code)), ViewControl::Stay, "{code:?}");
    }
}

fn typed(browser: &mut TrafficBrowser, text: &str) {
    let codes: Vec<KeyCode> = text.chars().map(KeyCode::Char).collect();
    press(browser, &codes);
}

/// Returns the lines of a screen.
fn screen(browser: &mut TrafficBrowser, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| browser.draw(frame)).unwrap();
    let cells: Vec<&str> =
        terminal.backend().buffer().content().iter().map(|cell| cell.symbol()).collect();
    let lines = cells.chunks(usize::from(width.max(1)));
    lines.map(|line| line.concat().trim_end().to_owned()).collect()
}

#[test]
fn messages_stand_with_their_answers() {
    let text = screen(&mut sample(), 100, 9).join("\n");
    for part in [
        "the session bus · 5 messages",
        "→ org.example.I.Say",
        "1.50 ms",
        "▲ 40.0 ms",
        "◉ org.example.I.Tick",
        "org.example.Echo",
        "q leave",
    ] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    assert!(!text.contains('←'), "answers stand beside their calls:\n{text}");
}

#[test]
fn a_filter_works_while_it_is_typed() {
    let mut browser = sample();
    press(&mut browser, &[KeyCode::Char('/')]);
    typed(&mut browser, "member:Say");
    let text = screen(&mut browser, 80, 8).join("\n");
    assert!(
        text.contains("Say") && !text.contains("Tick") && text.contains("/member:Say"),
        "{text}"
    );
    typed(&mut browser, " or (");
    let text = screen(&mut browser, 120, 8).join("\n");
    assert!(text.contains("the end of the message is missing") && !text.contains("Tick"), "{text}");
    press(&mut browser, &[KeyCode::Esc]);
    assert!(screen(&mut browser, 80, 8).join("\n").contains("Tick"));
}

#[test]
fn details_show_the_body_of_a_call_and_of_its_answer() {
    let mut browser = sample();
    press(&mut browser, &[KeyCode::Home, KeyCode::Enter]);
    assert_eq!(browser.mode, Mode::Details);
    let text = screen(&mut browser, 80, 24).join("\n");
    for part in ["call org.example.I.Say", "\"hello\"", "\"world\"", "after 1.50 ms"] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    press(&mut browser, &[KeyCode::Esc]);
    assert_eq!(browser.mode, Mode::List);
}

#[test]
fn tabs_show_figures_and_connections() {
    let mut browser = sample();
    press(&mut browser, &[KeyCode::Tab]);
    assert_eq!(browser.tab, Tab::Statistics);
    let text = screen(&mut browser, 110, 12).join("\n");
    assert!(text.contains("org.example.I.Wait") && text.contains("40.0 ms"), "{text}");
    press(&mut browser, &[KeyCode::Char('3')]);
    assert!(screen(&mut browser, 110, 12).join("\n").contains("received"));
}

#[test]
fn what_is_shown_is_saved_and_nothing_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.pcapng");
    let mut browser = sample();
    let save = |browser: &mut TrafficBrowser| {
        press(browser, &[KeyCode::Char('w')]);
        let clear = KeyEvent::new(KeyCode::Char('u'), KeyModifiers::CONTROL);
        assert_eq!(browser.press(clear), ViewControl::Stay);
        typed(browser, path.to_str().unwrap());
        press(browser, &[KeyCode::Enter]);
    };
    save(&mut browser);
    assert!(browser.note.starts_with("5 messages are in "), "{}", browser.note);
    let capture = capture::capture::Capture::open(&path).unwrap();
    let messages =
        capture.events().filter(|event| matches!(event, CaptureEvent::Message(_))).count();
    assert_eq!(messages, 5);
    save(&mut browser);
    assert!(browser.note.starts_with("cannot write"), "{}", browser.note);
}

#[test]
fn every_size_of_screen_can_be_drawn() {
    for mode in [Mode::List, Mode::Filter, Mode::Details, Mode::Save] {
        for tab in Tab::ALL {
            for (width, height) in [(0, 0), (1, 1), (5, 3), (20, 4), (60, 10), (300, 80)] {
                let mut browser = sample();
                browser.mode = mode;
                browser.tab = tab;
                browser.view.count();
                screen(&mut browser, width, height);
            }
        }
    }
    let mut empty = TrafficBrowser::new(Filter::default(), "", String::new(), Paint::On);
    assert!(screen(&mut empty, 40, 6).join("\n").contains("Nothing was sent yet."));
}

#[test]
fn keys_leave_and_letters_are_text_while_a_filter_is_typed() {
    let mut browser = sample();
    press(&mut browser, &[KeyCode::Char('/'), KeyCode::Char('q')]);
    assert_eq!(browser.view.typed(), "q");
    let leave = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(browser.press(leave), ViewControl::Leave);
    assert_eq!(sample().press(KeyEvent::from(KeyCode::Char('q'))), ViewControl::Leave);
}
