//! Two reports for tests: a launcher that syncs two files on its main thread, and the same one without its longest sync.

use report::provenance::Provenance;
use trace::report::{ReportOptions, TraceReport, build, data};

/// Returns the report of a launcher that syncs two files, one of them with a hostile name, and has a child and a worker.
pub(crate) fn report() -> TraceReport {
    data::read(include_bytes!("example/before.json")).unwrap()
}

/// Returns its report without the longest sync, and with a slower look-up.
pub(crate) fn mended() -> TraceReport {
    data::read(include_bytes!("example/after.json")).unwrap()
}

pub(crate) fn provenance() -> Provenance {
    report().provenance
}

/// Returns the report of a log of strace whose lines are `SECONDS CALL = RESULT <TIME>`, each with the functions that made it.
pub(crate) fn traced(lines: &[(&str, &[&str])]) -> TraceReport {
    let mut log = String::from(
        "10 1795271100.000000 execve(\"/usr/bin/editor\", [\"editor\"], 0x1) = 0 <0.000050>\n",
    );
    for (line, callers) in lines {
        log.push_str(&format!("10 1795271{line}\n"));
        for caller in *callers {
            let address: u32 = caller.bytes().map(u32::from).sum();
            log.push_str(&format!(" > /usr/bin/editor({caller}+0x33) [{address:#x}]\n"));
        }
    }
    log.push_str(
        "10 1795271109.000000 exit_group(0) = ?\n10 1795271109.000100 +++ exited with 0 +++\n",
    );
    let log = strace::read(log.as_bytes(), 100_000).unwrap();
    let options = ReportOptions { home: Some(b"/home/ana".to_vec()), ..ReportOptions::default() };
    build(&log.recording, &log.names, provenance(), &options)
}
