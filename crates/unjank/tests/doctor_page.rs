//! The page of `unjank doctor` in a real browser: whole at the width of a telephone, in groups, light and dark.

use crate::browser;
use crate::fixture;

use std::process::Command;

use serde_json::json;

use browser::Browser;

/// Lists what reaches beyond the window, or has to be scrolled inside of it.
const CLIPPED: &str = "JSON.stringify([...document.querySelectorAll('body *')].filter(e => { \
    const box = e.getBoundingClientRect(); \
    const hides = getComputedStyle(e).overflowX !== 'visible' && e.clientWidth > 0 && e.scrollWidth > e.clientWidth + 1; \
    return box.width > 0 && box.right > innerWidth + 1 || hides; \
}).map(e => e.tagName + ' ' + e.textContent.slice(0, 60)))";

#[test]
fn nothing_on_the_page_is_clipped_and_every_bar_has_its_figure() {
    if !fixture::has(&["chromium"]) {
        return;
    }
    fixture::in_time(|| {
        let dir = tempfile::tempdir().unwrap();
        let page = dir.path().join("doctor.html");
        let output = Command::new(env!("CARGO_BIN_EXE_unjank"))
            .args([
                "doctor",
                "--frame",
                "10us",
                "--only",
                "storage,background,recents,plugins",
                "-o",
            ])
            .arg(&page)
            .env("HOME", dir.path())
            .output()
            .unwrap();
        assert!(page.exists(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut browser = Browser::start(dir.path(), 1280, 900);
        browser.open(&page);
        for width in [320, 380, 600, 780, 840, 1280] {
            let size =
                json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
            browser.ask("Emulation.setDeviceMetricsOverride", &size);
            browser.run("document.querySelectorAll('details').forEach(e => { e.open = true })");
            assert_eq!(browser.run(CLIPPED), "[]", "at {width} px");
            assert_eq!(browser.run("document.documentElement.scrollWidth <= innerWidth"), true);
        }
        let count = |browser: &mut Browser, selector: &str| {
            browser
                .run(&format!("document.querySelectorAll('{selector}').length"))
                .as_u64()
                .unwrap()
        };
        let bars = count(&mut browser, ".steps li");
        assert!(bars >= 4, "{bars}");
        assert_eq!(count(&mut browser, ".steps li svg title"), bars);
        assert_eq!(count(&mut browser, ".steps li .figure .judged"), bars);
        assert!(count(&mut browser, ".steps h2") >= 2, "each group has a heading");
        assert!(count(&mut browser, "ol > li pre") <= 3, "a person does no more at a time");
        // Light and dark by the reader's choice, without a script.
        let paper = "getComputedStyle(document.body).backgroundColor";
        browser.run("document.getElementById('light').click()");
        let light = browser.run(paper);
        browser.run("document.getElementById('dark').click()");
        assert_ne!(browser.run(paper), light);
        assert_eq!(browser.complaints(), Vec::<&serde_json::Value>::new());
    });
}
