//! What a host command has to be, a case each: for our service, and for the one that we stand in for.
#![allow(dead_code, unreachable_pub, reason = "each test uses the part it needs")]
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "the cases are other programs; what cannot be set up fails the test"
)]

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::raw::{Host, INTERFACE, PATH, Raw, Refused, Wanted, Which, shell, state, until};
use super::wire::{self, Wire};

/// What is wrong with a service, or nothing.
pub type Found = Result<(), String>;
/// A case: its name, and what it does to a service.
pub type Case = (&'static str, fn(&mut Host) -> Found);

/// All cases.
pub const CASES: &[Case] = &[
    ("every exit status from 0 to 255", exits),
    ("every signal that ends a process", signals),
    ("a core dump is told", core),
    ("a stop and a continuation are no end", stop_and_continue),
    ("what cannot start has the error of its kind", not_started),
    ("a directory that is not there", no_directory),
    ("variables are added, and cleared", variables),
    ("the PATH that is given counts", path),
    ("every descriptor from 3 to 40 arrives", one_descriptor),
    ("13 descriptors at once", many_descriptors),
    ("descriptors go where their handles say", swapped),
    ("one handle for two descriptors", shared_handle),
    ("a number that no descriptor can have is refused", out_of_range),
    ("bytes without a zero at their end are read whole", no_zero),
    ("unknown flags are refused", flags),
    ("a signal that there is not is refused", wrong_signal),
    ("a command of somebody else is nobody's", strangers_command),
    ("a signal to the group reaches it", group_signal),
    ("a hundred commands at once", parallel),
    ("two hundred commands that end at once", immediate),
    ("a command goes on without its client", goes_on),
    ("--watch-bus ends a command with its client", watched),
    ("--watch-bus ends what ignores SIGINT", ignores_interrupt),
    ("--watch-bus ends what a shell put behind it", background),
    ("--watch-bus ends what made a session of its own", detached),
    ("a terminal controls the command", controlling_terminal),
    ("megabytes through standard output and back", bytes),
    ("statuses through the unmodified client", client_statuses),
    ("a session for flatpak run", session),
    ("--watch-bus ends a command with its service", service_killed),
    ("--watch-bus ends a command with the bus", bus_killed),
];

fn check(holds: bool, otherwise: impl Into<String>) -> Found {
    if holds { Ok(()) } else { Err(otherwise.into()) }
}

fn text(error: Refused) -> String {
    format!("{}: {}", error.0, error.1)
}

fn exits(host: &mut Host) -> Found {
    let mut raw = host.raw();
    for code in 0..256 {
        let status = raw.run(&shell(&format!("exit {code}"))).map_err(text)?;
        check(status == code << 8, format!("{code} is {status}"))?;
    }
    Ok(())
}

/// The status of the same command without any service.
fn directly(script: &str) -> u32 {
    let mut command = Command::new("sh");
    command.args(["-c", script]).current_dir("/tmp").process_group(0);
    command.stdin(Stdio::null()).stderr(Stdio::null());
    command.status().unwrap().into_raw().cast_unsigned()
}

fn signals(host: &mut Host) -> Found {
    let mut raw = host.raw();
    // Those that are ignored, or stop, or belong to libc.
    let harmless = [17, 18, 19, 20, 21, 22, 23, 28, 32, 33];
    for signal in (1..=64).filter(|signal| !harmless.contains(signal)) {
        let script = format!("ulimit -c 0; kill -{signal} $$; sleep 1000");
        let status = raw.run(&shell(&script)).map_err(text)?;
        check(status == signal, format!("{signal} is {status}"))?;
    }
    Ok(())
}

fn core(host: &mut Host) -> Found {
    let mut raw = host.raw();
    let script = "ulimit -c unlimited 2>/dev/null; cd $(mktemp -d); kill -SEGV $$";
    let status = raw.run(&shell(script)).map_err(text)?;
    check(status == directly(script), format!("{status}"))
}

fn stop_and_continue(host: &mut Host) -> Found {
    let mut raw = host.raw();
    let pid = raw.command(&shell("kill -STOP $$; exit 7")).map_err(text)?;
    check(until(|| state(pid) == Some('T')), "it does not stop")?;
    raw.signal(pid, 18, false).map_err(text)?;
    let status = raw.end(pid).map_err(text)?;
    check(status == 7 << 8, format!("{status}"))
}

fn wanted(word: &str) -> Wanted<'static> {
    Wanted { words: vec![format!("{word}\0").into_bytes()], ..shell("") }
}

fn not_started(host: &mut Host) -> Found {
    let mut raw = host.raw();
    let bad = host.bus.dir().join("bad");
    crate::fixture::script(&bad, "#!/nowhere/at/all\n");
    let plain = host.bus.dir().join("plain");
    std::fs::write(&plain, "text\n").unwrap();
    let (bad, plain) = (bad.to_str().unwrap(), plain.to_str().unwrap());
    for (word, error) in [
        ("nothing-of-this-name", "FileNotFound"),
        ("/nowhere/at/all", "FileNotFound"),
        (bad, "FileNotFound"),
        (plain, "AccessDenied"),
        ("/tmp", "AccessDenied"),
        ("", "InvalidArgs"),
    ] {
        let said = raw.command(&wanted(word)).map_err(|error| error.0);
        let error = format!("org.freedesktop.DBus.Error.{error}");
        check(said == Err(error.clone()), format!("{word:?}: {said:?}, not {error}"))?;
    }
    let nothing = Wanted { words: Vec::new(), ..shell("") };
    let said = raw.command(&nothing).map_err(|error| error.1);
    check(said == Err("No command given".to_owned()), format!("{said:?}"))
}

fn no_directory(host: &mut Host) -> Found {
    let said = host.raw().command(&Wanted { directory: b"/nowhere\0", ..shell("true") });
    let error = "Failed to start command: Failed to change to directory “/nowhere” \
                 (No such file or directory)";
    let error = ("org.freedesktop.DBus.Error.Failed".to_owned(), error.to_owned());
    check(said == Err(error), format!("{said:?}"))
}

fn variables(host: &mut Host) -> Found {
    let mut raw = host.raw();
    let script = "echo $HOME $A $B";
    let variables = vec![("A", "a b"), ("B", "=")];
    let said = raw.output(&Wanted { variables: variables.clone(), ..shell(script) });
    let home = host.bus.dir().join("home");
    check(said == Ok(format!("{} a b =\n", home.display())), format!("{said:?}"))?;
    let mut clear = Wanted { variables, flags: 1, ..wanted("/usr/bin/env") };
    clear.variables.sort_unstable();
    let said = raw.output(&clear).map_err(text)?;
    let mut lines: Vec<&str> = said.lines().collect();
    lines.sort_unstable();
    check(lines == ["A=a b", "B=="], format!("{lines:?}"))
}

fn path(host: &mut Host) -> Found {
    let dir = host.bus.dir().join("tools");
    std::fs::create_dir(&dir).unwrap();
    std::os::unix::fs::symlink("/bin/true", dir.join("only-here")).unwrap();
    let path = dir.to_str().unwrap().to_owned();
    let status =
        host.raw().run(&Wanted { variables: vec![("PATH", &path)], ..wanted("only-here") });
    check(status == Ok(0), format!("{status:?}"))
}

/// Runs a command with the write end of a pipe as these descriptors, and says what came through.
fn through(raw: &mut Raw, targets: &[u32]) -> Result<String, String> {
    let (mut read, write) = std::io::pipe().unwrap();
    let each: String =
        targets.iter().map(|target| format!("echo {target} >/dev/fd/{target};")).collect();
    let descriptors = targets.iter().map(|target| (*target, write.as_fd())).collect();
    let pid = raw.command(&Wanted { descriptors, ..shell(&each) }).map_err(text)?;
    drop(write);
    let mut heard = String::new();
    read.read_to_string(&mut heard).unwrap();
    raw.end(pid).map_err(text)?;
    Ok(heard)
}

fn one_descriptor(host: &mut Host) -> Found {
    let mut raw = host.raw();
    for target in 3..=40 {
        let heard = through(&mut raw, &[target])?;
        check(heard == format!("{target}\n"), format!("{target} is lost"))?;
    }
    Ok(())
}

fn many_descriptors(host: &mut Host) -> Found {
    let targets: Vec<u32> = (3..16).collect();
    let heard = through(&mut host.raw(), &targets)?;
    check(heard.lines().count() == 13, format!("{heard:?}"))
}

/// Calls with handles as they are written, and returns what two pipes with the handles 0 and 1 bring.
fn with_handles(host: &Host, handles: &[(u32, u32)]) -> Result<[String; 2], String> {
    let ((mut one, first), (mut two, second)) =
        (std::io::pipe().unwrap(), std::io::pipe().unwrap());
    let script = handles.iter().map(|(target, _)| format!("echo {target} >/dev/fd/{target};"));
    let body = wire::command(&shell(&script.collect::<String>()), handles);
    let mut wire = Wire::connect(host.bus.address());
    let passed = [first.as_fd(), second.as_fd()];
    let answer = wire.call("HostCommand", "ayaaya{uh}a{ss}u", &body, &passed);
    drop((first, second));
    answer.map_err(|error| error.to_string())??;
    let mut heard = [String::new(), String::new()];
    one.read_to_string(&mut heard[0]).unwrap();
    two.read_to_string(&mut heard[1]).unwrap();
    Ok(heard)
}

fn swapped(host: &mut Host) -> Found {
    let heard = with_handles(host, &[(5, 1), (6, 0)])?;
    check(heard == ["6\n", "5\n"], format!("{heard:?}"))
}

fn shared_handle(host: &mut Host) -> Found {
    let heard = with_handles(host, &[(5, 1), (6, 1)])?;
    check(heard == ["", "5\n6\n"], format!("{heard:?}"))
}

fn out_of_range(host: &mut Host) -> Found {
    for handles in
        [[(5, 0), (4_000_000_000, 1)], [(5, 0), (1 << 30, 1)], [(5, 0), (5, 1)], [(5, 0), (6, 57)]]
    {
        let said = with_handles(host, &handles);
        let refused = said == Err("org.freedesktop.DBus.Error.InvalidArgs".to_owned());
        check(refused, format!("{handles:?}: {said:?}"))?;
    }
    Ok(())
}

fn no_zero(host: &mut Host) -> Found {
    let words = ["sh", "-c", "echo $0", "é\n "].map(|word| word.as_bytes().to_vec()).into();
    let said = host.raw().output(&Wanted { words, directory: b"/tmp", ..shell("") });
    check(said == Ok("é\n".to_owned()) || said == Ok("é \n".to_owned()), format!("{said:?}"))
}

fn flags(host: &mut Host) -> Found {
    let said = host.raw().command(&Wanted { flags: 4, ..shell("true") });
    let error = ("org.freedesktop.DBus.Error.InvalidArgs".into(), "Unexpected argument".into());
    check(said == Err(error), format!("{said:?}"))
}

fn wrong_signal(host: &mut Host) -> Found {
    let mut raw = host.raw();
    let pid = raw.command(&shell("sleep 1000")).map_err(text)?;
    let said = raw.signal(pid, 999, false).map_err(|error| error.0);
    raw.signal(pid, 9, true).map_err(text)?;
    raw.end(pid).map_err(text)?;
    check(said == Err("org.freedesktop.DBus.Error.InvalidArgs".to_owned()), format!("{said:?}"))
}

fn strangers_command(host: &mut Host) -> Found {
    let (mut raw, mut other) = (host.raw(), host.raw());
    let pid = raw.command(&shell("sleep 1000")).map_err(text)?;
    let unknown =
        Err(("org.freedesktop.DBus.Error.UnixProcessIdUnknown".into(), "No such pid".into()));
    for (pid, whose) in [(pid, "another client's"), (std::process::id(), "ours"), (0, "nobody's")] {
        let said = other.signal(pid, 9, false);
        check(said == unknown, format!("{whose}: {said:?}"))?;
    }
    raw.signal(pid, 9, true).map_err(text)?;
    raw.end(pid).map_err(text)?;
    let said = raw.signal(pid, 9, false);
    check(said == unknown, format!("one that has ended: {said:?}"))
}

fn group_signal(host: &mut Host) -> Found {
    let mut raw = host.raw();
    let pid = raw.command(&shell("trap 'exit 3' TERM; sleep 1000 & wait")).map_err(text)?;
    check(until(|| count(&format!("-g {pid} -x sleep")) == 1), "it does not begin")?;
    raw.signal(pid, 15, true).map_err(text)?;
    let status = raw.end(pid).map_err(text)?;
    check(status == 3 << 8, format!("{status}"))?;
    check(until(|| count(&format!("-g {pid}")) == 0), "its child lives")
}

/// How many processes `pgrep` finds.
fn count(options: &str) -> usize {
    let found = Command::new("pgrep").args(options.split(' ')).output().unwrap();
    found.stdout.iter().filter(|byte| **byte == b'\n').count()
}

fn parallel(host: &mut Host) -> Found {
    let mut raw = host.raw();
    let wanted = |number: u32| shell(&format!("sleep 0.1; exit {number}"));
    let pids: Result<Vec<u32>, Refused> =
        (0..100).map(|number| raw.command(&wanted(number))).collect();
    for (number, pid) in (0..).zip(pids.map_err(text)?) {
        let status = raw.end(pid).map_err(text)?;
        check(status == number << 8, format!("{number} is {status}"))?;
    }
    Ok(())
}

fn immediate(host: &mut Host) -> Found {
    let mut raw = host.raw();
    raw.run(&wanted("true")).map_err(text)?;
    let before = host.descriptors();
    for _ in 0..200 {
        let status = raw.run(&wanted("true")).map_err(text)?;
        check(status == 0, format!("{status}"))?;
    }
    check(until(|| host.zombies() == 0), "there are zombies")?;
    check(until(|| host.descriptors() <= before + 2), "descriptors are left open")
}

/// Starts a script whose processes hold the write end of a pipe, lets its client go, and says whether all of them end.
fn end_with(host: &mut Host, script: &str, flags: u32, gone: impl FnOnce(&mut Host, Raw)) -> bool {
    let (mut read, write) = std::io::pipe().unwrap();
    let mut raw = host.raw();
    let descriptors = vec![(1, write.as_fd())];
    raw.command(&Wanted { descriptors, flags, ..shell(script) }).unwrap();
    drop(write);
    // Each process says that it has begun.
    let begun = script.matches("echo begun").count();
    let mut heard = vec![0; begun * 6];
    read.read_exact(&mut heard).unwrap();
    gone(host, raw);
    // The pipe ends when the last one has ended.
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let _ = read.read_to_end(&mut Vec::new());
        let _ = tell.send(());
    });
    told.recv_timeout(std::time::Duration::from_secs(15)).is_ok()
}

fn goes_on(host: &mut Host) -> Found {
    let mark = host.bus.dir().join("went-on");
    let script = format!("echo begun; sleep 0.5; touch {}", mark.display());
    end_with(host, &script, 0, |_, raw| raw.leave());
    check(until(|| mark.exists()), "it was ended")
}

fn watched(host: &mut Host) -> Found {
    let ended = end_with(host, "echo begun; exec sleep 30", 2, |_, raw| raw.leave());
    check(ended, "it lives")
}

fn ignores_interrupt(host: &mut Host) -> Found {
    let script = "trap '' INT; echo begun; sleep 30; sleep 30";
    check(end_with(host, script, 2, |_, raw| raw.leave()), "it lives")
}

fn background(host: &mut Host) -> Found {
    let script = "(echo begun; sleep 30) & wait";
    check(end_with(host, script, 2, |_, raw| raw.leave()), "it lives")
}

fn detached(host: &mut Host) -> Found {
    let script = "setsid sh -c 'trap \"\" INT TERM HUP; echo begun; sleep 30; sleep 30' & \
                  (setsid sh -c 'echo begun; sleep 30; sleep 30' &) ; sleep 30";
    check(end_with(host, script, 2, |_, raw| raw.leave()), "it lives")
}

fn service_killed(host: &mut Host) -> Found {
    let ended = end_with(host, "echo begun; exec sleep 30", 2, |host, _| host.kill());
    check(ended, "it lives")
}

fn bus_killed(host: &mut Host) -> Found {
    let ended = end_with(host, "echo begun; exec sleep 30", 2, |host, _| host.bus.kill());
    check(ended, "it lives")
}

fn controlling_terminal(host: &mut Host) -> Found {
    // python's `pty` gives the client a terminal that its own session has.
    let program = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)";
    let mut command = host.bus.command("python3");
    command.args(["-c", program, super::raw::SPAWN, "--host", "sh", "-c"]);
    command.arg("echo through >/dev/tty && ps -o tpgid=,pgid= -p $$ && stty size <&0 && exit 5");
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let has = output.status.code() == Some(5) && said.contains("through");
    check(has, format!("{said:?} {:?}", output.status))?;
    let front = said.lines().nth(1).unwrap_or_default();
    let mut ids = front.split_whitespace();
    check(ids.next().is_some_and(|front| Some(front) == ids.next()), format!("{said:?}"))?;
    // One that looks at once is in the foreground, too.
    for _ in 0..20 {
        let mut command = host.bus.command("python3");
        command.args(["-c", program, super::raw::SPAWN, "--host", "cat", "/proc/self/stat"]);
        let output = command.stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let fields: Vec<&str> = said.split_whitespace().collect();
        // The process group, and that in the foreground of its terminal (proc_pid_stat(5)).
        check(fields.len() > 8 && fields[4] == fields[7], format!("{said:?}"))?;
    }
    Ok(())
}

fn bytes(host: &mut Host) -> Found {
    let mut child =
        host.spawn(&["cat"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let block: Vec<u8> = (0..=255).cycle().take(1 << 20).collect();
    let sent = block.clone();
    let writer = std::thread::spawn(move || (0..16).for_each(|_| input.write_all(&sent).unwrap()));
    let mut output = child.stdout.take().unwrap();
    let mut same = true;
    let mut heard = vec![0; block.len()];
    for _ in 0..16 {
        same &= output.read_exact(&mut heard).is_ok() && heard == block;
    }
    writer.join().unwrap();
    let status = child.wait().unwrap();
    check(same && status.success(), format!("{status}"))
}

fn client_statuses(host: &mut Host) -> Found {
    for (words, wanted) in [
        (&["sh", "-c", "exit 139"][..], 139),
        (&["sh", "-c", "kill -TERM $$"], 143),
        (&["nothing-of-this-name"], 1),
        (&["--directory=/nowhere", "true"], 1),
        (&["--env=A=b", "sh", "-c", "test $A = b"], 0),
    ] {
        let status = host.spawn(words).stderr(Stdio::null()).status().unwrap();
        check(status.code() == Some(wanted), format!("{words:?}: {status}"))?;
    }
    Ok(())
}

fn session(host: &mut Host) -> Found {
    let helper = "/org/freedesktop/Flatpak/SessionHelper";
    let interface = "org.freedesktop.Flatpak.SessionHelper";
    let answer = host.raw().call(helper, interface, "RequestSession", &()).map_err(text)?;
    let body = answer.body();
    let places: std::collections::HashMap<String, zbus::OwnedVariant> = body.deserialize().unwrap();
    let path = String::try_from(places["path"].try_clone().unwrap()).unwrap();
    let path = std::path::Path::new(&path);
    for name in ["hosts", "resolv.conf", "host.conf", "gai.conf", "localtime"] {
        let theirs = std::fs::read(std::path::Path::new("/etc").join(name)).ok();
        check(std::fs::read(path.join(name)).ok() == theirs, format!("{name} is another"))?;
    }
    let zone = std::fs::read_to_string(path.join("timezone")).unwrap_or_default();
    check(zone.ends_with('\n') && zone.len() > 2, format!("{zone:?}"))?;
    let socket = places.get("pkcs11-socket").map(|socket| socket.try_clone().unwrap());
    let socket = socket.and_then(|socket| String::try_from(socket).ok());
    check(socket.is_some_and(|socket| std::fs::exists(socket).unwrap()), "no certificates")?;
    let body = (INTERFACE, "version");
    let version = host.raw().call(PATH, "org.freedesktop.DBus.Properties", "Get", &body);
    let version: zbus::OwnedVariant = version.map_err(text)?.body().deserialize().unwrap();
    check(u32::try_from(version) == Ok(1), "another version")
}

/// Cases that are run at a time: most of them wait.
const AT_ONCE: usize = 6;

/// Runs every case on a service of its own and returns what failed, in the order of the cases.
pub fn failures(which: Which) -> Option<Vec<(&'static str, String)>> {
    drop(Host::start(which)?);
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some((name, case)) = CASES.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let mut host = Host::start(which).unwrap();
                    if let Err(why) = case(&mut host) {
                        failed.lock().unwrap().push((*name, why));
                    }
                }
            });
        }
    });
    let mut failed = failed.into_inner().unwrap();
    let place = |name: &str| CASES.iter().position(|(known, _)| *known == name);
    failed.sort_by_key(|(name, _)| place(name));
    Some(failed)
}
