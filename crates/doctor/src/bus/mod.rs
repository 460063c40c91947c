//! The bus probe: the traffic of the idle session bus, the wake-ups that it causes, and the monitors.

mod monitors;

use ::report::error::chain;
use std::sync::Arc;
use std::time::Duration;

use bus::client::blocking::BlockingClient;
use sys::clock::SystemClock;

use super::finding::{Finding, MeasurementOutcome};
use super::machine::Machine;
use super::remedy::Remedy;
use super::{Probe, ProbeStep, StepContext};
use ::capture::capture;
use ::capture::filter::Filter;
use ::capture::model::Model;
use ::capture::record::{
    BusMonitor, BusRecorder, BusToRecord, Follower, NextRecord, RecordError, RecordOptions,
};
use ::capture::stats::{self, Stats, collect};
use report::paragraph::counted;
use report::samples::Samples;

use self::monitors::BusConnections;

const NAME: &str = "bus";
/// How long is listened.
const LISTEN: Duration = Duration::from_secs(5);
/// A quiet desktop has fewer messages in a second than this.
const MANY: f64 = 10.0;
/// The most slow methods and wakers that are named.
const NAMED: usize = 3;
/// A bus that has not answered by then tells nothing.
const PATIENCE: Duration = Duration::from_millis(500);
const DRIVER: &str = "org.freedesktop.DBus";

/// Listens to the session bus.
#[derive(Debug)]
pub struct BusProbe;

impl Probe for BusProbe {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        "traffic of the idle session bus, slow services, monitors left attached"
    }

    fn title(&self) -> &'static str {
        "Session bus"
    }

    fn steps<'a>(&self, machine: &'a Machine) -> Vec<ProbeStep<'a>> {
        let Some(address) = machine.bus_address.clone() else {
            return vec![ProbeStep::new("find the session bus", 1, |_| {
                let why = "there is no session bus".to_owned();
                vec![Finding::new(NAME, "idle chatter", "", MeasurementOutcome::Skipped(why))]
            })];
        };
        vec![ProbeStep::new("listen to the session bus", 5200, move |tools| {
            listen(&address, tools)
        })]
    }
}

fn listen(address: &str, tools: &StepContext<'_>) -> Vec<Finding> {
    let skipped = |error: &(dyn std::error::Error + 'static)| {
        let why = chain(error);
        vec![Finding::new(NAME, "idle chatter", "BecomeMonitor", MeasurementOutcome::Skipped(why))]
    };
    let (recorder, asking) = match begin(address) {
        Ok(begun) => begun,
        Err(error) => return skipped(&error),
    };
    let start = tools.clock.monotonic();
    let mut model = Model::default();
    let mut listeners = BusConnections::default();
    // Its questions and the answers come by as messages, from which the model learns.
    if let Ok(client) = &asking {
        let debug = Some("org.freedesktop.DBus.Debug.Stats");
        for (interface, method) in
            [(Some(DRIVER), "ListNames"), (debug, "GetStats"), (debug, "GetAllMatchRules")]
        {
            // A bus without statistics says so, and then nothing is known of them.
            let _ = client.run(|client| async move {
                client
                    .try_call(DRIVER, "/org/freedesktop/DBus", interface, method, Vec::new())
                    .await
            });
        }
        let unique = model.texts.keep(client.unique_name());
        let peer = model.peers.connection(0, unique);
        model.peers.is_recorder(peer);
    }
    while !tools.stopped() && !tools.spent(start, LISTEN) {
        match recorder.next(Duration::from_millis(50)) {
            NextRecord::Batch(batch) => {
                for event in batch.events() {
                    if let Some((number, header)) = model.take(&event) {
                        listeners.see(&model, number, &header);
                    }
                }
            }
            NextRecord::Quiet => (),
            NextRecord::Over => break,
        }
    }
    model.set_now(recorder.now_ns());
    let listened = tools.clock.monotonic().saturating_sub(start);
    let stats = collect(&model, &Filter::default());
    let mut findings = judge(&stats, listened);
    findings.extend(slow(&model, &stats, tools.frame));
    findings.extend(listeners.finding(&model));
    findings
}

/// Begins to listen, and makes a connection for questions.
fn begin(
    address: &str,
) -> Result<(BusRecorder, Result<BlockingClient, bus::client::ClientError>), RecordError> {
    let follower = Follower::connect(address, 0)?;
    let monitor = BusMonitor::attach(address, &[])?;
    let bus = capture::CapturedBus {
        bus: 0,
        name: "session".to_owned(),
        address: address.to_owned(),
        rules: Vec::new(),
    };
    let source = BusToRecord { bus, monitor, follower: Some(follower) };
    let clock = Arc::new(SystemClock::start());
    let recorder = BusRecorder::start_in_child(vec![source], &RecordOptions::default(), clock)?;
    let client = BlockingClient::connect(Some(address)).map(|mut client| {
        client.set_timeout(PATIENCE);
        client
    });
    Ok((recorder, client))
}

/// Says how much was said, and who was woken by it.
fn judge(stats: &Stats, listened: Duration) -> Vec<Finding> {
    let seconds = listened.as_secs_f64().max(0.001);
    let whole = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
    #[expect(clippy::cast_precision_loss, reason = "shown with two digits")]
    let rate = stats.messages as f64 / seconds;
    let how = format!("a monitor for {seconds:.1} s");
    let woken: u64 = stats.wakes.iter().map(|wake| wake.count).sum();
    let mut text = format!(
        "{} ({rate:.1} /s, {}), {}",
        counted(whole(stats.messages), "message"),
        stats::size(stats.bytes),
        counted(whole(woken), "wake")
    );
    let top: Vec<String> = stats
        .services
        .iter()
        .filter(|service| service.sent > 0)
        .take(NAMED)
        .map(|service| format!("{} ({})", service.service, service.sent))
        .collect();
    if !top.is_empty() {
        text.push_str(&format!("; most from {}", top.join(", ")));
    }
    let mut chatter =
        Finding::new(NAME, "idle chatter", how.clone(), MeasurementOutcome::Note(text));
    if rate > MANY {
        chatter = chatter
            .because("each message wakes its receiver, and the bus for each of them")
            .remedy(Remedy::WatchBus(None));
    }
    let mut findings = vec![chatter];
    if !stats.wakes.is_empty() {
        let wakes: Vec<String> = stats
            .wakes
            .iter()
            .take(NAMED)
            .map(|wake| {
                format!("{} wakes {} ({} x {})", wake.from, wake.to, wake.count, wake.member)
            })
            .collect();
        let outcome = MeasurementOutcome::Note(wakes.join("; "));
        findings.push(Finding::new(NAME, "who wakes whom", how.clone(), outcome));
    }
    let unowned: u64 = stats.unowned.iter().map(|astray| astray.count).sum();
    if let Some(first) = stats.unowned.first() {
        let text = format!(
            "{}, for example {} of {} to {}",
            counted(whole(unowned), "message"),
            first.member,
            first.from,
            first.to
        );
        findings.push(Finding::new(NAME, "sent to nobody", how, MeasurementOutcome::Note(text)));
    }
    findings
}

/// Grades methods whose callers waited for more than half a frame, for an answer or in vain.
fn slow(model: &Model, stats: &Stats, frame: Duration) -> Vec<Finding> {
    let half = u64::try_from(frame.as_nanos() / 2).unwrap_or(u64::MAX);
    let mut methods: Vec<&stats::Method> =
        stats.methods.iter().filter(|method| method.waits.p50_ns > half).collect();
    methods.sort_by_cached_key(|method| std::cmp::Reverse(method.waits.p50_ns));
    let finding = |method: &&stats::Method| {
        let of_member = format!("type:call member:{}", method.member);
        let filter: Filter = of_member.parse().unwrap_or_default();
        let times: Samples = model
            .rows()
            .filter(|(number, row)| {
                filter.chooses(model, *number)
                    && model.peers.service(model.peers.identity(row.receiver), &model.texts)
                        == method.service
            })
            .filter_map(|(_, row)| model.latency_ns(row).or_else(|| model.waited_ns(row)))
            .map(|ns| report::figure::nanoseconds(Duration::from_nanos(ns)))
            .collect();
        let name = format!("{} of {}", method.member, method.service);
        Finding::new(NAME, name, "calls of other programs", MeasurementOutcome::Time(times))
            .because(format!(
                "{} answers late; who calls it without waiting does not feel it",
                method.service
            ))
            .remedy(Remedy::WatchBus(Some(of_member)))
    };
    methods.iter().take(NAMED).map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::capture::model::sample::{SampleMessage, seen};

    #[test]
    fn who_says_much_is_named() {
        let mut messages = Vec::new();
        for at in 0..100 {
            messages.push((
                at * 50_000,
                SampleMessage::directed(1, ":1.1", ":1.2", "org.example.I.Tick"),
            ));
        }
        messages
            .push((9_000_000, SampleMessage::directed(1, ":1.3", ":1.1", "org.example.I.Rare")));
        let stats = collect(&seen(&messages), &Filter::default());
        let findings = judge(&stats, Duration::from_secs(9));
        let MeasurementOutcome::Note(text) = &findings[0].outcome else { panic!("{findings:?}") };
        assert!(text.starts_with("101 messages (11.2 /s") && text.contains("most from"), "{text}");
        assert!(!findings[0].help.is_empty());
        let MeasurementOutcome::Note(text) = &findings[1].outcome else { panic!("{findings:?}") };
        assert!(text.contains("1 x org.example.I.Rare"), "{text}");
        let calm = judge(&collect(&seen(&messages[..1]), &Filter::default()), LISTEN);
        assert!(calm[0].help.is_empty() && calm.len() == 1, "{calm:?}");
    }

    #[test]
    fn a_method_that_does_not_answer_is_graded_by_how_long_was_waited() {
        let mut model = seen(&[(0, SampleMessage::call(1, ":1.1", ":1.2", "org.example.I.Hang"))]);
        model.set_now(model.until_ns(0) + 4_000_000_000);
        let stats = collect(&model, &Filter::default());
        let findings = slow(&model, &stats, Duration::from_millis(16));
        let [finding] = &findings[..] else { panic!("{findings:?}") };
        let MeasurementOutcome::Time(times) = &finding.outcome else { panic!("{finding:?}") };
        assert_eq!((times.len(), times.median()), (1, 4e9));
    }

    #[test]
    fn a_method_that_answers_late_is_graded() {
        let mut messages = Vec::new();
        for (serial, took) in [(1_u32, 20_000), (2, 30_000), (3, 25_000)] {
            let at = u64::from(serial) * 100_000;
            messages.push((at, SampleMessage::call(serial, ":1.1", ":1.2", "org.example.I.Slow")));
            messages.push((at + took, SampleMessage::answer(serial, ":1.2", ":1.1")));
            messages.push((
                at + 500,
                SampleMessage::call(serial + 9, ":1.1", ":1.2", "org.example.I.Fast"),
            ));
            messages.push((at + 600, SampleMessage::answer(serial + 9, ":1.2", ":1.1")));
        }
        let model = seen(&messages);
        let stats = collect(&model, &Filter::default());
        let findings = slow(&model, &stats, Duration::from_millis(16));
        let [finding] = &findings[..] else { panic!("{findings:?}") };
        let MeasurementOutcome::Time(times) = &finding.outcome else { panic!("{finding:?}") };
        assert_eq!((times.len(), times.median()), (3, 25e6));
        assert!(finding.is_bad(Duration::from_millis(16)));
    }
}
