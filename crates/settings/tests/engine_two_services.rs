//! Two settings engines on one home, as two sessions of a user have them: in every order of their calls to the disk, and
//! after every power cut and failing call, what either acknowledged is there.
//!
//! `TWO_SERVICES` sets how often they change something: once in the gate, where a sample of the orders is tried, twice in
//! `ci/slow`, where it is all of them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::engine_support;

use std::sync::Arc;
use std::time::Duration;

use engine_support::simulated::{Fate, Life, Machine, answers, engine_with_clock, explored, image};
use engine_support::{TestClock, changeset, id};
use store::disk::Disk;
use store::sim::{SimDisk, interleave_every};
use sys::clock::Clock;
use unjank_settings::engine::{DatabaseId, Engine, Job};

/// One of the services.
struct Service {
    engine: Engine<usize>,
    clock: Arc<TestClock>,
    life: Life,
}

impl Service {
    fn on(disk: Arc<dyn Disk>) -> Service {
        let clock = Arc::new(TestClock::default());
        let engine = engine_with_clock(disk, Arc::clone(&clock) as Arc<dyn Clock>);
        Service { engine, clock, life: Life::new() }
    }

    fn ask(&mut self, database: &DatabaseId, changes: &'static str) {
        self.engine.change(database, changeset(changes), ":1.9", self.life.len());
        self.life.push((changes, Fate::Unsure));
    }

    fn next_job(&mut self) -> Option<Job> {
        self.engine.next_job()
    }

    fn finish(&mut self, job: Job) {
        self.engine.finished(job.run());
        answers(&mut self.engine, &mut self.life);
    }

    /// Reads the database, if that is what is to be done first.
    fn read_first(&mut self) {
        if self.engine.watched().is_empty()
            && let Some(job) = self.next_job()
        {
            self.finish(job);
        }
    }

    /// Works until everybody is answered, and lets the time pass for which it waits.
    fn work(&mut self) {
        for _ in 0..2000 {
            while let Some(job) = self.next_job() {
                self.finish(job);
            }
            answers(&mut self.engine, &mut self.life);
            if self.engine.is_idle() {
                // As the daemon does; on a disk there is nothing to prepare.
                if let Some(job) = self.engine.next_preparation() {
                    self.finish(job);
                }
                return;
            }
            let Some(deadline) = self.engine.deadline() else { return };
            self.clock.advance(deadline.saturating_sub(self.clock.monotonic()).max(MILLISECOND));
            self.engine.tick();
        }
        panic!("a service never ends: {:?}", self.engine);
    }
}

/// How often the services change something.
#[expect(clippy::disallowed_methods, reason = "ci/slow asks for more")]
fn rounds() -> usize {
    std::env::var("TWO_SERVICES").map_or(1, |text| text.parse().unwrap())
}

const MILLISECOND: Duration = Duration::from_millis(1);

/// A disk whose locks keep nobody out: a fault to be caught.
#[derive(Debug)]
struct LocksNothing(Machine);

impl Disk for LocksNothing {
    store::pass_on!(this, path => this.0;
        read stat read_link list create_dir create create_in_memory open open_log rename remove remove_abandoned sync_dir
        hold token);
}

fn honest(machine: Machine) -> Arc<dyn Disk> {
    Arc::new(machine)
}

fn without_locks(machine: Machine) -> Arc<dyn Disk> {
    Arc::new(LocksNothing(machine))
}

/// Returns the keys that a life set and that were acknowledged; each is set once.
fn promised(life: &Life) -> impl Iterator<Item = &'static str> {
    life.iter().filter(|(_, fate)| *fate == Fate::Acknowledged).map(|(changes, _)| *changes)
}

/// Returns a home on a disk.
fn home() -> SimDisk {
    SimDisk::new().with_dir("/home/config").with_dir("/home/state")
}

/// Returns a home whose settings are in memory.
fn home_in_memory() -> SimDisk {
    SimDisk::new().with_memory("/home/config").with_dir("/home/state")
}

/// Runs two services at once, their calls in every order.
fn in_every_order(database: &str, disk_of: fn(Machine) -> Arc<dyn Disk>) -> Result<usize, String> {
    in_every_order_at(home, &["/a=1"], database, disk_of)
}

fn in_every_order_at(
    home: fn() -> SimDisk,
    of_long: &[&'static str],
    database: &str,
    disk_of: fn(Machine) -> Arc<dyn Disk>,
) -> Result<usize, String> {
    let database = id(database);
    let live = |disk: &SimDisk, runtime: &SimDisk, batches: &[&'static str]| {
        let mut service =
            Service::on(disk_of(Machine { disk: disk.clone(), runtime: runtime.clone() }));
        for changes in batches {
            service.ask(&database, changes);
            service.work();
        }
        service.life
    };
    interleave_every(
        if rounds() == 1 { 5 } else { 1 },
        || (home(), SimDisk::new().with_dir("/run")),
        |disk, runtime| live(disk, runtime, of_long),
        |disk, runtime| live(disk, runtime, &["/b=1", "/c=1"][..rounds()]),
        |disk, runtime, long, short| {
            let machine = Machine { disk: disk.clone(), runtime: runtime.clone() };
            // What a service that starts afterwards makes of it.
            let mut service = Service::on(honest(machine.clone()));
            service.engine.init(&database, 0);
            service.work();
            let found = file_text(&machine, &database)?;
            for change in promised(long).chain(promised(short)) {
                if !found.contains(change) {
                    return Err(format!("{change} was acknowledged, and there is {found:?}"));
                }
            }
            Ok(())
        },
    )
}

fn file_text(machine: &Machine, database: &DatabaseId) -> Result<String, String> {
    let table = engine_support::simulated::file(machine, &image(database))?;
    Ok(table.iter().map(|(key, value)| format!("{key}={} ", value.print())).collect())
}

#[test]
fn in_every_order_of_two_services_calls_nothing_acknowledged_is_lost() {
    let orders = in_every_order("Writer/user", honest).unwrap();
    println!("{orders} orders");
    assert!(orders > 200, "{orders}");
}

#[test]
fn a_journal_of_two_services_loses_nothing_in_any_order_of_their_calls() {
    let orders = in_every_order("journal/app", honest).unwrap();
    println!("{orders} orders");
    assert!(orders > 200, "{orders}");
}

#[test]
fn two_services_in_memory_whose_files_are_made_beforehand_lose_nothing_in_any_order() {
    let changes = ["/a=1", "/d=1"];
    let orders = in_every_order_at(home_in_memory, &changes, "Writer/user", honest).unwrap();
    println!("{orders} orders");
    assert!(orders > 200, "{orders}");
    in_every_order_at(home_in_memory, &changes, "Writer/user", without_locks).unwrap_err();
}

#[test]
fn the_orders_catch_services_that_do_not_lock() {
    in_every_order("Writer/user", without_locks).unwrap_err();
    in_every_order("journal/app", without_locks).unwrap_err();
}

/// Two services that take turns, one of them with an image that was made before the other's change.
fn take_turns(disk: &SimDisk, database: &DatabaseId) -> (Life, Machine) {
    let machine = Machine::on(disk);
    let [mut first, mut second] = [(); 2].map(|()| Service::on(honest(machine.clone())));
    for changes in [["/a=1", "/b=1"], ["/c=1", "/d=1"]].into_iter().take(rounds()) {
        first.ask(database, changes[0]);
        first.read_first();
        // Its image is made from what it knows, which is not the other's latest.
        let job = first.next_job();
        second.ask(database, changes[1]);
        second.work();
        if let Some(job) = job {
            first.finish(job);
        }
        first.work();
    }
    let mut life = first.life;
    life.extend(second.life);
    (life, machine)
}

#[test]
fn what_two_services_acknowledged_survives_every_power_cut() {
    let explored = explored(1, "Writer/user", take_turns).unwrap();
    println!("{explored:?}");
    assert!(explored.runs > 1000 && explored.images > 1000, "{explored:?}");
}

#[test]
fn the_explorer_catches_a_service_that_claims_too_much() {
    let hasty = |disk: &SimDisk, database: &DatabaseId| {
        let (mut life, machine) = take_turns(disk, database);
        for (_, fate) in &mut life {
            *fate = Fate::Acknowledged;
        }
        (life, machine)
    };
    explored(1, "Writer/user", hasty).unwrap_err();
}
