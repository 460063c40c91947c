//! Follows the longest wait of a hang to the program that ended it, and that one's waits in turn.

use std::collections::BTreeSet;

use trace::syscall::call_name;
use wakeups::{ChainEnd, ChainHop, KernelFunctions, KnownPrograms, WakeupHistory};

use super::super::{process, program_name};
use crate::kernel::{ThreadBlock, WakeupStream};
use crate::model::{HangChain, HangHop};

/// What a hop is called whose thread is another user's.
const OF_ANOTHER: &str = "another user's program";
/// How often waits are taken from the service, in nanoseconds.
const TAKE_NS: u64 = 100_000_000;
/// The service records for so long at least, in nanoseconds: it begins a few times a second at most.
const ACTIVE_NS: u64 = 1_000_000_000;
/// The most waits of the machine that are kept, some 2 MB.
const HISTORY: usize = 4096;

/// Follows waits by the wake-ups of the machine.
#[derive(Debug)]
pub(super) struct ChainFollower {
    stream: WakeupStream,
    history: WakeupHistory,
    taken_ns: u64,
    resumed_ns: u64,
    lost: u64,
    is_active: bool,
    programs: KnownPrograms,
}

impl ChainFollower {
    pub(super) fn new(mut stream: WakeupStream) -> ChainFollower {
        stream.pause();
        ChainFollower {
            stream,
            history: WakeupHistory::new(HISTORY),
            taken_ns: 0,
            resumed_ns: 0,
            lost: 0,
            is_active: false,
            programs: KnownPrograms::default(),
        }
    }

    /// Takes what was recorded since the last time, unless nothing is or it is too early to ask the service again.
    pub(super) fn take(&mut self) {
        let now_ns = sys::bpf::clock_ns();
        let is_early = !self.is_active || now_ns.saturating_sub(self.taken_ns) < TAKE_NS;
        if !self.stream.is_served() || !is_early {
            self.take_now();
        }
    }

    fn take_now(&mut self) {
        self.taken_ns = sys::bpf::clock_ns();
        self.stream.take(&mut self.history);
    }

    /// Records wake-ups only while a thread is away: they cost each switch of the machine.
    pub(super) fn set_active(&mut self, is_active: bool) {
        let now_ns = sys::bpf::clock_ns();
        let is_new = now_ns.saturating_sub(self.resumed_ns) < ACTIVE_NS;
        if is_active == self.is_active || !is_active && is_new && self.stream.is_served() {
            return;
        }
        match is_active {
            // Without it waits are not followed this time.
            true => {
                self.is_active = self.stream.resume().is_ok();
                self.resumed_ns = now_ns;
            }
            false => {
                self.take_now();
                self.stream.pause();
                self.is_active = false;
            }
        }
    }

    /// Returns whom a wait was for, if another thread ended it, or that its time was over.
    pub(super) fn follow(&mut self, thread: u32, block: &ThreadBlock) -> Option<HangChain> {
        self.take_now();
        let lost = self.stream.lost().unwrap_or(self.lost);
        self.history.count_lost(lost.saturating_sub(self.lost));
        self.lost = lost;
        let who = self.history.identity(thread, block.to_ns)?;
        let chain = self.history.walk(who, block.from_ns, block.to_ns);
        if chain.hops.len() < 2 && chain.end != ChainEnd::Timer {
            return None;
        }
        let addresses: BTreeSet<u64> =
            chain.hops.iter().flat_map(|hop| hop.functions.iter().copied()).collect();
        let functions = KernelFunctions::read(&addresses);
        let hops = chain.hops.iter().map(|hop| self.hop(hop, &functions)).collect();
        Some(HangChain {
            hops,
            end: chain.end.word().to_owned(),
            end_ns: chain.end_ns,
            has_losses: chain.has_losses,
        })
    }

    fn hop(&mut self, hop: &ChainHop, functions: &KernelFunctions) -> HangHop {
        if hop.process == 0 {
            return HangHop {
                program: if hop.name[0] == 0 { OF_ANOTHER } else { "the kernel" }.to_owned(),
                process: 0,
                unit: String::new(),
                call: String::new(),
                function: String::new(),
                waited_ns: hop.asked_ns,
            };
        }
        let facts = self.programs.of_hop(hop);
        let name = hop.name.split(|byte| *byte == 0).next().unwrap_or_default();
        // The name of a script is read only while the process is known to be the same; arguments never are.
        let program = match facts.executable.is_empty() {
            true => String::from_utf8_lossy(name).into_owned(),
            false => program_name::program_name(hop.process),
        };
        let unit = match facts.executable.is_empty() {
            true => String::new(),
            false => process::unit_name(hop.process),
        };
        HangHop {
            program,
            process: hop.process,
            unit,
            call: hop.call.and_then(call_name).unwrap_or_default().to_owned(),
            function: functions.waited_in(&hop.functions).unwrap_or_default().to_owned(),
            waited_ns: if hop.waited_ns > 0 { hop.waited_ns } else { hop.asked_ns },
        }
    }
}
