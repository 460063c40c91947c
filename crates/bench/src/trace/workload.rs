//! What is traced, and by what: four programs and the tracers beside ours.

use std::ffi::OsString;
use std::path::Path;

/// The modules that the Python program imports.
const MODULES: &str = "argparse,asyncio,base64,calendar,collections,csv,ctypes,datetime,decimal,difflib,email,fractions,hashlib,html,http.client,json,logging,multiprocessing,pathlib,pickle,random,sqlite3,ssl,subprocess,unittest";

/// A program that is traced.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Workload {
    /// A Python start that imports 25 modules.
    Python,
    /// `find -printf` over 25,000 files.
    Find,
    /// 200,000 reads and writes of one byte.
    Bytes,
    /// A threaded program that syncs and looks files up.
    Threads,
}

/// What a tracer has to reach.
pub(super) type Ratio = Option<f64>;

/// A tracer and how it is called.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tracer {
    /// The row's name.
    pub(super) id: &'static str,
    /// The command line before the program, without its first word where that is ours.
    pub(super) words: &'static [&'static str],
    /// The most that the traced program may take, as a multiple of what it takes untraced.
    pub(super) most: Ratio,
    /// How many times fewer rounds are made, because it takes so long.
    pub(super) slow: usize,
}

const fn ours(id: &'static str, words: &'static [&'static str], most: f64) -> Tracer {
    Tracer { id, words, most: Some(most), slow: 1 }
}

const fn peer(id: &'static str, words: &'static [&'static str], slow: usize) -> Tracer {
    Tracer { id, words, most: None, slow }
}

const STRACE: &[&str] = &["strace", "-f", "-c", "-w", "-o", "/dev/null"];
const STRACE_SYNC: &[&str] = &[
    "strace",
    "-f",
    "--seccomp-bpf",
    "-T",
    "-o",
    "/dev/null",
    "-e",
    "trace=fsync,fdatasync,sync,syncfs,sync_file_range,msync",
];
const STRACE_STACKS: &[&str] = &["strace", "-f", "-k", "-o", "/dev/null"];
const PERF: &[&str] = &["perf", "trace", "-s", "-o", "/dev/null"];
const OURS_SYNC: &[&str] = &["trace", "--backend", "seccomp", "--calls", "sync"];
const OURS_BPF: &[&str] = &["trace", "--backend", "bpf", "--calls", "all"];

impl Workload {
    pub(super) const ALL: [Workload; 4] =
        [Workload::Python, Workload::Find, Workload::Bytes, Workload::Threads];

    /// Returns the name by which `--only` chooses it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Workload::Python => "python",
            Workload::Find => "find",
            Workload::Bytes => "bytes",
            Workload::Threads => "threads",
        }
    }

    /// Returns what it does.
    pub(super) fn about(self) -> &'static str {
        match self {
            Workload::Python => "Python imports 25 modules",
            Workload::Find => "find -printf, 25,000 files",
            Workload::Bytes => "200,000 one-byte reads and writes",
            Workload::Threads => "threads that sync, stat and compute",
        }
    }

    /// Returns the tracers that it is measured under, and what ours must reach.
    pub(super) fn tracers(self) -> &'static [Tracer] {
        const PYTHON: &[Tracer] = &[
            ours("python-trace", &["trace"], 1.15),
            peer("python-strace", STRACE, 1),
            peer("python-strace-k", STRACE_STACKS, 5),
            peer("python-strace-bpf", STRACE_SYNC, 1),
            peer("python-perf", PERF, 1),
        ];
        const FIND: &[Tracer] = &[
            ours("find-trace-bpf", OURS_BPF, 1.5),
            ours("find-trace-sync", OURS_SYNC, 1.15),
            peer("find-strace", STRACE, 3),
            peer("find-strace-bpf", STRACE_SYNC, 1),
            peer("find-perf", PERF, 3),
        ];
        const BYTES: &[Tracer] = &[
            ours("bytes-trace-bpf", OURS_BPF, 2.5),
            ours("bytes-trace-sync", OURS_SYNC, 1.15),
            peer("bytes-strace", STRACE, 3),
            peer("bytes-strace-bpf", STRACE_SYNC, 1),
            peer("bytes-perf", PERF, 5),
        ];
        const THREADS: &[Tracer] = &[
            ours("threads-trace", &["trace"], 1.1),
            peer("threads-strace", STRACE, 1),
            peer("threads-strace-k", STRACE_STACKS, 5),
            peer("threads-strace-bpf", STRACE_SYNC, 1),
            peer("threads-perf", PERF, 1),
        ];
        match self {
            Workload::Python => PYTHON,
            Workload::Find => FIND,
            Workload::Bytes => BYTES,
            Workload::Threads => THREADS,
        }
    }

    /// Returns the command, which writes only below `dir` and finds the files of `find` in `tree`.
    pub(super) fn command(self, exercise: &Path, tree: &Path, dir: &Path) -> Vec<OsString> {
        let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        match self {
            Workload::Python => {
                // Not the first on the path, which may be a script that looks for the real one.
                let system = Path::new("/usr/bin/python3");
                let python = if system.exists() { "/usr/bin/python3" } else { "python3" };
                words(&[python, "-c", &format!("import {MODULES}")])
            }
            Workload::Find => {
                let mut command = words(&["find"]);
                command.push(tree.into());
                command.extend(words(&["-printf", "%p %s %m %T@\n"]));
                command
            }
            Workload::Bytes => {
                words(&["dd", "if=/dev/zero", "of=/dev/null", "bs=1", "count=100000"])
            }
            Workload::Threads => {
                vec![exercise.into(), "exercise".into(), "desktop".into(), dir.into()]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_tracer_has_a_name_of_its_own_and_every_workload_one_of_ours() {
        let all: Vec<Tracer> =
            Workload::ALL.iter().flat_map(|workload| workload.tracers()).copied().collect();
        let ids: BTreeSet<&str> = all.iter().map(|tracer| tracer.id).collect();
        assert_eq!(ids.len(), all.len());
        for workload in Workload::ALL {
            assert!(workload.tracers().iter().any(|tracer| tracer.most.is_some()));
            let beginning = format!("{}-", workload.name());
            assert!(workload.tracers().iter().all(|tracer| tracer.id.starts_with(&beginning)));
        }
        assert_eq!(MODULES.split(',').count(), 25);
    }
}
