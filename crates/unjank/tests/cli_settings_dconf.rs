//! Under the name `dconf` the command says and does, byte for byte, what the real `dconf` says and does.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use crate::fixture;

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use fixture::{Bus, REAL, Service, skip};

const THEIRS: &str = "/usr/bin/dconf";
const OURS: &str = env!("CARGO_BIN_EXE_unjank");

/// One command line.
#[derive(Clone, Debug)]
struct Line {
    words: Vec<String>,
    stdin: String,
    /// The name of a profile, or none.
    profile: &'static str,
    /// Whether there is a bus to reach.
    bus: Reach,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    Private,
    Nobody,
    NotSet,
}

/// What a command line did that can be seen.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

/// One of the two worlds: a bus, the real service on it, and a `dconf`.
struct World {
    bus: Bus,
    dconf: &'static str,
    _service: Service,
}

impl World {
    fn new(dconf: &'static str) -> Option<World> {
        let bus = Bus::start()?;
        let service = bus.serve(REAL, &[]);
        let world = World { bus, dconf, _service: service };
        let dir = world.bus.dir().display().to_string();
        for (path, text) in [
            ("site.d/10-a", "[a]\nb='site'\nd=1\n[x/y]\nz=@as []\n[only]\nsite=true\n"),
            ("site.d/20-b", "[a]\nd=2\n"),
            ("site.d/locks/a", "/a/d\n/x/y/z\n/never/set\n"),
            ("vendor.d/a", "[a]\nb='vendor'\nd=3\n[only]\nvendor=uint32 5\n"),
            ("vendor.d/locks/a", "/a/d\n/only/vendor\n"),
            ("bad/value.d/a", "[a]\nb=zz\n"),
            ("bad/path.d/a", "[/a]\nb=1\n"),
            ("bad/none.d/a", "b=1\n"),
            ("bad/line.d/a", "[a]\n  rubbish\n"),
            ("bad/key.d/a", "[a]\nb]=1\n"),
            ("bad/group.d/a", "[a[b]\nb=1\n"),
            ("bad/type.d/a", "[a]\nb=@s 5\n"),
            ("one/good.d/a", "[a]\nb=[1, 2]\nc[de]=1\nc[C]=2\n"),
            ("one/plain.d/a", "# nothing\n"),
            ("garbage", "hello, hello, hello, hello"),
            ("empty", ""),
            ("profile-user", "user-db:user"),
            ("profile-locks", &format!("user-db:user\nfile-db:{dir}/site\nfile-db:{dir}/vendor\n")),
            ("profile-service", "service-db:shm/one\n"),
            ("profile-fixed", &format!("file-db:{dir}/site # fixed\r\nuser-db:user\n")),
            ("profile-none", "# nothing\n\n"),
            (
                "profile-odd",
                &format!(
                    "rubbish\nuser-db:user\nuser-db:\nsystem-db:unjank_no_such\nfile-db:{dir}/garbage\n\
                     file-db:{dir}/empty\nfile-db:{dir}/gone\n{}file-db:{dir}/site",
                    " ".repeat(300)
                ),
            ),
        ] {
            let path = world.bus.dir().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            #[expect(clippy::disallowed_methods, reason = "a fixture need not be durable")]
            std::fs::write(path, text).unwrap();
        }
        for name in ["site", "vendor"] {
            let made = Command::new(THEIRS)
                .args(["compile", name, &format!("{name}.d")])
                .current_dir(world.bus.dir())
                .status();
            assert!(made.unwrap().success());
        }
        Some(world)
    }

    fn run(&self, line: &Line) -> Seen {
        let mut command = self.bus.command(self.dconf);
        let dir = self.bus.dir().display().to_string();
        command.arg0("dconf").args(line.words.iter().map(|word| word.replace("DIR", &dir)));
        if !line.profile.is_empty() {
            command.env("DCONF_PROFILE", self.bus.dir().join(line.profile));
        }
        match line.bus {
            Reach::Private => (),
            Reach::Nobody => {
                command.env("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nonexistent/bus");
            }
            Reach::NotSet => {
                command.env_remove("DBUS_SESSION_BUS_ADDRESS");
            }
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A command that does not read its input ends before we are done.
        let _ = child.stdin.take().unwrap().write_all(line.stdin.as_bytes());
        let output = child.wait_with_output().unwrap();
        let text = |bytes: &[u8]| plain(&String::from_utf8_lossy(bytes).replace(&dir, "DIR"));
        Seen {
            code: output.status.code(),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
        }
    }
}

/// Takes out what differs from run to run: process ids, times and the names of temporary files.
fn plain(text: &str) -> String {
    let mut out = String::new();
    for line in text.split_inclusive('\n') {
        let mut line = line.to_owned();
        if line.starts_with("(dconf:")
            && let Some((before, rest)) = line.split_once(" **: ")
            && let Some((_, said)) = rest.split_once(": ")
        {
            let level = before.split(' ').next_back().unwrap_or_default();
            line = format!("({level}) {said}");
        }
        if let Some(start) = line.find("Failed to create file “")
            && let Some(end) = line.find("”:")
            && let Some(dot) = line[start..end].rfind('.').filter(|dot| end - start - dot == 7)
        {
            line.replace_range(start + dot..end, "");
        }
        out += &line;
    }
    out
}

struct Random(fastrand::Rng);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0.usize(..end)
    }

    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }
}

const PATHS: [&str; 20] = [
    "/a/b",
    "/a/c",
    "/a/d",
    "/x/y/z",
    "/x/y",
    "/never/set",
    "/only/site",
    "/only/vendor",
    "/k",
    "/ö/ü",
    "/a b/c d",
    "/a=b",
    "/q/w[x",
    "/",
    "/a/",
    "/x/",
    "/x/y/",
    "/only/",
    "/none/",
    "/ö/",
];

const WRONG_PATHS: [&str; 9] = ["", "a", "a/b", "//", "/a//b", "//a/", "-d", "-f", "a/"];

const VALUES: [&str; 44] = [
    "1",
    "-1",
    "true",
    "'text'",
    "\"it's\"",
    "'say \"x\"'",
    "@as []",
    "['a', 'b']",
    "[1, 2, 3]",
    "uint32 7",
    "int64 -7",
    "byte 0x1f",
    "1.5",
    "1e10",
    "-0.0",
    "inf",
    "nan",
    "(1, 'a')",
    "()",
    "{'a': <1>}",
    "@a{sv} {}",
    "<<'x'>>",
    "@mi nothing",
    "just 5",
    "just nothing",
    "b'bytes'",
    "objectpath '/a/b'",
    "signature 'a{sv}'",
    "'\\u00e9\\t\\n'",
    "'ö'",
    "handle 3",
    "[('a', uint32 1), ('b', 2)]",
    "",
    "zz",
    "'open",
    "[1, 'a']",
    "@s 5",
    "uint32 -1",
    "byte 256",
    "(1",
    "{1: 2",
    "1 2",
    "@a[] []",
    "<",
];

const FILES: [&str; 16] = [
    "",
    "# comment\n\n",
    "[a]\nb=1\n",
    "[/]\nk='root'\n[x/y]\nz=['l']\nnew=true\n",
    "[a]\nb='x'\nb='y'\n[a]\nc=3\n",
    "  [a]  \n  b  =  'spaced'  \n",
    "[a]\r\nb=1\r\n",
    "[a]\nb=1",
    "b=1\n",
    "[a]\nrubbish\n",
    "[a]\nb=zz\n",
    "[a//b]\nc=1\n",
    "[a]\nd=9\nb=8\n",
    "[a]\nname[de]=1\nname[C]=2\n",
    "[a]\nb/c=1\n/d=2\n",
    "[]\na=1\n",
];

fn line(words: &[&str]) -> Line {
    let words = words.iter().map(|&word| word.to_owned()).collect();
    Line { words, stdin: String::new(), profile: "", bus: Reach::Private }
}

/// Every command with arguments that are right, wrong, too few and too many.
fn fixed() -> Vec<Line> {
    let mut lines =
        vec![line(&[]), line(&["nothing"]), line(&["--help"]), line(&["help", "a", "b"])];
    let commands = [
        "help",
        "read",
        "list",
        "list-locks",
        "write",
        "reset",
        "compile",
        "update",
        "dump",
        "load",
        "blame",
        "_complete",
        "watch",
    ];
    for command in commands {
        lines.push(line(&["help", command]));
        // Those that would go on for ever or touch the machine are not run without a mistake.
        if !["update", "watch"].contains(&command) {
            lines.push(line(&[command]));
        }
        for wrong in WRONG_PATHS {
            if command != "update" {
                lines.push(line(&[command, wrong]));
                lines.push(line(&[command, wrong, "x"]));
            }
        }
        if command != "watch" {
            lines.push(line(&[command, "/a/b", "x", "y", "z"]));
            lines.push(line(&[command, "/a/", "x", "y", "z"]));
            lines.push(line(&[command, "-f", "/a", "y", "z"]));
            lines.push(line(&[command, "-d", "/a", "y", "z"]));
        }
    }
    for value in VALUES {
        lines.push(line(&["write", "/v/k", value]));
        lines.push(line(&["read", "/v/k"]));
    }
    for dir in [
        "site.d",
        "vendor.d",
        "bad/value.d",
        "bad/path.d",
        "bad/none.d",
        "bad/line.d",
        "bad/key.d",
        "bad/group.d",
        "bad/type.d",
        "one/good.d",
        "one/plain.d",
        "gone.d",
        "garbage",
    ] {
        lines.push(line(&["compile", "compiled", dir]));
        lines.push(line(&["compile", "DIR/compiled", &format!("DIR/{dir}")]));
        let mut read = line(&["dump", "/"]);
        read.profile = "profile-compiled";
        lines.push(read);
    }
    lines.push(line(&["compile", "gone/compiled", "site.d"]));
    for dir in ["one", "DIR/one", "bad", "gone", "garbage", "one/good.d"] {
        lines.push(line(&["update", dir]));
    }
    for bus in [Reach::Nobody, Reach::NotSet] {
        for words in [
            &["write", "/a/b", "1"][..],
            &["reset", "/a/b"],
            &["reset", "-f", "/"],
            &["read", "/a/b"],
            &["list", "/"],
            &["dump", "/"],
            &["blame"],
        ] {
            lines.push(Line { bus, ..line(words) });
        }
        lines.push(Line { bus, stdin: "[a]\nb=1\n".into(), ..line(&["load", "/"]) });
        lines.push(Line { bus, stdin: String::new(), ..line(&["load", "/"]) });
        lines.push(Line { bus, profile: "profile-service", ..line(&["read", "/a/b"]) });
    }
    lines
}

fn generated(random: &mut Random, count: usize) -> Vec<Line> {
    let profiles = [
        "",
        "profile-user",
        "profile-locks",
        "profile-locks",
        "profile-locks",
        "profile-service",
        "profile-fixed",
        "profile-none",
        "profile-odd",
        "profile-gone",
    ];
    (0..count)
        .map(|_| {
            let path =
                if random.below(12) == 0 { random.of(&WRONG_PATHS) } else { random.of(&PATHS) };
            let mut made = match random.below(14) {
                0..4 => line(&["write", path, random.of(&VALUES)]),
                4 => line(&["read", path]),
                5 => line(&["read", "-d", path]),
                6 => line(&["list", path]),
                7 => line(&["list-locks", path]),
                8 => line(&["reset", path]),
                9 => line(&["reset", "-f", path]),
                10 => line(&["dump", path]),
                11 => line(&["_complete", random.of(&["", "/", "b"]), path]),
                12 => line(&["load", path]),
                _ => line(&["load", "-f", path]),
            };
            made.stdin = random.of(&FILES).to_owned();
            made.profile = random.of(&profiles);
            made
        })
        .collect()
}

/// Runs lines in both worlds and returns what differs.
fn differences(ours: &'static str, lines: &[Line]) -> Option<Vec<String>> {
    if !Path::new(REAL).exists() || !Path::new(THEIRS).exists() {
        skip("no dconf");
        return None;
    }
    let (theirs, ours) = (World::new(THEIRS)?, World::new(ours)?);
    let mut different = Vec::new();
    for world in [&theirs, &ours] {
        #[expect(clippy::disallowed_methods, reason = "a fixture need not be durable")]
        std::fs::write(
            world.bus.dir().join("profile-compiled"),
            format!("file-db:{}/compiled", world.bus.dir().display()),
        )
        .unwrap();
    }
    for line in lines {
        let (mut wanted, mut seen) = (theirs.run(line), ours.run(line));
        if wanted.code.is_none() {
            // The real one crashed; ours must not.
            if seen.code != Some(1) {
                different.push(format!("{line:?}\n  theirs crashed\n  ours   {seen:?}"));
            }
            continue;
        }
        if line.words.first().is_some_and(|word| word == "update") {
            // They go through the directories in the order of the disk.
            for text in [&mut wanted.stderr, &mut seen.stderr] {
                let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
                lines.sort();
                *text = lines.join("\n");
            }
        }
        if seen != wanted {
            different.push(format!("{line:?}\n  theirs {wanted:?}\n  ours   {seen:?}"));
        }
    }
    Some(different)
}

fn same(lines: &[Line]) {
    let Some(different) = differences(OURS, lines) else { return };
    assert!(
        different.is_empty(),
        "{} of {} differ:\n{}",
        different.len(),
        lines.len(),
        different.join("\n")
    );
}

#[test]
fn every_command_with_right_and_wrong_arguments_does_the_same() {
    same(&fixed());
}

#[test]
fn hundreds_of_generated_commands_do_the_same() {
    let seed = fixture::setting("UNJANK_SEED").unwrap_or(1);
    let count = fixture::setting("UNJANK_COMMANDS").unwrap_or(400);
    eprintln!("UNJANK_SEED={seed}");
    same(&generated(&mut Random(fastrand::Rng::with_seed(seed)), usize::try_from(count).unwrap()));
}

#[test]
fn a_difference_is_noticed() {
    // Prints its words and does nothing, which is right only for a command without output.
    let Some(different) = differences("/bin/echo", &[line(&["list", "/"]), line(&["read", "/a"])])
    else {
        return;
    };
    assert_eq!(different.len(), 2, "{different:?}");
    let texts = BTreeMap::from([
        ("\n(dconf:12): dconf-WARNING **: 10:00:00.000: x: y\n", "\n(dconf-WARNING) x: y\n"),
        (
            "error: Failed to create file “/a/b.XYZ012”: no\n",
            "error: Failed to create file “/a/b”: no\n",
        ),
        ("error: Failed to create file “/a/b”: no\n", "error: Failed to create file “/a/b”: no\n"),
    ]);
    for (text, wanted) in texts {
        assert_eq!(plain(text), wanted);
    }
}
