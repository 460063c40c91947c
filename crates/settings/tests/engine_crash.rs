//! Every power cut and every failing call in the life of a database: what was acknowledged is there afterwards, and
//! nothing half.
//!
//! With `ENGINE_STOPS=1` the disk goes away at each call after a failing one, else at some of them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::engine_support;

use engine_support::simulated::{Fate, Life, Machine, answers, engine, explored, running, stops};
use engine_support::{changeset, id};
use store::sim::{SimDisk, explore_every};
use unjank_settings::engine::{DatabaseId, Engine};

/// What is asked for, one batch a line; what is behind `|` is asked for while the batch before it is written.
const LIFE: [&str; 3] = ["/a=1 /b/c=1", "/a=2|/b/ /d=1", "/e=1"];

/// Lives through the first `batches` of [`LIFE`], and ends as SIGTERM does.
fn live(disk: &SimDisk, database: &DatabaseId, batches: usize) -> (Life, Machine) {
    let machine = Machine::on(disk);
    let (mut engine, mut life) = (engine(&machine), Life::new());
    for batch in &LIFE[..batches] {
        let mut overlapping = batch.split('|');
        let ask = |engine: &mut Engine<usize>, life: &mut Life, changes: &'static str| {
            engine.change(database, changeset(changes), ":1.9", life.len());
            life.push((changes, Fate::Unsure));
        };
        ask(&mut engine, &mut life, overlapping.next().unwrap());
        while let Some(job) = engine.next_job() {
            if let Some(changes) = overlapping.next() {
                ask(&mut engine, &mut life, changes);
            }
            let done = job.run();
            engine.finished(done);
            answers(&mut engine, &mut life);
        }
        answers(&mut engine, &mut life);
        // As the daemon does; on a disk there is nothing to prepare.
        if let Some(job) = engine.next_preparation() {
            engine.finished(job.run());
        }
    }
    engine.begin_shutdown();
    for _ in 0..20 {
        let Some(job) = engine.next_job() else { break };
        engine.finished(job.run());
        answers(&mut engine, &mut life);
    }
    (life, machine)
}

#[test]
fn a_writer_database_keeps_what_it_acknowledged() {
    let explored =
        explored(stops(), "Writer/user", |disk, database| live(disk, database, 2)).unwrap();
    println!("{explored:?}");
    assert!(explored.runs > 1000 && explored.images > 1000, "{explored:?}");
}

#[test]
fn a_journal_database_keeps_what_it_acknowledged() {
    let explored =
        explored(stops(), "journal/app", |disk, database| live(disk, database, 3)).unwrap();
    println!("{explored:?}");
    assert!(explored.runs > 1000 && explored.images > 1000, "{explored:?}");
}

#[test]
fn a_writer_database_in_memory_shows_what_it_acknowledged_after_every_failing_call() {
    let user = id("Writer/user");
    let in_memory = || SimDisk::new().with_memory("/home");
    let disk = in_memory();
    live(&disk, &user, 3);
    let is_prepared = |call: &String| call.starts_with("give_name");
    assert!(disk.history().iter().any(is_prepared), "{:?}", disk.history());

    let seen = |disk: &SimDisk, (life, machine): &(Life, Machine)| {
        running(&Machine { disk: disk.clone(), ..machine.clone() }, &user, life)
    };
    // After a power cut nothing of it is there.
    let explored =
        explore_every(stops(), in_memory, |disk| live(disk, &user, 2), seen, |_, _| Ok(()))
            .unwrap();
    println!("{explored:?}");
    assert!(explored.runs > 1000, "{explored:?}");
    let hasty = |disk: &SimDisk| {
        let (mut life, machine) = live(disk, &user, 2);
        life.iter_mut().for_each(|(_, fate)| *fate = Fate::Acknowledged);
        (life, machine)
    };
    explore_every(stops(), in_memory, hasty, seen, |_, _| Ok(())).unwrap_err();
}

#[test]
fn the_explorer_catches_an_engine_that_answers_too_early() {
    let hasty = |disk: &SimDisk, database: &DatabaseId| {
        let (mut life, machine) = live(disk, database, 2);
        for (_, fate) in &mut life {
            *fate = Fate::Acknowledged;
        }
        (life, machine)
    };
    explored(stops(), "Writer/user", hasty).unwrap_err();
    explored(stops(), "journal/app", hasty).unwrap_err();
}
