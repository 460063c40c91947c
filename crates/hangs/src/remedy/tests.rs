//! Each cause, and each remedy: what removes it, and what does not.

use super::*;
use crate::model::{CallObject, CallShare, HangChain, HangFrame, HangHop};
use crate::text::tests::hostile;

const MIB: u64 = 1 << 20;
const SECOND: u64 = 1_000_000_000;
const NOTES: &str = "/home/ana/notes.odt";

/// A hang of a program `notes` that waited in one call.
fn hang(cause: HangCause, call: &str, kind: ObjectKind, name: &str) -> Hang {
    let mut hang = hostile(cause, kind);
    (hang.process, hang.program) = (7, "notes".to_owned());
    (hang.frames, hang.blamed, hang.chain, hang.disk_use) = (Vec::new(), None, None, None);
    let object = CallObject {
        kind,
        name: name.to_owned(),
        file_system: String::new(),
        device: String::new(),
    };
    let object = Some(object).filter(|object| !object.name.is_empty());
    hang.calls = vec![CallShare { call: call.to_owned(), blocked_ns: SECOND, seen: 1, object }];
    hang
}

fn of_file(cause: HangCause, path: &str) -> Hang {
    let call = match cause {
        HangCause::Sync => "fsync",
        HangCause::FileNames => "openat",
        HangCause::PageFault => CallShare::PAGE_FAULT,
        _ => "read",
    };
    hang(cause, call, ObjectKind::File, path)
}

fn in_function(mut hang: Hang, function: &str) -> Hang {
    hang.frames = vec![HangFrame { function: function.to_owned(), module: "libx.so".into() }];
    hang
}

/// A hang whose longest wait was ended by these programs one behind the other; the first two threads are its own.
fn for_programs(cause: HangCause, programs: &[(&str, u32)]) -> Hang {
    let mut hang = hang(cause, "poll", ObjectKind::Other, "[eventfd]");
    let hop = |program: &str, process| HangHop {
        program: program.to_owned(),
        process,
        unit: String::new(),
        call: "poll".to_owned(),
        function: String::new(),
        waited_ns: SECOND,
    };
    let hops = [("notes", 7), ("gdbus", 7)].iter().chain(programs);
    let hops = hops.map(|(program, process)| hop(program, *process)).collect();
    hang.chain =
        Some(HangChain { hops, end: "disk".to_owned(), end_ns: SECOND, has_losses: false });
    hang
}

/// A hang of four seconds beside which these programs read and wrote, in MiB, and all disks.
fn beside(mut hang: Hang, users: &[(&str, u32, u64, u64)], disks: (u64, u64)) -> Hang {
    // As a wait of four seconds makes it, whoever is waited for.
    hang.pressure = Some([0, 3300, 0]);
    let user = |(program, process, read, written): &(&str, u32, u64, u64)| DiskUser {
        program: (*program).to_owned(),
        process: *process,
        read_bytes: read * MIB,
        written_bytes: written * MIB,
    };
    hang.disk_use = Some(DiskUse {
        counted_ns: 4 * SECOND,
        read_bytes: disks.0 * MIB,
        written_bytes: disks.1 * MIB,
        programs: users.iter().map(user).collect(),
        processes: CountedProcesses::All,
    });
    hang
}

/// The same where not all processes were looked at.
fn of_processes(mut hang: Hang, processes: CountedProcesses) -> Hang {
    hang.disk_use.as_mut().unwrap().processes = processes;
    hang
}

fn busy(mut hang: Hang, pressure: [u16; 3]) -> Hang {
    hang.pressure = Some(pressure);
    hang
}

#[test]
fn each_cause_has_what_removes_it_and_no_other() {
    use HangCause::{
        Child, Computing, FileData, FileNames, Lock, OtherCall, OtherProgram, PageFault,
        ProcessorQueue, Sleep, Stopped, Sync, Unknown,
    };
    use HangRemedy::{Gsettings, Host, Job, Recents, Relax, Run, Settings, SystemRun};
    let list = "/home/ana/.local/share/recently-used.xbel";
    let unnamed = "/home/ana/.local/share/#9986544 (deleted)";
    let version = format!("{list}.A1b2C3");
    let link = "/home/ana/.local/share/RecentDocuments/a.desktop";
    let sync = |path: &str| of_file(Sync, path);
    let dconf = [("dbus-daemon", 8), ("dconf-service", 9)];
    let beside_sync = |users, disks| beside(sync(NOTES), users, disks);
    let cases: Vec<(&str, Hang, &[HangRemedy])> = vec![
        // Lists of recent documents.
        ("a list", sync(list), &[Relax]),
        ("a version as of GLib", sync(&version), &[Relax]),
        ("a lock as of KDE", sync(&format!("{list}.lock")), &[Relax, Recents]),
        ("KDE's links", sync(link), &[Relax, Recents]),
        ("KDE's links, not named", sync("/h/.local/share/RecentDocuments"), &[Relax, Recents]),
        ("of Qt", in_function(sync(unnamed), "KRecentDocument::add(QUrl)"), &[Relax, Recents]),
        ("another one of Qt", in_function(sync(unnamed), "KConfig::sync()"), &[]),
        ("a list is read", of_file(FileData, list), &[Recents]),
        ("a list is mapped", of_file(PageFault, list), &[Recents]),
        ("a list is looked up", of_file(FileNames, list), &[]),
        ("a list of a sandbox", sync("/home/ana/.var/app/a/data/recently-used.xbel"), &[]),
        ("like a list", sync("/home/ana/recently-used.xbel.backup"), &[]),
        // Settings.
        ("dconf's own file", sync("/home/ana/.config/dconf/user.A1b2C3"), &[Settings]),
        ("reads it", of_file(PageFault, "/home/ana/.config/dconf/user"), &[]),
        ("waits for dconf", for_programs(OtherProgram, &dconf), &[Settings]),
        ("as Qt waits", for_programs(Lock, &dconf), &[Settings]),
        ("as GLib waits", for_programs(OtherCall, &dconf), &[Settings]),
        ("for a child", for_programs(Child, &[("dconf", 6), dconf[0], dconf[1]]), &[Settings]),
        ("for a disk of it", for_programs(OtherProgram, &[dconf[1], ("jbd2/vda", 3)]), &[Settings]),
        (
            "not followed",
            in_function(
                hang(OtherProgram, "poll", ObjectKind::Socket, "dbus-daemon (8) at /run/bus"),
                "dconf_client_write_sync",
            ),
            &[Settings],
        ),
        ("in GSettings", in_function(for_programs(OtherCall, &[]), "g_settings_sync"), &[Settings]),
        (
            "ours answers",
            in_function(for_programs(OtherProgram, &[("unjankd", 9)]), "g_settings_sync"),
            &[Settings],
        ),
        (
            "another one answers",
            in_function(for_programs(OtherProgram, &[("kiod5", 9)]), "g_settings_sync"),
            &[],
        ),
        ("computes beside", in_function(of_file(Computing, ""), "g_settings_sync"), &[]),
        ("the bus alone", for_programs(OtherProgram, &[dconf[0]]), &[]),
        ("a key file", sync("/h/.config/glib-2.0/settings/.goutputstream-A1B2C3"), &[Gsettings]),
        ("a key file of a sandbox", sync("/h/.var/app/a/config/glib-2.0/settings/keyfile"), &[]),
        // Host commands.
        ("a helper", for_programs(OtherProgram, &[("flatpak-session-helper", 9)]), &[Host]),
        (
            "its short name",
            for_programs(Child, &[("flatpak-spawn", 8), ("flatpak-session", 9)]),
            &[Host],
        ),
        (
            "what it has started",
            for_programs(Child, &[("flatpak-session-helper", 9), ("make", 10)]),
            &[],
        ),
        ("another program", for_programs(OtherProgram, &[("kiod5", 9)]), &[]),
        // A disk that others use.
        ("alone on a slow disk", beside_sync(&[("notes", 7, 0, 9)], (0, 9)), &[]),
        ("with a helper", beside_sync(&[("notes (helper)", 8, 0, 900)], (0, 900)), &[]),
        ("nobody is known", busy(sync(NOTES), [0, 9900, 0]), &[]),
        ("what it wrote before", beside_sync(&[("notes", 7, 0, 1)], (0, 600)), &[]),
        ("nothing of processes", beside_sync(&[], (0, 600)), &[]),
        ("nobody, and it read", beside(of_file(FileData, NOTES), &[], (90, 0)), &[SystemRun]),
        (
            "it may have been itself",
            of_processes(beside(of_file(FileData, NOTES), &[], (90, 0)), CountedProcesses::Hidden),
            &[],
        ),
        (
            "a unit of updates",
            beside_sync(&[("packagekit.service", 0, 0, 90)], (0, 90)),
            &[SystemRun],
        ),
        (
            "one of a template",
            beside_sync(&[("btrfs-scrub@home.service", 0, 90, 0)], (90, 0)),
            &[SystemRun],
        ),
        ("a unit that is not held", beside_sync(&[("docker.service", 0, 90, 90)], (90, 90)), &[]),
        ("called like it", beside_sync(&[("notes", 0, 0, 90)], (0, 90)), &[]),
        (
            "a unit, and perhaps itself",
            of_processes(
                beside_sync(&[("packagekit.service", 0, 0, 90)], (0, 600)),
                CountedProcesses::TooMany,
            ),
            &[],
        ),
        (
            "a unit, and not itself",
            of_processes(
                beside_sync(&[("packagekit.service", 0, 0, 590)], (0, 600)),
                CountedProcesses::Newest,
            ),
            &[SystemRun],
        ),
        ("a copy", beside_sync(&[("cp", 9, 200, 200), ("notes", 7, 0, 9)], (200, 209)), &[Job]),
        ("into memory", beside_sync(&[("cp", 9, 0, 200), ("notes", 7, 0, 1)], (0, 0)), &[]),
        ("more than the copy", beside_sync(&[("notes", 7, 0, 99), ("cp", 9, 0, 9)], (0, 108)), &[]),
        ("a little", beside_sync(&[("bash", 9, 0, 0), ("notes", 7, 0, 0)], (0, 0)), &[]),
        ("an indexer", beside_sync(&[("baloo_file_extractor", 9, 90, 9)], (90, 9)), &[Run]),
        ("an update of root", beside_sync(&[("packagekitd", 9, 0, 90)], (0, 90)), &[SystemRun]),
        ("reads of others", beside_sync(&[("notes", 7, 1, 1)], (90, 1)), &[SystemRun]),
        (
            "dpkg of root",
            beside(of_file(FileData, NOTES), &[("notes", 7, 2, 0)], (9, 300)),
            &[SystemRun],
        ),
        (
            "files are looked up",
            beside(of_file(FileNames, "/usr/share/applications"), &[("cp", 9, 99, 0)], (99, 0)),
            &[Job],
        ),
        ("pages", beside(of_file(PageFault, NOTES), &[("cp", 9, 99, 0)], (99, 0)), &[Job]),
        (
            "a list, looked up",
            beside(of_file(FileNames, list), &[("cp", 9, 99, 0)], (99, 0)),
            &[Job],
        ),
        // Processors.
        ("a busy machine", busy(of_file(ProcessorQueue, ""), [5000, 0, 0]), &[Job]),
        ("one moment", busy(of_file(ProcessorQueue, ""), [200, 0, 0]), &[]),
        // What none of it removes.
        ("computing", beside(of_file(Computing, ""), &[("cp", 9, 99, 0)], (99, 0)), &[]),
        ("a lock", hang(Lock, "futex", ObjectKind::Lock, "x"), &[]),
        ("a sleep", hang(Sleep, "clock_nanosleep", ObjectKind::Other, ""), &[]),
        ("stopped", busy(of_file(Stopped, ""), [9900, 9900, 0]), &[]),
        ("not seen", busy(of_file(Unknown, ""), [9900, 9900, 0]), &[]),
    ];
    for (what, hang, expected) in &cases {
        assert_eq!(remedies_of(hang), *expected, "{what}: {hang:?}");
    }
    for cause in HangCause::ALL {
        assert!(cases.iter().any(|(_, hang, _)| hang.cause == cause), "no case of {cause:?}");
    }
    for remedy in HangRemedy::ALL {
        assert!(cases.iter().any(|(.., found)| found.contains(&remedy)), "no case of {remedy:?}");
    }
}

#[test]
fn what_is_on_gives_way_to_what_is_not_and_is_in_vain_where_nothing_is_left() {
    let hang = of_file(HangCause::Sync, "/h/.local/share/RecentDocuments");
    let began_ns = hang.started_ns;
    let told = |on: &[(HangRemedy, Option<u64>)]| {
        let advice = advise(&hang, &AppliedRemedies::new(on.to_vec())).unwrap();
        (advice.remedy, advice.state, advice.command())
    };
    let command = |part: &str| Some(format!("unjank setup {part}"));
    let (relax, recents) = (HangRemedy::Relax, HangRemedy::Recents);
    assert_eq!(told(&[]), (relax, RemedyState::Off, command("relax")));
    let (before, after) = (Some(began_ns), Some(began_ns + 1));
    let since = RemedyState::OnSince { since_unix_ns: began_ns + 1 };
    assert_eq!(told(&[(relax, after)]), (relax, since, None));
    assert_eq!(told(&[(relax, before)]), (recents, RemedyState::Off, command("recents")));
    assert_eq!(told(&[(relax, None)]), (recents, RemedyState::Off, command("recents")));
    assert_eq!(told(&[(relax, before), (recents, after)]), (recents, since, None));
    let both = [(relax, before), (recents, None)];
    assert_eq!(told(&both), (relax, RemedyState::InVain, None));
    assert_eq!(advise(&of_file(HangCause::Sync, NOTES), &AppliedRemedies::NONE), None);
}

#[test]
fn each_remedy_has_a_command_and_those_of_the_system_need_root() {
    for remedy in HangRemedy::ALL {
        let command = remedy.advice().command.unwrap();
        match (remedy, remedy.part()) {
            (HangRemedy::SystemRun, _) => assert_eq!(command, "sudo unjank setup --system run"),
            (_, Some(part)) => assert_eq!(command, format!("unjank setup {part}")),
            (_, None) => assert_eq!(command, "unjank run -- COMMAND"),
        }
    }
}
