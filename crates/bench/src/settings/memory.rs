//! How much memory the service takes.

use sys::memory::Memory;

use super::latency::{middle_key, ordinary};
use super::{WRITER, add, change, set};
use crate::lab::{BenchError, BenchSide, Lab};
use crate::row::{FigureRow, FigureTarget};
use lab::keys;
use report::figure::Quantity;
use report::samples::Samples;

/// Writes before memory is counted: the service has then read, changed and written the whole database.
const WRITES: usize = 20;

pub(super) fn resident(lab: &Lab<'_>) -> Result<Vec<FigureRow>, BenchError> {
    let table = ordinary();
    let image = keys::image(&table)?;
    let mut all = <[Samples; 2]>::default();
    let mut own = <[Samples; 2]>::default();
    for round in 0..lab.effort.of(3, 1) {
        for side in BenchSide::in_turn(round) {
            let mut session = lab.session(side, &lab.memory, Some(&image))?;
            let client = session.connect()?;
            for write in 0..WRITES {
                change(&client, side, WRITER, &set(middle_key(&table), write))?;
            }
            let memory = Memory::of(session.service()?.pid())
                .map_err(|source| BenchError::Counters { side: side.word(), source })?;
            add(&mut all, side, size(memory.resident_bytes));
            add(&mut own, side, size(memory.anonymous_bytes));
        }
    }
    let [ours, peer] = all;
    let resident = FigureRow {
        id: "memory",
        title: format!("resident memory, {} keys", table.len()),
        quantity: Quantity::Size,
        ours,
        peer,
        target: Some(FigureTarget::AtMost(2.0 / 3.0)),
        note: format!("VmRSS after {WRITES} writes"),
    };
    let [ours, peer] = own;
    let note = "RssAnon: heap, stacks and written pages".to_owned();
    let title = format!("its own memory, {} keys", table.len());
    let own =
        FigureRow { id: "memory-own", title, ours, peer, target: None, note, ..resident.clone() };
    Ok(vec![resident, own])
}

#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
fn size(bytes: u64) -> f64 {
    bytes as f64
}
