//! A profile as a file that people edit: `[disk]`, times in microseconds, rates in bytes a second.

use std::fmt::Write as _;
use std::time::Duration;

use xdg::keyfile::{KeyFile, KeyFileError};

use super::fuse::MOST_PARALLEL;
use super::profile::{DiskProfile, RequestOrder};

const GROUP: &str = "disk";
/// What a profile of a person's own is called in records.
const OWN: &str = "own";
/// No step of a disk takes longer.
const LONGEST_US: u64 = 60_000_000;
/// Nor is a disk slower or faster than that.
const RATES: std::ops::RangeInclusive<f64> = 1e3..=1e11;

/// Why a text is no profile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// It is no file of groups and keys.
    #[error("cannot read the profile")]
    Syntax(#[source] KeyFileError),
    /// It has a group or a key that says nothing here.
    #[error("unknown key {0:?}; `unjank slowdisk profile` prints all keys")]
    Unknown(String),
    /// A value is not what its key wants.
    #[error("cannot use {value:?} for {key}: it is {wanted}")]
    Value {
        /// The key.
        key: String,
        /// What stands there.
        value: String,
        /// What would do.
        wanted: &'static str,
    },
    /// One of the two distances of a disk that turns is missing.
    #[error("cannot compute seeks from one distance; give seek-near-us and seek-far-us")]
    HalfASeek,
}

impl DiskProfile {
    /// Writes it as a file that [`DiskProfile::parse`] reads.
    #[must_use]
    pub fn to_text(&self) -> String {
        let us = |time: Duration| time.as_micros();
        let mut text = format!(
            "\
# A disk for `unjank slowdisk mount --profile FILE`; what is left out is as in the kind that it is like.
[disk]
like={}
# Microseconds for each request, for a write that does not begin where the last one ended, for a flush.
command-us={}
scattered-write-us={}
flush-us={}
# Bytes a second.
read-rate={}
write-rate={}
",
            if DiskProfile::named(self.name).is_some() { self.name } else { "ssd" },
            us(self.command),
            us(self.scattered_write),
            us(self.flush),
            self.read_rate,
            self.write_rate,
        );
        text.push_str("# Microseconds to the next track and across the whole disk, and for a turn: 0 for flash.\n");
        let (near, far) = self.seek.unwrap_or_default();
        // Writing to a text does not fail.
        let _ = write!(
            text,
            "\
seek-near-us={}
seek-far-us={}
turn-us={}
# fifo (as they come) or nearest; of how many that wait; the longest wait of any; how many at a time.
order={}
depth={}
longest-wait-us={}
parallel={}
",
            us(near),
            us(far),
            us(self.turn),
            self.order.name(),
            self.depth,
            us(self.longest_wait),
            self.parallel,
        );
        text
    }

    /// Reads a profile. Keys that are left out are those of the kind named by `like`, or of an `ssd`.
    ///
    /// # Errors
    ///
    /// What is wrong first.
    pub fn parse(text: &[u8]) -> Result<DiskProfile, ProfileError> {
        let file = KeyFile::parse(text).map_err(ProfileError::Syntax)?;
        if let Some(group) = file.groups().find(|group| *group != GROUP) {
            return Err(ProfileError::Unknown(group.to_owned()));
        }
        let like = file.get(GROUP, "like").unwrap_or("ssd").trim();
        let mut profile = DiskProfile::named(like)
            .ok_or_else(|| wrong("like", like, "one of emmc, hdd, sd and ssd"))?;
        let (mut near, mut far) = profile.seek.unwrap_or_default();
        let mut is_own = false;
        for (key, value) in file.entries(GROUP) {
            let value = value.trim();
            let us = || {
                let number = value.parse().ok().filter(|us| *us <= LONGEST_US);
                let number =
                    number.ok_or_else(|| wrong(key, value, "microseconds, a minute at most"));
                number.map(Duration::from_micros)
            };
            let rate = || {
                let number = value.parse::<f64>().ok().filter(|rate| RATES.contains(rate));
                number.ok_or_else(|| wrong(key, value, "bytes a second, from 1e3 to 1e11"))
            };
            let count = |most: usize| {
                let number = value.parse::<usize>().ok().filter(|count| (1..=most).contains(count));
                number.ok_or_else(|| {
                    wrong(key, value, "a number from 1; parallel has at most 64, depth 1024")
                })
            };
            match key {
                "like" => continue,
                "command-us" => profile.command = us()?,
                "scattered-write-us" => profile.scattered_write = us()?,
                "flush-us" => profile.flush = us()?,
                "read-rate" => profile.read_rate = rate()?,
                "write-rate" => profile.write_rate = rate()?,
                "seek-near-us" => near = us()?,
                "seek-far-us" => far = us()?,
                "turn-us" => profile.turn = us()?,
                "order" => {
                    profile.order = RequestOrder::named(value)
                        .ok_or_else(|| wrong(key, value, "fifo or nearest"))?;
                }
                "depth" => profile.depth = count(1024)?,
                "longest-wait-us" => profile.longest_wait = us()?,
                "parallel" => profile.parallel = count(MOST_PARALLEL)?,
                other => return Err(ProfileError::Unknown(other.to_owned())),
            }
            is_own = true;
        }
        profile.seek = match (near.is_zero(), far.is_zero()) {
            (true, true) => None,
            (false, false) => Some((near, far)),
            _ => return Err(ProfileError::HalfASeek),
        };
        if is_own && DiskProfile::named(like) != Some(profile) {
            profile.name = OWN;
        }
        Ok(profile)
    }
}

fn wrong(key: &str, value: &str, wanted: &'static str) -> ProfileError {
    ProfileError::Value { key: key.to_owned(), value: value.to_owned(), wanted }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_read_as_it_was_written() {
        for profile in DiskProfile::ALL {
            assert_eq!(DiskProfile::parse(profile.to_text().as_bytes()), Ok(profile));
        }
    }

    #[test]
    fn what_is_changed_differs_and_the_rest_is_as_in_the_kind() {
        let own = DiskProfile::parse(b"[disk]\nlike=emmc\nflush-us = 90000\nparallel=2\n").unwrap();
        let emmc = DiskProfile::named("emmc").unwrap();
        assert_eq!((own.flush, own.parallel, own.name), (Duration::from_millis(90), 2, "own"));
        assert_eq!((own.write_rate, own.order), (emmc.write_rate, emmc.order));
        assert_eq!(DiskProfile::parse(own.to_text().as_bytes()), Ok(own), "also the changed one");
    }

    #[test]
    fn what_is_wrong_is_named() {
        let said = |text: &str| DiskProfile::parse(text.as_bytes()).unwrap_err().to_string();
        assert!(said("[disk]\nflush=1\n").contains("\"flush\""));
        assert!(said("[disk]\nread-rate=0\n").contains("read-rate"));
        assert!(said("[disk]\nread-rate=NaN\n").contains("read-rate"));
        assert!(said("[disk]\nread-rate=inf\n").contains("read-rate"));
        assert!(said("[disk]\nparallel=65\n").contains("parallel"));
        assert!(said("[disk]\nparallel=0\n").contains("parallel"));
        assert!(said("[disk]\nturn-us=-1\n").contains("turn-us"));
        assert!(said("[disk]\nlike=tape\n").contains("tape"));
        assert!(said("[disk]\nseek-far-us=5\n").contains("seek-near-us"));
        assert!(said("[drive]\n").contains("drive"));
        assert!(said("order=fifo").contains("read the profile"));
    }
}
