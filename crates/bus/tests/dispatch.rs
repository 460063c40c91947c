//! The service end over a socket pair: no bus, no names, no files.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::os::unix::net::UnixStream;
use std::time::Duration;

use settings::engine::{ChangeError, DatabaseId, ErrorKind};
use unjank_bus::client::{BusClient, CallArgument, CallOutcome, ClientError, DconfSignal};
use unjank_bus::request::BusRequest;
use unjank_bus::server::{CallRecording, Incoming, Server};
use zbus::connection::Builder;

const USER: &str = "/ca/desrt/dconf/Writer/user";

/// Runs `test` with a server and a client that talk to each other.
fn with_pair<F: Future>(
    blame: CallRecording,
    test: impl FnOnce(Server, BusClient) -> F,
) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (one, other) = UnixStream::pair().unwrap();
        let guid = zbus::Guid::generate();
        let (server, client) = tokio::try_join!(
            async {
                let connection = Builder::unix_stream(one).server(guid).p2p().build().await?;
                zbus::Result::Ok(Server::over(connection, blame))
            },
            Builder::unix_stream(other).p2p().build(),
        )
        .unwrap();
        let test = test(server, BusClient::over(client));
        tokio::time::timeout(Duration::from_secs(30), test).await.expect("in time")
    })
}

/// Waits for a request, sending what the server answers by itself.
async fn request(server: &mut Server) -> BusRequest {
    loop {
        match server.next().await {
            Incoming::Request(request) => return request,
            Incoming::Answered => server.flush().await.unwrap(),
            other => panic!("{other:?}"),
        }
    }
}

/// Answers everything until the connection closes: each change with a tag and a signal.
async fn serve(mut server: Server) {
    let mut count = 0;
    loop {
        match server.next().await {
            Incoming::Request(BusRequest::Change { reply_to, database, blob }) => {
                let tag = format!("tag:{count}");
                count += 1;
                server.reply_text(&reply_to, &tag);
                let prefix = format!("/{}", blob.bytes().len());
                server.notify(&database, &prefix, &[String::new()], &tag);
            }
            Incoming::Request(BusRequest::Init { reply_to, .. }) => server.reply_empty(&reply_to),
            Incoming::Request(BusRequest::Blame { reply_to }) => {
                server.reply_text(&reply_to, "it was you");
            }
            Incoming::Request(BusRequest::Names { reply_to, kind }) => {
                server.reply_names(&reply_to, &[kind.segment().to_lowercase()]);
            }
            Incoming::Closed => return,
            _ => {}
        }
        server.flush().await.unwrap();
    }
}

#[test]
fn a_change_reaches_the_owner_and_its_tag_the_caller() {
    with_pair(CallRecording::Off, async |mut server, client| {
        let owner = async {
            let BusRequest::Change { reply_to, database, blob } = request(&mut server).await else {
                panic!("another request");
            };
            assert_eq!(database, DatabaseId::from_object_path(USER).unwrap());
            assert_eq!(blob.bytes(), b"blob");
            server.reply_text(&reply_to, ":1.5:user:0");
            server.flush().await.unwrap();
        };
        let (tag, ()) = tokio::join!(client.change(USER, b"blob"), owner);
        assert_eq!(tag.unwrap(), ":1.5:user:0");
    });
}

/// What a client's connection receives after two changes: libdconf depends on the order.
async fn received_after_two_changes(client: BusClient) -> Vec<String> {
    let mut stream = client.raw_messages();
    client.change_without_waiting(USER, b"a").await.unwrap();
    client.change_without_waiting(USER, b"bb").await.unwrap();
    let mut seen = Vec::new();
    while seen.len() < 4 {
        seen.push(stream.next().await.unwrap());
    }
    seen
}

const REPLY_FIRST: [&str; 4] = ["Method return", "Signal Notify", "Method return", "Signal Notify"];

#[test]
fn the_reply_is_on_the_wire_before_the_signal() {
    with_pair(CallRecording::Off, async |server, client| {
        tokio::select! {
            seen = received_after_two_changes(client) => assert_eq!(seen, REPLY_FIRST),
            () = serve(server) => panic!("the server ended"),
        }
    });
}

#[test]
fn a_signal_that_overtakes_its_reply_is_noticed() {
    with_pair(CallRecording::Off, async |mut server, client| {
        let wrong = async {
            loop {
                let BusRequest::Change { reply_to, database, .. } = request(&mut server).await
                else {
                    panic!("another request");
                };
                server.notify(&database, "/a", &[String::new()], "tag");
                server.reply_text(&reply_to, "tag");
                server.flush().await.unwrap();
            }
        };
        tokio::select! {
            seen = received_after_two_changes(client) => assert_ne!(seen, REPLY_FIRST),
            () = wrong => {}
        }
    });
}

#[test]
fn pipelined_calls_arrive_in_order() {
    with_pair(CallRecording::Off, async |mut server, client| {
        let calls = async {
            let blobs: Vec<[u8; 1]> = (0..50).map(|number| [number]).collect();
            let mut calls = tokio::task::JoinSet::new();
            for blob in blobs {
                let client = client.clone();
                calls.spawn(async move { client.change(USER, &blob).await.unwrap() });
            }
            calls.join_all().await
        };
        let owner = async {
            let mut seen = Vec::new();
            while seen.len() < 50 {
                let BusRequest::Change { reply_to, blob, .. } = request(&mut server).await else {
                    panic!("another request");
                };
                seen.extend_from_slice(blob.bytes());
                server.reply_text(&reply_to, "tag");
                server.flush().await.unwrap();
            }
            seen
        };
        let (_, seen) = tokio::join!(calls, owner);
        assert_eq!(seen, (0..50).collect::<Vec<u8>>());
    });
}

#[test]
fn a_failed_change_is_an_error_with_a_known_name() {
    with_pair(CallRecording::Off, async |mut server, client| {
        let owner = async {
            let BusRequest::Change { reply_to, .. } = request(&mut server).await else {
                panic!("another request");
            };
            let text = "cannot write /x: no space left; nothing changed".to_owned();
            let error = ChangeError { kind: ErrorKind::NoSpace, text };
            server.reply_error(&reply_to, &error);
            server.flush().await.unwrap();
        };
        let (outcome, ()) = tokio::join!(client.change(USER, b""), owner);
        let Err(ClientError::Refused { name, message }) = outcome else { panic!("{outcome:?}") };
        assert_eq!(name, "org.gtk.GDBus.UnmappedGError.Quark._g_2dfile_2derror_2dquark.Code12");
        assert_eq!(message, "cannot write /x: no space left; nothing changed");
    });
}

#[test]
fn a_call_that_wants_no_reply_gets_none() {
    with_pair(CallRecording::Off, async |server, client| {
        let mut stream = client.raw_messages();
        let caller = async {
            client.change_without_reply(USER, b"a").await.unwrap();
            assert_eq!(stream.next().await.unwrap(), "Signal Notify");
            client.ping().await.unwrap();
        };
        tokio::select! {
            () = caller => {}
            () = serve(server) => panic!("the server ended"),
        }
    });
}

#[test]
fn a_change_of_megabytes_arrives_whole() {
    with_pair(CallRecording::Off, async |server, client| {
        let blob = vec![7; 33 << 20];
        let mut signals = client.subscribe(USER, "/").await.unwrap();
        let mut others = client.subscribe(USER, "/elsewhere/").await.unwrap();
        let caller = async {
            client.change(USER, &blob).await.unwrap();
            let signal = signals.next().await.unwrap();
            let DconfSignal::Notify { prefix, .. } = signal else { panic!("{signal:?}") };
            assert_eq!(prefix, format!("/{}", blob.len()));
            let other = tokio::time::timeout(Duration::ZERO, others.next()).await;
            assert!(other.is_err(), "a signal that was not asked for: {other:?}");
        };
        tokio::select! {
            () = caller => {}
            () = serve(server) => panic!("the server ended"),
        }
    });
}

#[test]
fn blame_exists_only_while_it_is_on() {
    for (blame, expected) in [(CallRecording::On, true), (CallRecording::Off, false)] {
        with_pair(blame, async |server, client| {
            tokio::select! {
                text = client.blame() => assert_eq!(text.is_ok(), expected, "{text:?}"),
                () = serve(server) => panic!("the server ended"),
            }
        });
    }
}

#[test]
fn introspection_lists_the_databases_of_a_kind() {
    with_pair(CallRecording::On, async |server, client| {
        let introspect = async |path: &str| {
            let outcome = client.try_call(
                "ca.desrt.dconf",
                path,
                Some("org.freedesktop.DBus.Introspectable"),
                "Introspect",
                vec![],
            );
            match outcome.await.unwrap() {
                CallOutcome::Reply { text, .. } => text.unwrap(),
                CallOutcome::Error { name, message } => panic!("{name}: {message}"),
            }
        };
        let caller = async {
            let root = introspect("/").await;
            assert!(root.contains(r#"<node name="ca"/>"#), "{root}");
            let service = introspect("/ca/desrt/dconf").await;
            assert!(service.contains("Blame"), "{service}");
            for kind in ["Writer", "shm", "keyfile", "journal"] {
                assert!(service.contains(&format!(r#"<node name="{kind}"/>"#)), "{service}");
                let names = introspect(&format!("/ca/desrt/dconf/{kind}")).await;
                let name = kind.to_lowercase();
                assert!(names.contains(&format!(r#"<node name="{name}"/>"#)), "{names}");
                let database = introspect(&format!("/ca/desrt/dconf/{kind}/any")).await;
                assert!(database.contains(r#"<arg type="ay" name="blob""#), "{database}");
            }
        };
        tokio::select! {
            () = caller => {}
            () = serve(server) => panic!("the server ended"),
        }
    });
}

#[test]
fn nonsense_never_stops_the_server() {
    let seed = 0x5eed_1234;
    eprintln!("seed: {seed:#x}");
    let mut random = Random(fastrand::Rng::with_seed(seed));
    with_pair(CallRecording::On, async |server, client| {
        let caller = async {
            for _ in 0..2000 {
                let (path, interface, method) = random.target();
                let arguments = random.arguments();
                let call = client.try_call("ca.desrt.dconf", path, interface, method, arguments);
                call.await.unwrap();
            }
            client.ping().await.unwrap();
        };
        tokio::select! {
            () = caller => {}
            () = serve(server) => panic!("the server ended"),
        }
    });
}

/// A generator that gives the same calls for the same seed.
struct Random(fastrand::Rng);

impl Random {
    fn next(&mut self, below: usize) -> usize {
        self.0.usize(..below)
    }

    fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.next(from.len())]
    }

    fn target(&mut self) -> (&'static str, Option<&'static str>, &'static str) {
        let path = self.pick(&[
            "/",
            "/ca/desrt/dconf",
            "/ca/desrt/dconf/Writer",
            USER,
            "/ca/desrt/dconf/keyfile/x",
            "/ca/desrt/dconf/Writer/a/b",
        ]);
        let interface = self.pick(&[
            "",
            "ca.desrt.dconf.Writer",
            "ca.desrt.dconf.ServiceInfo",
            "org.freedesktop.DBus.Peer",
            "org.freedesktop.DBus.Properties",
            "org.freedesktop.DBus.Introspectable",
            "a.b",
        ]);
        let method = self.pick(&[
            "Change",
            "Init",
            "Blame",
            "Ping",
            "Get",
            "GetAll",
            "Set",
            "Introspect",
            "GetMachineId",
            "X",
        ]);
        (path, (!interface.is_empty()).then_some(interface), method)
    }

    fn arguments(&mut self) -> Vec<CallArgument> {
        (0..self.next(4)).map(|_| self.argument(3)).collect()
    }

    fn argument(&mut self, depth: usize) -> CallArgument {
        match self.next(if depth == 0 { 5 } else { 6 }) {
            0 => CallArgument::Text("ca.desrt.dconf.Writer".chars().take(self.next(22)).collect()),
            1 => CallArgument::Texts(vec!["x".to_owned(); self.next(3)]),
            2 => {
                let len = self.next(200);
                CallArgument::Bytes((0..len).map(|_| self.next(256).to_le_bytes()[0]).collect())
            }
            3 => CallArgument::Number(-1),
            4 => CallArgument::Truth(true),
            _ => CallArgument::Variant(Box::new(self.argument(depth - 1))),
        }
    }
}
