//! Follows the longest wait of a hang to the program that ended it, and that one's waits in turn.

use std::collections::BTreeSet;

use trace::syscall::call_name;
use wakeups::kernel::WakeupTracer;
use wakeups::{ChainHop, KernelFunctions, KnownPrograms, WakeupHistory};

use super::super::{interactive, program_name};
use crate::kernel::ThreadBlock;
use crate::model::{HangChain, HangHop};

/// The most waits of the machine that are kept, some 2 MB.
const HISTORY: usize = 4096;

/// Follows waits by the wake-ups of the machine.
#[derive(Debug)]
pub(super) struct ChainFollower {
    tracer: WakeupTracer,
    history: WakeupHistory,
    lost: u64,
    is_active: bool,
    programs: KnownPrograms,
}

impl ChainFollower {
    pub(super) fn new(mut tracer: WakeupTracer) -> ChainFollower {
        tracer.pause();
        ChainFollower {
            tracer,
            history: WakeupHistory::new(HISTORY),
            lost: 0,
            is_active: false,
            programs: KnownPrograms::default(),
        }
    }

    /// Takes what was recorded since the last time.
    pub(super) fn take(&mut self) {
        self.tracer.take(&mut self.history);
    }

    /// Records wake-ups only while a thread is away: they cost each switch of the machine.
    pub(super) fn set_active(&mut self, is_active: bool) {
        if is_active == self.is_active {
            return;
        }
        self.take();
        match is_active {
            // Without it waits are not followed this time.
            true => self.is_active = self.tracer.resume().is_ok(),
            false => {
                self.tracer.pause();
                self.is_active = false;
            }
        }
    }

    /// Returns whom a wait was for, if another thread ended it.
    pub(super) fn follow(&mut self, thread: u32, block: &ThreadBlock) -> Option<HangChain> {
        self.take();
        let lost = self.tracer.lost().unwrap_or(self.lost);
        self.history.count_lost(lost.saturating_sub(self.lost));
        self.lost = lost;
        let who = self.history.identity(thread, block.to_ns)?;
        let chain = self.history.walk(who, block.from_ns, block.to_ns);
        if chain.hops.len() < 2 {
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
        let facts = self.programs.of_hop(hop);
        let name = hop.name.split(|byte| *byte == 0).next().unwrap_or_default();
        // The name of a script is read only while the process is known to be the same; arguments never are.
        let program = match facts.executable.is_empty() {
            true => String::from_utf8_lossy(name).into_owned(),
            false => program_name::program_name(hop.process),
        };
        let unit = match facts.executable.is_empty() {
            true => String::new(),
            false => interactive::unit_name(hop.process),
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
