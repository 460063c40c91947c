//! A seccomp filter that hands chosen system calls to a tracer and lets all others pass.

use std::io;

/// What the filter does with calls of another architecture than ours: nothing, as with any call that was not chosen.
const RET_ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const RET_TRACE: u32 = libc::SECCOMP_RET_TRACE;

/// `AUDIT_ARCH_*` of the calls that this program makes.
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xC000_00B7;

/// Calls of the x32 convention have this bit; their numbers are not in our table.
const X32_BIT: u32 = 0x4000_0000;

/// Offsets in `struct seccomp_data`.
const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;

/// A classic BPF program, ready to be installed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Filter {
    program: Vec<Instruction>,
}

/// One instruction, laid out as `struct sock_filter`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(C)]
struct Instruction {
    code: u16,
    if_true: u8,
    if_false: u8,
    value: u32,
}

const LOAD: u16 = 0x20;
const RETURN: u16 = 0x06;
const JUMP: u16 = 0x05;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_AT_LEAST: u16 = 0x35;

fn load(value: u32) -> Instruction {
    Instruction { code: LOAD, if_true: 0, if_false: 0, value }
}

fn answer(value: u32) -> Instruction {
    Instruction { code: RETURN, if_true: 0, if_false: 0, value }
}

impl Filter {
    /// Builds the filter that hands the calls with these numbers to the tracer, in a few comparisons for each call.
    ///
    /// The answer depends on architecture and number alone, so that the kernel (5.11 and newer) remembers which numbers pass
    /// and runs nothing for them.
    #[must_use]
    pub fn tracing(numbers: &[u32]) -> Filter {
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
        Filter::answering(&changes)
    }

    /// Builds the filter that hands every call of our architecture to the tracer.
    #[must_use]
    pub fn tracing_all() -> Filter {
        Filter::answering(&[(0, RET_TRACE), (X32_BIT, RET_ALLOW)])
    }

    fn answering(changes: &[(u32, u32)]) -> Filter {
        let mut program = vec![
            load(ARCHITECTURE_AT),
            Instruction { code: JUMP_EQUAL, if_true: 1, if_false: 0, value: ARCHITECTURE },
            answer(RET_ALLOW),
            load(NUMBER_AT),
        ];
        search(changes, &mut program);
        Filter { program }
    }

    /// Returns what the filter answers for a call, as the kernel would find it.
    #[cfg(test)]
    fn run(&self, architecture: u32, number: u32) -> u32 {
        let (mut at, mut accumulator) = (0, 0);
        loop {
            let Instruction { code, if_true, if_false, value } = self.program[at];
            at += 1;
            let jump = match code {
                LOAD => {
                    accumulator = if value == NUMBER_AT { number } else { architecture };
                    continue;
                }
                JUMP => {
                    at += usize::try_from(value).unwrap();
                    continue;
                }
                JUMP_EQUAL => accumulator == value,
                JUMP_AT_LEAST => accumulator >= value,
                _ => return value,
            };
            at += usize::from(if jump { if_true } else { if_false });
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
    pub fn install(&self) -> io::Result<()> {
        let program = libc::sock_fprog {
            len: u16::try_from(self.program.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
            filter: self.program.as_ptr().cast_mut().cast(),
        };
        // Without the flag kernels before 5.16 also slow the program's speculation down.
        let attempts = [libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW, 0];
        let mut last = io::Error::from_raw_os_error(libc::ENOSYS);
        for flags in attempts {
            last = match set_filter(flags, &program) {
                Err(e) if e.raw_os_error() == Some(libc::EACCES) => {
                    // SAFETY: this option takes numbers only.
                    let set = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
                    if set != 0 {
                        return Err(io::Error::last_os_error());
                    }
                    match set_filter(flags, &program) {
                        Ok(()) => return Ok(()),
                        Err(e) => e,
                    }
                }
                Err(e) => e,
                Ok(()) => return Ok(()),
            };
        }
        Err(last)
    }
}

fn set_filter(flags: libc::c_ulong, program: &libc::sock_fprog) -> io::Result<()> {
    // SAFETY: the kernel reads the program, `len` instructions long, and keeps nothing of ours.
    let set = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            flags,
            std::ptr::from_ref(program),
        )
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Adds a binary search for the last change that is not above the loaded number.
fn search(changes: &[(u32, u32)], program: &mut Vec<Instruction>) {
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
        Instruction { code: JUMP_AT_LEAST, if_true, if_false: u8::from(far), value: upper[0].0 };
    if far {
        let value = u32::try_from(skip).unwrap_or(u32::MAX);
        program.insert(at + 1, Instruction { code: JUMP, if_true: 0, if_false: 0, value });
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
            let filter = Filter::tracing(set);
            for number in 0..2000 {
                let expected = if set.contains(&number) { RET_TRACE } else { RET_ALLOW };
                assert_eq!(filter.run(ARCHITECTURE, number), expected, "{number} of {set:?}");
                assert_eq!(filter.run(ARCHITECTURE, number | X32_BIT), RET_ALLOW);
                assert_eq!(filter.run(0x4000_0003, number), RET_ALLOW);
            }
        }
    }

    #[test]
    fn all_means_all_of_our_architecture() {
        let filter = Filter::tracing_all();
        assert_eq!(filter.run(ARCHITECTURE, 999), RET_TRACE);
        assert_eq!(filter.run(ARCHITECTURE, X32_BIT | 1), RET_ALLOW);
        assert_eq!(filter.run(0x4000_0003, 1), RET_ALLOW);
    }

    #[test]
    fn a_call_meets_few_comparisons() {
        let every_other: Vec<u32> = (0..240).step_by(2).collect();
        let filter = Filter::tracing(&every_other);
        for number in 0..480 {
            let expected = if number < 240 && number % 2 == 0 { RET_TRACE } else { RET_ALLOW };
            assert_eq!(filter.run(ARCHITECTURE, number), expected);
        }
        assert!(filter.program.len() < 600);
    }
}
