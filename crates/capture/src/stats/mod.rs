//! Statistics of a recording: counts, latencies, sizes, errors and wake-ups.

mod collect;
#[cfg(test)]
mod tests;
mod text;
mod wakes;

use serde::Serialize;

pub use collect::collect;
pub use text::{gaps, missing, rate, render, size, time, verdict};

/// The name and version of the document.
pub const SCHEMA: &str = "unjank.bus.stats/1";

/// Everything that is counted. Times are in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Stats {
    /// How many messages.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Calls, returns, errors and signals among them.
    pub kinds: Kinds,
    /// When the first was seen, since the epoch.
    pub start_ns: u64,
    /// How long after it the last was.
    pub span_ns: u64,
    /// The most messages in one second.
    pub busiest_second: u64,
    /// What was left out: messages of the recorder itself.
    pub own: u64,
    /// Messages that the recorder dropped.
    pub lost: u64,
    /// Places of the record that cannot be read.
    pub damaged: u64,
    /// Messages that were recorded without their end.
    pub cut: u64,
    /// The match rules by which the recorder chose messages; none if it took all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub matched: Vec<String>,
    /// Methods, the one whose callers waited longest in all first.
    pub methods: Vec<Method>,
    /// Signals, the most frequent first.
    pub signals: Vec<SignalKind>,
    /// Connections, the one that sent most first.
    pub services: Vec<Service>,
    /// Errors by name, the most frequent first.
    pub errors: Vec<ErrorKind>,
    /// Calls without an answer, in the order in which they were made.
    pub unanswered: Vec<Open>,
    /// Services that were started because a message was sent to them.
    pub activations: Vec<Started>,
    /// Messages to names without an owner, by name and member.
    pub unowned: Vec<UndeliveredMessages>,
    /// Messages that the bus refused, by what it said.
    pub refused: Vec<UndeliveredMessages>,
    /// Who wakes whom, most often first.
    pub wakes: Vec<Wake>,
    /// Broadcasts of which it is not known who heard them.
    pub unheard: u64,
    /// Requests to portals, with what the user chose.
    pub portals: Vec<Portal>,
}

/// How many messages of each kind.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Kinds {
    /// Calls.
    pub calls: u64,
    /// Returns.
    pub returns: u64,
    /// Errors.
    pub errors: u64,
    /// Signals.
    pub signals: u64,
}

/// Times of several calls.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Times {
    /// All of them together.
    pub total_ns: u64,
    /// The shortest.
    pub min_ns: u64,
    /// A quarter of the calls are not longer.
    pub p25_ns: u64,
    /// Half of them.
    pub p50_ns: u64,
    /// Three quarters of them.
    pub p75_ns: u64,
    /// Nineteen of twenty.
    pub p95_ns: u64,
    /// Ninety-nine of a hundred.
    pub p99_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

impl Times {
    /// Makes them of single times, which are put in order.
    #[must_use]
    pub fn of(times: &mut [u64]) -> Times {
        times.sort_unstable();
        let Some((&min_ns, &max_ns)) = times.first().zip(times.last()) else {
            return Times::default();
        };
        // The smallest time that so many of a hundred do not exceed; it is one that was measured.
        let at = |part: usize| {
            let rank = (times.len() * part).div_ceil(100).max(1);
            times.get(rank - 1).copied().unwrap_or(max_ns)
        };
        Times {
            total_ns: times.iter().fold(0, |sum: u64, time| sum.saturating_add(*time)),
            min_ns,
            p25_ns: at(25),
            p50_ns: at(50),
            p75_ns: at(75),
            p95_ns: at(95),
            p99_ns: at(99),
            max_ns,
        }
    }
}

/// A method of a service.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Method {
    /// Who serves it: a well-known name, an application or a program.
    pub service: String,
    /// Its interface and name.
    pub member: String,
    /// How often it was called.
    pub calls: u64,
    /// How many calls were answered.
    pub answered: u64,
    /// How many of them with an error.
    pub errors: u64,
    /// How many wait for an answer that did not come.
    pub unanswered: u64,
    /// How many wanted none.
    pub no_reply: u64,
    /// The bytes of the calls and their answers.
    pub bytes: u64,
    /// How long answers took.
    pub times: Times,
    /// How long callers waited: as `times`, and for each unanswered call until its caller left or the record ended.
    pub waits: Times,
    /// The shortest wait of an unanswered call.
    #[serde(skip)]
    shortest_open_ns: Option<u64>,
}

impl Method {
    /// Writes one of the figures of `waits`, with `>` before it if unanswered calls make it the least that it can be.
    #[must_use]
    pub fn wait(&self, ns: u64) -> String {
        if self.waits == Times::default() && self.answered + self.unanswered == 0 {
            return "-".to_owned();
        }
        let is_bound = self.shortest_open_ns.is_some_and(|open_ns| open_ns <= ns);
        if is_bound { format!("> {}", time(ns)) } else { time(ns) }
    }
}

/// A signal of a service.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SignalKind {
    /// The sender.
    pub service: String,
    /// Its interface and name.
    pub member: String,
    /// How often.
    pub count: u64,
    /// How many of them to one connection only.
    pub directed: u64,
    /// How many connections heard them in all, as far as that is known.
    pub heard: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// A connection, or all of the same name.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Service {
    /// Its well-known name, application or program.
    pub service: String,
    /// The processes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pids: Vec<u32>,
    /// Messages that it sent.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Messages to it, signals that it asked for included.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// How often it was woken.
    pub woken: u64,
    /// How often it woke others.
    pub wakes: u64,
}

/// Errors of one name.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ErrorKind {
    /// The error's name.
    pub name: String,
    /// How often.
    pub count: u64,
    /// The calls that met it, the most frequent first.
    pub members: Vec<(String, u64)>,
}

/// A call without an answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Open {
    /// Who called.
    pub from: String,
    /// Whom.
    pub to: String,
    /// What.
    pub member: String,
    /// When, after the first message.
    pub at_ns: u64,
    /// How long the caller waited: until it left the bus, or the record ended.
    pub waited_ns: u64,
    /// Whether the caller left the bus without the answer.
    pub caller_left: bool,
}

/// A service that was started for a message.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Started {
    /// The name.
    pub service: String,
    /// Who sent the message.
    pub by: String,
    /// The message.
    pub member: String,
    /// How long it took until the name had an owner.
    pub delay_ns: u64,
}

/// Messages that did not arrive.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UndeliveredMessages {
    /// Who sent them.
    pub from: String,
    /// To whom.
    pub to: String,
    /// What.
    pub member: String,
    /// What the bus said, if it did.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub error: String,
    /// How often.
    pub count: u64,
}

/// How often one connection woke another with the same message.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Wake {
    /// The sender.
    pub from: String,
    /// Who had been quiet.
    pub to: String,
    /// What.
    pub member: String,
    /// How often.
    pub count: u64,
}

/// A request to a portal.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Portal {
    /// Who asked.
    pub from: String,
    /// For what.
    pub member: String,
    /// How long it took until the response; none while there is none.
    pub took_ns: Option<u64>,
    /// 0 done, 1 cancelled by the user, 2 ended otherwise.
    pub code: Option<u32>,
}
