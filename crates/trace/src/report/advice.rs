//! Known patterns of waiting, with remedies and their commands.

use std::collections::BTreeMap;

use super::names::Names;
use super::schema::{MatchedPattern, Slow, Target, TargetKind, TraceMethod, TraceReport};
use super::spelling::{quoted, tilde, unspell};
use super::verdict::time;
use crate::syscall::SyscallClass;
use report::advice::Advice;
use report::paragraph::counted;

/// The number of failed look-ups from which the pattern is reported.
const LOOKUPS: u64 = 500;
/// From so many calls on, reads and writes that are mostly tiny are worth a buffer.
const TINY: u64 = 1000;
/// From so many calls on, asking for attributes is a storm.
const STATS: u64 = 2000;
/// Less than this in all is not worth advice, in nanoseconds.
const WORTH_NS: u64 = 1_000_000;
/// The most patterns that are reported.
const PATTERNS: usize = 8;

/// Finds patterns in a report, the one that took most time first.
pub(super) fn patterns(report: &TraceReport, names: &dyn Names) -> Vec<MatchedPattern> {
    let finders: [fn(&TraceReport) -> Option<MatchedPattern>; 10] = [
        regenerable,
        locks,
        other_syncs,
        missing,
        tiny,
        names_resolved,
        stats,
        peers,
        children,
        without_processor,
    ];
    let mut patterns: Vec<MatchedPattern> =
        finders.iter().filter_map(|find| find(report)).collect();
    patterns.sort_by_cached_key(|pattern| std::cmp::Reverse(pattern.wall_ns));
    patterns.truncate(PATTERNS);
    // One command is said once.
    let mut said = Vec::new();
    for advice in patterns.iter_mut().map(|pattern| &mut pattern.advice) {
        advice.retain(|advice| {
            let is_new = advice.command.is_none() || !said.contains(&advice.command);
            said.extend(is_new.then(|| advice.command.clone()));
            is_new
        });
    }
    let scripts = names.script_advice();
    if !scripts.is_empty() {
        patterns.push(MatchedPattern {
            pattern: "no-script-functions".to_owned(),
            reason: "Of some scripts only the interpreter's functions are known".to_owned(),
            wall_ns: 0,
            advice: scripts,
        });
    }
    let symbols = names.advice();
    if !symbols.is_empty() {
        patterns.push(MatchedPattern {
            pattern: "no-symbols".to_owned(),
            reason: "Some functions have no names, because their packages' debug symbols are not installed".to_owned(),
            wall_ns: 0,
            advice: symbols,
        });
    }
    patterns
}

fn does(text: &str, command: Option<String>) -> Advice {
    Advice { text: text.to_owned(), command }
}

/// Slow calls that stall, with their target.
fn stalls(
    report: &TraceReport,
    class: SyscallClass,
) -> impl Iterator<Item = (&Slow, Option<&Target>)> {
    report
        .slow
        .iter()
        .filter(move |slow| {
            slow.how == TraceMethod::Stall
                && !slow.is_mostly_elsewhere()
                && report.calls.get(slow.call as usize).is_some_and(|kind| kind.class == class)
        })
        .map(|slow| (slow, slow.target.and_then(|at| report.targets.get(at as usize))))
}

/// Statistics of the calls of one pattern.
#[derive(Default)]
struct PatternStatistics<'a> {
    count: u64,
    wall_ns: u64,
    on_main: bool,
    /// Time by path.
    paths: BTreeMap<&'a str, u64>,
    /// Time by function to blame.
    blamed: BTreeMap<&'a str, u64>,
}

impl<'a> PatternStatistics<'a> {
    fn add(&mut self, report: &'a TraceReport, slow: &Slow, target: Option<&'a Target>) {
        self.count += 1;
        self.wall_ns = self.wall_ns.saturating_add(slow.wall_ns);
        self.on_main |= report.threads.get(slow.thread as usize).is_some_and(|thread| thread.main);
        if let Some(target) = target {
            *self.paths.entry(target.to.as_deref().unwrap_or(&target.name)).or_default() +=
                slow.wall_ns;
        }
        let stack = slow.stack.and_then(|at| report.stacks.get(at as usize));
        let frame = stack.and_then(|stack| stack.frames.get(stack.blamed? as usize));
        if let Some(frame) = frame.and_then(|at| report.frames.get(*at as usize)) {
            *self.blamed.entry(&frame.name).or_default() += slow.wall_ns;
        }
    }

    fn most(of: &BTreeMap<&'a str, u64>) -> Option<&'a str> {
        of.iter().max_by_key(|(_, wall)| **wall).map(|(name, _)| *name)
    }

    /// Writes `3 calls, 134 ms, of ~/x and 1 more by KConfig::sync`.
    fn text(&self, report: &TraceReport, noun: &str) -> String {
        let count = usize::try_from(self.count).unwrap_or(usize::MAX);
        let mut text = format!("{} took {}", counted(count, noun), time(self.wall_ns));
        if let Some(path) = Self::most(&self.paths) {
            text.push_str(&format!(", of {}", tilde(path, report.home.as_deref())));
            if self.paths.len() > 1 {
                text.push_str(&format!(" and {} more", self.paths.len() - 1));
            }
        }
        if let Some(frame) = Self::most(&self.blamed) {
            text.push_str(&format!(", by {frame}"));
        }
        if self.on_main {
            text.push_str(", on the main thread");
        }
        text
    }

    fn pattern(
        self,
        report: &TraceReport,
        name: &str,
        noun: &str,
        why: &str,
        advice: Vec<Advice>,
    ) -> Option<MatchedPattern> {
        (self.count > 0 && self.wall_ns >= WORTH_NS).then(|| MatchedPattern {
            pattern: name.to_owned(),
            reason: format!("{}: {why}", self.text(report, noun)),
            wall_ns: self.wall_ns,
            advice,
        })
    }
}

/// Calls of main threads in which most of the time went to waiting for a processor.
fn without_processor(report: &TraceReport) -> Option<MatchedPattern> {
    let is_main = |slow: &Slow| report.threads.get(slow.thread as usize).is_some_and(|t| t.main);
    let is_queued = |slow: &&Slow| {
        let queued = slow.queued_ns.unwrap_or(0);
        is_main(slow) && slow.how == TraceMethod::Stall && queued > slow.wall_ns / 2
    };
    let (count, queued_ns) = report.slow.iter().filter(is_queued).fold((0, 0_u64), |sum, slow| {
        (sum.0 + 1, sum.1.saturating_add(slow.queued_ns.unwrap_or(0)))
    });
    (queued_ns >= report.frame_ns).then(|| MatchedPattern {
        pattern: "no-processor".to_owned(),
        reason: format!(
            "In {} the main thread was ready for {} and had no processor: other programs had it, and the disk is not to blame",
            counted(count, "slow call"),
            time(queued_ns)
        ),
        wall_ns: queued_ns,
        advice: vec![does(
            "see which programs run meanwhile, and give those that nobody waits for a lower weight",
            Some("systemd-cgtop --order=cpu".to_owned()),
        )],
    })
}

/// Whether a file is a cache, a history or a state that can be made again.
fn can_be_made_again(path: &str) -> bool {
    const PLACES: [&str; 14] = [
        "/.cache/",
        "/var/cache/",
        "/var/tmp/",
        "/RecentDocuments/",
        "/recently-used",
        "/thumbnails/",
        "/.local/state/",
        "/mimeinfo.cache",
        "/ksycoca",
        "/icon-cache",
        "/fontconfig/",
        "staterc",
        "/__pycache__/",
        "/gtk-bookmarks",
    ];
    path.starts_with("/tmp/") || PLACES.iter().any(|place| path.contains(place))
}

fn is_lock(path: &str) -> bool {
    path.ends_with(".lock")
        || path.ends_with(".lck")
        || path.contains(".lock.")
        || path.contains("/lock")
}

/// Returns the command that measures the cost of syncs.
fn proof(report: &TraceReport) -> String {
    format!(
        "unjank trace ab --skip fsync,fdatasync --yes -- {}",
        super::spelling::shown_command(&report.command)
    )
}

/// Syncs of files that could be made again.
fn regenerable(report: &TraceReport) -> Option<MatchedPattern> {
    let mut found = PatternStatistics::default();
    for (slow, target) in stalls(report, SyscallClass::Sync) {
        if target.is_some_and(|target| {
            let path = target.to.as_deref().unwrap_or(&target.name);
            can_be_made_again(path) && !is_lock(path)
        }) {
            found.add(report, slow, target);
        }
    }
    let directory = PatternStatistics::most(&found.paths)
        .and_then(|path| path.rsplit_once('/'))
        .map(|(dir, _)| dir.to_owned());
    let mut advice = vec![does(
        "write it beside itself and rename it, without a sync: after a power cut it is made again (QSaveFile always syncs, a QFile that is renamed does not; KConfig can write in a worker)",
        None,
    )];
    // Not over a whole home or /tmp, which hold more than what is made again.
    let is_own = |dir: &String| {
        dir.matches('/').count() > 2 && report.home.as_ref().is_none_or(|home| dir != home)
    };
    if let Some(dir) = directory.filter(is_own).and_then(|dir| unspell(&dir)) {
        advice.push(does(
            "see what it costs, on memory instead of the disk, until the next start (sudo umount undoes it)",
            Some(format!("sudo mount -t tmpfs -o mode=0700,uid=$(id -u) tmpfs {}", quoted(&dir))),
        ));
    }
    advice.push(does("prove what would be won", Some(proof(report))));
    found.pattern(
        report,
        "sync-of-what-can-be-made-again",
        "sync",
        "the file is a cache or a history and need not survive a power cut",
        advice,
    )
}

/// Syncs of lock files.
fn locks(report: &TraceReport) -> Option<MatchedPattern> {
    let mut found = PatternStatistics::default();
    for (slow, target) in stalls(report, SyscallClass::Sync) {
        if target.is_some_and(|target| is_lock(&target.name)) {
            found.add(report, slow, target);
        }
    }
    let advice = vec![
        does(
            "lock with flock or fcntl on the file itself, which needs no sync; a lock file is worthless after a restart",
            None,
        ),
        does("prove what would be won", Some(proof(report))),
    ];
    found.pattern(
        report,
        "sync-of-lock-file",
        "sync",
        "a lock file does not have to survive anything",
        advice,
    )
}

/// Syncs of files whose worth we do not know, on a main thread.
fn other_syncs(report: &TraceReport) -> Option<MatchedPattern> {
    let mut found = PatternStatistics::default();
    for (slow, target) in stalls(report, SyscallClass::Sync) {
        let is_main = report.threads.get(slow.thread as usize).is_some_and(|thread| thread.main);
        let path = target.map_or("", |target| &target.name);
        if is_main && !can_be_made_again(path) && !is_lock(path) {
            found.add(report, slow, target);
        }
    }
    let advice = vec![
        does(
            "sync in a worker thread, once for many changes, and answer the user before; what SQLite writes needs PRAGMA journal_mode=WAL and synchronous=NORMAL",
            None,
        ),
        does("prove what would be won", Some(proof(report))),
    ];
    found.pattern(report, "sync-on-main-thread", "sync", "a person waits for the disk", advice)
}

/// Look-ups of files that do not exist.
fn missing(report: &TraceReport) -> Option<MatchedPattern> {
    let mut count = 0_u64;
    let mut wall_ns = 0_u64;
    for kind in report.calls.iter().filter(|kind| kind.class == SyscallClass::Names) {
        let failed =
            kind.errnos.iter().find(|errno| errno.name == "ENOENT").map_or(0, |errno| errno.count);
        count += failed;
        // Failures are not timed apart; their share of the calls is the best estimate.
        let busy = kind.wall_ns.saturating_sub(kind.idle_ns);
        wall_ns = wall_ns.saturating_add(busy / kind.count.max(1) * failed);
    }
    if count < LOOKUPS {
        return None;
    }
    let dir = common(report);
    let all: String = report
        .targets
        .iter()
        .filter(|target| target.errors > 0)
        .map(|target| &*target.name)
        .take(200)
        .collect();
    let advice = if all.contains("/icons/") {
        does(
            "give the icon themes their caches; without them every size and every theme is looked into",
            Some(
                "for dir in /usr/share/icons/*/; do sudo gtk-update-icon-cache -qf \"$dir\"; done"
                    .to_owned(),
            ),
        )
    } else if all.contains("python") || all.contains(".pyc") || all.contains("site-packages") {
        does(
            "see which imports look where; fewer directories in PYTHONPATH, or a zip or frozen application, look in fewer places",
            Some(format!(
                "PYTHONPROFILEIMPORTTIME=1 {}",
                super::spelling::shown_command(&report.command)
            )),
        )
    } else if all.contains("/plugins/") || all.contains(".so") {
        does(
            "see which libraries and plugins are looked for; RUNPATH and QT_PLUGIN_PATH with fewer directories look in fewer places",
            Some(format!(
                "LD_DEBUG=libs {} 2>&1 | grep -c trying",
                super::spelling::shown_command(&report.command)
            )),
        )
    } else {
        does(
            "look names up once and remember what is not there, or read the directory instead of asking for each name",
            None,
        )
    };
    let place = if dir.is_empty() {
        String::new()
    } else {
        format!(", most below {}", tilde(dir, report.home.as_deref()))
    };
    Some(MatchedPattern {
        pattern: "missing-files".to_owned(),
        reason: format!(
            "{count} look-ups found nothing, about {} of them{place}: somebody asks in every place instead of knowing the one",
            time(wall_ns)
        ),
        wall_ns,
        advice: vec![advice],
    })
}

/// Returns the deepest directory that most of the failed look-ups were below; empty if there is none.
fn common(report: &TraceReport) -> &str {
    let mut dirs: BTreeMap<&str, u64> = BTreeMap::new();
    let mut all = 0;
    for target in report.targets.iter().filter(|target| target.kind == TargetKind::File) {
        all += target.errors;
        let mut dir = &*target.name;
        while let Some((parent, _)) = dir.rsplit_once('/').filter(|_| target.errors > 0) {
            *dirs.entry(parent).or_default() += target.errors;
            dir = parent;
        }
    }
    let most = dirs.iter().filter(|(_, errors)| **errors * 10 >= all * 6);
    most.max_by_key(|(dir, _)| dir.len()).map_or("", |(dir, _)| dir)
}

/// Many calls that move a few bytes each.
fn tiny(report: &TraceReport) -> Option<MatchedPattern> {
    let kinds = report
        .calls
        .iter()
        .filter(|kind| matches!(&*kind.name, "read" | "write" | "pread64" | "pwrite64"));
    let kind = kinds
        .filter(|kind| kind.count >= TINY && kind.p50_ns < 20_000)
        .max_by_key(|kind| kind.wall_ns)?;
    // One target that has many calls is one that somebody reads or writes bit by bit.
    let at = report.calls.iter().position(|other| other.name == kind.name)?;
    let calls = |target: &Target| {
        target.calls.iter().find(|call| call.call as usize == at).map_or(0, |call| call.count)
    };
    let target = report
        .targets
        .iter()
        .max_by_key(|target| calls(target))
        .filter(|target| calls(target) >= TINY);
    let busy = kind.wall_ns.saturating_sub(kind.idle_ns);
    if busy < WORTH_NS {
        return None;
    }
    let of = target.map_or(String::new(), |target| {
        format!(", {} of {}", calls(target), tilde(&target.name, report.home.as_deref()))
    });
    Some(MatchedPattern {
        pattern: "tiny-transfers".to_owned(),
        reason: format!(
            "{} calls of {} took {}{of}: most of that is the way into the kernel and back",
            kind.count,
            kind.name,
            time(busy)
        ),
        wall_ns: busy,
        advice: vec![does(
            "move at least 64 KiB at a time: a buffered reader or writer, or one call for the whole file",
            None,
        )],
    })
}

/// Waits for a name server.
fn names_resolved(report: &TraceReport) -> Option<MatchedPattern> {
    let mut found = PatternStatistics::default();
    let both = stalls(report, SyscallClass::Network).chain(stalls(report, SyscallClass::Wait));
    for (slow, target) in both.chain(stalls(report, SyscallClass::Data)) {
        let is_dns = target.is_some_and(|target| {
            target.kind == TargetKind::Socket
                && (target.name.ends_with(":53")
                    || target.name.contains("nscd")
                    || target.name.contains("resolve"))
        });
        if is_dns {
            found.add(report, slow, target);
        }
    }
    let advice = vec![
        does(
            "ask in another thread (getaddrinfo_a, GResolver, QHostInfo::lookupHost), and show something until it answers",
            None,
        ),
        does(
            "see how long the name server takes",
            Some("resolvectl statistics || time getent hosts debian.org".to_owned()),
        ),
    ];
    found.pattern(
        report,
        "blocking-name-resolution",
        "wait",
        "names are resolved while a person waits",
        advice,
    )
}

/// Attributes that are read repeatedly.
fn stats(report: &TraceReport) -> Option<MatchedPattern> {
    let is_stat = |name: &str| matches!(name, "stat" | "lstat" | "newfstatat" | "statx" | "fstat");
    let kinds = || report.calls.iter().filter(|kind| is_stat(&kind.name));
    let (count, wall) = kinds().fold((0, 0_u64), |(count, wall), kind| {
        let found = kind.count.saturating_sub(kind.errors);
        (count + found, wall.saturating_add(kind.wall_ns / kind.count.max(1) * found))
    });
    if count < STATS || wall < WORTH_NS {
        return None;
    }
    let listed = report.calls.iter().any(|kind| kind.name == "getdents64" && kind.count > 1);
    let text = if listed {
        "use the type that getdents64 gives with each name, and ask for the attributes of what is seen first"
    } else {
        "watch the files with inotify, or ask once and remember"
    };
    Some(MatchedPattern {
        pattern: "attribute-storm".to_owned(),
        reason: format!(
            "{count} calls asked for attributes of files that exist, {} in all",
            time(wall)
        ),
        wall_ns: wall,
        advice: vec![does(text, None)],
    })
}

/// Waits for a peer on a socket.
fn peers(report: &TraceReport) -> Option<MatchedPattern> {
    let mut found = PatternStatistics::default();
    let both = stalls(report, SyscallClass::Network).chain(stalls(report, SyscallClass::Wait));
    let mut request = None;
    for (slow, target) in both {
        let Some(target) = target.filter(|target| target.kind == TargetKind::Socket) else {
            continue;
        };
        if target.name.ends_with(":53") || slow.wall_ns < report.frame_ns {
            continue;
        }
        request = request.or(target.request.as_deref());
        found.add(report, slow, Some(target));
    }
    let mut advice = vec![does(
        "call without waiting: g_dbus_connection_call, QDBusPendingCallWatcher; a reply that is not needed now can be asked for when idle",
        None,
    )];
    if let Some(request) = request {
        advice.push(does(
            &format!("see what the peer does meanwhile; it was asked {request}"),
            Some("busctl --user monitor".to_owned()),
        ));
    }
    found.pattern(report, "wait-for-peer", "wait", "another program has to answer first", advice)
}

/// Waits for a child, in a program that has an event loop.
fn children(report: &TraceReport) -> Option<MatchedPattern> {
    let mut found = PatternStatistics::default();
    for (slow, target) in stalls(report, SyscallClass::Wait) {
        if matches!(report.call_name(slow.call), "wait4" | "waitid")
            && slow.wall_ns >= report.frame_ns
        {
            found.add(report, slow, target);
        }
    }
    let advice = vec![does(
        "be told when it ends instead of waiting: g_child_watch_add, QProcess::finished, pidfd_open and poll",
        None,
    )];
    found.pattern(
        report,
        "wait-for-child",
        "wait",
        "a program that shows something waits for another to end",
        advice,
    )
}
