//! How many writes a second several clients get at once.

use std::io;
use std::sync::mpsc;

use super::latency::{middle_key, ordinary};
use super::{WRITER, add, change, set};
use crate::lab::{BenchError, BenchSide, Lab, Measuring};
use crate::row::{FigureRow, FigureTarget};
use lab::keys;
use lab::session::BenchSession;
use report::figure::Quantity;
use report::samples::Samples;

const CLIENTS: usize = 8;
/// What each of them writes, and in a quick run.
const WRITES: [usize; 2] = [50, 10];

pub(super) fn clients(lab: &Lab<'_>) -> Result<Vec<FigureRow>, BenchError> {
    let place = lab.disk()?;
    let table = ordinary();
    let writes = lab.effort.of(WRITES[0], WRITES[1]);
    let pair = lab.pair(place, Some(&keys::image(&table)?))?;
    for side in BenchSide::in_turn(0) {
        change(&pair.of(side).connect()?, side, WRITER, &set(middle_key(&table), 0))?;
    }
    let mut samples = <[Samples; 2]>::default();
    for round in 0..lab.effort.of(3, 1) {
        for side in BenchSide::in_turn(round) {
            lab.go_on()?;
            add(&mut samples, side, together(lab, pair.of(side), side, [round, writes])?);
        }
    }
    let [ours, peer] = samples;
    Ok(vec![FigureRow {
        id: "clients-disk",
        title: format!("{CLIENTS} clients x {writes} writes ({})", place.fs_type()),
        quantity: Quantity::Rate,
        ours,
        peer,
        target: Some(FigureTarget::AtLeast(10.0)),
        note: "each client waits for its own answer before its next write; a thread and a connection each".to_owned(),
    }])
}

/// Lets all clients write so often at once and returns the writes a second.
fn together(
    lab: &Lab<'_>,
    session: &BenchSession,
    side: BenchSide,
    [round, writes]: [usize; 2],
) -> Result<f64, BenchError> {
    std::thread::scope(|scope| {
        let (ready, are_ready) = mpsc::channel();
        let client = |number: usize| {
            let ready = ready.clone();
            let (start, may_start) = mpsc::channel::<()>();
            let work = move || {
                let client = session.connect();
                // An error says that another client has no thread: nothing is measured then.
                if ready.send(()).is_err() || may_start.recv().is_err() {
                    return Ok(());
                }
                let client = client?;
                for write in 0..writes {
                    let blob = set(&format!("/client{number}/value"), round * writes + write);
                    change(&client, side, WRITER, &blob)?;
                }
                Ok::<(), BenchError>(())
            };
            Ok((start, sys::thread::spawn_scoped(scope, "client", work)?))
        };
        let clients: io::Result<Vec<_>> = (0..CLIENTS).map(client).collect();
        let refused = |source| BenchError::Counters { side: "clients", source };
        let (starts, clients): (Vec<_>, Vec<_>) = clients.map_err(refused)?.into_iter().unzip();
        // Each of them sends once, connected or not.
        are_ready.iter().take(CLIENTS).for_each(drop);
        for start in starts {
            // An error says that the client panicked, which its end tells.
            let _ = start.send(());
        }
        let (time, result) = lab.time(|| {
            clients.into_iter().try_for_each(|client| {
                let lost = |_| BenchError::Peer {
                    program: "a client".to_owned(),
                    cause: "it panicked".to_owned(),
                };
                client.join().map_err(lost)?
            })
        });
        result?;
        #[expect(clippy::cast_precision_loss, reason = "a few hundred writes")]
        let writes = (CLIENTS * writes) as f64;
        Ok(writes / (time / 1e9))
    })
}
