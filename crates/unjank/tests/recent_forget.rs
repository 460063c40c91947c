//! Documents go out of every store on the machine, and a search that shares nothing with ours finds nothing.
#![expect(clippy::unwrap_used, reason = "a test")]

use crate::fixture;
use crate::recent_home;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use fixture::{copy_program, has, skip};
use gvdb::gvariant::Variant;
use recent_home::{Home, kde};

/// A part of the names of documents that are forgotten, and of no other.
const SECRET: &str = "zebra";
/// A bus that starts nothing of its own.
const BUS: &str = "<busconfig><type>session</type><listen>unix:tmpdir=/tmp</listen><policy context=\"default\"><allow send_destination=\"*\" eavesdrop=\"true\"/><allow eavesdrop=\"true\"/><allow own=\"*\"/></policy></busconfig>";

/// A part of the names of documents that stay.
const OPEN: &str = "giraffe";

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn forget(home: &Home, arguments: &[&str]) -> Output {
    home.unjank(&[&["recent", "forget"], arguments].concat())
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// A PNG file as the thumbnail specification has it: one text chunk, and no picture to speak of.
fn thumbnail(uri: &str) -> Vec<u8> {
    let chunk = |kind: &[u8], data: &[u8]| {
        let len = u32::try_from(data.len()).unwrap().to_be_bytes();
        [&len[..], kind, data, &[0; 4]].concat()
    };
    let address = [b"Thumb::URI\0", uri.as_bytes()].concat();
    [b"\x89PNG\r\n\x1a\n".to_vec(), chunk(b"IHDR", &[0; 13]), chunk(b"tEXt", &address)].concat()
}

/// A document as GLib names it.
fn uri_of(path: &Path) -> String {
    format!("file://{}", text(path).replace(' ', "%20"))
}

/// Names both documents in every store that is a file.
fn fill(home: &Home) -> [PathBuf; 2] {
    let documents = [SECRET, OPEN].map(|name| home.write(&format!("docs/{name} & co.pdf"), "x"));
    let [secret, open] = documents.each_ref().map(|path| text(path));
    let uri = |path: &str| format!("file://{}", path.replace(' ', "%20"));
    let [secret_uri, open_uri] = [uri(secret), uri(open)];
    let [secret_home, open_home] =
        [secret, open].map(|path| path.replace(text(home.path()), "$HOME"));
    let bookmark = |uri: &str| {
        format!(
            "<bookmark href=\"{}\" added=\"2026-11-01T10:00:00Z\" modified=\"2026-11-01T10:00:00Z\" visited=\"2026-11-01T10:00:00Z\"><info><metadata owner=\"http://freedesktop.org\"><mime:mime-type type=\"application/pdf\"/><bookmark:applications><bookmark:application name=\"viewer\" exec=\"viewer %u\" modified=\"2026-11-01T10:00:00Z\" count=\"1\"/></bookmark:applications></metadata></info></bookmark>",
            uri.replace('&', "&amp;")
        )
    };
    let xbel = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<xbel version=\"1.0\" xmlns:bookmark=\"http://www.freedesktop.org/standards/desktop-bookmarks\" xmlns:mime=\"http://www.freedesktop.org/standards/shared-mime-info\">{}{}</xbel>",
        bookmark(&secret_uri),
        bookmark(&open_uri)
    );
    for name in [
        "recently-used.xbel",
        "recently-used.xbel.A1B2C3",
        "org.gnome.TextEditor/recently-used.xbel",
    ] {
        home.write(&format!(".local/share/{name}"), &xbel);
    }
    home.write(".local/share/recently-used.xbel~", &xbel[..xbel.len() / 3]);
    home.write(".config/okularrc", format!("[Recent Files]\nFile1[$e]={secret_home}\nFile2[$e]={open_home}\nName1[$e]={SECRET} & co.pdf\nName2[$e]={OPEN} & co.pdf\n\n[General]\nx=1\n"));
    let groups = format!(
        "[Document 0]\nMode=Normal\nURL={secret_uri}\n\n[Document 1]\nURL={open_uri}\n\n[View 0 {secret_uri}]\nx=1\n"
    );
    for program in ["kate", "kwrite"] {
        home.write(&format!(".local/share/{program}/anonymous.katesession"), &groups);
        home.write(&format!(".config/{program}metainfos"), &groups);
    }
    let escaped = |path: &str| path.replace(' ', "%20").replace('&', "%26").replace('/', "%2F");
    home.write(
        ".config/geany/geany.conf",
        format!(
            "[files]\nrecent_files={secret};{open};\nFILE_NAME_0=1;C;0;EUTF-8;0;1;0;{};0;2\nFILE_NAME_1=2;C;0;EUTF-8;0;1;0;{};0;2\n",
            escaped(secret),
            escaped(open)
        ),
    );
    home.write(
        ".config/featherpad/fp.conf",
        format!("[text]\nrecentFiles=\"{secret}\", \"{open}\"\n"),
    );
    home.write(
        ".config/totem/session_state.xspf",
        [&secret_uri, &open_uri]
            .map(|uri| {
                format!("<track>\n<location>{}</location>\n</track>\n", uri.replace('&', "&amp;"))
            })
            .concat(),
    );
    home.write(
        ".local/share/gedit/gedit-metadata.xml",
        [&secret_uri, &open_uri]
            .map(|uri| format!(" <document uri=\"{}\" atime=\"1\"/>\n", uri.replace('&', "&amp;")))
            .concat(),
    );
    let session = format!(
        "{{'drafts': <@aa{{sv}} []>, 'windows': <[{{'pages': <[{{'uri': <'{secret_uri}'>}}, {{'uri': <'{open_uri}'>}}]>}}]>}}"
    );
    let session = Variant::parse(None, &session).unwrap();
    home.write(".local/share/org.gnome.TextEditor/session.gvariant", session.view().bytes());
    let list = format!("[org/gnome/editor]\nrecent-files=['{secret_uri}', '{open_uri}']\n");
    home.write(".var/app/org.example.Editor/config/glib-2.0/settings/keyfile", list);
    home.write(".var/app/org.example.Editor/data/recently-used.xbel", &xbel);
    home.write(
        ".config/QtProject.conf",
        format!("[FileDialog]\nhistory={}, {}\nlastVisited={}\n", secret_uri, open_uri, secret_uri),
    );
    home.write(
        ".config/vlc/vlc-qt-interface.conf",
        format!("[RecentsMRL]\nlist={secret_uri}, {open_uri}\ntimes=10, 20\n"),
    );
    home.write(
        ".config/kdeglobals",
        format!("[KFileDialog Settings]\nRecent URLs[$e]=file:{secret_home},file:{open_home}\n"),
    );
    let item = |path: &str, node: &str, inside: &str| {
        format!(
            "<item oor:path=\"/org.openoffice.Office.Histories/Histories/org.openoffice.Office.Histories:HistoryInfo['PickList']/{path}\"><node oor:name=\"{}\" oor:op=\"replace\">{}</node></item>\n",
            node.replace('&', "&amp;"),
            inside.replace('&', "&amp;")
        )
    };
    let order = |number: &str, uri: &str| {
        item(
            "OrderList",
            number,
            &format!(
                "<prop oor:name=\"HistoryItemRef\" oor:op=\"fuse\"><value>{uri}</value></prop>"
            ),
        )
    };
    home.write(
        ".config/libreoffice/4/user/registrymodifications.xcu",
        [
            "<oor:items>\n",
            &item("ItemList", &secret_uri, ""),
            &item("ItemList", &open_uri, ""),
            &order("0", &secret_uri),
            &order("1", &open_uri),
            "</oor:items>\n",
        ]
        .concat(),
    );
    for (number, (uri, in_home)) in
        [(&secret_uri, &secret_home), (&open_uri, &open_home)].into_iter().enumerate()
    {
        home.write(&format!(".cache/thumbnails/normal/{number}.png"), thumbnail(uri));
        home.write(
            &format!(".cache/thumbnails/fail/gnome-thumbnail-factory/{number}.png"),
            thumbnail(uri),
        );
        home.write(
            &format!(".local/share/gwenview/recentfolders/{number}"),
            format!("[General]\ndateTime=1\nurl={uri}\n"),
        );
        home.write(
            &format!(".local/share/okular/docdata/{number}.xml"),
            format!(
                "<?xml version=\"1.0\"?>\n<documentInfo url=\"{}\">\n</documentInfo>\n",
                uri.replace("file://", "").replace("%20", " ").replace('&', "&amp;")
            ),
        );
        home.write(&format!(".local/share/RecentDocuments/{number}.desktop"), format!("[Desktop Entry]\nIcon=x\nType=Link\nURL[$e]=file:{in_home}\nX-KDE-LastOpenedWith=okular\n"));
    }
    for document in [secret, open] {
        assert!(
            home.unjank(&["recent", "add", document, "--app", "org.kde.okular"]).status.success()
        );
    }
    // What others read is written before anything is looked at.
    assert!(home.unjank(&["recent", "sync"]).status.success());
    documents
}

#[test]
fn every_store_forgets_and_keeps_the_rest() {
    let home = Home::make();
    let [secret, _] = fill(&home);
    // One that does not name its document; KDE's pack the name.
    let hash = Command::new("md5sum").arg(home.write("uri", uri_of(&secret))).output().unwrap();
    let hash = String::from_utf8(hash.stdout).unwrap()[..32].to_owned();
    let hashed = format!(".cache/thumbnails/large/{hash}.png");
    home.write(&hashed, &thumbnail("")[..33]);
    let stores = home.naming(SECRET.as_bytes());
    assert!(stores.len() >= 25, "{stores:#?}");
    let before = home.contents();
    let dry = forget(&home, &[text(&secret), "--dry-run"]);
    assert_eq!(dry.status.code(), Some(0), "{}", said(&dry));
    assert!(said(&dry).starts_with("1 document would be forgotten."), "{}", said(&dry));
    let still = home.naming(SECRET.as_bytes());
    assert!(stores.iter().all(|store| still.contains(store)), "a dry run takes nothing out");
    let done = forget(&home, &[text(&secret)]);
    assert_eq!(done.status.code(), Some(0), "{}", said(&done));
    assert!(said(&done).starts_with("Forgot 1 document; a search of "), "{}", said(&done));
    assert!(said(&done).contains(" finds nothing."), "{}", said(&done));
    let documents = "not searched: ~ (";
    assert!(said(&done).contains(documents), "the documents are: {}", said(&done));
    assert!(!home.at(&hashed).exists(), "it is known by its name alone");
    assert_eq!(home.naming(SECRET.as_bytes()), Vec::<PathBuf>::new());
    // What names the other one does still, but for the copies of the shared list, which are nobody's.
    let open = home.naming(OPEN.as_bytes());
    let gone: Vec<_> = before
        .iter()
        .filter(|(path, (.., bytes))| {
            String::from_utf8_lossy(bytes).contains(OPEN) && !open.contains(path)
        })
        .map(|(path, _)| path.file_name().unwrap().to_str().unwrap())
        .collect();
    assert_eq!(gone, Vec::<&str>::new());
    let again = forget(&home, &[text(&secret)]);
    let wanted = "No list on this machine has such a document; a search of ";
    assert!(said(&again).starts_with(wanted), "{}", said(&again));
}

#[test]
fn documents_are_chosen_by_folder_program_and_time() {
    let home = Home::make();
    fill(&home);
    let chosen = |arguments: &[&str]| {
        let output = forget(&home, &[arguments, &["--dry-run", "--json"]].concat());
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        document["documents"].as_u64().unwrap()
    };
    assert_eq!(chosen(&[text(&home.at("docs"))]), 2);
    assert_eq!(chosen(&[text(&home.at("doc"))]), 0);
    assert_eq!(chosen(&["--all"]), 2);
    assert_eq!(chosen(&["--app", "okular"]), 2);
    assert_eq!(chosen(&["--app", "kwrite"]), 2);
    assert_eq!(chosen(&["--app", "mousepad"]), 0);
    assert_eq!(chosen(&["--since", "1h"]), 2);
    assert_eq!(chosen(&["--before", "2026-10-01"]), 0);
    assert_eq!(forget(&home, &[]).status.code(), Some(2));
    assert_eq!(forget(&home, &["--all", "--app", "x"]).status.code(), Some(2));
    let done = forget(&home, &["--all"]);
    assert_eq!(done.status.code(), Some(0), "{}", said(&done));
    assert_eq!(home.naming(b" & co.pdf"), Vec::<PathBuf>::new());
    assert_eq!(home.naming(b"%20&"), Vec::<PathBuf>::new());
}

/// Remembers documents `name0` and so on, opened by a program.
fn add_many(home: &Home, name: &str, count: usize, app: &str) {
    let paths: Vec<PathBuf> = (0..count).map(|n| home.at(&format!("docs/{name}{n}"))).collect();
    let mut arguments = vec!["recent", "add", "--app", app];
    arguments.extend(paths.iter().map(|path| text(path)));
    let added = home.unjank(&arguments);
    assert!(added.status.success(), "{}", said(&added));
}

#[test]
fn what_the_limits_hide_is_forgotten_and_does_not_come_back() {
    for selection in [&["--app", "okular"][..], &["--since", "1h"], &["--all"]] {
        let home = Home::make();
        home.write(".config/unjank/recent.rules", "keep entries 5\n");
        add_many(&home, SECRET, 20, "okular");
        let done = forget(&home, selection);
        assert_eq!(done.status.code(), Some(0), "{}", said(&done));
        // Neither now, nor when more may be shown, nor after the lists were written again.
        home.write(".config/unjank/recent.rules", "keep entries 100\n");
        assert!(home.unjank(&["recent", "sync"]).status.success());
        let list = said(&home.unjank(&["recent", "list", "--uris"]));
        assert!(!list.contains(SECRET), "{selection:?}: {list}");
        assert_eq!(home.naming(SECRET.as_bytes()), Vec::<PathBuf>::new(), "{selection:?}");
        assert!(said(&done).starts_with("Forgot 20 documents"), "{selection:?}: {}", said(&done));
    }
    // Of a program whose documents are all hidden by those of another.
    let home = Home::make();
    home.write(".config/unjank/recent.rules", "keep entries 5\n");
    add_many(&home, SECRET, 3, "okular");
    add_many(&home, OPEN, 9, "org.kde.kate");
    let done = forget(&home, &["--app", "okular"]);
    assert_eq!(done.status.code(), Some(0), "{}", said(&done));
    assert!(said(&done).starts_with("Forgot 3 documents"), "{}", said(&done));
    assert_eq!(home.naming(SECRET.as_bytes()), Vec::<PathBuf>::new());
}

#[test]
fn what_is_left_somewhere_is_said() {
    let home = Home::make();
    let [secret, _] = fill(&home);
    // Where no list is, nothing is taken out; that it is there is found all the same.
    let other = format!("[Wallpaper]\nImage=file://{}\n", text(&secret).replace(' ', "%20"));
    let planted = home.write(".config/plasmarc", other);
    let done = forget(&home, &[text(&secret)]);
    assert_eq!(done.status.code(), Some(1), "{}", said(&done));
    assert!(said(&done).contains("left: ~/.config/plasmarc (1)"), "{}", said(&done));
    assert_eq!(home.naming(SECRET.as_bytes()), [planted]);
    // So are bytes that no list owns any more: in a log of a database that is gone.
    let home = Home::make();
    let document = home.write("docs/zebra", "x");
    let log = ".local/share/kactivitymanagerd/resources/database-wal";
    home.write(log, format!("\0\x01{}org.kde.kate", text(&document)));
    let done = forget(&home, &[text(&document), "--json"]);
    assert!(done.stdout.starts_with(b"{\n  \"schema\": "), "a document begins with its schema");
    let report: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(report["left"][0]["file"], text(&home.at(log)), "{report:#}");
    assert_eq!(done.status.code(), Some(1));
}

#[test]
fn what_is_beside_the_list_and_is_none_and_what_names_no_document_stays_as_it_is() {
    let home = Home::make();
    let [secret, _] = fill(&home);
    let damaged = format!("<xbel><bookmark href=\"file:///srv/{OPEN}");
    let beside: [(&str, &[u8]); 5] = [
        // Somebody's, and one that names the document: the search afterwards finds it.
        (".txt", b"notes of mine"),
        (".notes", text(&secret).as_bytes()),
        ("~1", b"abc"),
        (".bak", b""),
        (".mine", damaged.as_bytes()),
    ];
    for (ending, bytes) in beside {
        home.write(&format!(".local/share/recently-used.xbel{ending}"), bytes);
    }
    // The lock of a program of KDE's that lives: its number, its name and the machine's.
    let machine = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let mut holder = Command::new("sleep").arg("600").spawn().unwrap();
    let lock = format!("{}\nsleep\n{machine}", holder.id());
    let lock_file = home.write(".local/share/recently-used.xbel.lock", &lock);
    let done = forget(&home, &[text(&secret)]);
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert!(said(&done).contains("recently-used.xbel.notes (1)"), "{}", said(&done));
    assert_eq!(fs::read_to_string(&lock_file).unwrap(), lock);
    for (ending, bytes) in beside {
        let file = home.at(&format!(".local/share/recently-used.xbel{ending}"));
        assert_eq!(fs::read(&file).unwrap(), bytes, "{ending}");
    }
}

#[test]
fn hostile_stores_are_troubles_of_their_own() {
    let home = Home::make();
    let [secret, _] = fill(&home);
    home.write(
        ".local/share/kactivitymanagerd/resources/database",
        [&b"SQLite format 3\0"[..], &[0xff; 5000]].concat(),
    );
    home.write(".config/deeprc", "[".repeat(100_000));
    home.write(".local/share/recently-used.xbel.broken", [0xffu8; 1000]);
    let fifo = home.at(".config/pipe.conf");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    std::os::unix::fs::symlink("looprc", home.at(".config/looprc")).unwrap();
    let done = forget(&home, &[text(&secret)]);
    assert_eq!(done.status.code(), Some(1), "{}", said(&done));
    assert!(said(&done).contains("trouble: cannot use the database"), "{}", said(&done));
    assert_eq!(home.naming(SECRET.as_bytes()), Vec::<PathBuf>::new());
}

#[test]
fn a_program_that_has_a_list_in_memory_is_named() {
    let home = Home::make();
    let [secret, _] = fill(&home);
    let program = home.at("okular");
    copy_program("/bin/sleep", &program);
    let mut running = home.command(&program).arg("1000").spawn().unwrap();
    let comm = format!("/proc/{}/comm", running.id());
    while fs::read_to_string(&comm).unwrap() != "okular\n" {
        fixture::pause();
    }
    let done = forget(&home, &[text(&secret)]);
    let wanted = format!("running: okular ({}) may still have", running.id());
    running.kill().unwrap();
    running.wait().unwrap();
    assert!(said(&done).contains(&wanted), "{}", said(&done));
}

#[test]
fn this_program_is_none_that_has_a_list_in_memory() {
    let home = Home::make();
    let document = home.write("Documents/plan.txt", "plan");
    // Without `--app` it is remembered as opened by unjank, and the one who forgets is one, too.
    let added = home.unjank(&["recent", "add", text(&document)]);
    assert!(added.status.success(), "{added:?}");
    let done = said(&forget(&home, &["--dry-run", text(&document)]));
    assert!(done.starts_with("1 document would be forgotten."), "{done}");
    assert!(!done.contains("running: "), "{done}");
}

#[test]
fn what_a_kde_program_wrote_is_forgotten_by_folder() {
    let Some(kde) = kde() else { return };
    let home = Home::make();
    for (folder, count) in [(SECRET, 3), (OPEN, 2)] {
        for number in 0..count {
            home.write(&format!("docs/{folder}/{number}"), "x");
        }
        let docs = home.at("docs").join(folder);
        let added = home.command(kde).arg("add").arg(docs).arg(count.to_string()).output().unwrap();
        assert!(added.status.success());
    }
    let done = forget(&home, &[text(&home.at("docs").join(SECRET))]);
    assert_eq!(done.status.code(), Some(0), "{}", said(&done));
    assert_eq!(home.naming(SECRET.as_bytes()), Vec::<PathBuf>::new());
    let list = home.command(kde).arg("list").output().unwrap();
    assert_eq!(String::from_utf8(list.stdout).unwrap().matches(OPEN).count(), 2);
}

/// Tells KDE's service what was opened, forgets it while the service runs, and says what is where.
const ACTIVITIES: &str = r#"
set -eu
database=$XDG_DATA_HOME/kactivitymanagerd/resources/database
"$SERVICE" &
service=$!
trap 'kill $service 2>/dev/null || true' EXIT
gdbus wait --session --timeout 60 org.kde.ActivityManager
call() { gdbus call --session -d org.kde.ActivityManager -o /ActivityManager/Resources -m "org.kde.ActivityManager.Resources.$@" >/dev/null; }
within() { for i in $(seq 600); do "$@" >/dev/null 2>&1 && return; sleep 0.05; done; echo "never: $*"; exit 1; }
for name in zebra giraffe; do
    call RegisterResourceEvent org.kde.kate 0 "$HOME/docs/$name.txt" 0
    call RegisterResourceMimetype "$HOME/docs/$name.txt" text/plain
    call RegisterResourceTitle "$HOME/docs/$name.txt" "$name"
done
count() { sqlite3 -readonly "$database" "SELECT count(*) FROM ResourceEvent e JOIN ResourceInfo i USING (targettedResource) JOIN ResourceScoreCache s USING (targettedResource)"; }
two() { test "$(count)" = 2; }
within two
cp -r "$XDG_DATA_HOME/kactivitymanagerd/resources" "$XDG_DATA_HOME/kactivitymanagerd/copy"
mv "$XDG_DATA_HOME/kactivitymanagerd/copy" "$XDG_DATA_HOME/kactivitymanagerd/resources/working-backup/"
mv "$XDG_DATA_HOME/kactivitymanagerd/resources/working-backup/copy/database"* "$XDG_DATA_HOME/kactivitymanagerd/resources/working-backup/"
rm -r "$XDG_DATA_HOME/kactivitymanagerd/resources/working-backup/copy"
code=0
"$UNJANK" recent forget "$HOME/docs/zebra.txt" || code=$?
echo "code $code"
echo "left $(count)"
"#;

#[test]
fn the_database_of_kdes_service_forgets_while_the_service_runs() {
    let service =
        ["/usr/lib/x86_64-linux-gnu/libexec/kactivitymanagerd", "/usr/libexec/kactivitymanagerd"];
    let Some(service) = service.iter().find(|path| Path::new(path).exists()) else {
        return skip("kactivitymanagerd is not installed");
    };
    if !has(&["dbus-run-session", "gdbus", "sqlite3"]) {
        return;
    }
    let home = Home::make();
    for name in [SECRET, OPEN] {
        home.write(&format!("docs/{name}.txt"), "x");
    }
    let script = home.write("activities.sh", ACTIVITIES);
    let mut command = home.command("dbus-run-session");
    let bus = home.write("bus.conf", BUS);
    command.env_remove("DBUS_SESSION_BUS_ADDRESS").arg("--config-file").arg(bus);
    command.args(["--", "sh"]).arg(script);
    let output =
        command.env("SERVICE", service).env("UNJANK", recent_home::UNJANK).output().unwrap();
    let said = said(&output);
    assert!(said.contains("code 0\n"), "{said}");
    assert!(said.contains("left 1\n"), "{said}");
    assert!(said.contains("KDE's activities"), "{said}");
    assert_eq!(home.naming(SECRET.as_bytes()), Vec::<PathBuf>::new());
    assert!(!home.naming(OPEN.as_bytes()).is_empty());
}

/// Starts a settings service on a bus of its own, writes lists and a picture into dconf, forgets, and says what is there.
const SETTINGS: &str = r#"
set -eu
$SERVICE 2>/dev/null &
service=$!
trap 'kill $service 2>/dev/null || true' EXIT
gdbus wait --session --timeout 60 ca.desrt.dconf
dconf write /org/xfce/mousepad/state/application/session "[';;+file://$HOME/docs/zebra.txt', ';;file://$HOME/docs/giraffe.txt']"
dconf write /org/gnome/editor/last-file "'file://$HOME/docs/zebra.txt'"
dconf write /org/gnome/viewer/recent "[('file://$HOME/docs/zebra.txt', 3), ('file://$HOME/docs/giraffe.txt', 4)]"
test -z "${PICTURE:-}" || dconf write /org/gnome/desktop/background/picture-uri "'file://$HOME/docs/zebra.txt'"
code=0
"$UNJANK" recent forget "$HOME/docs/zebra.txt" || code=$?
echo "code $code"
dconf dump /
"#;

#[test]
fn lists_in_dconf_are_forgotten_through_their_service() {
    if !has(&["dbus-run-session", "gdbus", "dconf"]) {
        return;
    }
    let ours = format!("{} --names dconf", env!("CARGO_BIN_EXE_unjankd"));
    for (service, picture) in
        [("/usr/libexec/dconf-service", ""), ("/usr/libexec/dconf-service", "yes"), (&ours, "")]
    {
        if !Path::new(service.split(' ').next().unwrap()).exists() {
            skip("dconf-service is not installed");
            continue;
        }
        let home = Home::make();
        home.write("docs/zebra.txt", "x");
        let script = home.write("settings.sh", SETTINGS);
        let bus = home.write("bus.conf", BUS);
        let mut command = home.command("dbus-run-session");
        command.env_remove("DBUS_SESSION_BUS_ADDRESS").arg("--config-file").arg(bus);
        command.args(["--", "sh"]).arg(script).env("SERVICE", service).env("PICTURE", picture);
        let output = command.env("UNJANK", recent_home::UNJANK).output().unwrap();
        let said = said(&output);
        assert!(said.contains("session=[';;file://"), "{service}: {said}");
        assert!(said.contains("giraffe.txt', 4)]"), "{service}: {said}");
        assert!(!said.contains("last-file="), "{service}: {said}");
        let naming = home.naming(SECRET.as_bytes());
        if picture.is_empty() {
            assert_eq!(naming, Vec::<PathBuf>::new(), "{service}: {said}");
            assert!(said.contains("code 0\n"), "{service}: {said}");
        } else {
            assert_eq!(naming, [home.at(".config/dconf/user")], "{said}");
            assert!(said.contains("code 1\n"), "{said}");
            assert!(
                said.contains(
                    "left: ~/.config/dconf/user (1)\n  at /org/gnome/desktop/background/picture-uri"
                ),
                "{said}"
            );
        }
    }
}

/// Has GNOME's file system layer and Zeitgeist note two documents, forgets one while they run, and says what they know then.
const NOTES: &str = r#"
set -eu
/usr/libexec/gvfsd --no-fuse 2>/dev/null >&2 &
layer=$!
/usr/libexec/gvfsd-metadata &
metadata=$!
/usr/bin/zeitgeist-daemon --no-datahub 2>/dev/null >&2 &
zeitgeist=$!
trap 'kill $layer $metadata $zeitgeist 2>/dev/null || true' EXIT
for name in Daemon Metadata; do gdbus wait --session --timeout 60 org.gtk.vfs.$name; done
gdbus wait --session --timeout 60 org.gnome.zeitgeist.Engine
zg=http://www.zeitgeist-project.com/ontologies/2010/01/27/zg
for name in zebra giraffe; do
    gio set "$HOME/docs/$name.txt" metadata::page 7
    gdbus call --session -d org.gnome.zeitgeist.Engine -o /org/gnome/zeitgeist/log/activity -m org.gnome.zeitgeist.Log.InsertEvents \
        "[(['','$(date +%s)000','$zg#AccessEvent','$zg#UserActivity','application://viewer.desktop',''],[['file://$HOME/docs/$name.txt','','','file://$HOME/docs','text/plain','$name.txt','','file://$HOME/docs/$name.txt','']],@ay [])]" >/dev/null
done
gio info -a metadata::page "$HOME/docs/zebra.txt" | grep -q 'page: 7'
code=0
"$UNJANK" recent forget "$HOME/docs/zebra.txt" || code=$?
echo "code $code"
echo "zebra's $(gio info -a metadata::page "$HOME/docs/zebra.txt" | grep -c 'page: 7')"
echo "giraffe's $(gio info -a metadata::page "$HOME/docs/giraffe.txt" | grep -c 'page: 7')"
gio set "$HOME/docs/giraffe.txt" metadata::page 8
echo "then $(gio info -a metadata::page "$HOME/docs/giraffe.txt" | grep -c 'page: 8')"
sqlite3 -readonly "$XDG_DATA_HOME/zeitgeist/activity.sqlite" "SELECT 'events ' || count(*) FROM event"
"#;

#[test]
fn notes_of_gnome_and_zeitgeist_are_forgotten_while_their_services_run() {
    let services = ["/usr/libexec/gvfsd-metadata", "/usr/bin/zeitgeist-daemon"];
    if services.iter().any(|path| !Path::new(path).exists()) {
        return skip("gvfs-daemons or zeitgeist-core is not installed");
    }
    if !has(&["dbus-run-session", "gdbus", "gio", "sqlite3"]) {
        return;
    }
    let home = Home::make();
    for name in [SECRET, OPEN] {
        home.write(&format!("docs/{name}.txt"), "x");
    }
    let script = home.write("notes.sh", NOTES);
    // This one starts the service again, as a session's does.
    let service = "[D-BUS Service]\nName=org.gtk.vfs.Metadata\nExec=/usr/libexec/gvfsd-metadata\n";
    home.write("services/org.gtk.vfs.Metadata.service", service);
    let services = format!("<busconfig><servicedir>{}</servicedir>", text(&home.at("services")));
    let bus = home.write("bus.conf", BUS.replace("<busconfig>", &services));
    let mut command = home.command("dbus-run-session");
    command.env_remove("DBUS_SESSION_BUS_ADDRESS").arg("--config-file").arg(bus);
    command.args(["--", "sh"]).arg(script).env("UNJANK", recent_home::UNJANK);
    let said = said(&command.output().unwrap());
    for line in ["code 0\n", "zebra's 0\n", "giraffe's 1\n", "then 1\n", "events 1\n"] {
        assert!(said.contains(line), "{line}{said}");
    }
    assert!(said.contains("GNOME's file notes           1"), "{said}");
    assert_eq!(home.naming(SECRET.as_bytes()), Vec::<PathBuf>::new(), "{said}");
}
