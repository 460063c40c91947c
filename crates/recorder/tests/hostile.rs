//! Messages that no client sends.
#![allow(clippy::unwrap_used, reason = "what cannot be set up fails the test")]
#![allow(clippy::disallowed_methods, reason = "a test stands for programs")]

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use sys::socket::{self, Full};
use trace::backend::bpf::programs::{KernelStacks, WakeupPolicy, WatchedThreads};
use trace::backend::bpf::record::ThreadTotals;
use trace::backend::bpf::served::protocol::{
    AuthorizationPrompt, RefusalKind, Reply, Request, TraceOrder, VERSION,
};
use trace::backend::bpf::session::WatchStart;

use crate::stage::{ANN, BOB, LONG, Stage, say};

pub(crate) fn connected() -> OwnedFd {
    socket::connect_to(&crate::stage::socket()).unwrap()
}

/// Returns the next message; none at the end of the connection.
fn answer(connection: &OwnedFd) -> Option<Reply> {
    assert!(socket::wait_readable(connection, Some(LONG)).unwrap(), "no answer in {LONG:?}");
    let mut buffer = vec![0; 1 << 17];
    let length = socket::receive_bytes(connection, &mut buffer).unwrap_or(0);
    (length > 0).then(|| Reply::read(&buffer[..length]).unwrap())
}

/// Asks, and returns the answer; what comes by itself is left out.
pub(crate) fn ask(connection: &OwnedFd, request: &Request) -> Option<Reply> {
    // Who is refused at once has been answered already.
    let _ = socket::send(connection, &request.write(), None, Full::Wait);
    std::iter::repeat_with(|| answer(connection))
        .find(|reply| !matches!(reply, Some(Reply::Records(_))))
        .flatten()
}

fn order() -> TraceOrder {
    TraceOrder {
        calls: vec![0, 1],
        threshold_ns: u64::MAX,
        kept: vec![u32::MAX; 64],
        threads: WatchedThreads::All,
        stacks: KernelStacks::Copied,
        // A ring of any size is one of the service's sizes.
        ring_bytes: u32::MAX,
        wakes: WakeupPolicy::Each,
    }
}

/// The role: all kinds of nonsense.
pub(crate) fn garbage() {
    let hello = |version: &str| Request::Hello {
        version: version.to_owned(),
        prompt: AuthorizationPrompt::Unwanted,
    };
    // Bytes that are no message, empty ones and long ones end the connection.
    for bytes in [&[0xff; 1][..], &[7], &[0; 3000], &[2; 65_536], &[1, 0, 255, 255, 255, 255]] {
        let connection = connected();
        socket::send(&connection, bytes, None, Full::Wait).unwrap();
        while let Some(reply) = answer(&connection) {
            assert!(matches!(reply, Reply::Refused(_)), "{reply:?}");
        }
    }
    let connection = connected();
    let _ = socket::send(&connection, &vec![2; 150_000], None, Full::Wait);
    assert_eq!(answer(&connection), None);
    drop(connection);
    // Each request without a session, and the order of things.
    let connection = connected();
    let kind = |reply: Option<Reply>| match reply {
        Some(Reply::Refused(refusal)) => Some(refusal.kind),
        _ => None,
    };
    for request in [
        Request::OpenTrace(order()),
        Request::Watch { process: 1, from: WatchStart::Now },
        Request::Unwatch { process: 1 },
        Request::Adopt { thread: 1, process: 1, number: 0, times: [0, 0] },
        Request::Watched,
        Request::ThreadState { thread: 1 },
        Request::TakeTotals { thread: 1, seen: ThreadTotals::default() },
        Request::Detach,
        Request::Totals,
        Request::Errors,
        Request::Losses,
    ] {
        let refused = kind(ask(&connection, &request));
        assert_eq!(refused, Some(RefusalKind::Misunderstood), "{request:?}");
    }
    assert_eq!(kind(ask(&connection, &hello("0.0.0"))), Some(RefusalKind::OtherVersion));
    assert_eq!(ask(&connection, &hello(VERSION)), Some(Reply::Done));
    assert_eq!(kind(ask(&connection, &hello(VERSION))), Some(RefusalKind::Misunderstood));
    // A descriptor that nobody wants is not opened; the request counts.
    let order = Request::OpenTrace(order()).write();
    let passed = std::fs::File::open("/dev/null").unwrap();
    socket::send(&connection, &order, Some(passed.as_fd()), Full::Wait).unwrap();
    assert_eq!(answer(&connection), Some(Reply::Done));
    assert_eq!(
        kind(ask(&connection, &Request::OpenTrace(self::order()))),
        Some(RefusalKind::Misunderstood)
    );
    // What a thread is in is told of those of the session alone.
    let state = ask(&connection, &Request::ThreadState { thread: 1 });
    assert!(matches!(state, Some(Reply::State(_))), "{state:?}");
    // Twice is once, and what comes after it is answered.
    for request in [Request::Detach, Request::Detach, Request::Losses, Request::Watched] {
        let reply = ask(&connection, &request);
        assert!(!matches!(reply, None | Some(Reply::Refused(_))), "{request:?}: {reply:?}");
    }
    // Requests whose answers are not read: the service waits for this client alone.
    for _ in 0..2000 {
        if socket::send(&connection, &Request::Watched.write(), None, Full::Fail).is_err() {
            break;
        }
    }
    say("done");
    std::thread::park_timeout(Duration::from_millis(10));
}

#[test]
fn nonsense_is_refused_and_others_are_served() {
    let Some(stage) = Stage::set() else { return };
    for _ in 0..2 {
        assert_eq!(stage.play(ANN, "garbage", ""), ["done"]);
        let said = stage.play(BOB, "trace", "cat /etc/hostname >/dev/null");
        assert!(said.contains(&"file /etc/hostname".to_owned()), "{said:?}");
    }
    crate::stage::wait_until("all programs are gone", || stage.programs() == 0);
    let log = stage.log();
    assert!(!log.contains("panicked"), "{log}");
}
