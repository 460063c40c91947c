//! The scheduling classes of a program that runs already, changed for a while.

use std::fs;

use sys::sched::{CpuClass, IoClass};

use super::SchedulingClass;
use super::tree::Processes;

/// The threads whose classes were changed, with the classes that they had.
#[derive(Debug)]
pub struct ChangedClasses(Vec<(u32, IoClass, CpuClass)>);

impl ChangedClasses {
    /// Moves all threads of `processes` to a class. Threads of other users keep their class.
    #[must_use]
    pub fn set(class: SchedulingClass, processes: &Processes) -> ChangedClasses {
        let mut changed = Vec::new();
        for thread in processes.list().into_iter().flat_map(threads) {
            let (Ok(io), Ok(cpu)) = (IoClass::of(thread), CpuClass::of(thread)) else {
                continue;
            };
            if class.io().set(thread).is_ok() {
                // The kernel refuses it for a real-time thread; its reads and writes yield all the same.
                let _ = class.cpu().set(thread);
                changed.push((thread, io, cpu));
            }
        }
        ChangedClasses(changed)
    }

    /// Restores the classes of the threads that still run.
    pub fn restore(self) {
        for (thread, io, cpu) in self.0 {
            // It fails for a thread that has ended.
            let _ = io.set(thread);
            let _ = cpu.set(thread);
        }
    }
}

fn threads(process: u32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(format!("/proc/{process}/task")) else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}
