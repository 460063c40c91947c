//! How long the service takes to come and to go.

use std::time::Duration;

use super::latency::{middle_key, ordinary};
use super::{WRITER, add, change, set};
use crate::lab::{BenchError, BenchSide, Lab, Measuring};
use crate::row::FigureRow;
use lab::keys;
use report::figure::Quantity;
use report::samples::Samples;

/// The peer takes up to two seconds to end.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) fn start_and_exit(lab: &Lab<'_>) -> Result<Vec<FigureRow>, BenchError> {
    let table = ordinary();
    let mut pair = lab.pair(&lab.memory, Some(&keys::image(&table)?))?;
    let mut start = <[Samples; 2]>::default();
    let mut exit = <[Samples; 2]>::default();
    for round in 0..lab.effort.of(6, 2) {
        for side in BenchSide::in_turn(round) {
            lab.go_on()?;
            let session = pair.of_mut(side);
            let client = session.connect()?;
            let (time, result) = lab.time(|| client.ping());
            result.map_err(|source| session.unreachable(source))?;
            add(&mut start, side, time);
            change(&client, side, WRITER, &set(middle_key(&table), round))?;
            let service = session.service()?;
            let (time, ended) =
                lab.time(|| service.terminate().and_then(|()| service.wait(PATIENCE)));
            let ended =
                ended.map_err(|source| BenchError::Counters { side: side.word(), source })?;
            if ended {
                add(&mut exit, side, time);
            }
        }
    }
    let row = |id, title: &str, [ours, peer]: [Samples; 2], note: &str| FigureRow {
        id,
        title: title.to_owned(),
        quantity: Quantity::Time,
        ours,
        peer,
        target: None,
        note: note.to_owned(),
    };
    Ok(vec![
        row(
            "start",
            "start by activation",
            start,
            "from a Ping on a bus that has to start the service to its answer",
        ),
        row("exit", "end after SIGTERM", exit, "after one write; to the end of the process"),
    ])
}
