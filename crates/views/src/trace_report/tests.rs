//! The browser on screens of all sizes, without a terminal.

use ::report::paint::Paint;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::{Color, Modifier};
use trace::report::schema::TraceReport;
use trace::report::{self, ReportOptions};

use super::browser::{Mode, ReportBrowser};
use super::draw::draw;
use crate::screen::ViewControl;
use ::report::provenance::Provenance;
use sys::clock::{Clock, SystemClock};

const LOG: &str = r#"10 1795271282.000000 execve("/usr/bin/kate", ["kate", "a b"], 0x7ffc /* 20 vars */) = 0 <0.000500>
 > /usr/lib/x86_64-linux-gnu/libc.so.6(execve+0x7) [0xd7]
10 1795271282.001000 openat(AT_FDCWD</home/ana>, "x", O_RDWR|O_CREAT, 0644) = 3</home/ana/x> <0.000120>
10 1795271282.003000 fdatasync(3</home/ana/x>) = 0 <0.150000>
 > /usr/lib/x86_64-linux-gnu/libc.so.6(fdatasync+0x10) [0xfece0]
 > /usr/lib/x86_64-linux-gnu/libKF5ConfigCore.so.5(KConfig::sync()+0x33) [0x4711]
 > /usr/bin/kate() [0x3e1a]
10 1795271282.160000 access("/usr/share/icons/breeze", R_OK) = -1 ENOENT (No such file or directory) <0.000200>
10 1795271282.161000 access("/usr/share/icons/oxygen", R_OK) = -1 ENOENT (No such file or directory) <0.000300>
10 1795271282.170000 poll([{fd=4<anon_inode:[eventfd]>, events=POLLIN}], 1, 1000) = 0 <1.000000>
"#;

fn sample() -> TraceReport {
    let log = strace::read(LOG.as_bytes(), 100_000).unwrap();
    report::build(
        &log.recording,
        &log.names,
        Provenance::of_this_machine(String::new(), SystemClock::start().now()),
        &ReportOptions::default(),
    )
}

fn press(browser: &mut ReportBrowser<'_>, codes: &[KeyCode]) {
    for code in codes {
        assert_eq!(browser.press(KeyEvent::from(*code)), ViewControl::Stay, "{code:?}");
    }
}

fn typed(browser: &mut ReportBrowser<'_>, text: &str) {
    let codes: Vec<KeyCode> = text.chars().map(KeyCode::Char).collect();
    press(browser, &codes);
}

fn terminal(browser: &mut ReportBrowser<'_>, width: u16, height: u16) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(browser, frame)).unwrap();
    terminal
}

/// Returns the lines of a screen.
fn screen(browser: &mut ReportBrowser<'_>, width: u16, height: u16) -> Vec<String> {
    let terminal = terminal(browser, width, height);
    let cells: Vec<&str> =
        terminal.backend().buffer().content().iter().map(|cell| cell.symbol()).collect();
    cells
        .chunks(usize::from(width.max(1)))
        .map(|line| line.concat().trim_end().to_owned())
        .collect()
}

#[test]
fn the_first_screen_has_verdict_tabs_list_and_keys() {
    let report = sample();
    let mut browser = ReportBrowser::new(&report, Paint::Off);
    insta::assert_snapshot!(screen(&mut browser, 80, 24).join("\n"), @r"
    The main thread of kate stood still for more than a frame once, 8 frames in all;
    the longest took 150 ms, felt. Most of it: fdatasync of /home/ana/x by
    KConfig::sync, 150 ms. What it did between its calls was not recorded.

     1 Code paths  2 Calls  3 Files and peers  4 Slow calls  5 Threads        1 of 5
    code path                                   wall ↓    frames    count    longest
    fdatasync by KConfig::sync                  150 ms       9.0        1     150 ms
    execve by execve                            500 µs      0.03        1     500 µs
    access                                      500 µs      0.03        2     300 µs
    openat                                      120 µs     0.007        1     120 µs
    poll                                        1.00 s        60        1     1.00 s












    q leave   Enter details   / filter   s S sort   Tab list   ↑↓ PgUp PgDn move
    ");
}

#[test]
fn a_narrow_screen_keeps_name_figure_and_the_way_out() {
    let report = sample();
    let mut browser = ReportBrowser::new(&report, Paint::Off);
    press(&mut browser, &[KeyCode::Char('2')]);
    insta::assert_snapshot!(screen(&mut browser, 40, 10).join("\n"), @r"
    The main thread of kate stood still for
    more than a frame once, 8 frames in al …
     2 Calls                          1 of 5
    call                              wall ↓
    fdatasync                         150 ms
    execve                            500 µs
    access                            500 µs
    openat                            120 µs
    poll                                0 ns
    q leave   Enter details   / filter
    ");
}

#[test]
fn details_show_the_stack_with_the_frame_to_blame() {
    let report = sample();
    let mut browser = ReportBrowser::new(&report, Paint::Off);
    press(&mut browser, &[KeyCode::Char('4'), KeyCode::Char('/')]);
    typed(&mut browser, "KConfig");
    press(&mut browser, &[KeyCode::Enter, KeyCode::Enter]);
    insta::assert_snapshot!(screen(&mut browser, 80, 24).join("\n"), @r"
    The main thread of kate stood still for more than a frame once, 8 frames in all;
    the longest took 150 ms, felt. Most of it: fdatasync of /home/ana/x by
    KConfig::sync, 150 ms. What it did between its calls was not recorded.

     4 Slow calls                                                      line 1-6 of 6
    fdatasync(3</home/ana/x>)
    150 ms (9.0 frames)

      fdatasync  libc.so.6
    → KConfig::sync  libKF5ConfigCore.so.5
      kate+0x3e1a  kate












    /KConfig  q leave   Esc back   ↑↓ PgUp PgDn move   Tab list
    ");
    let narrow = screen(&mut browser, 30, 10).join("\n");
    assert!(narrow.contains("line 1-"), "{narrow}");
    press(&mut browser, &[KeyCode::End]);
    let end = screen(&mut browser, 30, 10).join("\n");
    assert!(end.contains("kate") && end != narrow, "{end}");
    press(&mut browser, &[KeyCode::Home]);
    assert_eq!(screen(&mut browser, 30, 10).join("\n"), narrow);
    press(&mut browser, &[KeyCode::Esc]);
    assert_eq!(browser.mode, Mode::List);
}

#[test]
fn the_list_narrows_with_each_letter() {
    let report = sample();
    let mut browser = ReportBrowser::new(&report, Paint::Off);
    press(&mut browser, &[KeyCode::Char('2')]);
    let all = browser.view.rows().len();
    press(&mut browser, &[KeyCode::Char('/')]);
    // Letters that are keys elsewhere are letters here.
    typed(&mut browser, "sq");
    let lines = screen(&mut browser, 80, 24);
    assert!(lines.iter().any(|line| line.starts_with("None has \"sq\"")), "{lines:#?}");
    press(&mut browser, &[KeyCode::Enter]);
    press(&mut browser, &[KeyCode::Enter]);
    assert_eq!(browser.mode, Mode::List, "there is no row to open");
    press(&mut browser, &[KeyCode::Char('/'), KeyCode::Backspace]);
    typed(&mut browser, "ync");
    let lines = screen(&mut browser, 80, 24);
    assert!(lines.iter().any(|line| line.starts_with("fdatasync")), "{lines:#?}");
    assert!(!lines.iter().any(|line| line.starts_with("access")), "{lines:#?}");
    assert!(lines[23].starts_with("/sync"), "{lines:#?}");
    press(&mut browser, &[KeyCode::Esc]);
    assert_eq!((browser.mode, browser.view.rows().len()), (Mode::List, all));
}

#[test]
fn keys_move_sort_and_turn_and_leave() {
    let report = sample();
    let mut browser = ReportBrowser::new(&report, Paint::Off);
    press(&mut browser, &[KeyCode::Tab]);
    press(&mut browser, &[KeyCode::Char('s')]);
    let lines = screen(&mut browser, 80, 24);
    let header = lines.iter().find(|line| line.starts_with("call")).unwrap();
    assert!(header.contains("count ↓"), "{lines:#?}");
    assert!(lines.iter().any(|line| line.starts_with("access")), "{lines:#?}");
    assert_eq!(browser.view.rows()[0].cells[0], "access");
    press(&mut browser, &[KeyCode::Char('S')]);
    assert_ne!(browser.view.rows()[0].cells[0], "access");
    press(&mut browser, &[KeyCode::End]);
    assert_eq!(browser.view.cursor() + 1, browser.view.rows().len());
    press(&mut browser, &[KeyCode::Char('k'), KeyCode::Home, KeyCode::Char('j')]);
    assert_eq!(browser.view.cursor(), 1);
    press(&mut browser, &[KeyCode::Up, KeyCode::Up]);
    assert_eq!(browser.view.cursor(), 0);
    let leaves =
        |browser: &mut ReportBrowser<'_>, key: KeyEvent| browser.press(key) == ViewControl::Leave;
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert!(leaves(&mut browser, KeyCode::Char('q').into()));
    assert!(leaves(&mut browser, KeyCode::Esc.into()));
    press(&mut browser, &[KeyCode::Char('/')]);
    assert!(leaves(&mut browser, interrupt));
    press(&mut browser, &[KeyCode::Esc, KeyCode::Enter]);
    assert!(leaves(&mut browser, interrupt));
}

#[test]
fn the_cursor_is_seen_and_colours_are_not_where_they_are_refused() {
    let report = sample();
    for paint in [Paint::On, Paint::Off] {
        let mut browser = ReportBrowser::new(&report, paint);
        press(&mut browser, &[KeyCode::Char('2'), KeyCode::End]);
        let terminal = terminal(&mut browser, 80, 10);
        let cells = terminal.backend().buffer().content();
        let last = browser.view.rows().last().unwrap().cells[0].clone();
        let marked: String = cells
            .iter()
            .skip(80)
            .filter(|cell| cell.modifier == Modifier::REVERSED)
            .map(|cell| cell.symbol())
            .collect();
        assert!(marked.starts_with(&last), "{marked}");
        let tab: String = cells
            .iter()
            .filter(|cell| cell.modifier == Modifier::REVERSED | Modifier::BOLD)
            .map(|cell| cell.symbol())
            .collect();
        assert_eq!(tab, " 2 Calls ");
        let mut coloured = 0;
        for list in '1'..='5' {
            press(&mut browser, &[KeyCode::Char(list), KeyCode::End]);
            let terminal = self::terminal(&mut browser, 80, 24);
            let cells = terminal.backend().buffer().content();
            coloured += cells.iter().filter(|cell| cell.fg != Color::Reset).count();
        }
        assert_eq!(coloured > 0, paint == Paint::On);
    }
}

#[test]
fn no_size_and_no_text_disturb_it() {
    let mut report = sample();
    report.verdict = "\u{1b}[2Jone\u{7} word-that-is-far-too-long-for-most-of-these-screens".into();
    report.slow[0].arguments = "open(\"\u{1b}]0;title\u{7}漢字漢字\")".into();
    for width in [0, 1, 2, 3, 5, 9, 17, 23, 24, 25, 33, 40, 80, 150] {
        for height in [0, 1, 2, 3, 4, 5, 6, 10, 20, 40] {
            let mut browser = ReportBrowser::new(&report, Paint::On);
            for list in '1'..='5' {
                press(&mut browser, &[KeyCode::Char(list), KeyCode::End]);
                for key in [KeyCode::Enter, KeyCode::Esc, KeyCode::Char('/')] {
                    press(&mut browser, &[key, KeyCode::End]);
                    let terminal = terminal(&mut browser, width, height);
                    let cells = terminal.backend().buffer().content();
                    assert!(cells.iter().all(|cell| !cell.symbol().contains(char::is_control)));
                }
                press(&mut browser, &[KeyCode::PageUp, KeyCode::Esc]);
            }
        }
    }
}
