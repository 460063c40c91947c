//! Callers who would like to be somebody else, and programs that take another's name.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use zbus::message::Type;
use zbus::{Message, MessageStream, Variant};

use super::REFUSED;
use super::fixture::systemd::beside_systemd;
use super::fixture::{Bus, has, in_time, skip};
use super::host_service::raw::{Host, Which, shell, until};
use super::host_service::wire::{Wire, command};
use host::log::CommandOutcome;

/// Owns the name of the service manager until it is dropped, and tells everybody an environment.
struct FalseManager {
    _stop: tokio::sync::oneshot::Sender<()>,
    thread: Option<std::thread::JoinHandle<usize>>,
}

impl FalseManager {
    fn start(address: &str) -> FalseManager {
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let (tell, told) = std::sync::mpsc::channel();
        let address = address.to_owned();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let address = address.as_str();
                let builder = zbus::connection::Builder::address(address);
                let connection = builder.build().await.unwrap();
                let mut stream = MessageStream::from(&connection);
                connection.request_name("org.freedesktop.systemd1").await.unwrap();
                tell.send(()).unwrap();
                let answer = async {
                    let mut asked = 0;
                    while let Some(Ok(message)) = stream.next().await {
                        if message.message_type() != Type::MethodCall {
                            continue;
                        }
                        asked += 1;
                        let lie = Variant::from(vec!["STOLEN=yes", "PATH=/evil"]);
                        let answer = Message::method_return(&message.header()).build(&lie).unwrap();
                        connection.send(&answer).await.unwrap();
                    }
                    asked
                };
                tokio::select! {
                    asked = answer => asked,
                    _ = stopped => 0,
                }
            })
        });
        told.recv_timeout(Duration::from_secs(50)).expect("nobody took the manager's name");
        FalseManager { _stop: stop, thread: Some(thread) }
    }
}

#[test]
fn whoever_takes_the_name_of_the_service_manager_chooses_no_variables() {
    let Some(host) = Host::start(Which::Ours) else { return };
    let mut manager = FalseManager::start(host.bus.address());
    let mut raw = host.raw();
    for _ in 0..3 {
        assert_eq!(raw.output(&shell("echo ${STOLEN-honest}")).unwrap(), "honest\n");
    }
    let thread = manager.thread.take().unwrap();
    drop(manager);
    thread.join().unwrap();
}

#[test]
fn whoever_listens_in_the_place_of_the_service_manager_from_a_sandbox_is_not_asked() {
    in_time(|| {
        if !has(&["unshare", "python3"]) {
            return;
        }
        let Some(host) = Host::start(Which::Ours) else { return };
        let socket = host.bus.dir().join("run/systemd/private");
        std::fs::create_dir_all(socket.parent().unwrap()).unwrap();
        let script = "import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.bind(sys.argv[1])\ns.listen(8)\n\
                      print(flush=True)\nc,_=s.accept()\nprint('asked',repr(c.recv(100)),flush=True)";
        let mut other = Command::new("unshare");
        other.args(["--user", "--map-root-user", "--mount", "python3", "-c", script]).arg(&socket);
        let mut other = other.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(other.stdout.take().unwrap()).lines();
        if lines.next().is_none() {
            other.wait().unwrap();
            return skip("no namespaces");
        }
        assert_eq!(host.raw().run(&shell("exit 3")), Ok(3 << 8));
        // It is connected to, and nothing is said.
        assert_eq!(lines.next().unwrap().unwrap(), "asked b''");
        other.wait().unwrap();
    });
}

#[test]
fn the_real_service_manager_tells_the_variables_of_the_session() {
    in_time(|| {
        let script = r#"
$UNJANKD --names flatpak >/run/unjankd.log 2>&1 &
has='--session --print-reply --dest=org.freedesktop.DBus / org.freedesktop.DBus.NameHasOwner string:org.freedesktop.Flatpak'
until dbus-send $has | grep -q true; do :; done
systemctl --user set-environment MARK=one
$UNJANK host -- sh -c 'echo $MARK'
systemctl --user set-environment MARK=two
# An answer counts for a second.
until [ "$($UNJANK host -- sh -c 'echo $MARK')" = two ]; do :; done
echo two
"#;
        let Some(output) = beside_systemd(script) else { return };
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(said, "one\ntwo\n", "{}", String::from_utf8_lossy(&output.stderr));
    });
}

/// A process with other files than ours connects, gives its connection to us, and ends; then another process gets its
/// number.
struct Inherited {
    stream: UnixStream,
    heir: std::process::Child,
}

impl Drop for Inherited {
    fn drop(&mut self) {
        let _ = self.heir.kill();
        let _ = self.heir.wait();
    }
}

/// Connects to the bus, greets it, and passes the connection on at descriptor 3.
const CONNECT: &str = r#"
import array, os, socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.send(b'\0AUTH EXTERNAL ' + str(os.getuid()).encode().hex().encode() + b'\r\nNEGOTIATE_UNIX_FD\r\n')
text = b''
while text.count(b'\n') < 2:
    text += s.recv(100)
s.send(b'BEGIN\r\n')
out = socket.socket(fileno=0)
out.sendmsg([str(os.getpid()).encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [s.fileno()]))])
"#;

fn inherit(bus: &Bus) -> Option<Inherited> {
    if !rustix::process::geteuid().is_root() {
        skip("only root can choose the number of a process");
        return None;
    }
    if !has(&["unshare", "python3"]) {
        return None;
    }
    let path = bus.address().split_once("path=").unwrap().1.split(',').next().unwrap().to_owned();
    let start = Instant::now();
    // Somebody else may get the number first.
    while start.elapsed() < Duration::from_secs(50) {
        let (ours, theirs) = sys::socket::pair().unwrap();
        let mut one = Command::new("unshare");
        one.args(["--mount", "python3", "-c", CONNECT, &path]).stdin(theirs);
        assert!(one.status().unwrap().success());
        let mut buffer = [0; 16];
        let received = sys::socket::receive(&ours, &mut buffer).unwrap();
        let pid: u32 = str::from_utf8(&buffer[..received.length]).unwrap().parse().unwrap();
        let stream = UnixStream::from(received.descriptor.unwrap());
        for _ in 0..50 {
            let mut last =
                std::fs::File::options().write(true).open("/proc/sys/kernel/ns_last_pid");
            let last = last.as_mut().unwrap();
            write!(last, "{}", pid - 1).unwrap();
            let mut heir = Command::new("sleep").arg("1000").spawn().unwrap();
            if heir.id() == pid {
                return Some(Inherited { stream, heir });
            }
            heir.kill().unwrap();
            heir.wait().unwrap();
        }
    }
    skip("the number of a process was always taken by somebody else");
    None
}

#[test]
fn a_connection_does_not_become_the_hosts_when_its_process_number_does() {
    let Some(host) = Host::under("[org.some.App]\ndeny *\n") else { return };
    let Some(inherited) = inherit(&host.bus) else { return };
    let mut wire = Wire::over(inherited.stream.try_clone().unwrap());
    let wanted = shell("exit 0");
    let answer = wire.call("HostCommand", "ayaaya{uh}a{ss}u", &command(&wanted, &[]), &[]);
    assert_eq!(answer.unwrap(), Err(REFUSED.to_owned()));
    assert!(until(|| !host.log().is_empty()), "nothing is logged");
    let log = host.log();
    // Where the service heard of the connection in time it knows that the process began later, and else that it does not
    // hold it.
    let CommandOutcome::Refused(why) = &log[0].outcome else { panic!("{log:#?}") };
    assert!(why.contains("began after") || why.contains("does not hold"), "{why}");
}

#[test]
fn a_connection_that_is_older_than_the_service_is_no_ones_but_its_processs() {
    let Some(bus) = Bus::start() else { return };
    let Some(inherited) = inherit(&bus) else { return };
    let host = Host::on(bus, Which::Ours);
    host.set_policy("[org.some.App]\ndeny *\n");
    let mut wire = Wire::over(inherited.stream.try_clone().unwrap());
    let wanted = shell("exit 0");
    let answer = wire.call("HostCommand", "ayaaya{uh}a{ss}u", &command(&wanted, &[]), &[]);
    assert_eq!(answer.unwrap(), Err(REFUSED.to_owned()));
    // Whoever holds his own is served.
    assert_eq!(host.raw().run(&shell("exit 4")), Ok(4 << 8));
}
