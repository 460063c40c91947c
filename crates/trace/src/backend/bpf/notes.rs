//! Notes about calls that the programs in the kernel did not record.

use super::session::LossCounters;
use crate::recording::Recording;

/// Says in a recording what was not recorded; a check of that must not pass. The first process may be one of those that left with other
/// rights.
pub(super) fn tell_losses(recording: &mut Recording, faults: &LossCounters, has_root_left: bool) {
    let left = faults.left_with_other_rights;
    recording.not_counted += faults.not_counted + faults.processes_left_out + left;
    recording.lost += faults.lost_calls + faults.lost_lives + recording.not_counted;
    recording.foreign_calls += faults.other_numbers;
    recording.stacks_left_out += faults.stacks_left_out;
    recording.unseen.extend(of_other_rights(left, has_root_left));
    // With the program that an attached process ran already.
    recording.notes.extend(of(&LossCounters { other_numbers: recording.foreign_calls, ..*faults }));
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
        (faults.other_numbers, "32-bit calls, or programs that make such, were not recorded"),
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
fn of_other_rights(count: u64, has_root_left: bool) -> Option<String> {
    let processes = match (count, has_root_left) {
        (0, _) => return None,
        (1, true) => "the first process after it".to_owned(),
        (count, true) => format!("the first process and {} others after each", count - 1),
        (1, false) => "a process after it".to_owned(),
        (count, false) => format!("{count} processes after each"),
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
        tell_losses(recorder.recording(), &faults, false);
        (recorder.recording().lost, recorder.recording().not_counted)
    }

    #[test]
    fn what_is_not_in_the_report_is_a_number_for_checks_and_a_sentence_for_people() {
        let mut recorder = TraceRecorder::new(Backend::Bpf, Vec::new(), SystemTime::UNIX_EPOCH);
        let faults =
            LossCounters { other_numbers: 3, stacks_left_out: 2, ..LossCounters::default() };
        tell_losses(recorder.recording(), &faults, false);
        let recording = recorder.recording();
        assert_eq!((recording.foreign_calls, recording.stacks_left_out), (3, 2));
        let notes = recorder.recording().notes.join("\n");
        assert!(
            notes.contains("3 32-bit calls, or programs that make such, were not recorded."),
            "{notes}"
        );
    }

    #[test]
    fn a_command_that_left_is_told_from_its_children_that_did() {
        let said = |count, has_root_left| of_other_rights(count, has_root_left).unwrap_or_default();
        assert_eq!(said(0, true), "", "its end was lost for another reason");
        assert!(said(1, true).starts_with("the first process after it ran a program"));
        assert!(said(3, true).starts_with("the first process and 2 others after each"));
        assert!(said(1, false).starts_with("a process after it ran a program"));
        assert!(said(3, false).starts_with("3 processes after each ran a program"));
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
