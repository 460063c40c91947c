//! From the registers of a frame to those of its caller, by one rule of the unwind tables.

use gimli::{Encoding, EndianSlice, Evaluation, EvaluationResult, LittleEndian, Register, Value};

/// How many registers are followed: the sixteen general ones and the return address, in DWARF's order.
pub(super) const REGISTERS: usize = 17;

/// The column of the return address.
pub(super) const RETURN_ADDRESS: Register = Register(16);

const FP: u16 = 6;
const SP: usize = 7;
const IP: usize = 16;

/// No function that was compiled at run time has a larger frame.
const LARGEST_FRAME: u64 = 1 << 16;

/// The most steps of an expression; the longest that compilers write have some ten.
const STEPS: u32 = 256;

/// The registers of a thread, as far as they are known.
///
/// The instruction and the stack pointer always are; the frame pointer may be found by them (`frame_pointer`). `/proc/PID/syscall` tells no more, the kernel's own programs tell the
/// frame pointer too, and ptrace tells all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownRegisters {
    values: [u64; REGISTERS],
    known: u32,
}

impl KnownRegisters {
    /// Takes the instruction pointer and the stack pointer; the others are not known.
    #[must_use]
    pub fn new(ip: u64, sp: u64) -> KnownRegisters {
        let mut registers = KnownRegisters { values: [0; REGISTERS], known: 0 };
        registers.set(IP, ip);
        registers.set(SP, sp);
        registers
    }

    /// Adds the frame pointer `rbp`.
    #[must_use]
    pub fn bp(mut self, value: u64) -> KnownRegisters {
        self.set(6, value);
        self
    }

    /// Adds `rbx`, `r12`, `r13`, `r14` and `r15`, which functions keep for their callers.
    #[must_use]
    pub fn kept(mut self, values: [u64; 5]) -> KnownRegisters {
        for (register, value) in [3, 12, 13, 14, 15].into_iter().zip(values) {
            self.set(register, value);
        }
        self
    }

    /// Returns the instruction pointer.
    #[must_use]
    pub fn ip(&self) -> u64 {
        self.values[IP]
    }

    /// Returns the stack pointer.
    #[must_use]
    pub fn sp(&self) -> u64 {
        self.values[SP]
    }

    fn set(&mut self, register: usize, value: u64) {
        self.values[register] = value;
        self.known |= 1 << register;
    }

    fn forget(&mut self, register: usize) {
        self.known &= !(1 << register);
    }

    /// Returns the registers of the caller of a function that keeps a frame pointer.
    pub(super) fn follow_frame_pointer(
        &self,
        stack: &mut impl MemoryReader,
    ) -> Result<KnownRegisters, UnwindStop> {
        let frame = self.get(FP).ok_or(UnwindStop::Unknown)?;
        let is_frame = frame.is_multiple_of(8)
            && frame.checked_sub(self.sp()).is_some_and(|size| size < LARGEST_FRAME);
        if !is_frame {
            return Err(UnwindStop::Nowhere);
        }
        let pointer = read(stack, frame)?;
        let address = read(stack, frame.wrapping_add(8))?;
        // What else such code keeps for its callers, nobody says.
        Ok(KnownRegisters::new(address, frame.wrapping_add(16)).bp(pointer))
    }

    /// Returns whether the frame pointer is known.
    pub(super) fn knows_bp(&self) -> bool {
        self.get(FP).is_some()
    }

    fn get(&self, register: u16) -> Option<u64> {
        let register = usize::from(register);
        (register < REGISTERS && self.known & (1 << register) != 0).then(|| self.values[register])
    }
}

/// Words of the stack that is unwound.
pub(super) trait MemoryReader {
    /// Returns the eight bytes at `address`; none where they are not there.
    fn word(&mut self, address: u64) -> Option<u64>;
}

/// A small program in DWARF's stack language.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Expression {
    pub(super) bytes: Box<[u8]>,
    pub(super) encoding: Encoding,
}

/// Where the caller's stack pointer is found: the canonical frame address.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cfa {
    /// At a distance from this register.
    Register(u16, i64),
    /// By a program.
    Expression(Expression),
}

/// Where the caller's value of a register is found.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum SavedRegister {
    /// Nowhere; of the return address: there is no caller.
    Undefined,
    /// On the stack, at a distance from the frame address.
    At(i64),
    /// It is the frame address plus this.
    Value(i64),
    /// In another register.
    In(u16),
    /// On the stack, where a program says.
    AtExpression(Expression),
    /// It is what a program says.
    ValueOf(Expression),
    /// It is this.
    Constant(u64),
}

/// How the caller of a piece of code is found.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Rule {
    pub(super) cfa: Cfa,
    pub(super) saved: Vec<(u16, SavedRegister)>,
    /// Where the function made the frame that its frame pointer tells here, if that is how the caller is found.
    pub(super) setup: Option<Box<FramePointerSetup>>,
    pub(super) is_signal_frame: bool,
}

/// Where a function makes the frame that its frame pointer tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FramePointerSetup {
    /// The first instruction behind the one that sets the frame pointer.
    pub(super) set_at: u64,
    /// Behind the function's last instruction.
    pub(super) end: u64,
    /// The address that the rule is for: in the instruction that the function is at.
    pub(super) at: u64,
}

/// Why there is no caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnwindStop {
    /// This is where the thread began.
    First,
    /// A word of the stack is not in the copy.
    Missing,
    /// The rule needs a register that is not known.
    Unknown,
    /// The rule leads nowhere.
    Nowhere,
}

impl Rule {
    /// Applies the rule to `registers`.
    pub(super) fn step(
        &self,
        registers: &KnownRegisters,
        stack: &mut impl MemoryReader,
    ) -> Result<KnownRegisters, UnwindStop> {
        let cfa = match &self.cfa {
            Cfa::Register(register, offset) => {
                registers.get(*register).ok_or(UnwindStop::Unknown)?.wrapping_add_signed(*offset)
            }
            Cfa::Expression(expression) => expression.value(registers, None, stack)?,
        };
        // Stacks grow down: a caller that is not above is a loop or nonsense. Signals may change to another stack.
        if cfa <= registers.sp() && !self.is_signal_frame {
            return Err(UnwindStop::Nowhere);
        }
        let mut caller = *registers;
        if !self.is_signal_frame {
            // What no rule names and no function keeps is not the caller's.
            for register in [0, 1, 2, 4, 5, 8, 9, 10, 11] {
                caller.forget(register);
            }
        }
        caller.set(SP, cfa);
        caller.forget(IP);
        for (register, how) in &self.saved {
            let at = usize::from(*register);
            let value = match how {
                SavedRegister::Undefined if at == IP => return Err(UnwindStop::First),
                SavedRegister::Undefined => None,
                SavedRegister::At(offset) => Some(read(stack, cfa.wrapping_add_signed(*offset))?),
                SavedRegister::Value(offset) => Some(cfa.wrapping_add_signed(*offset)),
                SavedRegister::In(other) => registers.get(*other),
                SavedRegister::AtExpression(expression) => {
                    let address = expression.value(registers, Some(cfa), stack)?;
                    Some(read(stack, address)?)
                }
                SavedRegister::ValueOf(expression) => {
                    Some(expression.value(registers, Some(cfa), stack)?)
                }
                SavedRegister::Constant(value) => Some(*value),
            };
            match value {
                Some(value) => caller.set(at, value),
                None => caller.forget(at),
            }
        }
        caller.get(RETURN_ADDRESS.0).and(caller.get(7)).ok_or(UnwindStop::Nowhere)?;
        Ok(caller)
    }
}

fn read(stack: &mut impl MemoryReader, address: u64) -> Result<u64, UnwindStop> {
    stack.word(address).ok_or(UnwindStop::Missing)
}

impl Expression {
    /// Runs the program, `first` on its stack.
    fn value(
        &self,
        registers: &KnownRegisters,
        first: Option<u64>,
        stack: &mut impl MemoryReader,
    ) -> Result<u64, UnwindStop> {
        let nowhere = |_| UnwindStop::Nowhere;
        let bytes = EndianSlice::new(&self.bytes, LittleEndian);
        let mut run: Evaluation<EndianSlice<'_, LittleEndian>> =
            Evaluation::new(bytes, self.encoding);
        run.set_max_iterations(STEPS);
        if let Some(first) = first {
            run.set_initial_value(first);
        }
        let mut wants = run.evaluate().map_err(nowhere)?;
        loop {
            wants = match wants {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresMemory { address, size: 8, space: None, .. } => {
                    let word = read(stack, address)?;
                    run.resume_with_memory(Value::Generic(word)).map_err(nowhere)?
                }
                EvaluationResult::RequiresRegister { register, .. } => {
                    let value = registers.get(register.0).ok_or(UnwindStop::Unknown)?;
                    run.resume_with_register(Value::Generic(value)).map_err(nowhere)?
                }
                _ => return Err(UnwindStop::Nowhere),
            };
        }
        match run.value_result() {
            Some(Value::Generic(value)) => Ok(value),
            _ => Err(UnwindStop::Nowhere),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stack of words from address 0x1000 on.
    struct Stack(Vec<u64>);

    impl MemoryReader for Stack {
        fn word(&mut self, address: u64) -> Option<u64> {
            let at = address.checked_sub(0x1000)? / 8;
            self.0.get(usize::try_from(at).ok()?).copied()
        }
    }

    fn rule(cfa: Cfa, saved: Vec<(u16, SavedRegister)>) -> Rule {
        Rule { cfa, saved, setup: None, is_signal_frame: false }
    }

    #[test]
    fn a_call_is_undone() {
        let mut stack = Stack(vec![11, 22, 33]);
        let rule = rule(
            Cfa::Register(7, 16),
            vec![(16, SavedRegister::At(-8)), (6, SavedRegister::At(-16))],
        );
        let caller = rule.step(&KnownRegisters::new(1, 0x1000), &mut stack).unwrap();
        assert_eq!((caller.ip(), caller.sp(), caller.get(6)), (22, 0x1010, Some(11)));
    }

    #[test]
    fn a_register_that_is_not_known_is_not_taken_for_zero() {
        let mut stack = Stack(vec![0; 64]);
        let rule = rule(Cfa::Register(6, 16), vec![(16, SavedRegister::At(-8))]);
        let registers = KnownRegisters::new(1, 0x1000);
        assert_eq!(rule.step(&registers, &mut stack), Err(UnwindStop::Unknown));
        assert!(rule.step(&registers.bp(0x1010), &mut stack).is_ok());
    }

    #[test]
    fn a_frame_pointer_is_followed_only_to_a_frame_above() {
        let mut stack = Stack(vec![0, 0, 0x1040, 77, 5]);
        let registers = |bp| KnownRegisters::new(1, 0x1000).bp(bp);
        let caller = registers(0x1010).follow_frame_pointer(&mut stack).unwrap();
        assert_eq!((caller.ip(), caller.sp(), caller.get(6)), (77, 0x1020, Some(0x1040)));
        for bp in [0, 0xff8, 0x1011, 0x1000 + LARGEST_FRAME, u64::MAX] {
            let stop = registers(bp).follow_frame_pointer(&mut stack);
            assert_eq!(stop, Err(UnwindStop::Nowhere), "{bp:x}");
        }
        let unread = registers(0x1020).follow_frame_pointer(&mut stack);
        assert_eq!(unread, Err(UnwindStop::Missing));
        let unknown = KnownRegisters::new(1, 0x1000).follow_frame_pointer(&mut stack);
        assert_eq!(unknown, Err(UnwindStop::Unknown));
    }

    #[test]
    fn a_caller_that_is_not_above_ends_the_walk() {
        let mut stack = Stack(vec![7; 8]);
        for offset in [0, -16] {
            let rule = rule(Cfa::Register(7, offset), vec![(16, SavedRegister::At(0))]);
            assert_eq!(
                rule.step(&KnownRegisters::new(1, 0x1000), &mut stack),
                Err(UnwindStop::Nowhere)
            );
        }
    }

    #[test]
    fn the_first_function_of_a_thread_and_the_end_of_the_copy_are_told_apart() {
        let mut stack = Stack(vec![7]);
        let first = rule(Cfa::Register(7, 8), vec![(16, SavedRegister::Undefined)]);
        assert_eq!(first.step(&KnownRegisters::new(1, 0x1000), &mut stack), Err(UnwindStop::First));
        let deep = rule(Cfa::Register(7, 800), vec![(16, SavedRegister::At(-8))]);
        assert_eq!(
            deep.step(&KnownRegisters::new(1, 0x1000), &mut stack),
            Err(UnwindStop::Missing)
        );
    }
}
