//! Counts of hangs, the steps of main loops, and the pressure on the machine under node_exporter's names: what OpenMetrics and
//! OpenTelemetry tell in their own forms.
//!
//! A label has the name of a program or of a cause, never a path.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use hangs::model::{HangCause, StepHistogram};
use hangs::store::StoredHistory;
use report::text::{Charset, visible};
use store::disk::Disk;

/// The most programs with labels of their own; those that come later are counted as `(other)`.
const MOST_PROGRAMS: usize = 200;

/// The names and values that tell the series of a family apart.
pub type MetricLabels = Vec<(&'static str, String)>;

/// Several series of one name.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MetricFamily {
    /// Its name, without what a format adds to it.
    pub name: String,
    /// What it is, in a sentence.
    pub help: &'static str,
    /// Its series.
    pub series: MetricSeries,
}

/// The series of a family, by what they are.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum MetricSeries {
    /// How many there were since a moment.
    Count(CountedSince, Vec<(MetricLabels, u64)>),
    /// How much time since a moment, in nanoseconds.
    Time(CountedSince, Vec<(MetricLabels, u64)>),
    /// Steps of main loops, in the classes of [`hangs::model::STEP_BOUNDS_NS`].
    Steps(Vec<(MetricLabels, StepHistogram)>),
    /// What is so now.
    Flag(bool),
}

/// Since when something is counted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CountedSince {
    /// Since the first record that was counted: [`HangCounters::since_ns`].
    FirstRecord,
    /// Since the kernel was started.
    Boot,
}

/// Counts that only grow: what the store drops, or a person erases, is not taken from them.
#[derive(Debug, Default)]
pub struct HangCounters {
    /// The cause and the length under which a hang was counted, by its number and the begin of its process.
    counted: BTreeMap<(u64, u64), (HangCause, u64)>,
    periods: BTreeSet<(u64, u64)>,
    programs: BTreeSet<String>,
    hangs: BTreeMap<(String, HangCause), (u64, u64)>,
    watched: BTreeMap<String, (u64, StepHistogram)>,
    lost: u64,
    /// Since when the counts hold, in nanoseconds since 1970.
    since_ns: Option<u64>,
    /// The files that were counted last by [`HangCounters::add_from`], and when.
    files: Vec<(u64, (u64, u64))>,
    counted_ns: u64,
    /// Whether all of the store could be read the last time.
    is_whole: bool,
}

impl HangCounters {
    /// Counts as [`HangCounters::add`] does what was read of these files, as [`hangs::store::files`] returns them, at a moment in
    /// nanoseconds since 1970. Where one of the files of before is gone records may have been erased: all is counted anew from the last
    /// time on, and no name is left of what was counted before and is not stored any more.
    pub fn add_from(&mut self, stored: &StoredHistory, files: &[(u64, (u64, u64))], now_ns: u64) {
        if self.files.iter().any(|file| !files.contains(file)) {
            self.begin_anew();
        }
        self.add(stored);
        self.files = files.to_vec();
        self.counted_ns = now_ns;
    }

    /// What was counted before is not counted again.
    fn begin_anew(&mut self) {
        self.programs.clear();
        self.hangs.clear();
        self.watched.clear();
        self.lost = 0;
        self.since_ns = Some(self.counted_ns);
    }

    /// Notes that nothing was recorded between the last count and a moment, in nanoseconds since 1970.
    pub fn note_unchanged(&mut self, now_ns: u64) {
        self.counted_ns = now_ns;
    }

    /// Returns until when the counts hold, in nanoseconds since 1970.
    #[must_use]
    pub fn counted_ns(&self) -> u64 {
        self.counted_ns
    }

    /// Returns since when the counts hold, in nanoseconds since 1970; nothing where nothing was counted.
    #[must_use]
    pub fn since_ns(&self) -> Option<u64> {
        self.since_ns
    }

    /// Notes that the store could not be read at all; what was counted stays.
    pub fn note_unread(&mut self) {
        self.is_whole = false;
    }

    /// Counts what a store holds and was not counted yet.
    pub fn add(&mut self, stored: &StoredHistory) {
        self.is_whole = stored.damage().is_none();
        if self.since_ns.is_none() {
            let hangs = stored.hangs.values().map(|hang| hang.started_ns);
            self.since_ns = hangs.chain(stored.periods.iter().map(|period| period.from_ns)).min();
        }
        for hang in stored.hangs.values() {
            let key = (hang.number, hang.process_began_ns);
            let known = self.counted.get(&key).copied();
            // A hang that goes on may find another cause; it stays one hang of the first.
            let (cause, known_ns) = known.unwrap_or((hang.cause, 0));
            self.counted.insert(key, (cause, hang.length_ns.max(known_ns)));
            let program = self.label(&hang.program);
            let (count, length_ns) = self.hangs.entry((program, cause)).or_default();
            *count += u64::from(known.is_none());
            *length_ns = length_ns.saturating_add(hang.length_ns.saturating_sub(known_ns));
        }
        let periods: BTreeSet<(u64, u64)> =
            stored.periods.iter().map(|period| (period.from_ns, period.to_ns)).collect();
        for period in &stored.periods {
            if self.periods.contains(&(period.from_ns, period.to_ns)) {
                continue;
            }
            self.lost += u64::from(period.lost);
            for program in &period.programs {
                let name = self.label(&program.program);
                let (watched_ns, steps) = self.watched.entry(name).or_default();
                *watched_ns = watched_ns.saturating_add(program.watched_ns);
                steps.merge(&program.steps);
            }
        }
        if self.is_whole {
            // What cannot be read now may be readable the next time, and is not counted a second time then.
            self.periods = periods;
            let is_stored = |number: &u64, began_ns: &u64| {
                stored.hangs.get(number).is_some_and(|hang| hang.process_began_ns == *began_ns)
            };
            self.counted.retain(|(number, began_ns), _| is_stored(number, began_ns));
        } else {
            self.periods.extend(periods);
        }
    }

    /// Returns the label of a program, in which nothing is left that a terminal obeys.
    fn label(&mut self, program: &str) -> String {
        let program = &*visible(program, Charset::Unicode);
        if self.programs.len() < MOST_PROGRAMS {
            self.programs.insert(program.to_owned());
        }
        if self.programs.contains(program) { program.to_owned() } else { "(other)".to_owned() }
    }

    /// Returns all that is told, with the pressure below `proc`.
    #[must_use]
    pub fn families(&self, disk: &dyn Disk, proc: &Path) -> Vec<MetricFamily> {
        let family =
            |name: &str, help, series| MetricFamily { name: name.to_owned(), help, series };
        let since = CountedSince::FirstRecord;
        let of_hangs = |value: fn(&(u64, u64)) -> u64| {
            let labelled = self.hangs.iter().map(move |((program, cause), values)| {
                let labels = vec![("program", program.clone()), ("cause", cause.word().to_owned())];
                (labels, value(values))
            });
            labelled.collect::<Vec<_>>()
        };
        let label = |program: &String| vec![("program", program.clone())];
        let watched = self.watched.iter().map(|(program, (time, _))| (label(program), *time));
        let steps = self.watched.iter().map(|(program, (_, steps))| (label(program), *steps));
        let mut all = vec![
            family(
                "unjank_hangs",
                "Hangs of 100 ms and more.",
                MetricSeries::Count(since, of_hangs(|(count, _)| *count)),
            ),
            family(
                "unjank_hang_seconds",
                "For how long programs hung.",
                MetricSeries::Time(since, of_hangs(|(_, length_ns)| *length_ns)),
            ),
            family(
                "unjank_watched_seconds",
                "For how long programs were followed; of several processes added.",
                MetricSeries::Time(since, watched.collect()),
            ),
            family(
                "unjank_step_seconds",
                "Steps of main loops that were longer than a frame of 16.7 ms.",
                MetricSeries::Steps(steps.collect()),
            ),
            family(
                "unjank_hangs_lost",
                "Hangs that were seen and could not be stored.",
                MetricSeries::Count(since, vec![(Vec::new(), self.lost)]),
            ),
            family(
                "unjank_store_whole",
                "1 if all records could be read now; 0 if the counts leave some out.",
                MetricSeries::Flag(self.is_whole),
            ),
        ];
        all.extend(pressure(disk, proc));
        all
    }
}

/// Returns the totals of PSI, as far as the kernel has them.
fn pressure(disk: &dyn Disk, proc: &Path) -> Vec<MetricFamily> {
    let mut all = Vec::new();
    for name in ["cpu", "io", "memory", "irq"] {
        let Ok(bytes) = disk.read(&proc.join("pressure").join(name)) else { continue };
        let text = String::from_utf8_lossy(&bytes);
        for (line, kind, help) in [
            ("some ", "waiting", "For how long some thread waited for it."),
            ("full ", "stalled", "For how long all threads with something to do waited for it."),
        ] {
            // No thread runs while all wait for a processor: the kernel's line is there, and is zero.
            if (name, kind) == ("cpu", "stalled") {
                continue;
            }
            let total = text.lines().find_map(|text| text.strip_prefix(line)?.split_once("total="));
            let Some(total) = total.and_then(|(_, total)| total.trim().parse::<u64>().ok()) else {
                continue;
            };
            let time = vec![(Vec::new(), total.saturating_mul(1000))];
            all.push(MetricFamily {
                name: format!("node_pressure_{name}_{kind}_seconds"),
                help,
                series: MetricSeries::Time(CountedSince::Boot, time),
            });
        }
    }
    all
}
