//! Notes about calls that the programs in the kernel did not record.

use super::session::LossCounters;

/// Returns the notes of a recording with these faults.
pub(super) fn of(faults: &LossCounters) -> Vec<String> {
    let mut notes = vec![
        "Counted in the kernel: no time is subtracted, since no thread waits for us.".to_owned(),
        "Not seen: calls answered without the kernel (vDSO).".to_owned(),
    ];
    let counted = [
        (
            faults.lost_calls,
            "slow calls were told too fast to be read: they are in the totals only",
        ),
        (faults.lost_lives, "forks, execs and ends of threads were told too fast to be read"),
        (faults.stacks_left_out, "slow calls came too fast to be told with their stacks"),
        (
            faults.without_thread,
            "calls were counted without their thread, for there were too many threads",
        ),
        (faults.not_counted, "calls were not counted, for want of memory"),
        (faults.other_numbers, "calls of 32-bit code were not counted"),
        (faults.processes_left_out, "processes were not watched, for there were too many"),
        (
            faults.lost_messages,
            "calls of D-Bus were sent too fast to be read: waits for their answers do not name them",
        ),
    ];
    let said = counted.into_iter().filter(|(count, _)| *count > 0);
    notes.extend(said.map(|(count, what)| format!("{count} {what}.")));
    notes
}

/// Returns what is missing of processes that left the session of a user, if any did.
pub(super) fn of_other_rights(count: u64) -> Option<String> {
    let processes = match count {
        0 => return None,
        1 => "a process after it".to_owned(),
        count => format!("{count} processes after each"),
    };
    Some(format!(
        "{processes} ran a program with other rights (set-user-ID and the like): `sudo unjank trace …` shows it"
    ))
}
