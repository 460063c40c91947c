//! The variables that commands get from the session.

use std::collections::HashMap;

/// Variables that describe the service's own process, and would be wrong for a command.
const OWN: [&[u8]; 14] = [
    b"NOTIFY_SOCKET",
    b"LISTEN_FDS",
    b"LISTEN_PID",
    b"LISTEN_FDNAMES",
    b"WATCHDOG_PID",
    b"WATCHDOG_USEC",
    b"INVOCATION_ID",
    b"JOURNAL_STREAM",
    b"SYSTEMD_EXEC_PID",
    b"MANAGERPID",
    b"MEMORY_PRESSURE_WATCH",
    b"MEMORY_PRESSURE_WRITE",
    b"DBUS_STARTER_ADDRESS",
    b"DBUS_STARTER_BUS_TYPE",
];

/// The environment of the session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionEnvironment(HashMap<Vec<u8>, Vec<u8>>);

impl SessionEnvironment {
    /// Creates the environment of these variables, without those that describe the service alone.
    pub fn of(variables: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>) -> SessionEnvironment {
        let meant =
            |(name, _): &(Vec<u8>, Vec<u8>)| !name.is_empty() && !OWN.contains(&name.as_slice());
        SessionEnvironment(variables.into_iter().filter(meant).collect())
    }

    /// Creates the environment of a service manager's block, with `NAME=value` each.
    #[must_use]
    pub fn of_block(block: &[String]) -> SessionEnvironment {
        let pairs = block.iter().filter_map(|line| line.split_once('='));
        SessionEnvironment::of(pairs.map(|(name, value)| (name.into(), value.into())))
    }

    /// Returns the variables.
    #[must_use]
    pub fn variables(&self) -> &HashMap<Vec<u8>, Vec<u8>> {
        &self.0
    }

    /// Returns a variable.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.0.get(name.as_bytes()).map(Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_about_the_service_alone_is_left_out() {
        let block = ["A=b=c", "NOTIFY_SOCKET=/run/x", "nonsense", "=x", "E="].map(str::to_owned);
        let environment = SessionEnvironment::of_block(&block);
        assert_eq!(environment.get("A"), Some(b"b=c".as_slice()));
        assert_eq!(environment.get("E"), Some(b"".as_slice()));
        assert_eq!(environment.variables().len(), 2);
    }
}
