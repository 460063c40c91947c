//! Notes about calls that the programs in the kernel did not record.

use super::session::LossCounters;
use crate::recording::Recording;

/// Says in a recording what was not recorded; a check of that must not pass.
pub(super) fn tell_losses(recording: &mut Recording, faults: &LossCounters) {
    let left = faults.left_with_other_rights;
    recording.not_counted += faults.not_counted + faults.processes_left_out + left;
    recording.lost += faults.lost_calls + faults.lost_lives + recording.not_counted;
    recording.foreign_calls += faults.other_numbers;
    recording.stacks_left_out += faults.stacks_left_out;
    recording.unseen.extend(of_other_rights(left));
    recording.notes.extend(of(faults));
}

/// Returns the notes of a recording with these faults.
fn of(faults: &LossCounters) -> Vec<String> {
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
        (faults.other_numbers, "32-bit calls were not recorded"),
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
fn of_other_rights(count: u64) -> Option<String> {
    let processes = match count {
        0 => return None,
        1 => "a process after it".to_owned(),
        count => format!("{count} processes after each"),
    };
    Some(format!(
        "{processes} ran a program with other rights (set-user-ID and the like): `sudo unjank trace …` shows it"
    ))
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::recorder::TraceRecorder;
    use crate::recording::Backend;

    /// Returns how many events are lost, and how many of them are in no sum.
    fn losses(faults: LossCounters) -> (u64, u64) {
        let mut recorder = TraceRecorder::new(Backend::Bpf, Vec::new(), SystemTime::UNIX_EPOCH);
        // One lost elsewhere, as a mark beyond the most.
        recorder.recording().lost = 1;
        tell_losses(recorder.recording(), &faults);
        (recorder.recording().lost, recorder.recording().not_counted)
    }

    #[test]
    fn what_is_not_in_the_report_is_a_number_for_checks_and_a_sentence_for_people() {
        let mut recorder = TraceRecorder::new(Backend::Bpf, Vec::new(), SystemTime::UNIX_EPOCH);
        let faults =
            LossCounters { other_numbers: 3, stacks_left_out: 2, ..LossCounters::default() };
        tell_losses(recorder.recording(), &faults);
        let recording = recorder.recording();
        assert_eq!((recording.foreign_calls, recording.stacks_left_out), (3, 2));
        let notes = recorder.recording().notes.join("\n");
        assert!(notes.contains("3 32-bit calls were not recorded."), "{notes}");
    }

    #[test]
    fn what_is_in_no_sum_is_told_from_what_was_lost_of_the_slow_calls() {
        let none = LossCounters::default();
        assert_eq!(losses(none), (1, 0));
        assert_eq!(losses(LossCounters { lost_calls: 3, lost_lives: 2, ..none }), (6, 0));
        assert_eq!(losses(LossCounters { not_counted: 3, ..none }), (4, 3));
        assert_eq!(losses(LossCounters { processes_left_out: 3, ..none }), (4, 3));
        assert_eq!(losses(LossCounters { left_with_other_rights: 3, ..none }), (4, 3));
    }
}
