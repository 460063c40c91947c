//! So many descriptors on their way that the kernel sends no more for a while: a client waits for that.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use super::fixture::{has, in_time, pause};
use super::{Host, SMALL, UNJANK};

/// The descriptors that the client may have open, and those that are on their way.
const LIMIT: usize = 128;
const ON_THEIR_WAY: usize = 200;
/// A client that waits for an answer alone is off the processor less often.
const OFTEN: u64 = 60;
/// Longer than anything takes, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often a process gave its processor up.
fn waits(child: &Child) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
    let waits = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
    waits.trim().parse().ok()
}

#[test]
fn a_client_waits_while_the_kernel_sends_no_more_descriptors_of_the_user() {
    in_time(|| {
        // The kernel counts those of the user, and lets root send on.
        if !has(&["setpriv"]) {
            return;
        }
        let Some(host) = Host::ours() else { return };
        for client in [&[UNJANK, "host", "--"][..], &[SMALL]] {
            let (there, here) = UnixStream::pair().unwrap();
            let null = std::fs::File::open("/dev/null").unwrap();
            sys::stream::send(&there, b"x", &[null.as_fd(); ON_THEIR_WAY]).unwrap();
            let script = format!("ulimit -Sn {LIMIT}; exec \"$@\"");
            let mut command = if rustix::process::geteuid().is_root() {
                let mut command = host.bus.command("setpriv");
                command.args(["--bounding-set=-sys_resource,-sys_admin", "sh"]);
                command
            } else {
                host.bus.command("sh")
            };
            command.args(["-c", &script, "sh"]).args(client).args(["sh", "-c", "exit 7"]);
            let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
            let end = Instant::now() + PATIENCE;
            while child.try_wait().unwrap().is_none() && waits(&child).is_none_or(|it| it < OFTEN) {
                assert!(Instant::now() < end, "{client:?} neither ended nor tried again");
                pause();
            }
            // They have arrived.
            drop((there, here));
            let output = child.wait_with_output().unwrap();
            assert_eq!(output.status.code(), Some(7), "{client:?}: {output:?}");
        }
    });
}
