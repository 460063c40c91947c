//! Killed at any moment, alone or both of its processes at once, a job leaves nothing held and nothing behind.

use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;

use jobs::claim::DirectoryClaim;

use super::fixture::{in_time, setting, skip};
use super::{Place, UNJANK, cgroup_of, children, keeper_of, read_line, state, until};

#[test]
fn killed_at_any_moment_it_leaves_nothing_held() {
    // A group in the cgroup and, as somebody without one, a tree that is stopped by signals.
    for kill in 0..setting("KILLS").unwrap_or(6) {
        in_time(move || {
            let place = Place::new();
            let mut child = place.start("sleep 1000 & echo $!; while :; do :; done");
            let left: u32 = read_line(&mut child).parse().unwrap();
            place.status(&child);
            if kill % 3 != 0 {
                assert!(place.jobs(&["pause", &child.id().to_string()]).status.success());
            }
            let supervisor = child.id();
            let keeper = keeper_of(supervisor);
            if kill % 2 == 0 {
                child.kill().unwrap();
                child.wait().unwrap();
            } else {
                sys::supervise::send(keeper, 9).unwrap();
                // It goes on without a keeper.
                until(|| state(left).is_some_and(|state| state == 'S'));
                let command = children(supervisor);
                until(|| command.iter().any(|&process| state(process) == Some('R')));
                sys::supervise::send(supervisor, 15).unwrap();
                assert_eq!(child.wait().unwrap().signal(), Some(15));
                let cgroup = cgroup_of(supervisor);
                assert!(cgroup.is_none_or(|cgroup| !cgroup.exists()), "its cgroup is left");
                let trace = format!("/sys/kernel/tracing/instances/unjank-run-{supervisor}");
                assert!(!Path::new(&trace).exists(), "its trace is left");
            }
            until(|| state(left).is_some_and(|state| state == 'S'));
            sys::supervise::send(left, 9).unwrap();
            until(|| state(left).is_none_or(|state| state == 'Z'));
            if kill % 2 == 0 {
                place.is_clean(supervisor);
            }
        });
    }
}

/// How long the threads of a process have computed, in milliseconds, and its scheduling policy.
fn computed(process: u32) -> (u64, u64) {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    // proc_pid_stat(5): the state is field 3, user and system time are 14 and 15, the policy is 41.
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    let field = |number: usize| fields[number - 3].parse::<u64>().unwrap();
    let ticks = field(14) + field(15);
    (ticks * 1000 / rustix::param::clock_ticks_per_second(), field(41))
}

#[test]
fn a_keeper_that_waits_for_what_its_job_left_behind_uses_no_processor_time() {
    in_time(|| {
        let place = Place::new();
        // What is left behind says when a second and a half have gone by, and stays until its input ends.
        let script = "exec 3<&0; (sleep 1.5; echo waited; read line <&3) & echo $!";
        let mut child = place.start(&format!("read go; {script}"));
        place.status(&child);
        let supervisor = child.id();
        if cgroup_of(supervisor).is_none_or(|cgroup| !cgroup.exists()) {
            skip("no cgroup can be made here");
            drop(child.stdin.take());
            child.wait().unwrap();
            return;
        }
        let keeper = keeper_of(supervisor);
        writeln!(child.stdin.as_ref().unwrap(), "go").unwrap();
        read_line(&mut child);
        let stdin = child.stdin.take();
        assert!(child.wait().unwrap().success());
        let (before, _) = computed(keeper);
        assert_eq!(read_line(&mut child), "waited");
        let (after, policy) = computed(keeper);
        assert!(after - before < 50, "it computed for {} ms", after - before);
        assert_eq!(policy, 0, "it waits with the priority of one that holds a job");
        drop(stdin);
        place.is_clean(supervisor);
    });
}

/// Numbers of processes that have this in their environment, those of ours left out.
fn marked(marker: &str) -> Vec<u32> {
    let entries = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let ours = Path::new(UNJANK).canonicalize().unwrap();
    let has = |pid: &u32| {
        if fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == ours) {
            return false;
        }
        fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|text| text.split(|byte| *byte == 0).any(|one| one == marker.as_bytes()))
    };
    pids.filter(has).collect()
}

/// Says whether the last thread of a process has ended: until then it holds its locks, also when the first one has.
fn has_ended(process: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{process}/task")).map_or(0, Iterator::count);
    threads == 0 || (threads == 1 && state(process).is_none_or(|state| state == 'Z'))
}

#[test]
fn what_two_that_were_killed_at_once_have_left_is_taken_away_by_the_next() {
    in_time(|| {
        let place = Place::new();
        let mut child = place.start("sleep 1000 & echo $!; while :; do :; done");
        let left: u32 = read_line(&mut child).parse().unwrap();
        place.status(&child);
        let mut beside = place.start("echo $$; read line");
        read_line(&mut beside);
        place.status(&beside);
        let kept = cgroup_of(beside.id()).filter(|cgroup| cgroup.exists());
        assert!(place.jobs(&["pause", &child.id().to_string()]).status.success());
        let supervisor = child.id();
        let keeper = keeper_of(supervisor);
        let cgroup = cgroup_of(supervisor).filter(|cgroup| cgroup.exists());
        // Commands of other tests look for what nobody owns, too: not before it was seen here.
        let mut unswept = None;
        if let Some(around) = cgroup.as_ref().and_then(|cgroup| cgroup.parent()) {
            until(|| {
                unswept = DirectoryClaim::of(around);
                unswept.is_some()
            });
        }
        // Stopped first, so that neither sees the end of the other.
        for process in [supervisor, keeper] {
            sys::supervise::send(process, 19).unwrap();
            until(|| state(process) == Some('T'));
        }
        for process in [supervisor, keeper] {
            sys::supervise::send(process, 9).unwrap();
        }
        child.wait().unwrap();
        until(|| has_ended(keeper));
        // Here it can be seen that something is left.
        assert!(cgroup.as_ref().is_none_or(|cgroup| cgroup.exists()));
        drop(unswept);
        // While another command looks, this one does not.
        let trace = format!("/sys/kernel/tracing/instances/unjank-run-{supervisor}");
        until(|| {
            if let Some(around) = cgroup.as_ref().and_then(|cgroup| cgroup.parent()) {
                until(|| DirectoryClaim::of(around).is_some());
            }
            assert!(place.jobs(&[]).status.success());
            cgroup.as_ref().is_none_or(|cgroup| !cgroup.exists()) && !Path::new(&trace).exists()
        });
        place.is_clean(supervisor);
        if cgroup.is_some() {
            until(|| state(left) == Some('S'));
        }
        sys::supervise::send(left, 9).unwrap();
        until(|| state(left).is_none_or(|state| state == 'Z'));
        // Who lives keeps what is his.
        place.status(&beside);
        assert!(kept.is_none_or(|cgroup| cgroup.exists()));
        drop(beside.stdin.take());
        beside.wait().unwrap();
        place.is_clean(beside.id());
    });
}

#[test]
fn killed_at_random_moments_it_leaves_nothing() {
    let mut moments = fastrand::Rng::with_seed(12_345);
    for kill in 0..setting("KILLS").unwrap_or(24) {
        let after = std::time::Duration::from_micros(moments.u64(..60_000));
        in_time(move || {
            let place = Place::new();
            let work = tempfile::tempdir().unwrap();
            let marker = format!("UNJANK_TEST_MARKER={}", work.path().display());
            let (name, value) = marker.split_once('=').unwrap();
            let script = "while :; do sh -c 'echo x > a; cp a b; mv b c'; (sleep 0.01 &); done";
            let mut command = place.unjank(&["run", "--", "sh", "-c", script]);
            command.env(name, value).current_dir(work.path()).stdin(Stdio::null());
            let start = std::time::Instant::now();
            let mut child = command.stdout(Stdio::null()).spawn().unwrap();
            let supervisor = child.id();
            while let Some(rest) = after.checked_sub(start.elapsed()) {
                std::thread::park_timeout(rest);
            }
            let keeper = children(supervisor).into_iter().find(|&process| {
                // It keeps the supervisor's words, in a session of its own.
                let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
                let session = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(3));
                session == Some(&process.to_string())
            });
            if let (Some(keeper), 1) = (keeper, kill % 2) {
                // Half of them held by hand, to be killed then.
                if kill % 4 == 1 {
                    let _ = place.jobs(&["pause", &supervisor.to_string()]);
                }
                sys::supervise::send(keeper, 9).unwrap();
                // Told as any program that runs: once it has its signals, it ends by them.
                until(|| {
                    let _ = sys::supervise::send(supervisor, 15);
                    child.try_wait().unwrap().is_some()
                });
            } else {
                child.kill().unwrap();
                child.wait().unwrap();
            }
            // What the command has left may run on, but stands still nowhere, and ends.
            until(|| {
                for process in marked(&marker) {
                    let _ = sys::supervise::send(process, 9);
                }
                marked(&marker).is_empty()
            });
            let cgroup = cgroup_of(supervisor);
            until(|| cgroup.as_ref().is_none_or(|cgroup| !cgroup.exists()));
            let trace = format!("/sys/kernel/tracing/instances/unjank-run-{supervisor}");
            until(|| !Path::new(&trace).exists());
        });
    }
}
