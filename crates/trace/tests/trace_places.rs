//! What calls work on, looked up in processes that are really there.
#![expect(clippy::unwrap_used, reason = "a file that cannot be made fails the test")]

use crate::waiting;

use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

use unjank_trace::place::{ContextLookup, SyscallContext};
use unjank_trace::recorder::TraceRecorder;
use unjank_trace::recording::{Backend, Target};
use unjank_trace::syscall::call_number;

use waiting::{Waiting, build};

const CURRENT: u64 = 0xffff_ff9c;

/// A call that this test makes, or pretends to make with memory of its own.
fn made(name: &str, arguments: &[u64]) -> SyscallContext {
    let mut all = [0; 6];
    all[..arguments.len()].copy_from_slice(arguments);
    let number = call_number(name).unwrap();
    let process = std::process::id();
    SyscallContext { process, thread: process, number, arguments: all, returned: None }
}

struct Looked {
    places: ContextLookup,
    recorder: TraceRecorder,
}

impl Looked {
    fn new() -> Looked {
        let recorder = TraceRecorder::new(Backend::Peek, Vec::new(), SystemTime::UNIX_EPOCH);
        Looked { places: ContextLookup::new(), recorder }
    }

    fn at(&mut self, call: &SyscallContext) -> Option<Target> {
        let id = self.places.target(call, &mut self.recorder)?;
        let targets = &self.recorder.recording().targets;
        targets.get(usize::try_from(id.0).unwrap()).cloned()
    }
}

fn argument(value: i32) -> u64 {
    u64::try_from(value).unwrap()
}

fn path_of(target: Option<Target>) -> Vec<u8> {
    match target {
        Some(Target::File { path, mount: Some(_) }) => path,
        other => panic!("no file on a file system: {other:?}"),
    }
}

#[test]
fn a_descriptor_is_a_file_on_a_file_system() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a file");
    let file = File::create_new(&path).unwrap();
    let mut looked = Looked::new();
    let target = looked.at(&made("fdatasync", &[argument(file.as_raw_fd())]));
    assert_eq!(path_of(target), path.as_os_str().as_bytes());
    let mount = &looked.recorder.recording().mounts[0];
    let point = Path::new(std::ffi::OsStr::from_bytes(&mount.point));
    assert!(path.starts_with(point) && !mount.kind.is_empty(), "{mount:?}");
    std::fs::remove_file(&path).unwrap();
    let target = looked.at(&made("fsync", &[argument(file.as_raw_fd())]));
    assert!(path_of(target).ends_with(b"a file (deleted)"));
}

#[test]
fn a_path_is_absolute_even_if_there_is_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let directory = File::open(dir.path()).unwrap();
    let name = b"not/there\0";
    let at = [argument(directory.as_raw_fd()), name.as_ptr() as u64];
    let path = path_of(Looked::new().at(&made("openat", &at)));
    assert_eq!(path, dir.path().join("not/there").as_os_str().as_bytes());
    let here = path_of(Looked::new().at(&made("newfstatat", &[CURRENT, name.as_ptr() as u64])));
    let current = std::env::current_dir().unwrap().join("not/there");
    assert_eq!(here, current.as_os_str().as_bytes());
}

#[test]
fn a_rename_has_two_paths() {
    let (from, to) = (b"/tmp/x.new\0", b"/tmp/x\0");
    let call = made("rename", &[from.as_ptr() as u64, to.as_ptr() as u64]);
    let Some(Target::Files { from, to, mount: Some(_) }) = Looked::new().at(&call) else {
        panic!("no two files");
    };
    assert_eq!((&*from, &*to), (&b"/tmp/x.new"[..], &b"/tmp/x"[..]));
}

#[test]
fn a_bad_descriptor_or_address_has_no_target() {
    let mut looked = Looked::new();
    assert_eq!(looked.at(&made("fsync", &[9999])), None);
    assert_eq!(looked.at(&made("fsync", &[u64::MAX])), None);
    assert_eq!(looked.at(&made("stat", &[8])), None);
    assert_eq!(looked.at(&made("poll", &[8, 3])), None);
    assert_eq!(looked.at(&made("connect", &[9999, 8, u64::MAX])), None);
}

#[test]
fn a_socket_is_who_is_at_its_other_end() {
    let mut looked = Looked::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let client = TcpStream::connect(address).unwrap();
    let peer = looked.at(&made("read", &[argument(client.as_raw_fd())]));
    let expected = Target::Socket { peer: format!("tcp {address}"), request: None };
    assert_eq!(peer, Some(expected));
}

#[test]
fn a_wait_after_a_request_says_what_was_asked() {
    let dir = tempfile::tempdir().unwrap();
    let _listener = UnixListener::bind(dir.path().join("bus")).unwrap();
    let client = UnixStream::connect(dir.path().join("bus")).unwrap();
    let other = File::open("/dev/null").unwrap();
    let mut message = b"l\x01\0\x01\0\0\0\0\x01\0\0\0\x47\0\0\0".to_vec();
    for (code, kind, text) in [(1, b'o', "/kded"), (6, b's', "org.kde.kded5"), (3, b's', "load")] {
        message.resize(message.len().next_multiple_of(8), 0);
        message.extend([code, 1, kind, 0]);
        message.extend(u32::try_from(text.len()).unwrap().to_le_bytes());
        message.extend(text.bytes());
        message.push(0);
    }
    let mut looked = Looked::new();
    let socket = argument(client.as_raw_fd());
    let parts = [message.as_ptr() as u64, message.len() as u64];
    let header = [0, 0, parts.as_ptr() as u64, 1];
    let call = made("sendmsg", &[socket, header.as_ptr() as u64]);
    looked.places.sent(&call, 7, &mut looked.recorder);
    let polled: Vec<u64> = vec![argument(other.as_raw_fd()), socket];
    let wait = made("poll", &[polled.as_ptr() as u64, 2, 1000]);
    let Some(Target::Socket { peer, request }) = looked.at(&wait) else { panic!("no socket") };
    assert_eq!(request.as_deref(), Some("org.kde.kded5 /kded load"));
    assert!(peer.contains(&format!("({})", std::process::id())), "{peer}");
    looked.places.forget(std::process::id());
    assert_eq!(looked.at(&wait), Some(Target::Other("2 descriptors".into())));
}

#[test]
fn a_wait_for_any_child_names_none_before_one_has_ended() {
    let mut looked = Looked::new();
    // -1 and a process group, as the kernel takes them: an `int` whose upper half means nothing.
    for any in [u64::from(u32::MAX), u64::MAX, u64::from(u32::MAX - 41), 0, 0xffff_ffff_0000_0000] {
        assert!(looked.at(&made("wait4", &[any])).is_none(), "{any:#x}");
        let ended = SyscallContext { returned: Some(7), ..made("wait4", &[any]) };
        assert!(matches!(looked.at(&ended), Some(Target::Child(7, _))), "{any:#x}");
    }
}

#[test]
fn a_child_is_its_command() {
    let mut child =
        Command::new("cat").arg("/dev/stdin").stdin(std::process::Stdio::piped()).spawn().unwrap();
    let wait = made("wait4", &[u64::from(child.id())]);
    let mut looked = Looked::new();
    // The child may still be this test's own image for a moment.
    let command = loop {
        match looked.at(&wait) {
            Some(Target::Child(id, command)) if command.starts_with(b"cat") => {
                assert_eq!(id, child.id());
                break command;
            }
            Some(Target::Child(..)) => std::thread::yield_now(),
            other => panic!("no child: {other:?}"),
        }
    };
    assert_eq!(command, b"cat /dev/stdin");
    drop(child.stdin.take());
    child.wait().unwrap();
}

#[test]
fn a_lock_names_the_thread_that_holds_it() {
    let dir = tempfile::tempdir().unwrap();
    let program = build(dir.path(), "lock.c", &["-pthread"]);
    let futex = call_number("futex").unwrap();
    let (waiting, _) = Waiting::start(&mut Command::new(program), futex);
    let process = waiting.id();
    let call = SyscallContext {
        process,
        thread: process,
        number: futex,
        arguments: waiting.arguments,
        returned: None,
    };
    let Some(Target::Lock { owner: Some(owner), .. }) = Looked::new().at(&call) else {
        panic!("no owner");
    };
    assert_ne!(owner, process);
    assert!(Path::new(&format!("/proc/{process}/task/{owner}")).exists());
    // Memory that only looks contended is nobody's lock.
    let words: [u32; 5] = [2, 0, owner, 0, 0];
    let planted =
        SyscallContext { arguments: [words.as_ptr() as u64, 0, 2, 0, 0, 0], ..made("futex", &[]) };
    assert_eq!(Looked::new().at(&planted), Some(Target::Lock { owner: None, owner_stack: None }));
}
