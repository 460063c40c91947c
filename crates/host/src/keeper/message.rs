//! The messages between a keeper and its service: a byte, followed by numbers.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use sys::pidfd::ProcessEnd;
use sys::socket::{Full, has_unread, receive, send};

use crate::log::EndedBy;

/// A report of a keeper.
#[derive(Debug)]
pub enum KeeperReport {
    /// The command began.
    Began {
        /// Its number.
        pid: u32,
        /// The descriptor of the process.
        pidfd: OwnedFd,
    },
    /// The command could not be started, and the keeper is ending.
    NotStarted(io::Error),
    /// The command ended.
    Ended(ProcessEnd, EndedBy),
}

/// A request to a keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeeperRequest {
    /// The caller is gone: everything ends, if the caller requested that.
    Gone,
    /// The size of the caller's terminal may have changed.
    Size,
}

/// The longest message.
const MOST_BYTES: usize = 64;

impl KeeperRequest {
    /// Sends the request.
    ///
    /// A size is only sent where nothing is unread: the keeper looks for itself when it reads what is there. So however
    /// often the size changes while a keeper is stopped, there is room to tell it that its caller is gone.
    ///
    /// # Errors
    ///
    /// The keeper has ended or does not read.
    pub fn send(self, keeper: impl AsFd) -> io::Result<()> {
        let byte = match self {
            KeeperRequest::Gone => b'g',
            KeeperRequest::Size => {
                if has_unread(&keeper)? {
                    return Ok(());
                }
                b's'
            }
        };
        send(keeper, &[byte], None, Full::Fail)
    }

    /// Receives a request; `None` when the service has ended.
    pub(super) fn receive(service: impl AsFd) -> io::Result<Option<KeeperRequest>> {
        let mut buffer = [0; MOST_BYTES];
        let received = receive(service, &mut buffer)?;
        Ok(match buffer.get(..received.length) {
            Some([b's']) => Some(KeeperRequest::Size),
            Some([]) => None,
            // An unknown request is ignored.
            _ => Some(KeeperRequest::Gone),
        })
    }
}

impl KeeperReport {
    pub(super) fn send(&self, service: impl AsFd) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(MOST_BYTES);
        let mut passed = None;
        match self {
            KeeperReport::Began { pid, pidfd } => {
                bytes.push(b'b');
                bytes.extend(pid.to_le_bytes());
                passed = Some(pidfd.as_fd());
            }
            KeeperReport::NotStarted(error) => {
                bytes.push(b'n');
                bytes.extend(error.raw_os_error().unwrap_or(libc_einval()).to_le_bytes());
            }
            KeeperReport::Ended(ended, by) => {
                bytes.push(b'e');
                bytes.extend(ended.wait_status.to_le_bytes());
                for time in [ended.user, ended.system] {
                    bytes.extend(u64::try_from(time.as_micros()).unwrap_or(0).to_le_bytes());
                }
                bytes.extend(ended.memory_bytes.to_le_bytes());
                bytes.push(match by {
                    EndedBy::Itself => 0,
                    EndedBy::CallerGone => 1,
                    EndedBy::Timeout => 2,
                });
            }
        }
        send(service, &bytes, passed, Full::Wait)
    }

    fn read(bytes: &[u8], passed: Option<OwnedFd>) -> Option<KeeperReport> {
        let (kind, rest) = bytes.split_first()?;
        match kind {
            b'b' => {
                let pid = u32::from_le_bytes(rest.try_into().ok()?);
                Some(KeeperReport::Began { pid, pidfd: passed? })
            }
            b'n' => {
                let code = i32::from_le_bytes(rest.try_into().ok()?);
                Some(KeeperReport::NotStarted(io::Error::from_raw_os_error(code)))
            }
            b'e' => {
                let (status, rest) = rest.split_first_chunk()?;
                let (user, rest) = rest.split_first_chunk()?;
                let (system, rest) = rest.split_first_chunk()?;
                let (memory, rest) = rest.split_first_chunk()?;
                let by = match rest {
                    [0] => EndedBy::Itself,
                    [1] => EndedBy::CallerGone,
                    [2] => EndedBy::Timeout,
                    _ => return None,
                };
                let ended = ProcessEnd {
                    wait_status: i32::from_le_bytes(*status),
                    user: Duration::from_micros(u64::from_le_bytes(*user)),
                    system: Duration::from_micros(u64::from_le_bytes(*system)),
                    memory_bytes: u64::from_le_bytes(*memory),
                };
                Some(KeeperReport::Ended(ended, by))
            }
            _ => None,
        }
    }
}

fn libc_einval() -> i32 {
    rustix::io::Errno::INVAL.raw_os_error()
}

/// Receives a report; `None` when the keeper has ended.
///
/// # Errors
///
/// `WouldBlock` if there is none yet; `InvalidData` if it is invalid.
pub fn reports(keeper: impl AsFd) -> io::Result<Option<KeeperReport>> {
    let mut buffer = [0; MOST_BYTES];
    let received = receive(keeper, &mut buffer)?;
    if received.length == 0 {
        return Ok(None);
    }
    let bytes = buffer.get(..received.length).unwrap_or_default();
    KeeperReport::read(bytes, received.descriptor)
        .map(Some)
        .ok_or(io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_report_of_a_keeper_arrives_whatever_the_keeper_had_not_read() {
        let (keeper, service) = sys::socket::pair().unwrap();
        KeeperRequest::Size.send(&service).unwrap();
        let ended = ProcessEnd {
            wait_status: 3 << 8,
            user: Duration::ZERO,
            system: Duration::ZERO,
            memory_bytes: 0,
        };
        KeeperReport::Ended(ended, EndedBy::Itself).send(&keeper).unwrap();
        drop(keeper);
        // A program that another test is starting has a copy of the keeper's end until it runs.
        sys::socket::wait_hung_up(&service).unwrap();
        let last = reports(&service).unwrap();
        assert!(matches!(last, Some(KeeperReport::Ended(e, EndedBy::Itself)) if e == ended));
        assert!(reports(&service).unwrap().is_none());
    }

    #[test]
    fn a_keeper_that_does_not_listen_for_a_while_learns_that_its_caller_is_gone() {
        let (keeper, service) = sys::socket::pair().unwrap();
        for _ in 0..10_000 {
            KeeperRequest::Size.send(&service).unwrap();
        }
        KeeperRequest::Gone.send(&service).unwrap();
        let orders: Vec<_> =
            std::iter::from_fn(|| KeeperRequest::receive(&keeper).ok().flatten()).collect();
        assert_eq!(orders, [KeeperRequest::Size, KeeperRequest::Gone]);
        // The next size is told when the last was taken.
        KeeperRequest::Size.send(&service).unwrap();
        assert_eq!(KeeperRequest::receive(&keeper).unwrap(), Some(KeeperRequest::Size));
    }

    #[test]
    fn reports_and_orders_arrive_as_they_were_sent() {
        let (keeper, service) = sys::socket::pair().unwrap();
        let own = sys::pidfd::open(std::process::id()).unwrap();
        KeeperReport::Began { pid: 70_000, pidfd: own }.send(&keeper).unwrap();
        let ended = ProcessEnd {
            wait_status: 139,
            user: Duration::from_micros(12_345_678),
            system: Duration::from_micros(9),
            memory_bytes: 1 << 40,
        };
        KeeperReport::Ended(ended, EndedBy::Timeout).send(&keeper).unwrap();
        KeeperReport::NotStarted(io::Error::from_raw_os_error(7)).send(&keeper).unwrap();
        assert!(matches!(
            reports(&service).unwrap(),
            Some(KeeperReport::Began { pid: 70_000, .. })
        ));
        let next = reports(&service).unwrap();
        assert!(matches!(next, Some(KeeperReport::Ended(e, EndedBy::Timeout)) if e == ended));
        let next = reports(&service).unwrap();
        assert!(matches!(next, Some(KeeperReport::NotStarted(e)) if e.raw_os_error() == Some(7)));
        assert_eq!(reports(&service).unwrap_err().kind(), io::ErrorKind::WouldBlock);

        KeeperRequest::Size.send(&service).unwrap();
        assert_eq!(KeeperRequest::receive(&keeper).unwrap(), Some(KeeperRequest::Size));
        send(&service, b"later", None, Full::Fail).unwrap();
        assert_eq!(KeeperRequest::receive(&keeper).unwrap(), Some(KeeperRequest::Gone));
        send(&keeper, b"nonsense", None, Full::Fail).unwrap();
        assert_eq!(reports(&service).unwrap_err().kind(), io::ErrorKind::InvalidData);
        drop(keeper);
        // A program that another test is starting has a copy of the keeper's end until it runs.
        let ended = sys::socket::wait_readable(&service, Some(Duration::from_secs(30))).unwrap();
        assert!(ended, "the end of the connection did not come within 30 s");
        assert!(reports(&service).unwrap().is_none());
    }
}
