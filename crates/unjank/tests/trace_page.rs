//! The page of a trace in a real browser: it opens without a complaint, asks nobody, and what it offers works.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test drives another program"
)]

use crate::browser;
use crate::fixture;

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use check::compare;
use report::provenance::Provenance;
use serde_json::json;
use trace::report::{ReportOptions, TraceReport, build, page};

use browser::Browser;

/// A log with a hostile name, a felt sync with a stack, a thread, and enough look-ups to be worth advice.
fn log() -> String {
    let mut log = String::from(concat!(
        "10 1795271100.000000 execve(\"/usr/bin/kate\", [\"kate\", \"</script><script>document.title='broken'</script>\"], 0x1) = 0 <0.000500>\n",
        "10 1795271100.010000 clone(flags=CLONE_VM|CLONE_THREAD) = 11 <0.000100>\n",
        "10 1795271100.020000 fdatasync(3</home/ana/.cache/</script><img src=x onerror=document.title=1>\\377.desktop>) = 0 <0.134000>\n",
        " > /usr/lib/x86_64-linux-gnu/libc.so.6(fdatasync+0x10) [0xfece0]\n",
        " > /usr/lib/x86_64-linux-gnu/libKF5ConfigCore.so.5(KConfig::sync()+0x33) [0x4711]\n",
        " > /usr/bin/kate(main+0x3) [0x3e1a]\n",
        "10 1795271100.200000 rename(\"/home/ana/a\", \"/home/ana/b\") = 0 <0.040000>\n",
        "10 1795271100.250000 poll([{fd=4}], 1, 1000) = 0 <0.700000>\n",
        "11 1795271100.260000 read(5</home/ana/big>, \"\", 4096) = 4096 <0.003000>\n",
        "11 1795271100.960000 fsync(5</home/ana/big>) = 0 <0.012000>\n",
    ));
    for at in 0..600 {
        log.push_str(&format!("10 1795271101.{at:06} access(\"/usr/share/icons/{at}.png\", R_OK) = -1 ENOENT (No such file or directory) <0.000004>\n"));
    }
    log
}

fn report(log: &str) -> TraceReport {
    let log = strace::read(log.as_bytes(), 100_000).unwrap();
    let provenance =
        Provenance::of_this_machine("unjank trace import x".to_owned(), SystemTime::UNIX_EPOCH);
    let options = ReportOptions { home: Some(b"/home/ana".to_vec()), ..ReportOptions::default() };
    build(&log.recording, &log.names, provenance, &options)
}

fn written(dir: &Path, html: &str) -> PathBuf {
    let path = dir.join("report.html");
    std::fs::write(&path, html).unwrap();
    path
}

#[test]
fn the_page_works_in_a_browser() {
    if !fixture::has(&["chromium"]) {
        return;
    }
    fixture::in_time(|| {
        let dir = tempfile::tempdir().unwrap();
        let file = written(dir.path(), &page::render(&report(&log())).unwrap());
        let mut browser = Browser::start(dir.path(), 1000, 900);
        browser.open(&file);
        assert_eq!(browser.run("document.title"), "unjank trace", "no name became markup");
        assert_eq!(browser.run("document.querySelectorAll('img').length"), 0);

        // Hover: the bar that was felt says what it is, with its stack.
        assert_eq!(browser.run("document.getElementById('hint').hidden"), true);
        browser.hover(".bar.felt");
        let hint = browser.run("document.getElementById('hint').hidden ? '' : document.getElementById('hint').textContent");
        let hint = hint.as_str().unwrap();
        assert!(hint.contains("134\u{a0}ms") && hint.contains("KConfig::sync"), "{hint:?}");
        let inside = "(() => { const r = document.getElementById('hint').getBoundingClientRect(); return r.left >= 0 && r.top >= 0 && r.right <= innerWidth && r.bottom <= innerHeight; })()";
        assert_eq!(browser.run(inside), true);
        // The keyboard reaches the same, and Escape hides it.
        browser.run("document.querySelector('.bar.missed').focus()");
        assert_eq!(
            browser.run("document.getElementById('hint').textContent.includes('rename(')"),
            true
        );
        let escape = json!({ "type": "keyDown", "key": "Escape", "code": "Escape", "windowsVirtualKeyCode": 27 });
        browser.ask("Input.dispatchKeyEvent", &escape);
        assert_eq!(browser.run("document.getElementById('hint').hidden"), true);

        // Filter: rows and bars that do not have the word go.
        let shown = "[...document.querySelectorAll('table.sorts tbody tr')].filter(row => !row.hidden).length";
        let all = browser.run(shown).as_u64().unwrap();
        browser.run("document.querySelector('#tools input').focus()");
        browser.ask("Input.insertText", &json!({ "text": "kconfig" }));
        let few = browser.run(shown).as_u64().unwrap();
        assert!(few > 0 && few < all, "{few} of {all}");
        assert_eq!(
            browser.run("document.querySelector('.bar.felt').classList.contains('faded')"),
            false
        );
        assert_eq!(
            browser.run("document.querySelector('.bar.missed').classList.contains('faded')"),
            true
        );
        browser.run("(() => { const i = document.querySelector('#tools input'); i.value = ''; i.dispatchEvent(new Event('input')); })()");
        assert_eq!(browser.run(shown), all);

        // Sort: by the number of calls, the most first, then the fewest.
        let counts = "(() => { const t = [...document.querySelectorAll('table.sorts')][1]; return [...t.tBodies[0].rows].map(r => Number(r.cells[1].dataset.v)); })()";
        for sorted_down in [true, false] {
            browser.run("[...document.querySelectorAll('table.sorts')][1].querySelectorAll('th button')[1].click()");
            let counts: Vec<u64> = serde_json::from_value(browser.run(counts)).unwrap();
            assert!(counts.len() > 4);
            let is_sorted =
                if sorted_down { counts.is_sorted_by(|a, b| a >= b) } else { counts.is_sorted() };
            assert!(is_sorted, "{counts:?}");
        }

        // Stacks open together and close together.
        let open = "[...document.querySelectorAll('td details')].filter(part => part.open).length";
        assert_eq!(browser.run(open), 0);
        browser.run("document.querySelector('#tools button').click()");
        assert!(browser.run(open).as_u64().unwrap() > 0);

        // Colours: as the system says, and as is chosen.
        let paper = "getComputedStyle(document.body).backgroundColor";
        let mut seen = Vec::new();
        for scheme in ["light", "dark"] {
            let media =
                json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
            browser.ask("Emulation.setEmulatedMedia", &media);
            seen.push(browser.run(paper));
        }
        browser.run("document.getElementById('light').click()");
        seen.push(browser.run(paper));
        assert_ne!(seen[0], seen[1]);
        assert_eq!(seen[0], seen[2], "light was chosen on a dark system");

        // A narrow screen scrolls its tables, not the page.
        let narrow =
            json!({ "width": 380, "height": 800, "deviceScaleFactor": 1, "mobile": false });
        browser.ask("Emulation.setDeviceMetricsOverride", &narrow);
        assert_eq!(browser.run("document.documentElement.scrollWidth <= innerWidth"), true);

        assert_eq!(browser.complaints(), Vec::<&serde_json::Value>::new());
        let outside: Vec<&str> =
            browser.requests().into_iter().filter(|url| !url.starts_with("file://")).collect();
        assert_eq!(outside, Vec::<&str>::new());
        assert_eq!(browser.requests().len(), 1, "the page itself and nothing else");
        // The reader of complaints would notice one.
        browser.run("setTimeout(() => { throw new Error('planted') }); new Promise(done => setTimeout(done, 20))");
        assert_eq!(browser.complaints().len(), 1);
    });
}

#[test]
fn the_page_is_whole_without_scripts() {
    if !fixture::has(&["chromium"]) {
        return;
    }
    fixture::in_time(|| {
        let dir = tempfile::tempdir().unwrap();
        let (before, after) = (report(&log()), report(&log().replace("0.134000", "0.001000")));
        let mut browser = Browser::start(dir.path(), 1000, 900);
        browser.ask("Emulation.setScriptExecutionDisabled", &json!({ "value": true }));
        let file = written(dir.path(), &page::render(&before).unwrap());
        browser.open(&file);
        let text = browser.run("document.body.innerText");
        let text = text.as_str().unwrap();
        for part in [
            "stood still for more than a frame",
            "KConfig::sync",
            "600 look-ups found nothing",
            "1 stack",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("Open all stacks"), "what needs a script is not offered");
        assert_eq!(browser.run("document.querySelectorAll('.bar title').length > 2"), true);
        let file = written(
            dir.path(),
            &compare::page(&compare::compare(&before, &after), &before.provenance),
        );
        browser.open(&file);
        assert_eq!(browser.run("document.querySelectorAll('.arrow-head').length > 0"), true);
        assert_eq!(browser.complaints(), Vec::<&serde_json::Value>::new());
    });
}
