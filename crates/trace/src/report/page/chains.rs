//! Chains of waits: each hop opens the next one.

use crate::report::chains::{StallChain, StallHop};
use crate::report::schema::TraceReport;
use crate::report::verdict::time;
use report::escape::escape;

/// The most chains of a page.
const CHAINS: usize = 40;

/// Writes the chains, the longest wait first.
pub(super) fn chains(report: &TraceReport) -> String {
    report.chains.iter().take(CHAINS).map(|chain| from(chain, 0)).collect()
}

/// Writes a hop with all that follow inside of it.
fn from(chain: &StallChain, at: usize) -> String {
    let (Some(hop), Some(sentence)) = (chain.hops.get(at), chain.sentences.get(at)) else {
        return String::new();
    };
    let lost = if chain.has_losses && at == 0 { " (some wake-ups were lost)" } else { "" };
    format!(
        "<details class=\"chain\"><summary>{}{lost}</summary>\n<p>{}</p>\n{}</details>\n",
        escape(sentence),
        escape(&facts(hop)),
        from(chain, at + 1)
    )
}

/// Writes what is known of a hop.
fn facts(hop: &StallHop) -> String {
    let mut facts = vec![format!("{} from {} on", time(hop.asked_ns), time(hop.from_ns))];
    for (ns, what) in [
        (hop.processor_ns, "on a processor"),
        (hop.ready_ns, "ready, without a processor"),
        (hop.waited_ns, "waiting for what follows"),
        (hop.other_ns, "in other waits"),
    ] {
        if ns > 0 {
            facts.push(format!("{} {what}", time(ns)));
        }
    }
    facts.push(format!("thread {} of process {}", hop.thread, hop.process));
    for (what, text) in [("command", &hop.command), ("control group", &hop.cgroup)] {
        if !text.is_empty() {
            facts.push(format!("{what} {text}"));
        }
    }
    facts.join(" · ")
}
