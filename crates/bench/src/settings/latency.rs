//! How long one write takes, alone.

use settings::database::KeyTable;

use super::{WRITER, WRITES_A_CONNECTION, add, change, set};
use crate::lab::{BenchError, BenchSide, Effort, Lab, Measuring};
use crate::row::{FigureRow, FigureTarget};
use lab::keys;
use lab::place::MeasuredDirectory;
use report::figure::Quantity;
use report::samples::Samples;

/// The number of keys in one directory that makes a sorted list slow, and that of a quick run, in which nothing is judged.
const FLAT: [i32; 2] = [20_000, 4_000];
/// Calls before the clock counts: the service reads the file, and the peer's first write to a new file is not synced.
const WARM_UP: usize = 3;

pub(super) fn write_in_memory(lab: &Lab<'_>) -> Result<Vec<FigureRow>, BenchError> {
    let table = ordinary();
    let plan = Plan { rounds: lab.effort.of(10, 3), writes: [10, 10], write: Write::New };
    let samples = plan.measure(lab, &lab.memory, &table)?;
    let title = format!("write, {} keys ({})", table.len(), lab.memory.fs_type());
    Ok(vec![row("write-tmpfs", title, samples, FigureTarget::AtMost(1.0 / 15.0))])
}

pub(super) fn write_on_disk(lab: &Lab<'_>) -> Result<Vec<FigureRow>, BenchError> {
    let table = ordinary();
    let place = lab.disk()?;
    let plan = Plan { rounds: lab.effort.of(10, 3), writes: [10, 10], write: Write::New };
    let samples = plan.measure(lab, place, &table)?;
    let title = format!("write, {} keys ({})", table.len(), place.fs_type());
    Ok(vec![row("write-disk", title, samples, FigureTarget::AtMost(1.0 / 5.0))])
}

pub(super) fn write_flat(lab: &Lab<'_>) -> Result<Vec<FigureRow>, BenchError> {
    // The peer takes over a second a write.
    let plan = Plan { rounds: lab.effort.of(3, 1), writes: [20, 1], write: Write::New };
    let keys = if lab.effort == Effort::Full { FLAT[0] } else { FLAT[1] };
    let samples = plan.measure(lab, &lab.memory, &keys::flat(keys))?;
    let title =
        format!("write, {},{:03} flat ({})", keys / 1000, keys % 1000, lab.memory.fs_type());
    Ok(vec![row("flat-tmpfs", title, samples, FigureTarget::AtMost(1.0 / 300.0))])
}

pub(super) fn write_nothing(lab: &Lab<'_>) -> Result<Vec<FigureRow>, BenchError> {
    let table = ordinary();
    let plan = Plan { rounds: lab.effort.of(10, 3), writes: [20, 20], write: Write::Same };
    let samples = plan.measure(lab, &lab.memory, &table)?;
    let title = format!("write, no change ({})", lab.memory.fs_type());
    Ok(vec![row("noop-tmpfs", title, samples, FigureTarget::AtMost(1.0 / 5.0))])
}

pub(super) fn write_first(lab: &Lab<'_>) -> Result<Vec<FigureRow>, BenchError> {
    let place = lab.disk()?;
    let mut samples = <[Samples; 2]>::default();
    for round in 0..lab.effort.of(10, 3) {
        for side in BenchSide::in_turn(round) {
            let mut session = lab.session(side, place, None)?;
            session.service()?;
            let client = session.connect()?;
            let (time, result) = lab.time(|| change(&client, side, WRITER, &set("/a/b", round)));
            result?;
            add(&mut samples, side, time);
        }
    }
    let title = format!("first write ever ({})", place.fs_type());
    let [ours, peer] = samples;
    let note = "ours syncs file and directory; dconf-service 0.40 syncs nothing here".to_owned();
    Ok(vec![FigureRow {
        id: "first-disk",
        title,
        quantity: Quantity::Time,
        ours,
        peer,
        target: None,
        note,
    }])
}

/// What each write is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Write {
    /// A value that the key never had.
    New,
    /// The value that the key has.
    Same,
}

/// How often a write is measured.
#[derive(Clone, Copy, Debug)]
struct Plan {
    rounds: usize,
    /// Writes a round, ours and the peer's.
    writes: [usize; 2],
    write: Write,
}

impl Plan {
    /// Measures both sides, in turn, on databases that begin as `table`.
    fn measure(
        self,
        lab: &Lab<'_>,
        place: &MeasuredDirectory,
        table: &KeyTable,
    ) -> Result<[Samples; 2], BenchError> {
        let pair = lab.pair(place, Some(&keys::image(table)?))?;
        let key = middle_key(table);
        let mut samples = <[Samples; 2]>::default();
        let mut number = 0;
        let mut next = || match self.write {
            Write::Same => set(key, 1),
            Write::New => {
                number += 1;
                set(key, number)
            }
        };
        for side in BenchSide::in_turn(0) {
            let client = pair.of(side).connect()?;
            for _ in 0..WARM_UP {
                change(&client, side, WRITER, &next())?;
            }
        }
        for round in 0..self.rounds {
            for side in BenchSide::in_turn(round) {
                let writes = self.writes[if side == BenchSide::Ours { 0 } else { 1 }];
                debug_assert!(writes <= WRITES_A_CONNECTION);
                // A client's own connection costs it nothing while it writes.
                let client = pair.of(side).connect()?;
                for _ in 0..writes {
                    lab.go_on()?;
                    let blob = next();
                    let (time, result) = lab.time(|| change(&client, side, WRITER, &blob));
                    result?;
                    add(&mut samples, side, time);
                }
            }
        }
        Ok(samples)
    }
}

/// Makes the ordinary database.
pub(super) fn ordinary() -> KeyTable {
    keys::table(&keys::changesets(keys::SEED, keys::CHANGESETS))
}

/// Returns the key in the middle of the order.
pub(super) fn middle_key(table: &KeyTable) -> &str {
    table.iter().nth(table.len() / 2).map_or("/a/b", |(key, _)| key)
}

fn row(
    id: &'static str,
    title: String,
    [ours, peer]: [Samples; 2],
    target: FigureTarget,
) -> FigureRow {
    let note = String::new();
    FigureRow { id, title, quantity: Quantity::Time, ours, peer, target: Some(target), note }
}
