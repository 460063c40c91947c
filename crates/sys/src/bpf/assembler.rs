//! An assembler for programs in the kernel: instructions with names, and jumps to labels.
//!
//! The kernel's verifier decides whether a program is sound; this only makes sure that it is the program that was meant.
//! See the kernel's `Documentation/bpf/standardization/instruction-set.rst` for what each instruction does.

use std::fmt;

use super::{Instruction, SharedMap};

/// A register. `R0` holds results, `R1` to `R5` arguments (a call spoils them), `R6` to `R9` are kept, `R10` is the frame.
#[expect(missing_docs, reason = "they are numbers")]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Register {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    R10,
}

/// How many bytes are moved.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Size {
    /// One.
    Byte,
    /// Two.
    Half,
    /// Four.
    Word,
    /// Eight.
    Long,
}

/// A calculation on all 64 bits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Operation {
    /// Add.
    Add,
    /// Subtract.
    Subtract,
    /// Or, bit by bit.
    Or,
    /// And, bit by bit.
    And,
    /// Shift to the left.
    Left,
    /// Shift to the right, zeros from the left.
    Right,
    /// Shift to the right, the sign from the left.
    SignedRight,
}

/// When a jump is taken; without "signed" numbers are unsigned.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum JumpCondition {
    /// Equal.
    Equal,
    /// Not equal.
    Differ,
    /// At least.
    AtLeast,
    /// More.
    Above,
    /// Less.
    Below,
    /// At most.
    AtMost,
    /// Less, signed.
    SignedBelow,
    /// At most, signed.
    SignedAtMost,
    /// Any of these bits is set.
    AnyBit,
}

/// A constant or a register.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Operand {
    /// A constant, widened with its sign.
    Constant(i32),
    /// A register.
    In(Register),
}

impl From<i32> for Operand {
    fn from(constant: i32) -> Operand {
        Operand::Constant(constant)
    }
}

impl From<Register> for Operand {
    fn from(register: Register) -> Operand {
        Operand::In(register)
    }
}

/// A function of the kernel, by its number in `linux/bpf.h`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Helper {
    /// `bpf_map_lookup_elem(map, key)`.
    MapLookup = 1,
    /// `bpf_map_update_elem(map, key, value, flags)`.
    MapUpdate = 2,
    /// `bpf_map_delete_elem(map, key)`.
    MapDelete = 3,
    /// `bpf_ktime_get_ns()`: `CLOCK_MONOTONIC`.
    Clock = 5,
    /// `bpf_get_prandom_u32()`.
    Random = 7,
    /// `bpf_get_current_pid_tgid()`: process in the upper half, thread in the lower.
    CurrentNumbers = 14,
    /// `bpf_get_current_uid_gid()`: the group in the upper half, the user in the lower.
    CurrentUser = 15,
    /// `bpf_probe_read_user(to, size, from)`.
    ReadUser = 112,
    /// `bpf_probe_read_kernel(to, size, from)`.
    ReadKernel = 113,
    /// `bpf_probe_read_user_str(to, size, from)`: the length with the final zero.
    ReadUserText = 114,
    /// `bpf_probe_read_kernel_str(to, size, from)`.
    ReadKernelText = 115,
    /// `bpf_ringbuf_output(ring, data, size, flags)`.
    RingOutput = 130,
    /// `bpf_ringbuf_query(ring, what)`.
    RingQuery = 134,
    /// `bpf_get_task_stack(task, to, size, flags)`: bytes of return addresses, the innermost first.
    TaskStack = 141,
    /// `bpf_task_storage_get(map, task, value, flags)`.
    TaskStorage = 156,
    /// `bpf_task_storage_delete(map, task)`.
    TaskStorageDelete = 157,
    /// `bpf_get_current_task_btf()`.
    CurrentTask = 158,
    /// `bpf_snprintf(to, size, format, words, bytes of words)`.
    Print = 165,
    /// `bpf_timer_init(timer, map, clock)`: once for each value.
    TimerInit = 169,
    /// `bpf_timer_set_callback(timer, function)`: the function is called with the map, the key and the value.
    TimerSetCallback = 170,
    /// `bpf_timer_start(timer, nanoseconds, flags)`.
    TimerStart = 171,
    /// `bpf_task_pt_regs(task)`: the registers with which it entered the kernel.
    TaskRegisters = 175,
}

/// A place that can be jumped to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Label(usize);

/// Why there is no program.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum AssembleError {
    /// A jump goes to a label that is at no place.
    Unplaced(usize),
    /// A jump goes further than an instruction can say.
    TooFar(usize),
    /// A label was placed twice.
    PlacedTwice(usize),
    /// The last instruction goes on to where nothing is.
    NoEnd,
}

impl fmt::Display for AssembleError {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AssembleError::Unplaced(at) => {
                write!(text, "cannot assemble: instruction {at} jumps to a label without a place")
            }
            AssembleError::TooFar(at) => {
                write!(text, "cannot assemble: instruction {at} jumps too far")
            }
            AssembleError::PlacedTwice(at) => {
                write!(text, "cannot assemble: a label is at instruction {at} and again later")
            }
            AssembleError::NoEnd => {
                text.write_str("cannot assemble: the program has no last instruction")
            }
        }
    }
}

impl std::error::Error for AssembleError {}

const CLASS_LOAD: u8 = 0x61;
const CLASS_STORE_CONSTANT: u8 = 0x62;
const CLASS_STORE: u8 = 0x63;
const CLASS_ATOMIC: u8 = 0xc3;
const CLASS_64_BITS: u8 = 0x07;
const CLASS_32_BITS: u8 = 0x04;
const CLASS_JUMP: u8 = 0x05;
const FROM_REGISTER: u8 = 0x08;
const MOVE: u8 = 0xb0;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
const ALWAYS: u8 = 0x05;

impl Size {
    fn bits(self) -> u8 {
        match self {
            Size::Word => 0x00,
            Size::Half => 0x08,
            Size::Byte => 0x10,
            Size::Long => 0x18,
        }
    }
}

impl Operation {
    fn bits(self) -> u8 {
        match self {
            Operation::Add => 0x00,
            Operation::Subtract => 0x10,
            Operation::Or => 0x40,
            Operation::And => 0x50,
            Operation::Left => 0x60,
            Operation::Right => 0x70,
            Operation::SignedRight => 0xc0,
        }
    }
}

impl JumpCondition {
    fn bits(self) -> u8 {
        match self {
            JumpCondition::Equal => 0x10,
            JumpCondition::Above => 0x20,
            JumpCondition::AtLeast => 0x30,
            JumpCondition::AnyBit => 0x40,
            JumpCondition::Differ => 0x50,
            JumpCondition::Below => 0xa0,
            JumpCondition::AtMost => 0xb0,
            JumpCondition::SignedBelow => 0xc0,
            JumpCondition::SignedAtMost => 0xd0,
        }
    }
}

/// A program that is being written, from top to bottom.
#[derive(Debug, Default)]
pub struct Assembler {
    instructions: Vec<Instruction>,
    /// Where each label is.
    labels: Vec<Option<usize>>,
    /// Which instructions jump to which labels.
    jumps: Vec<(usize, Label)>,
    /// Which instructions have the address of the function at which label.
    functions: Vec<(usize, Label)>,
    twice: Option<usize>,
}

impl Assembler {
    fn push(
        &mut self,
        code: u8,
        to: Register,
        from: Register,
        offset: i16,
        constant: i32,
    ) -> &mut Self {
        let (to, from) = (to as u8, from as u8);
        self.instructions.push(Instruction { code, to, from, offset, constant });
        self
    }

    fn push_operand(&mut self, code: u8, to: Register, operand: Operand, offset: i16) {
        match operand {
            Operand::Constant(constant) => self.push(code, to, Register::R0, offset, constant),
            Operand::In(from) => self.push(code | FROM_REGISTER, to, from, offset, 0),
        };
    }

    /// Makes a label, to be placed later.
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Places a label here.
    pub fn place(&mut self, label: Label) -> &mut Self {
        match self.labels[label.0] {
            Some(at) => self.twice = Some(at),
            None => self.labels[label.0] = Some(self.instructions.len()),
        }
        self
    }

    /// `to = operand`, all 64 bits.
    pub fn set(&mut self, to: Register, operand: impl Into<Operand>) -> &mut Self {
        self.push_operand(MOVE | CLASS_64_BITS, to, operand.into(), 0);
        self
    }

    /// `to = (the lower 32 bits of from)`, zeros above.
    pub fn set_low(&mut self, to: Register, from: Register) -> &mut Self {
        self.push_operand(MOVE | CLASS_32_BITS, to, from.into(), 0);
        self
    }

    /// `to = constant`, of 64 bits.
    pub fn set_long(&mut self, to: Register, constant: u64) -> &mut Self {
        let half = |bits: u64| (bits & 0xffff_ffff) as u32;
        let (low, high) = (half(constant).cast_signed(), half(constant >> 32).cast_signed());
        self.instructions.extend(Instruction::wide(to as u8, 0, low, high));
        self
    }

    /// `to = the address of map`.
    pub fn set_map(&mut self, to: Register, map: SharedMap) -> &mut Self {
        self.instructions.extend(Instruction::address_of_map(to as u8, map));
        self
    }

    /// `to = the address of the first value of an array`.
    pub fn set_array(&mut self, to: Register, map: SharedMap) -> &mut Self {
        self.instructions.extend(Instruction::address_in_array(to as u8, map, 0));
        self
    }

    /// `to = the address of the function that begins at label`, for the kernel to call.
    ///
    /// The function is behind the program's end, has a frame of its own, and ends with [`leave`](Assembler::leave).
    pub fn set_function(&mut self, to: Register, function: Label) -> &mut Self {
        self.functions.push((self.instructions.len(), function));
        self.instructions.extend(Instruction::address_of_function(to as u8));
        self
    }

    /// `to = to <operation> operand`.
    pub fn calculate(
        &mut self,
        operation: Operation,
        to: Register,
        operand: impl Into<Operand>,
    ) -> &mut Self {
        self.push_operand(operation.bits() | CLASS_64_BITS, to, operand.into(), 0);
        self
    }

    /// `to += operand`.
    pub fn add(&mut self, to: Register, operand: impl Into<Operand>) -> &mut Self {
        self.calculate(Operation::Add, to, operand)
    }

    /// `to = *(from + offset)`, zeros above.
    pub fn load(&mut self, size: Size, to: Register, from: Register, offset: i16) -> &mut Self {
        self.push(CLASS_LOAD | size.bits(), to, from, offset, 0)
    }

    /// `*(to + offset) = operand`.
    pub fn store(
        &mut self,
        size: Size,
        to: Register,
        offset: i16,
        operand: impl Into<Operand>,
    ) -> &mut Self {
        match operand.into() {
            Operand::Constant(constant) => {
                let code = CLASS_STORE_CONSTANT | size.bits();
                self.push(code, to, Register::R0, offset, constant)
            }
            Operand::In(from) => self.push(CLASS_STORE | size.bits(), to, from, offset, 0),
        }
    }

    /// `*(to + offset) += from`, 64 bits, so that no other CPU's addition is lost.
    pub fn add_shared(&mut self, to: Register, offset: i16, from: Register) -> &mut Self {
        self.push(CLASS_ATOMIC | Size::Long.bits(), to, from, offset, 0)
    }

    /// Jumps to `label`.
    pub fn jump(&mut self, label: Label) -> &mut Self {
        self.jumps.push((self.instructions.len(), label));
        self.push(ALWAYS, Register::R0, Register::R0, 0, 0)
    }

    /// Jumps to `label` when `left <when> right`.
    pub fn jump_if(
        &mut self,
        left: Register,
        when: JumpCondition,
        right: impl Into<Operand>,
        label: Label,
    ) -> &mut Self {
        self.jumps.push((self.instructions.len(), label));
        self.push_operand(when.bits() | CLASS_JUMP, left, right.into(), 0);
        self
    }

    /// Calls a function of the kernel.
    pub fn call(&mut self, helper: Helper) -> &mut Self {
        self.push(CALL, Register::R0, Register::R0, 0, helper as i32)
    }

    /// Ends the program with the result 0.
    pub fn leave(&mut self) -> &mut Self {
        self.leave_with(0)
    }

    /// Ends the program with a result.
    pub fn leave_with(&mut self, result: i32) -> &mut Self {
        self.set(Register::R0, result).push(EXIT, Register::R0, Register::R0, 0, 0)
    }

    /// Returns the instructions with all jumps filled in.
    ///
    /// # Errors
    ///
    /// [`AssembleError`]: there is no program.
    pub fn finish(mut self) -> Result<Vec<Instruction>, AssembleError> {
        if let Some(at) = self.twice {
            return Err(AssembleError::PlacedTwice(at));
        }
        for (at, label) in &self.jumps {
            let target = self.labels[label.0].ok_or(AssembleError::Unplaced(*at))?;
            let distance = i64::try_from(target).ok().zip(i64::try_from(*at).ok());
            let distance = distance.map(|(target, at)| target - at - 1);
            let distance = distance.and_then(|distance| i16::try_from(distance).ok());
            self.instructions[*at].offset = distance.ok_or(AssembleError::TooFar(*at))?;
        }
        for (at, label) in &self.functions {
            let target = self.labels[label.0].ok_or(AssembleError::Unplaced(*at))?;
            let distance = i32::try_from(target).ok().zip(i32::try_from(*at).ok());
            let distance = distance.map(|(target, at)| target - at - 1);
            self.instructions[*at].constant = distance.ok_or(AssembleError::TooFar(*at))?;
        }
        match self.instructions.last() {
            Some(last) if matches!(last.code, EXIT | ALWAYS) => Ok(self.instructions),
            _ => Err(AssembleError::NoEnd),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Register::{R0, R1, R6, R10};
    use super::*;

    fn text(instructions: &[Instruction]) -> Vec<String> {
        instructions
            .iter()
            .map(|i| format!("{:02x} r{} r{} {} {}", i.code, i.to, i.from, i.offset, i.constant))
            .collect()
    }

    #[test]
    fn instructions_have_the_kernels_numbers() {
        let mut program = Assembler::default();
        program.set(R6, R1).set(R1, -1).set_low(R0, R6).set_long(R0, 0x1_0000_0002);
        program.load(Size::Long, R0, R6, 8).load(Size::Byte, R0, R6, -1);
        program.store(Size::Word, R10, -8, 7).store(Size::Half, R10, -8, R0);
        program.add_shared(R10, -8, R0).add(R0, 4).calculate(Operation::SignedRight, R0, 3);
        program.call(Helper::Clock).leave();
        let wanted = [
            "bf r6 r1 0 0",
            "b7 r1 r0 0 -1",
            "bc r0 r6 0 0",
            "18 r0 r0 0 2",
            "00 r0 r0 0 1",
            "79 r0 r6 8 0",
            "71 r0 r6 -1 0",
            "62 r10 r0 -8 7",
            "6b r10 r0 -8 0",
            "db r10 r0 -8 0",
            "07 r0 r0 0 4",
            "c7 r0 r0 0 3",
            "85 r0 r0 0 5",
            "b7 r0 r0 0 0",
            "95 r0 r0 0 0",
        ];
        assert_eq!(text(&program.finish().unwrap()), wanted);
    }

    #[test]
    fn jumps_count_from_the_next_instruction_and_wide_constants_twice() {
        let mut program = Assembler::default();
        let (start, end) = (program.label(), program.label());
        program.place(start).jump_if(R0, JumpCondition::Equal, 0, end).set_long(R0, 1);
        program.jump_if(R0, JumpCondition::Below, R1, start).place(end).leave();
        let program = program.finish().unwrap();
        assert_eq!((program[0].code, program[0].offset), (0x15, 3));
        assert_eq!((program[3].code, program[3].offset), (0xad, -4));
    }

    #[test]
    fn the_address_of_a_function_counts_from_the_next_instruction() {
        let mut program = Assembler::default();
        let function = program.label();
        program.set(R6, R1).set_function(R0, function).leave().place(function).leave();
        let program = program.finish().unwrap();
        assert_eq!(text(&program)[1], "18 r0 r4 0 3");
        assert_eq!(Instruction::functions(&program), [0, 5]);
        let mut unplaced = Assembler::default();
        let nowhere = unplaced.label();
        unplaced.set_function(R0, nowhere).leave();
        assert_eq!(unplaced.finish(), Err(AssembleError::Unplaced(0)));
    }

    #[test]
    fn a_wrong_jump_is_no_program() {
        let mut unplaced = Assembler::default();
        let nowhere = unplaced.label();
        unplaced.jump(nowhere);
        assert_eq!(unplaced.finish(), Err(AssembleError::Unplaced(0)));

        let mut twice = Assembler::default();
        let label = twice.label();
        twice.place(label).set(R0, 1).place(label).leave();
        assert_eq!(twice.finish(), Err(AssembleError::PlacedTwice(0)));

        let mut far = Assembler::default();
        let end = far.label();
        far.jump(end);
        for _ in 0..40_000 {
            far.set(R0, 1);
        }
        far.place(end).leave();
        assert_eq!(far.finish(), Err(AssembleError::TooFar(0)));

        let mut endless = Assembler::default();
        endless.set(R0, 0);
        assert_eq!(endless.finish(), Err(AssembleError::NoEnd));
    }
}
