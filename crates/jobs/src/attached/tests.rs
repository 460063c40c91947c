//! Classes of real programs, changed and restored.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::{Signal, kill_process_group};

use super::super::cgroup::Cgroup;
use super::super::tree::Counted;
use super::*;

/// A shell that starts programs when it is told to, and its process group, which ends with it.
struct Shell {
    child: Child,
    answers: BufReader<ChildStdout>,
}

impl Shell {
    fn start() -> Shell {
        let mut child = Command::new("sh")
            .args(["-c", "while read line; do eval \"$line\"; done"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Shell { child, answers }
    }

    fn process(&self) -> u32 {
        self.child.id()
    }

    /// Runs a line that prints the number of a process.
    fn run(&mut self, line: &str) -> u32 {
        let input = self.child.stdin.as_mut().unwrap();
        input.write_all(format!("{line}\n").as_bytes()).unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        answer.trim().parse().unwrap()
    }

    fn start_child(&mut self) -> u32 {
        self.run("sleep 1000 & echo $!")
    }

    /// Starts a process whose parent ends at once.
    fn start_orphan(&mut self) -> u32 {
        self.run("(sleep 1000 & echo $!)")
    }

    fn tree(&self) -> Processes {
        Processes::Below { top: self.process(), counted: Counted::Yes, except: 0 }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let group = Pid::from_raw(i32::try_from(self.process()).unwrap()).unwrap();
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.child.wait();
    }
}

fn classes(process: u32) -> Classes {
    Classes::of(Thread::first_of(process).unwrap()).unwrap()
}

/// The class that every user can leave.
fn move_to_low(processes: &Processes) -> ChangedClasses {
    let changed = ChangedClasses::set(SchedulingClass::Low, processes);
    for process in processes.list() {
        assert_eq!(classes(process), LOW);
    }
    changed
}

const LOW: Classes = Classes { io: IoClass::BestEffort(7), cpu: CpuClass::Batch };
const OTHER: Classes = Classes { io: IoClass::BestEffort(3), cpu: CpuClass::Normal };

#[test]
fn what_began_meanwhile_gets_the_classes_of_the_processes_above_it() {
    let (mut one, mut other) = (Shell::start(), Shell::start());
    OTHER.io.set(other.process()).unwrap();
    let before = classes(one.process());
    let directory = tempfile::tempdir().unwrap();
    let job = Processes::Cgroup(Cgroup::imitated_by(directory.path()));
    let put = |processes: &[u32]| {
        let list: String = processes.iter().map(|process| format!("{process}\n")).collect();
        let mut options = fs::File::options();
        let file = options.write(true).create(true).truncate(true);
        let mut file = file.open(directory.path().join("cgroup.procs")).unwrap();
        file.write_all(list.as_bytes()).unwrap();
    };
    put(&[one.process(), other.process()]);
    let changed = move_to_low(&job);
    let new = [one.start_child(), other.start_child(), one.start_orphan()];
    assert_eq!(new.map(classes), [LOW; 3]);
    put(&[&[one.process(), other.process()], &new[..]].concat());
    changed.restore(&job);
    assert_eq!([one.process(), other.process()].map(classes), [before, OTHER]);
    assert_eq!(new.map(classes), [before, OTHER, before]);
}

#[test]
fn what_has_ended_is_not_remembered() {
    let mut shell = Shell::start();
    let mut changed = move_to_low(&shell.tree());
    let before = changed.processes.len();
    for _ in 0..3 {
        let child = shell.start_child();
        changed.follow(&shell.tree().list());
        assert_eq!(changed.processes.len(), before + 1);
        // The shell prints the number when it has waited for the end.
        shell.run(&format!("kill {child}; wait {child}; echo {child}"));
    }
    changed.follow(&shell.tree().list());
    assert_eq!(changed.processes.len(), before);
}

#[test]
fn what_has_left_the_tree_meanwhile_is_restored() {
    let mut shell = Shell::start();
    let before = classes(shell.process());
    let mut changed = move_to_low(&shell.tree());
    let child = shell.start_child();
    changed.follow(&shell.tree().list());
    shell.child.kill().unwrap();
    while Thread::first_of(shell.process()).is_some() {
        std::thread::yield_now();
    }
    assert_eq!(classes(child), LOW);
    changed.restore(&shell.tree());
    assert_eq!(classes(child), before);
}

#[test]
fn a_class_that_somebody_else_has_chosen_meanwhile_stays() {
    let mut shell = Shell::start();
    let changed = move_to_low(&shell.tree());
    let child = shell.start_child();
    for process in [shell.process(), child] {
        OTHER.io.set(process).unwrap();
        OTHER.cpu.set(process).unwrap();
    }
    changed.restore(&shell.tree());
    assert_eq!([shell.process(), child].map(classes), [OTHER; 2]);
}

#[test]
fn a_real_time_thread_keeps_its_class() {
    let mut shell = Shell::start();
    let child = shell.start_child();
    let pid = child.to_string();
    let chrt = Command::new("chrt").args(["-r", "-p", "1", &pid]).stderr(Stdio::null()).status();
    if !chrt.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: no real-time priority here");
        return;
    }
    let is_realtime = || ProcessStat::of(child).unwrap().is_realtime();
    assert!(is_realtime());
    let changed = ChangedClasses::set(SchedulingClass::Idle, &shell.tree());
    assert!(is_realtime());
    assert_eq!(IoClass::of(child).unwrap(), IoClass::Idle);
    changed.restore(&shell.tree());
    assert!(is_realtime());
}
