//! `bench settings`: our settings service beside another, with the same client on a private bus.

mod bytes;
mod churn;
mod latency;
mod lifecycle;
mod lookup;
mod memory;
mod peer_client;
mod throughput;

use bus::client::blocking::BlockingClient;
use gvdb::gvariant::Variant;
use settings::changeset::Changeset;

use super::lab::{BenchError, BenchSide, Lab};
use super::names::Needs;
use super::row::FigureRow;
use super::run;
use report::samples::Samples;

/// The object of the database that everything is measured on.
const WRITER: &str = "/ca/desrt/dconf/Writer/user";
/// The same database kept as a journal; ours alone has it.
const JOURNAL: &str = "/ca/desrt/dconf/journal/user";
/// A connection makes this many writes and is then replaced by a new one, as scripts do: our service, in its default
/// configuration, holds a single sender back that changes the same keys 150 times, or writes 40 MB with that.
const WRITES_A_CONNECTION: usize = 100;

/// One figure, or a few that are measured together.
pub type Figure = run::Figure<fn(&Lab<'_>) -> Result<Vec<FigureRow>, BenchError>>;

/// All figures, in the order in which they are measured.
pub const FIGURES: &[Figure] = &[
    Figure {
        id: "write-tmpfs",
        about: "one key, durable, 4,500 keys, in memory",
        seconds: 4,
        needs: Needs::Nothing,
        run: latency::write_in_memory,
    },
    Figure {
        id: "churn-tmpfs",
        about: "a new key, a new value or a reset, durable, 4,500 keys, in memory",
        seconds: 8,
        needs: Needs::Nothing,
        run: churn::churn_in_memory,
    },
    Figure {
        id: "write-disk",
        about: "one key, durable, 4,500 keys, on the disk",
        seconds: 5,
        needs: Needs::Nothing,
        run: latency::write_on_disk,
    },
    Figure {
        id: "flat-tmpfs",
        about: "one key among 20,000 in one directory, in memory",
        seconds: 15,
        needs: Needs::Nothing,
        run: latency::write_flat,
    },
    Figure {
        id: "noop-tmpfs",
        about: "a write that changes nothing, 4,500 keys, in memory",
        seconds: 2,
        needs: Needs::Nothing,
        run: latency::write_nothing,
    },
    Figure {
        id: "first-disk",
        about: "the first write of a new user, on the disk",
        seconds: 2,
        needs: Needs::Nothing,
        run: latency::write_first,
    },
    Figure {
        id: "clients-disk",
        about: "8 clients, 50 writes each, on the disk",
        seconds: 15,
        needs: Needs::Nothing,
        run: throughput::clients,
    },
    Figure {
        id: "bytes-disk",
        about: "bytes for 1000 changesets, one after another",
        seconds: 20,
        needs: Needs::Nothing,
        run: bytes::changesets,
    },
    Figure {
        id: "slider-disk",
        about: "bytes for a value that changes for three and for ten seconds",
        seconds: 22,
        needs: Needs::Nothing,
        run: bytes::slider,
    },
    Figure {
        id: "memory",
        about: "resident memory of the service, 4,500 keys",
        seconds: 2,
        needs: Needs::Nothing,
        run: memory::resident,
    },
    Figure {
        id: "lookup",
        about: "a look-up by our API, the dconf client and a hash table",
        seconds: 3,
        needs: Needs::Nothing,
        run: lookup::warm,
    },
    Figure {
        id: "start",
        about: "from the first call to the service's answer",
        seconds: 15,
        needs: Needs::Nothing,
        run: lifecycle::start_and_exit,
    },
];

/// Sends one change and waits until it is durable.
fn change(
    client: &BlockingClient,
    side: BenchSide,
    object: &str,
    blob: &[u8],
) -> Result<(), BenchError> {
    client
        .change(object, blob)
        .map(|_tag| ())
        .map_err(|source| BenchError::Call { side: side.word(), source })
}

/// Makes the change of one key to a number.
fn set(key: &str, number: usize) -> Vec<u8> {
    let mut set = Changeset::default();
    set.change(key, Some(Variant::from(i64::try_from(number).unwrap_or(i64::MAX))));
    set.encode()
}

/// Adds a measurement to one of two sets.
fn add(samples: &mut [Samples; 2], side: BenchSide, value: f64) {
    match side {
        BenchSide::Ours => samples[0].push(value),
        BenchSide::Peer => samples[1].push(value),
    }
}
