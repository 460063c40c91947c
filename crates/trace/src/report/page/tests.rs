//! The page as bytes; `crates/unjank/tests/trace_page.rs` opens it in a browser.

use super::render;
use crate::report::data;
use crate::report::example::report;

#[test]
fn the_page_reads_in_the_order_in_which_it_is_needed() {
    let html = render(&report()).unwrap();
    let at = |text: &str| html.find(text).unwrap_or_else(|| panic!("no {text}"));
    let order = [
        "stood still for more than a frame",
        "<svg",
        "What to do",
        "When it waited",
        "Code paths",
        "<details",
        "Files and peers",
        "How it was watched",
        "Where this comes from",
        "id=\"unjank-trace\"",
        "<script>\n'use strict'",
    ];
    assert!(order.windows(2).all(|pair| at(pair[0]) < at(pair[1])));
    assert!(html.len() < 100_000, "{}", html.len());
}

#[test]
fn the_page_asks_nobody_and_no_name_becomes_markup() {
    let html = render(&report()).unwrap();
    for outside in ["http://", "https://", "url(", "@import", "<link", "<img", "alert(1)</script>"]
    {
        let found = html.replace("http://www.w3.org/2000/svg", "").contains(outside);
        assert!(!found, "{outside}");
    }
    assert_eq!(html.matches("<script").count(), html.matches("</script>").count());
    assert_eq!(html.matches("<script").count(), 2, "the data and our own");
    assert_eq!(html.matches("<details>").count(), html.matches("</details>").count());
    assert!(!html.contains('\u{202e}') && !html.contains('\u{1b}'));
}

#[test]
fn the_report_is_read_back_from_its_page() {
    let report = report();
    assert_eq!(data::read(render(&report).unwrap().as_bytes()).unwrap(), report);
}
