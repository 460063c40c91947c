//! Reads what is to be run, and how.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use host::client::order::HostOrder;

use crate::error::{Error, FailureCategory};

/// Variables take no more room than this: the kernel would not take them either.
const MOST_VARIABLES: u64 = 64 << 20;

/// Makes the order for a command that starts here, without anything else.
pub(super) fn here(command: &[OsString]) -> Result<HostOrder, Error> {
    let here = std::env::current_dir()
        .map_err(|error| Error::new(FailureCategory::User, "find this directory").because(error))?;
    Ok(HostOrder::new(command, here))
}

/// Gives the command descriptors of ours.
pub(super) fn forward(order: &mut HostOrder, numbers: &[i32]) -> Result<(), Error> {
    for number in numbers {
        let what = format!("pass on descriptor {number}");
        let forwarded = order.forward(*number);
        forwarded.map_err(|error| Error::new(FailureCategory::User, what).because(error))?;
    }
    Ok(())
}

/// Reads `NAME=VALUE`.
pub(super) fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("say NAME=VALUE".to_owned()),
    }
}

/// Reads a time as `timeout` does: `1.5s`, `10m`, `2h`, `1d`; without a unit, seconds.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|number| Duration::try_from_secs_f64(number).ok());
    match seconds
        .map_or_else(|| ::report::duration::parse(text).map_err(|error| error.to_string()), Ok)?
    {
        Duration::ZERO => Err("the time must be longer than nothing".to_owned()),
        time => Ok(time),
    }
}

/// Reads the variables behind a descriptor, each ended by a zero byte.
pub(super) fn variables_in(number: i32) -> Result<Vec<(String, String)>, Error> {
    let cannot =
        || Error::new(FailureCategory::User, format!("read variables from descriptor {number}"));
    let descriptor = sys::descriptor::inherited(number).map_err(|error| cannot().because(error))?;
    let mut bytes = Vec::new();
    let read = std::fs::File::from(descriptor).take(MOST_VARIABLES).read_to_end(&mut bytes);
    read.map_err(|error| cannot().because(error))?;
    let ended = bytes.strip_suffix(b"\0").unwrap_or(&bytes);
    if ended.is_empty() {
        return Ok(Vec::new());
    }
    let one = |bytes: &[u8]| {
        let text = str::from_utf8(bytes).map_err(|error| cannot().because(error))?;
        variable(text).map_err(|_| cannot().because(format!("{text:?} is not NAME=VALUE")))
    };
    ended.split(|byte| *byte == 0).map(one).collect()
}

/// Returns a path that means the same in another process.
pub(super) fn absolute(path: &Path) -> Result<Vec<u8>, Error> {
    let absolute = std::path::absolute(path).map_err(|error: io::Error| {
        Error::new(FailureCategory::User, format!("find {}", path.display())).because(error)
    })?;
    Ok(AsRef::<OsStr>::as_ref(&absolute).as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_units_of_timeout() {
        assert_eq!(time("1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!(time("200ms"), Ok(Duration::from_millis(200)));
        assert_eq!(time("10m"), Ok(Duration::from_secs(600)));
        assert_eq!(time("1d"), Ok(Duration::from_secs(86400)));
        for wrong in ["", "0", "-1s", "5 moons", "NaN", "inf", "1e400h"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_variable_has_a_name() {
        assert_eq!(variable("A=b=c"), Ok(("A".into(), "b=c".into())));
        assert_eq!(variable("A="), Ok(("A".into(), String::new())));
        assert!(variable("=b").is_err() && variable("A").is_err());
    }
}
