//! Where a function that keeps a frame pointer has its frame, if nobody has told the pointer.
//!
//! `/proc/PID/syscall` tells the instruction and the stack pointer of a blocked thread alone, and whole distributions are built
//! with frame pointers: there the tables find a caller by `rbp`. How far the stack pointer is below it follows from the function's
//! own instructions: each way from where it sets the frame pointer to where it waits or calls is followed, and what it pushes, pops,
//! adds and subtracts is summed up. Where ways differ, or the stack pointer becomes something that the code does not say (`alloca`,
//! frames that are aligned), the distance is not known.

use std::collections::HashMap;

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, OpAccess,
    OpKind, Register,
};

use super::rule::FramePointerSetup;

/// The longest function whose instructions are followed, in bytes from where it sets the frame pointer.
const LONGEST: u64 = 32 << 10;

/// The largest frame.
const LARGEST: i64 = 1 << 20;

impl FramePointerSetup {
    /// Returns how many bytes of code [`distance`] needs; none of a function that is too long.
    pub(super) fn code_len(&self) -> usize {
        let len = self.end.saturating_sub(self.set_at);
        usize::try_from(len).ok().filter(|_| len <= LONGEST).unwrap_or(0)
    }
}

/// How far the stack pointer is below the frame pointer, in bytes; `None` where the code does not say.
type Depth = Option<i64>;

/// Where a way through a function has come to.
#[derive(Clone, Copy, Debug)]
struct Way {
    address: u64,
    depth: Depth,
    /// What the depth is when a loop has made the stack larger page by page, which goes on until the stack pointer is `r11`.
    goal: Depth,
    /// Whether the last instruction compared the two.
    is_compared: bool,
}

/// Returns how far the stack pointer is below the frame pointer at `setup.at`; `code` is that from `setup.set_at` to the function's end.
pub(super) fn distance(setup: &FramePointerSetup, code: &[u8]) -> Option<u64> {
    let mut flow = Flow {
        setup,
        decoder: Decoder::with_ip(64, code, setup.set_at, DecoderOptions::NONE),
        facts: InstructionInfoFactory::new(),
        depths: HashMap::new(),
        at_jumps: None,
        wanted: None,
    };
    flow.follow(Way { address: setup.set_at, depth: Some(0), goal: None, is_compared: false })?;
    if flow.wanted.is_none() {
        flow.follow_rest()?;
    }
    let depth = flow.wanted.flatten().filter(|depth| (0..=LARGEST).contains(depth))?;
    u64::try_from(depth).ok()
}

/// The depths in a function.
struct Flow<'code> {
    setup: &'code FramePointerSetup,
    decoder: Decoder<'code>,
    facts: InstructionInfoFactory,
    /// By the address of each instruction that was come to, before it.
    depths: HashMap<u64, Depth>,
    /// The depth at all jumps, if there are any: `None` within if they differ.
    at_jumps: Option<Depth>,
    /// The depth where it is asked for, if a way led there.
    wanted: Option<Depth>,
}

impl Flow<'_> {
    /// Follows all ways from one on. `None` if there is something that is no instruction.
    fn follow(&mut self, from: Way) -> Option<()> {
        let mut ways = vec![from];
        while let Some(mut way) = ways.pop() {
            if !(self.setup.set_at..self.setup.end).contains(&way.address) {
                continue;
            }
            match self.depths.get(&way.address) {
                Some(known) if *known == way.depth || known.is_none() => continue,
                // Two ways with two depths.
                Some(_) => way.depth = None,
                None => {}
            }
            self.depths.insert(way.address, way.depth);
            let instruction = self.decode(way.address)?;
            if (instruction.ip()..instruction.next_ip()).contains(&self.setup.at) {
                let same = self.wanted.is_none_or(|wanted| wanted == way.depth);
                self.wanted = Some(way.depth.filter(|_| same));
            }
            self.go_on(&instruction, way, &mut ways);
        }
        Some(())
    }

    /// Follows what no way led to: cases of a table of jumps, and what goes on after an exception. If the depth is the same at each jump
    /// that is known, it is the same there.
    fn follow_rest(&mut self) -> Option<()> {
        let depth = self.at_jumps.flatten()?;
        let mut address = self.setup.set_at;
        while address < self.setup.end && self.wanted.is_none() {
            let instruction = self.decode(address)?;
            if !self.depths.contains_key(&address) {
                self.follow(Way { address, depth: Some(depth), goal: None, is_compared: false })?;
            }
            address = instruction.next_ip();
        }
        self.at_jumps.flatten().filter(|same| *same == depth).map(|_| ())
    }

    fn decode(&mut self, address: u64) -> Option<Instruction> {
        let position = usize::try_from(address.checked_sub(self.setup.set_at)?).ok()?;
        self.decoder.set_position(position).ok()?;
        self.decoder.set_ip(address);
        let instruction = self.decoder.decode();
        (!instruction.is_invalid()).then_some(instruction)
    }

    /// Adds the ways that lead on from an instruction.
    fn go_on(&mut self, instruction: &Instruction, way: Way, ways: &mut Vec<Way>) {
        let Way { depth, goal, is_compared, .. } = way;
        let next = Way {
            address: instruction.next_ip(),
            depth: self.depth_after(instruction, depth),
            goal: goal_after(instruction, depth, goal),
            is_compared: is_comparison(instruction),
        };
        let target = Way { address: instruction.near_branch_target(), ..next };
        match instruction.flow_control() {
            // The frame is gone behind these.
            _ if instruction.code() == Code::Leaveq || is_pop_of_frame_pointer(instruction) => {}
            FlowControl::Return | FlowControl::Exception => {}
            FlowControl::ConditionalBranch if is_compared && target.address < way.address => {
                // Around the loop the depth differs each time.
                ways.push(Way { depth: goal, goal: None, ..next });
            }
            FlowControl::IndirectBranch => self.jump(depth),
            FlowControl::UnconditionalBranch => {
                // Others lead to functions of their own.
                if (self.setup.set_at..self.setup.end).contains(&target.address) {
                    self.jump(depth);
                }
                ways.push(target);
            }
            FlowControl::ConditionalBranch => {
                self.jump(depth);
                ways.extend([target, next]);
            }
            FlowControl::XbeginXabortXend => ways.extend([target, next]),
            FlowControl::Next
            | FlowControl::Call
            | FlowControl::IndirectCall
            | FlowControl::Interrupt => ways.push(next),
        }
    }

    fn jump(&mut self, depth: Depth) {
        let same = self.at_jumps.is_none_or(|known| known == depth);
        self.at_jumps = Some(depth.filter(|_| same));
    }

    fn depth_after(&mut self, instruction: &Instruction, depth: Depth) -> Depth {
        // The function that is called takes its return address with it.
        if matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall) {
            return depth;
        }
        let is_written = |access| {
            matches!(
                access,
                OpAccess::Write
                    | OpAccess::CondWrite
                    | OpAccess::ReadWrite
                    | OpAccess::ReadCondWrite
            )
        };
        let used = self.facts.info(instruction).used_registers();
        let writes = used.iter().any(|used| {
            used.register().full_register() == Register::RSP && is_written(used.access())
        });
        if !writes {
            return depth;
        }
        let (base, displacement) = (instruction.memory_base(), instruction.memory_displacement64());
        match instruction.code() {
            Code::Sub_rm64_imm8 | Code::Sub_rm64_imm32 => {
                depth?.checked_add(signed(instruction.immediate(1)))
            }
            Code::Add_rm64_imm8 | Code::Add_rm64_imm32 => {
                depth?.checked_sub(signed(instruction.immediate(1)))
            }
            Code::Lea_r64_m if instruction.memory_index() != Register::None => None,
            Code::Lea_r64_m if base == Register::RSP => depth?.checked_sub(signed(displacement)),
            Code::Lea_r64_m if base == Register::RBP => signed(displacement).checked_neg(),
            Code::Mov_rm64_r64 | Code::Mov_r64_rm64
                if instruction.op1_register() == Register::RBP =>
            {
                Some(0)
            }
            _ if instruction.is_stack_instruction()
                && instruction.op0_register() != Register::RSP
                || instruction.code() == Code::Push_r64 =>
            {
                // An increment of 0 is that of an instruction whose effect is not a number.
                let increment = i64::from(instruction.stack_pointer_increment());
                (increment != 0).then_some(depth?.checked_sub(increment)?)
            }
            _ => None,
        }
    }
}

/// Returns the depth at which a loop that makes the stack larger ends: `r11` is the stack pointer less a number.
fn goal_after(instruction: &Instruction, depth: Depth, goal: Depth) -> Depth {
    if instruction.op0_register() != Register::R11 {
        return goal;
    }
    let is_of_stack =
        instruction.memory_base() == Register::RSP && instruction.memory_index() == Register::None;
    match instruction.code() {
        Code::Lea_r64_m if is_of_stack => {
            depth?.checked_sub(signed(instruction.memory_displacement64()))
        }
        Code::Mov_rm64_r64 | Code::Mov_r64_rm64 if instruction.op1_register() == Register::RSP => {
            depth
        }
        Code::Sub_rm64_imm8 | Code::Sub_rm64_imm32 => {
            goal?.checked_add(signed(instruction.immediate(1)))
        }
        Code::Cmp_rm64_r64 | Code::Cmp_r64_rm64 => goal,
        _ => None,
    }
}

/// Returns whether an instruction compares the stack pointer with `r11`.
fn is_comparison(instruction: &Instruction) -> bool {
    let registers = [instruction.op0_register(), instruction.op1_register()];
    matches!(instruction.code(), Code::Cmp_rm64_r64 | Code::Cmp_r64_rm64)
        && instruction.op0_kind() == OpKind::Register
        && instruction.op1_kind() == OpKind::Register
        && registers.contains(&Register::RSP)
        && registers.contains(&Register::R11)
}

fn is_pop_of_frame_pointer(instruction: &Instruction) -> bool {
    instruction.code() == Code::Pop_r64 && instruction.op0_register() == Register::RBP
}

fn signed(value: u64) -> i64 {
    value.cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 0x1000;

    /// The distance at the first call to the next instruction in code that begins where the frame pointer is set.
    fn at_call(parts: &[&[u8]]) -> Option<u64> {
        let code = parts.concat();
        let at = code.windows(CALL.len()).position(|bytes| bytes == CALL).unwrap() as u64;
        let end = START + code.len() as u64;
        // The return address less one, as callers are looked up.
        distance(&FramePointerSetup { set_at: START, end, at: START + at + 4 }, &code)
    }

    const CALL: &[u8] = &[0xe8, 0, 0, 0, 0];
    const PUSH: &[u8] = &[0x50];
    const KEEP: &[u8] = &[0x41, 0x57, 0x53];
    const SUB_24: &[u8] = &[0x48, 0x83, 0xec, 0x18];
    const ADD_16: &[u8] = &[0x48, 0x83, 0xc4, 0x10];
    const RETURN: &[u8] = &[0xc9, 0xc3];
    /// As of `alloca`: sub %rax, %rsp.
    const ROOM: &[u8] = &[0x48, 0x29, 0xc4];

    #[test]
    fn what_is_pushed_and_taken_is_summed_up() {
        assert_eq!(at_call(&[CALL]), Some(0));
        assert_eq!(at_call(&[KEEP, SUB_24, CALL, RETURN]), Some(40));
        assert_eq!(at_call(&[&[0x48, 0x83, 0xc4, 0x80], CALL]), Some(128));
        assert_eq!(at_call(&[&[0x48, 0x81, 0xec, 0, 0x10, 0, 0], CALL]), Some(0x1000));
        assert_eq!(at_call(&[SUB_24, PUSH, &[0x6a, 7], CALL, ADD_16]), Some(40));
        assert_eq!(at_call(&[SUB_24, PUSH, PUSH, ADD_16, CALL]), Some(24));
        // Pushed from memory, and popped.
        assert_eq!(at_call(&[&[0xff, 0x75, 0x10], CALL]), Some(8));
        assert_eq!(at_call(&[PUSH, PUSH, &[0x5b], CALL]), Some(8));
    }

    #[test]
    fn room_that_the_code_does_not_say_is_not_known() {
        assert_eq!(at_call(&[SUB_24, ROOM, CALL]), None);
        // and $-64, %rsp; mov %r14, %rsp; xchg %rax, %rsp; pop %rsp; lea (%rsp,%rax), %rsp
        for bytes in [
            &[0x48, 0x83, 0xe4, 0xc0][..],
            &[0x4c, 0x89, 0xf4],
            &[0x48, 0x94],
            &[0x5c],
            &[0x48, 0x8d, 0x24, 0x04],
        ] {
            assert_eq!(at_call(&[SUB_24, bytes, CALL]), None, "{bytes:x?}");
        }
        // On one of two ways.
        assert_eq!(at_call(&[SUB_24, &[0x74, 3], ROOM, CALL]), None);
        assert_eq!(at_call(&[SUB_24, &[0x74, 1], PUSH, CALL]), None);
        // lea -24(%rbp), %rsp
        assert_eq!(at_call(&[ROOM, &[0x48, 0x8d, 0x65, 0xe8], CALL]), Some(24));
    }

    #[test]
    fn a_loop_over_pages_ends_where_its_register_says() {
        let rest: &[u8] = &[
            0x48, 0x81, 0xec, 0, 0x10, 0, 0, 0x48, 0x83, 0x0c, 0x24, 0, 0x4c, 0x39, 0xdc, 0x75,
            0xef,
        ];
        // lea -0x10000(%rsp), %r11
        let gcc: &[u8] = &[0x4c, 0x8d, 0x9c, 0x24, 0, 0, 0xff, 0xff];
        assert_eq!(at_call(&[gcc, rest, SUB_24, CALL]), Some(0x10018));
        // mov %rsp, %r11; sub $0x9000, %r11
        let clang: &[u8] = &[0x49, 0x89, 0xe3, 0x49, 0x81, 0xeb, 0, 0x90, 0, 0];
        assert_eq!(at_call(&[KEEP, clang, rest, SUB_24, CALL]), Some(0x9028));
        // Another loop is not known to end.
        assert_eq!(at_call(&[SUB_24, PUSH, &[0x75, 0xfd], CALL]), None);
    }

    #[test]
    fn what_only_a_table_leads_to_has_the_depth_of_all_jumps() {
        let table: &[u8] = &[0xff, 0xe0];
        assert_eq!(at_call(&[SUB_24, table, CALL, RETURN]), Some(24));
        assert_eq!(at_call(&[SUB_24, &[0x74, 0], PUSH, table, CALL, RETURN]), None);
        // Nothing leads there at all.
        assert_eq!(at_call(&[SUB_24, RETURN, CALL]), None);
        // A jump over the end leads there.
        assert_eq!(at_call(&[SUB_24, &[0x74, 2], RETURN, CALL]), Some(24));
        // A tail call, behind which the frame is gone.
        assert_eq!(at_call(&[SUB_24, &[0x74, 3], &[0xc9, 0xff, 0xe0], CALL]), Some(24));
    }

    #[test]
    fn no_code_is_too_wild() {
        assert_eq!(at_call(&[SUB_24, &[0x06], CALL]), None);
        let setup = |set_at, end, at| FramePointerSetup { set_at, end, at };
        for setup in [
            setup(START, START, START),
            setup(START, START + 100, START + 90),
            setup(u64::MAX - 8, u64::MAX, u64::MAX),
            setup(START, 0, 0),
        ] {
            assert_eq!(distance(&setup, &[0x90; 16]), None, "{setup:x?}");
            assert_eq!(distance(&setup, &[]), None, "{setup:x?}");
        }
        // sub $0x7fffffff, %rsp as often as there is room.
        let large = [0x48, 0x81, 0xec, 0xff, 0xff, 0xff, 0x7f].repeat(500);
        assert_eq!(at_call(&[&large, CALL]), None);
        assert_eq!(at_call(&[&[0x48, 0x83, 0xec, 0x84], CALL]), None, "the frame would be below");
    }
}
