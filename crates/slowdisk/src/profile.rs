//! What a kind of disk takes for a request, and which of those that wait it takes next.

use std::time::Duration;

/// In which order a disk takes requests that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOrder {
    /// As they came: flash.
    Fifo,
    /// The nearest first, none later than [`DiskProfile::longest_wait`]: disks that turn, with a queue of their own.
    Nearest,
}

impl RequestOrder {
    /// Returns its name in records.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            RequestOrder::Fifo => "fifo",
            RequestOrder::Nearest => "nearest",
        }
    }

    /// Finds an order by its name.
    #[must_use]
    pub fn named(name: &str) -> Option<RequestOrder> {
        [RequestOrder::Fifo, RequestOrder::Nearest].into_iter().find(|order| order.name() == name)
    }
}

/// What is wanted of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskRequest {
    /// Bytes from a place on.
    Read {
        /// The place, in bytes.
        at: u64,
        /// How many bytes.
        len: u64,
    },
    /// Bytes to a place.
    Write {
        /// The place, in bytes.
        at: u64,
        /// How many bytes.
        len: u64,
    },
    /// All that was written has to stay.
    Flush,
}

/// A kind of disk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DiskProfile {
    /// Its name on the command line.
    pub name: &'static str,
    /// For each request.
    pub command: Duration,
    /// Bytes a second that it reads.
    pub read_rate: f64,
    /// Bytes a second that it writes.
    pub write_rate: f64,
    /// For a write that does not begin where the last one ended: flash erases and moves.
    pub scattered_write: Duration,
    /// For a flush.
    pub flush: Duration,
    /// For moving the head to the next track, and across the whole disk.
    pub seek: Option<(Duration, Duration)>,
    /// For half a turn and more: the longest time until the place comes by.
    pub turn: Duration,
    /// In which order it takes requests.
    pub order: RequestOrder,
    /// How many it works on at a time.
    pub parallel: usize,
    /// Of how many that wait it chooses the next one.
    pub depth: usize,
    /// After this time a request is taken, however far away it is.
    pub longest_wait: Duration,
}

impl DiskProfile {
    /// The kinds that there are.
    pub const ALL: [DiskProfile; 4] = [
        // Cheap laptops and boards.
        DiskProfile {
            name: "emmc",
            command: Duration::from_micros(250),
            read_rate: 150e6,
            write_rate: 30e6,
            scattered_write: Duration::from_micros(1500),
            flush: Duration::from_millis(5),
            seek: None,
            turn: Duration::ZERO,
            order: RequestOrder::Fifo,
            parallel: 1,
            depth: 32,
            longest_wait: Duration::from_millis(300),
        },
        DiskProfile {
            name: "hdd",
            command: Duration::from_micros(100),
            read_rate: 100e6,
            write_rate: 100e6,
            scattered_write: Duration::ZERO,
            flush: Duration::from_millis(8),
            seek: Some((Duration::from_millis(1), Duration::from_millis(12))),
            turn: Duration::from_millis(11),
            order: RequestOrder::Nearest,
            parallel: 1,
            depth: 32,
            longest_wait: Duration::from_millis(300),
        },
        DiskProfile {
            name: "sd",
            command: Duration::from_micros(500),
            read_rate: 80e6,
            write_rate: 12e6,
            scattered_write: Duration::from_millis(6),
            flush: Duration::from_millis(20),
            seek: None,
            turn: Duration::ZERO,
            order: RequestOrder::Fifo,
            parallel: 1,
            depth: 32,
            longest_wait: Duration::from_millis(300),
        },
        DiskProfile {
            name: "ssd",
            command: Duration::from_micros(80),
            read_rate: 500e6,
            write_rate: 400e6,
            scattered_write: Duration::from_micros(20),
            flush: Duration::from_millis(1),
            seek: None,
            turn: Duration::ZERO,
            order: RequestOrder::Fifo,
            parallel: 8,
            depth: 32,
            longest_wait: Duration::from_millis(300),
        },
    ];

    /// Finds a kind by its name.
    #[must_use]
    pub fn named(name: &str) -> Option<DiskProfile> {
        DiskProfile::ALL.into_iter().find(|profile| profile.name == name)
    }

    /// Returns whether it turns.
    #[must_use]
    pub fn is_rotational(&self) -> bool {
        self.seek.is_some()
    }

    /// Returns what `request` takes when the disk of `size` bytes has just served up to `head`.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "times are known to a microsecond")]
    pub fn takes(&self, request: DiskRequest, head: u64, size: u64) -> Duration {
        let (at, len, rate) = match request {
            DiskRequest::Read { at, len } => (at, len, self.read_rate),
            DiskRequest::Write { at, len } => (at, len, self.write_rate),
            DiskRequest::Flush => return self.flush,
        };
        let mut time = self.command + Duration::from_secs_f64(len as f64 / rate);
        if at != head {
            if matches!(request, DiskRequest::Write { .. }) {
                time += self.scattered_write;
            }
            if let Some((near, far)) = self.seek {
                // The arm speeds up half of the way and slows down the other half.
                let distance = (at.abs_diff(head) as f64 / size.max(1) as f64).min(1.0).sqrt();
                time += near + far.saturating_sub(near).mul_f64(distance);
                time += self.turn.mul_f64(angle(at, head));
            }
        }
        time
    }

    /// Returns which of `waiting`, the oldest first, is taken next: its place in the list. `now` and the times count from the same moment.
    #[must_use]
    pub fn next(
        &self,
        waiting: &[(DiskRequest, Duration)],
        head: u64,
        now: Duration,
    ) -> Option<usize> {
        let (_, oldest) = waiting.first()?;
        if self.order == RequestOrder::Fifo || now.saturating_sub(*oldest) > self.longest_wait {
            return Some(0);
        }
        let distance = |request: &DiskRequest| match request {
            DiskRequest::Read { at, .. } | DiskRequest::Write { at, .. } => at.abs_diff(head),
            // A flush waits for what came before it.
            DiskRequest::Flush => u64::MAX,
        };
        let nearest = waiting.iter().enumerate().take(self.depth);
        nearest.min_by_key(|(_, (request, _))| distance(request)).map(|(place, _)| place)
    }
}

/// Returns how far the disk has to turn, 0 to 1: as good as random, and the same for the same places.
#[expect(clippy::cast_precision_loss, reason = "it is as good as random")]
fn angle(at: u64, head: u64) -> f64 {
    let mixed = (at ^ head.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 1 << 30;

    fn named(name: &str) -> DiskProfile {
        DiskProfile::named(name).unwrap()
    }

    #[test]
    fn a_request_takes_what_its_kind_of_disk_takes() {
        let emmc = named("emmc");
        let ms = |request, head| emmc.takes(request, head, SIZE).as_secs_f64() * 1e3;
        let read = DiskRequest::Read { at: 4096, len: 150_000 };
        assert!((ms(read, 0) - 1.25).abs() < 1e-6);
        assert!((ms(read, 4096) - 1.25).abs() < 1e-6, "flash has no head");
        let write = DiskRequest::Write { at: 4096, len: 30_000 };
        assert!((ms(write, 4096) - 1.25).abs() < 1e-6);
        assert!((ms(write, 0) - 2.75).abs() < 1e-6);
        assert!((ms(DiskRequest::Flush, 0) - 5.0).abs() < 1e-6);
    }

    #[test]
    fn a_disk_that_turns_takes_longer_for_far_places_and_always_the_same() {
        let hdd = named("hdd");
        let read = |at| DiskRequest::Read { at, len: 4096 };
        let there = hdd.takes(read(0), 0, SIZE);
        assert!(there < Duration::from_millis(1), "it is there already");
        for at in (1..100).map(|part| SIZE / 100 * part) {
            let time = hdd.takes(read(at), 0, SIZE);
            assert!(time > Duration::from_millis(2) && time < Duration::from_millis(25));
            assert_eq!(time, hdd.takes(read(at), 0, SIZE));
        }
    }

    #[test]
    fn the_nearest_is_taken_but_nobody_waits_for_ever() {
        let hdd = named("hdd");
        let far = (DiskRequest::Read { at: SIZE, len: 1 }, Duration::ZERO);
        let near = (DiskRequest::Read { at: 10, len: 1 }, Duration::from_millis(5));
        let flush = (DiskRequest::Flush, Duration::ZERO);
        let soon = Duration::from_millis(10);
        assert_eq!(hdd.next(&[far, near], 0, soon), Some(1));
        assert_eq!(hdd.next(&[far, near], 0, Duration::from_millis(301)), Some(0));
        assert_eq!(hdd.next(&[flush, far], 0, soon), Some(1));
        assert_eq!(named("emmc").next(&[far, near], 0, soon), Some(0));
        assert_eq!(hdd.next(&[], 0, soon), None);
    }
}
