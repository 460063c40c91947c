//! The local time zone.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::OnceLock;

use jiff::tz::TimeZone;

/// Returns the local time zone, read once; `asked_for` is the value of `TZ`.
///
/// The library looks for its name among all zones of the system, and reads their directories for that: more than all else that a small listing does.
#[must_use]
pub fn local(asked_for: Option<&OsStr>) -> TimeZone {
    static ZONE: OnceLock<TimeZone> = OnceLock::new();
    let read = || {
        let linked = match asked_for {
            Some(_) => None,
            None => linked_zone(Path::new("/etc/localtime")),
        };
        linked.unwrap_or_else(TimeZone::system)
    };
    ZONE.get_or_init(read).clone()
}

/// Reads the zone to which a link leads, named by its place in the system's zones; nothing where it is no such link.
fn linked_zone(link: &Path) -> Option<TimeZone> {
    let target = std::fs::read_link(link).ok()?;
    let (_, name) = target.to_str()?.split_once("/zoneinfo/")?;
    TimeZone::tzif(name, &std::fs::read(link).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn a_linked_zone_is_the_one_that_the_library_finds_by_its_name() {
        let directory = tempfile::tempdir().unwrap();
        for (number, name) in ["Europe/Berlin", "America/St_Johns", "Etc/UTC"].iter().enumerate() {
            let target = Path::new("/usr/share/zoneinfo").join(name);
            if !target.exists() {
                continue;
            }
            let link = directory.path().join(number.to_string());
            std::os::unix::fs::symlink(&target, &link).unwrap();
            let (linked, found) = (linked_zone(&link).unwrap(), TimeZone::get(name).unwrap());
            for second in (0..2_000_000_000).step_by(7_654_321) {
                let moment = Timestamp::from_second(second).unwrap();
                let shown = |zone: &TimeZone| moment.to_zoned(zone.clone()).to_string();
                assert_eq!(shown(&linked), shown(&found));
            }
        }
        // What is no link to a zone is left to the library.
        assert!(linked_zone(directory.path()).is_none());
        assert!(linked_zone(&directory.path().join("nothing")).is_none());
        let elsewhere = directory.path().join("elsewhere");
        std::os::unix::fs::symlink(directory.path(), &elsewhere).unwrap();
        assert!(linked_zone(&elsewhere).is_none());
    }
}
