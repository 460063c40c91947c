//! Reports of programs that a test starts.
#![expect(clippy::disallowed_methods, clippy::print_stderr, reason = "a test says what it skips")]

use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use report::provenance::Provenance;
use unjank_trace::backend::{self, TraceError, TraceOptions, TraceTarget};
use unjank_trace::recording::Backend;
use unjank_trace::report::{ReportOptions, TraceReport, build};
use unjank_trace::stack::names::SymbolSources;
use unjank_trace::symbolizer::Symbolizer;

/// Returns the backends by which a case is recorded: the first one, and one of the others, another for the next case; all where
/// `ALL_BACKENDS` is set, as in ci/slow.
pub(crate) fn some_of(backends: &[Backend], case: usize) -> Vec<Backend> {
    if std::env::var_os("ALL_BACKENDS").is_some() {
        return backends.to_vec();
    }
    let (first, others) = backends.split_first().unwrap();
    vec![*first, others[case % others.len()]]
}

/// Records the calls of a command that can block, until it ends; nothing, said aloud, where the backend is not allowed.
pub(crate) fn once(words: &[impl AsRef<std::ffi::OsStr>], backend: Backend) -> Option<TraceReport> {
    let arguments: Vec<OsString> = words.iter().map(|word| word.as_ref().to_owned()).collect();
    let command = backend::ProgramToStart { arguments, ..backend::ProgramToStart::default() };
    let mut options = TraceOptions::new(TraceTarget::Run(command), "blocking".parse().unwrap());
    options.backend = Some(backend);
    let recording = match backend::run(&options, &Arc::new(AtomicBool::new(false))) {
        Ok(outcome) => outcome.recording,
        Err(error @ TraceError::Backend { .. }) => {
            assert!(std::env::var_os("REQUIRE_ALL").is_none(), "REQUIRE_ALL: {error}");
            eprintln!("SKIPPED: {error}");
            return None;
        }
        Err(error) => panic!("{error:?}"),
    };
    let names = Symbolizer::new(&recording, SymbolSources::default(), None);
    Some(build(&recording, &names, Provenance::default(), &ReportOptions::default()))
}

/// Records a command, up to twice more where the recorder itself got no processor for much of the time, and says so: what it did not
/// see then it names for nobody.
pub(crate) fn seen(words: &[impl AsRef<std::ffi::OsStr>], backend: Backend) -> Option<TraceReport> {
    for _ in 0..2 {
        let report = once(words, backend)?;
        let account = report.main().and_then(|main| main.account.as_ref());
        if account.is_none_or(|known| known.parts.unknown_ns <= known.wall_ns / 4) {
            return Some(report);
        }
    }
    once(words, backend)
}
