//! The page of a span of hangs in a real browser: it opens without a complaint, asks nobody, and what it offers works.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test drives another program"
)]

use crate::browser::Browser;
use crate::fixture;

use std::time::SystemTime;

use hangs::history::{HangHistory, TimeSpan};
use hangs::model::{Hang, HangCause};
use hangs::page::render_page;
use hangs::remedy::AppliedRemedies;
use hangs::store::StoredHistory;
use hangs::text::HangTextStyle;
use jiff::Zoned;
use report::paint::Paint;
use report::provenance::Provenance;
use report::text::Charset;
use serde_json::{Value, json};

const MINUTE: u64 = 60_000_000_000;

fn hang(number: u64, minute: u64, program: &str, cause: HangCause) -> Hang {
    Hang {
        number,
        // 2026-11-21T08:00:00Z
        started_ns: 1_795_248_000_000_000_000 + minute * MINUTE,
        length_ns: 700_000_000,
        process: 12,
        program: program.to_owned(),
        cause,
        ..Hang::default()
    }
}

fn page() -> String {
    let hangs = [
        hang(1, 5, "notes", HangCause::Sync),
        hang(2, 65, "</script><script>document.title='broken'</script>", HangCause::Lock),
        hang(3, 125, "notes", HangCause::Lock),
    ];
    let hangs = hangs.into_iter().map(|hang| (hang.number, hang)).collect();
    let stored = StoredHistory { hangs, ..StoredHistory::default() };
    let now: Zoned = "2026-11-21T12:00:00+01:00[+01:00]".parse().unwrap();
    let history = HangHistory::select(&stored, TimeSpan::ALL, None, u64::MAX);
    let paint = Paint::new(false, Charset::Unicode);
    let applied = &AppliedRemedies::NONE;
    let style = HangTextStyle { home: None, now: &now, paint, width: 80, applied };
    let provenance =
        Provenance::of_this_machine("unjank hangs timeline".to_owned(), SystemTime::UNIX_EPOCH);
    render_page(&history, TimeSpan::ALL, "today", &style, &provenance)
}

/// Returns the numbers of the bars that are seen, and of the sheets that are listed.
const SHOWN: &str = "[[...document.querySelectorAll('[data-slow]')].filter(b => b.style.display !== 'none' && !b.classList.contains('faded')).map(b => Number(b.dataset.slow)).sort(), \
    [...document.querySelectorAll('details[id^=hang-]')].filter(d => !d.hidden).map(d => Number(d.id.slice(5))).sort()]";
const TICKS: &str = "[...document.querySelectorAll('svg .tick')].map(tick => tick.textContent)";
const OPEN: &str = "[...document.querySelectorAll('details[open]')].map(sheet => sheet.id)";

/// Presses, moves and releases the button of the mouse, from and to shares of the width of the lanes, at the middle of a lane.
fn drag(browser: &mut Browser, from: f64, to: f64) {
    let places = browser.run(
        "(() => { const s = document.querySelector('figure svg'); s.scrollIntoView({ block: 'center' }); const r = s.querySelector('.life').getBoundingClientRect(); return [r.left, r.width, r.top]; })()",
    );
    let at = |share: f64| places[0].as_f64().unwrap() + share * places[1].as_f64().unwrap();
    for (kind, share) in [("mousePressed", from), ("mouseMoved", to), ("mouseReleased", to)] {
        let button = json!({
            "type": kind, "x": at(share), "y": places[2], "button": "left", "buttons": 1, "clickCount": 1,
        });
        browser.ask("Input.dispatchMouseEvent", &button);
    }
}

fn choose(browser: &mut Browser, word: &str, cause: &str) {
    browser.run(&format!(
        "(() => {{ const [i, c] = ['input', 'select'].map(tag => document.querySelector('#tools ' + tag)); i.value = {word:?}; c.value = {cause:?}; i.dispatchEvent(new Event('input')); c.dispatchEvent(new Event('change')); }})()"
    ));
}

#[test]
fn the_page_works_in_a_browser() {
    if !fixture::has(&["chromium"]) {
        return;
    }
    fixture::in_time(|| {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("hangs.html");
        std::fs::write(&file, page()).unwrap();
        let mut browser = Browser::start(dir.path(), 1000, 900);

        // Without scripts all of it is there, and nothing is offered that needs one.
        browser.ask("Emulation.setScriptExecutionDisabled", &json!({ "value": true }));
        browser.open(&file);
        let text = browser.run("document.body.innerText");
        let text = text.as_str().unwrap();
        assert!(text.contains("1. notes froze 700 ms") && !text.contains("Zoom"), "{text}");
        assert!(text.contains("storing data") && !text.contains("looking up files"), "{text}");
        let drawn = browser.run(TICKS);
        assert_eq!(
            drawn,
            json!(["09:15", "09:30", "09:45", "10:00", "10:15", "10:30", "10:45", "11:00"])
        );

        browser.ask("Emulation.setScriptExecutionDisabled", &json!({ "value": false }));
        browser.open(&file);
        assert_eq!(browser.run("document.title"), "Hangs", "no name became markup");
        assert_eq!(browser.run(TICKS), drawn, "the script draws the same times");
        let all = json!([[1, 2, 3], [1, 2, 3]]);
        assert_eq!(browser.run(SHOWN), all);

        // What is drawn over is shown alone.
        drag(&mut browser, 0.4, 0.6);
        assert_eq!(browser.run(SHOWN), json!([[2], [1, 2, 3]]));
        let ticks = browser.run(TICKS);
        assert!(ticks.as_array().unwrap().contains(&json!("10:05")), "{ticks}");
        browser.run("document.querySelector('[data-zoom=all]').click()");
        assert_eq!(browser.run(SHOWN), all);
        browser.run("document.querySelector('figure svg').focus()");
        for (key, shown) in [("+", json!([2])), ("ArrowRight", json!([2])), ("0", json!([1, 2, 3]))]
        {
            let press = json!({ "type": "keyDown", "key": key });
            browser.ask("Input.dispatchKeyEvent", &press);
            assert_eq!(browser.run(SHOWN)[0], shown, "{key}");
        }

        // A word, and a cause.
        choose(&mut browser, "NOTES", "");
        assert_eq!(browser.run(SHOWN), json!([[1, 3], [1, 3]]));
        choose(&mut browser, "notes", "lock");
        assert_eq!(browser.run(SHOWN), json!([[3], [3]]));
        assert_eq!(
            browser.run("document.querySelector('#tools output').textContent"),
            "1 of 3 hangs"
        );
        choose(&mut browser, "", "");
        assert_eq!(browser.run(SHOWN), all);

        // A bar opens its sheet, by the mouse and by the keyboard.
        assert_eq!(browser.run(OPEN), json!([]));
        drag(&mut browser, 0.001, 0.001);
        assert_eq!(browser.run(OPEN), json!(["hang-1"]));
        browser.run("document.querySelector('[data-slow=\"3\"]').focus()");
        let enter = json!({ "type": "keyDown", "key": "Enter", "windowsVirtualKeyCode": 13 });
        browser.ask("Input.dispatchKeyEvent", &enter);
        assert_eq!(browser.run(OPEN), json!(["hang-1", "hang-3"]));

        let narrow =
            json!({ "width": 380, "height": 800, "deviceScaleFactor": 1, "mobile": false });
        browser.ask("Emulation.setDeviceMetricsOverride", &narrow);
        assert_eq!(browser.run("document.documentElement.scrollWidth <= innerWidth"), true);
        assert_eq!(browser.complaints(), Vec::<&Value>::new());
        assert_eq!(browser.requests().len(), 1, "the page itself and nothing else");
    });
}
