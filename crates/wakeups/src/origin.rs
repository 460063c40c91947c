//! What ended a wait: a thread, or an interrupt; who only passed the wake-up on is told apart.

use super::chain::ChainEnd;
use super::event::{InterruptKind, ThreadIdentity, ThreadWait, WakeupContext, WakeupSource};
use super::history::WakeupHistory;

/// The names of threads that only pass messages on: daemons of D-Bus buses, their proxies, and workers of D-Bus libraries.
const CARRIERS: [&[u8]; 5] =
    [b"dbus-daemon", b"dbus-broker", b"xdg-dbus-proxy", b"gdbus", b"QDBusConnection"];
/// The beginning of the names of the kernel's workers, which do whatever others give them.
const WORKER: &[u8] = b"kworker/";

/// A thread that works for at least this share of a wait did not only pass something on: one in four.
const WORKS: u64 = 4;
/// Who was made this long before, at most, passes the wake-up on: a twentieth of the wait, within these bounds in nanoseconds.
const SHORTEST: u64 = 200_000;
/// See `SHORTEST`.
const LONGEST: u64 = 20_000_000;

/// The most sources that are looked at for one wait.
const MOST_SOURCES: usize = 64;

/// What ended a wait.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum WaitOrigin {
    /// A thread.
    Thread(WakeupSource),
    /// No thread.
    End(ChainEnd),
}

impl WaitOrigin {
    /// What tells two origins apart: the thread, or the end.
    pub(crate) fn key(&self) -> Result<ThreadIdentity, u8> {
        match self {
            WaitOrigin::Thread(source) => Ok(source.who),
            WaitOrigin::End(end) => Err(*end as u8),
        }
    }
}

fn is_carrier(source: &WakeupSource) -> bool {
    let name = source.name.split(|byte| *byte == 0).next().unwrap_or_default();
    match source.context {
        WakeupContext::Kernel => name.starts_with(WORKER),
        _ => CARRIERS.contains(&name),
    }
}

/// Says what an interrupt that ended a wait was about.
fn of_interrupt(kind: InterruptKind, wait: &ThreadWait) -> ChainEnd {
    match kind {
        InterruptKind::Timer => ChainEnd::Timer,
        InterruptKind::Disk => ChainEnd::Disk,
        InterruptKind::Network | InterruptKind::Other if wait.uninterruptible => ChainEnd::Disk,
        InterruptKind::Network => ChainEnd::Network,
        InterruptKind::Other => ChainEnd::Device,
    }
}

impl WakeupHistory {
    /// Returns what ended `wait`, and through whom.
    pub(crate) fn origin(&self, wait: &ThreadWait) -> (WaitOrigin, Vec<WakeupSource>) {
        let mut through: Vec<WakeupSource> = Vec::new();
        let mut sources = wait.sources.clone();
        let mut at = 0;
        let Some(mut source) = sources.first().copied() else {
            return (WaitOrigin::End(ChainEnd::NotKnown), through);
        };
        if let WakeupContext::Interrupt(kind) = source.context {
            return (WaitOrigin::End(of_interrupt(kind, wait)), through);
        }
        for _ in 0..MOST_SOURCES {
            if sources.get(at + 1).is_none()
                && let Some(known) = self.last_wait(source.who, wait.from_ns, source.at_ns)
            {
                // The carrier's own record knows more of those before it.
                sources = [source].into_iter().chain(known.sources.iter().copied()).collect();
                at = 0;
            }
            let Some(next) = sources.get(at + 1).copied() else { break };
            let is_meanwhile = next.at_ns > wait.from_ns && next.at_ns <= source.at_ns;
            // Only a thread can have given it something to pass on; what an interrupt starts begins there.
            if !is_meanwhile || next.context.is_interrupt() || !self.passes_on(wait, source, next) {
                break;
            }
            if through.iter().any(|known| known.who == next.who) || next.who == wait.who {
                break;
            }
            through.push(source);
            source = next;
            at += 1;
        }
        (WaitOrigin::Thread(source), through)
    }

    /// Returns whether `source`, whom `next` had woken, did nothing of its own for `wait`.
    fn passes_on(&self, wait: &ThreadWait, source: WakeupSource, next: WakeupSource) -> bool {
        let length = wait.to_ns.saturating_sub(wait.from_ns);
        let worked = self
            .thread(source.who)
            .and_then(|thread| thread.used(wait.from_ns.max(thread.begin_ns()), source.at_ns));
        if worked.is_some_and(|[processor, _]| processor.saturating_mul(WORKS) >= length) {
            return false;
        }
        // Of others only who was made a moment before cannot have been what took the time.
        let slack = (length / 20).clamp(SHORTEST, LONGEST);
        let is_new = next.context == WakeupContext::Birth
            && source.at_ns.saturating_sub(next.at_ns) <= slack;
        is_carrier(&source) || is_new
    }

    /// Returns the last wait of a thread that ended in a time.
    fn last_wait(&self, who: ThreadIdentity, from_ns: u64, to_ns: u64) -> Option<&ThreadWait> {
        let waits = &self.thread(who)?.waits;
        let end = waits.partition_point(|wait| wait.to_ns <= to_ns);
        waits.get(end.checked_sub(1)?).filter(|wait| wait.to_ns > from_ns && !wait.is_birth())
    }
}
