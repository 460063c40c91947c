//! A filter that hands chosen system calls to a tracer and lets all others pass.

use std::io;
use std::mem::offset_of;

use libc::{BPF_JA, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_K, seccomp_data, sock_filter};

use super::{NATIVE, answer, install, load, statement};

/// What the filter does with calls of another architecture than ours: nothing, as with any call that was not chosen.
const RET_ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const RET_TRACE: u32 = libc::SECCOMP_RET_TRACE;

/// Calls of the x32 convention have this bit; their numbers are not in our table.
const X32_BIT: u32 = 0x4000_0000;

/// A classic BPF program, ready to be installed.
#[derive(Clone, Debug)]
pub struct SeccompFilter {
    program: Vec<sock_filter>,
}

const JUMP: u32 = BPF_JMP | BPF_JA;
const JUMP_EQUAL: u32 = BPF_JMP | BPF_JEQ | BPF_K;
const JUMP_AT_LEAST: u32 = BPF_JMP | BPF_JGE | BPF_K;

impl SeccompFilter {
    /// Builds the filter that hands the calls with these numbers to the tracer, in a few comparisons for each call.
    ///
    /// The answer depends on architecture and number alone, so that the kernel (5.11 and newer) remembers which numbers pass
    /// and runs nothing for them.
    #[must_use]
    pub fn tracing(numbers: &[u32]) -> SeccompFilter {
        let mut numbers: Vec<u32> = numbers.iter().copied().filter(|n| *n < X32_BIT).collect();
        numbers.sort_unstable();
        numbers.dedup();
        // Where the answer changes: from each first number on it is the one beside it.
        let mut changes = vec![(0, RET_ALLOW)];
        for number in numbers {
            match changes.last_mut() {
                Some(last) if last.0 == number => last.1 = RET_TRACE,
                _ => changes.push((number, RET_TRACE)),
            }
            changes.push((number + 1, RET_ALLOW));
        }
        changes.dedup_by(|later, earlier| later.1 == earlier.1);
        SeccompFilter::answering(&changes)
    }

    /// Builds the filter that hands every call of our architecture to the tracer.
    #[must_use]
    pub fn tracing_all() -> SeccompFilter {
        SeccompFilter::answering(&[(0, RET_TRACE), (X32_BIT, RET_ALLOW)])
    }

    fn answering(changes: &[(u32, u32)]) -> SeccompFilter {
        let mut program = vec![
            load(offset_of!(seccomp_data, arch)),
            sock_filter { jt: 1, ..statement(JUMP_EQUAL, NATIVE) },
            answer(RET_ALLOW),
            load(offset_of!(seccomp_data, nr)),
        ];
        search(changes, &mut program);
        SeccompFilter { program }
    }

    /// Returns what the filter answers for a call, as the kernel would find it.
    #[cfg(test)]
    fn run(&self, architecture: u32, number: u32) -> u32 {
        const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
        let (mut at, mut accumulator) = (0, 0);
        loop {
            let sock_filter { code, jt, jf, k } = self.program[at];
            at += 1;
            let is_number = k == load(offset_of!(seccomp_data, nr)).k;
            let jump = match u32::from(code) {
                LOAD => {
                    accumulator = if is_number { number } else { architecture };
                    continue;
                }
                JUMP => {
                    at += usize::try_from(k).unwrap();
                    continue;
                }
                JUMP_EQUAL => accumulator == k,
                JUMP_AT_LEAST => accumulator >= k,
                _ => return k,
            };
            at += usize::from(if jump { jt } else { jf });
        }
    }

    /// Installs the filter in the calling thread, for good, and for everything it starts.
    ///
    /// A thread without `CAP_SYS_ADMIN` also gives up the privileges of set-user-id programs (`no_new_privs`), which the kernel
    /// asks for. Calls only what may be called between `fork` and `exec`.
    ///
    /// # Errors
    ///
    /// As `seccomp(2)`: the kernel has no filters, or the program is too long.
    pub(crate) fn install(&self) -> io::Result<()> {
        // Without the flag kernels before 5.16 also slow the program's speculation down; older ones do not have it.
        install(&self.program, libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW)
            .or_else(|_| install(&self.program, 0))
            .map(drop)
    }
}

/// Adds a binary search for the last change that is not above the loaded number.
fn search(changes: &[(u32, u32)], program: &mut Vec<sock_filter>) {
    if let [(_, only)] = changes {
        program.push(answer(*only));
        return;
    }
    let (lower, upper) = changes.split_at(changes.len() / 2);
    let at = program.len();
    program.push(answer(RET_ALLOW));
    search(lower, program);
    let skip = program.len() - at - 1;
    // Conditional jumps reach 255 instructions; further ones go over an unconditional one.
    let (if_true, far) = match u8::try_from(skip) {
        Ok(skip) => (skip, false),
        Err(_) => (0, true),
    };
    program[at] =
        sock_filter { jt: if_true, jf: u8::from(far), ..statement(JUMP_AT_LEAST, upper[0].0) };
    if far {
        let value = u32::try_from(skip).unwrap_or(u32::MAX);
        program.insert(at + 1, statement(JUMP, value));
    }
    search(upper, program);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chosen_numbers_are_traced_and_no_others() {
        let sets: [&[u32]; 5] =
            [&[], &[0], &[0, 1, 2, 74, 75, 257], &[5, 7, 9, 11, 400], &[1023, 3, 3]];
        for set in sets {
            let filter = SeccompFilter::tracing(set);
            for number in 0..2000 {
                let expected = if set.contains(&number) { RET_TRACE } else { RET_ALLOW };
                assert_eq!(filter.run(NATIVE, number), expected, "{number} of {set:?}");
                assert_eq!(filter.run(NATIVE, number | X32_BIT), RET_ALLOW);
                assert_eq!(filter.run(0x4000_0003, number), RET_ALLOW);
            }
        }
    }

    #[test]
    fn all_means_all_of_our_architecture() {
        let filter = SeccompFilter::tracing_all();
        assert_eq!(filter.run(NATIVE, 999), RET_TRACE);
        assert_eq!(filter.run(NATIVE, X32_BIT | 1), RET_ALLOW);
        assert_eq!(filter.run(0x4000_0003, 1), RET_ALLOW);
    }

    #[test]
    fn a_call_meets_few_comparisons() {
        let every_other: Vec<u32> = (0..240).step_by(2).collect();
        let filter = SeccompFilter::tracing(&every_other);
        for number in 0..480 {
            let expected = if number < 240 && number % 2 == 0 { RET_TRACE } else { RET_ALLOW };
            assert_eq!(filter.run(NATIVE, number), expected);
        }
        assert!(filter.program.len() < 600);
    }
}
