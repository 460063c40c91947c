//! What a keeper and its service tell each other: short messages of a byte and numbers.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use sys::pidfd::Ended;
use sys::socket::{Full, receive, send};

use crate::host::log::EndedBy;

/// What a keeper tells.
#[derive(Debug)]
pub enum Report {
    /// The command began.
    Began {
        /// Its number.
        pid: u32,
        /// The process itself.
        pidfd: OwnedFd,
    },
    /// The command could not be started, and the keeper is ending.
    NotStarted(io::Error),
    /// The command ended.
    Ended(Ended, EndedBy),
}

/// What a keeper is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The caller is gone: everything is to end, if that was its wish.
    Gone,
    /// The caller's terminal may have another size now.
    Size,
}

/// The longest message.
const MOST_BYTES: usize = 64;

impl Order {
    /// Gives the order; a keeper that has ended needs none.
    ///
    /// # Errors
    ///
    /// The keeper is gone or does not listen.
    pub fn send(self, keeper: impl AsFd) -> io::Result<()> {
        let byte = match self {
            Order::Gone => b'g',
            Order::Size => b's',
        };
        send(keeper, &[byte], None, Full::Fail)
    }

    /// Takes an order; `None` when the service is gone.
    pub(super) fn receive(service: impl AsFd) -> io::Result<Option<Order>> {
        let mut buffer = [0; MOST_BYTES];
        let received = receive(service, &mut buffer)?;
        Ok(match buffer.get(..received.length) {
            Some([b's']) => Some(Order::Size),
            Some([]) => None,
            // Whatever else a service may say: one that is not understood is as good as none.
            _ => Some(Order::Gone),
        })
    }
}

impl Report {
    pub(super) fn send(&self, service: impl AsFd) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(MOST_BYTES);
        let mut passed = None;
        match self {
            Report::Began { pid, pidfd } => {
                bytes.push(b'b');
                bytes.extend(pid.to_le_bytes());
                passed = Some(pidfd.as_fd());
            }
            Report::NotStarted(error) => {
                bytes.push(b'n');
                bytes.extend(error.raw_os_error().unwrap_or(libc_einval()).to_le_bytes());
            }
            Report::Ended(ended, by) => {
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

    fn read(bytes: &[u8], passed: Option<OwnedFd>) -> Option<Report> {
        let (kind, rest) = bytes.split_first()?;
        match kind {
            b'b' => {
                let pid = u32::from_le_bytes(rest.try_into().ok()?);
                Some(Report::Began { pid, pidfd: passed? })
            }
            b'n' => {
                let code = i32::from_le_bytes(rest.try_into().ok()?);
                Some(Report::NotStarted(io::Error::from_raw_os_error(code)))
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
                let ended = Ended {
                    wait_status: i32::from_le_bytes(*status),
                    user: Duration::from_micros(u64::from_le_bytes(*user)),
                    system: Duration::from_micros(u64::from_le_bytes(*system)),
                    memory_bytes: u64::from_le_bytes(*memory),
                };
                Some(Report::Ended(ended, by))
            }
            _ => None,
        }
    }
}

fn libc_einval() -> i32 {
    rustix::io::Errno::INVAL.raw_os_error()
}

/// Takes a report; `None` when the keeper is gone.
///
/// # Errors
///
/// `WouldBlock` if there is none yet; `InvalidData` if it is none.
pub fn reports(keeper: impl AsFd) -> io::Result<Option<Report>> {
    let mut buffer = [0; MOST_BYTES];
    let received = match receive(keeper, &mut buffer) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
        other => other?,
    };
    if received.length == 0 {
        return Ok(None);
    }
    let bytes = buffer.get(..received.length).unwrap_or_default();
    Report::read(bytes, received.descriptor).map(Some).ok_or(io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_and_orders_arrive_as_they_were_sent() {
        let (keeper, service) = sys::socket::pair().unwrap();
        let own = sys::pidfd::open(std::process::id()).unwrap();
        Report::Began { pid: 70_000, pidfd: own }.send(&keeper).unwrap();
        let ended = Ended {
            wait_status: 139,
            user: Duration::from_micros(12_345_678),
            system: Duration::from_micros(9),
            memory_bytes: 1 << 40,
        };
        Report::Ended(ended, EndedBy::Timeout).send(&keeper).unwrap();
        Report::NotStarted(io::Error::from_raw_os_error(7)).send(&keeper).unwrap();
        assert!(matches!(reports(&service).unwrap(), Some(Report::Began { pid: 70_000, .. })));
        let next = reports(&service).unwrap();
        assert!(matches!(next, Some(Report::Ended(e, EndedBy::Timeout)) if e == ended));
        let next = reports(&service).unwrap();
        assert!(matches!(next, Some(Report::NotStarted(e)) if e.raw_os_error() == Some(7)));
        assert_eq!(reports(&service).unwrap_err().kind(), io::ErrorKind::WouldBlock);

        Order::Size.send(&service).unwrap();
        assert_eq!(Order::receive(&keeper).unwrap(), Some(Order::Size));
        send(&service, b"later", None, Full::Fail).unwrap();
        assert_eq!(Order::receive(&keeper).unwrap(), Some(Order::Gone));
        send(&keeper, b"nonsense", None, Full::Fail).unwrap();
        assert_eq!(reports(&service).unwrap_err().kind(), io::ErrorKind::InvalidData);
        drop(keeper);
        assert!(reports(&service).unwrap().is_none());
    }
}
