//! Reports and logs of strace: any bytes are refused or read, and what is read can be shown in every way there is.

use report::paint::Paint;
use report::provenance::Provenance;
use trace::export;
use trace::report::view::{BrowserList, ReportView};
use trace::report::{ReportOptions, TraceReport, build, data, page, text};

/// Reads `bytes` as a report, or as a page with one in it.
pub fn report(bytes: &[u8]) {
    if let Ok(report) = data::read(bytes) {
        show(&report);
    }
}

/// Reads `bytes` as a log of strace.
pub fn log(bytes: &[u8]) {
    let Ok(log) = strace::read(bytes, 0) else { return };
    let report =
        build(&log.recording, &log.names, Provenance::default(), &ReportOptions::default());
    show(&report);
    // What was written is read back as it was.
    let json = data::to_json(&report).expect("a report is JSON");
    assert_eq!(data::read(json.as_bytes()).expect("and its JSON is a report"), report);
}

/// Shows a report in every way.
fn show(report: &TraceReport) {
    let screen = text::render(report, 80, Paint::Off);
    assert!(screen.chars().all(|letter| letter == '\n' || !letter.is_control()));
    let html = page::render(report).expect("a report is a page");
    assert_eq!(html.matches("<script").count(), 2, "no name becomes markup");
    assert_eq!(data::read(html.as_bytes()).expect("a page is a report"), *report);
    assert!(!export::perfetto(report).is_empty() || report.threads.is_empty());
    export::firefox(report).expect("a report is a profile");
    export::json_lines(report).expect("a report has lines");
    drop((export::folded(report), export::csv(report)));
    let mut view = ReportView::new(report);
    for list in BrowserList::ALL {
        view.show(list);
        view.set_filter("a");
        view.step(1);
        assert!(view.cursor() == 0 || !view.details().is_empty());
    }
}
