//! Programs that use GSettings: one in C that does everything, and `gsettings` itself.

#![expect(clippy::disallowed_methods, reason = "tests make files that need not last")]

use std::fs;
use std::process::Command;

use crate::service::{DCONF, ours};
use crate::session::{Ran, TestSession, must_run};

/// Runs tests of `backend.c` with our service, each in a session of its own.
fn backend(tests: &[&str]) {
    for test in tests {
        let Some(session) = TestSession::new(&ours()) else { return };
        let program = session.compile("tests/backend.c");
        session.run(&[&program, test]).expect_good();
    }
}

#[test]
fn the_structures_that_are_declared_are_those_of_the_headers() {
    let Some(session) = TestSession::new(&ours()) else { return };
    session.compile("tests/layout.c");
}

#[test]
fn a_program_reads_writes_delays_resets_and_is_told_of_changes() {
    backend(&["ordinary", "watches"]);
}

#[test]
fn the_same_holds_for_the_service_and_the_module_of_dconf() {
    for (service, module) in [(DCONF, "unjank"), (DCONF, "dconf")] {
        for test in ["ordinary", "watches"] {
            let Some(session) = TestSession::new(service) else { return };
            let program = session.compile("tests/backend.c");
            Ran::of(&mut session.command(module, &[&program, test])).expect_good();
        }
    }
}

#[test]
fn writes_survive_a_service_that_is_stopped_or_killed() {
    backend(&["stopped", "killed"]);
}

#[test]
fn four_threads_write_beside_another_process() {
    backend(&["threads"]);
}

#[test]
fn a_database_that_is_damaged_under_a_program_does_not_end_it() {
    backend(&["damaged"]);
}

#[test]
fn a_forked_child_reads_and_writes() {
    backend(&["fork"]);
}

#[test]
fn a_program_that_closes_all_descriptors_goes_on_without_a_busy_thread() {
    backend(&["closed"]);
}

#[test]
fn locks_and_defaults_of_the_administrator_hold() {
    let Some(session) = TestSession::new(&ours()) else { return };
    let (keys, locks) = (session.path("site.d/keys"), session.path("site.d/locks"));
    fs::create_dir_all(&locks).unwrap();
    fs::write(keys, "[org/unjank/test]\nnumber=99\ntext=\"the administrator's\"\n").unwrap();
    fs::write(locks.join("locks"), "/org/unjank/test/number\n").unwrap();
    let site = session.path("site");
    let mut compile = Command::new("dconf");
    compile.arg("compile").arg(&site).arg(session.path("site.d"));
    assert!(Ran::of(&mut compile).is_good);
    let profile = session.path("profile");
    fs::write(&profile, format!("user-db:user\nfile-db:{}\n", site.display())).unwrap();
    let program = session.compile("tests/backend.c");
    for module in ["unjank", "dconf"] {
        fs::remove_dir_all(session.path("home")).unwrap();
        fs::create_dir(session.path("home")).unwrap();
        let mut command = session.command(module, &[&program, "locks"]);
        Ran::of(command.env("DCONF_PROFILE", &profile)).expect_good();
    }
}

#[test]
fn without_a_bus_a_change_goes_back_with_one_warning() {
    let Some(session) = TestSession::new(&ours()) else { return };
    let session = session.without_bus();
    let program = session.compile("tests/backend.c");
    let ran = session.run(&[&program, "no-bus"]);
    ran.expect_good();
    assert_eq!(ran.stderr.matches("WARNING").count(), 1, "{}", ran.stderr);
    let said = "failed to commit changes to dconf: Could not connect: No such file or directory";
    assert!(ran.stderr.contains(said), "{}", ran.stderr);
}

#[test]
fn where_nothing_can_be_stored_a_change_goes_back_with_a_warning() {
    let Some(session) = TestSession::new(&ours()) else { return };
    fs::write(session.path("home/.config"), "a file where a directory should be").unwrap();
    let program = session.compile("tests/backend.c");
    let ran = session.run(&[&program, "read-only"]);
    ran.expect_good();
    assert!(ran.stderr.contains("failed to commit changes to dconf: "), "{}", ran.stderr);
}

#[test]
fn a_profile_or_a_database_that_is_missing_is_told_as_dconf_tells_it() {
    for (variable, profile) in [("nowhere", None), ("here", Some("user-db:user\nsystem-db:none"))] {
        let Some(session) = TestSession::new(&ours()) else { return };
        let path = session.path("profile");
        if let Some(text) = profile {
            fs::write(&path, text).unwrap();
        }
        let told = ["unjank", "dconf"].map(|module| {
            let program = ["gsettings", "list-recursively", "org.unjank.test"];
            let ran = Ran::of(session.command(module, &program).env("DCONF_PROFILE", &path));
            let warnings = ran.stderr.lines().filter_map(|line| line.split("WARNING **: ").nth(1));
            let warnings = warnings.map(|line| line.split_once(": ").unwrap().1.to_owned());
            (ran.is_good, ran.stdout, warnings.collect::<Vec<_>>())
        });
        assert_eq!(told[0].2.len(), 1, "{variable}: {:?}", told[0].2);
        assert_eq!(told[0], told[1], "{variable}");
    }
}

#[test]
fn gsettings_prints_the_same_with_either_module() {
    let Some(session) = TestSession::new(&ours()) else { return };
    let script = r#"
        dconf load / <<'END'
[org/gnome/desktop/interface]
font-name='Inter 12'
clock-show-seconds=true
text-scaling-factor=1.25
cursor-size='of another type'
[org/unjank/test]
number=17
text='of ü & 𝄞'
k5=-3
END
        for module in unjank dconf; do
            export GSETTINGS_BACKEND=$module
            {
                gsettings list-recursively
                gsettings writable org.unjank.test number
                gsettings set org.unjank.test k7 77
                gsettings get org.unjank.test k7
                gsettings set org.unjank.test k7 "'no number'"
                gsettings reset org.unjank.test k7
                gsettings get org.unjank.test k7
                gsettings set org.unjank.test text "'$(printf 'é%.0s' $(seq 2000))'"
                gsettings get org.unjank.test text
                dconf dump /
                gsettings reset-recursively org.unjank.test
                dconf dump /
            } >$HOME/$module.out 2>&1
            dconf load / <<'END'
[org/unjank/test]
number=17
text='of ü & 𝄞'
k5=-3
END
        done
        test -s $HOME/unjank.out && cmp $HOME/unjank.out $HOME/dconf.out && echo good
    "#;
    session.run(&["sh", "-c", script]).expect_good();
}

#[test]
fn gsettings_monitors_what_others_change() {
    let Some(session) = TestSession::new(&ours()) else { return };
    // `monitor` prints nothing when it is ready: changes are made until one is seen.
    let script = r#"
        mkfifo $HOME/monitored
        gsettings monitor org.unjank.test >$HOME/monitored &
        monitor=$!
        exec 3<$HOME/monitored
        (number=0; while :; do number=$((number + 1)); dconf write /org/unjank/test/number $number; sleep 0.05; done) &
        writer=$!
        read -r key number <&3
        kill $writer $monitor
        test "$key" = number: && test "$number" -gt 0 && echo good
    "#;
    session.run(&["sh", "-c", script]).expect_good();
}

#[test]
fn the_text_file_of_sandboxes_is_shared_with_glibs_own_backend() {
    let Some(session) = TestSession::new(&ours()) else { return };
    let session = session.without_bus();
    let program = session.compile("tests/backend.c");
    for test in ["keyfile", "keyfile-again", "keyfile-closed"] {
        Ran::of(&mut session.command("unjank-keyfile", &[&program, test])).expect_good();
    }
}

#[test]
fn a_child_that_is_forked_while_the_text_file_is_written_ends_and_undoes_nothing() {
    let Some(session) = TestSession::new(&ours()) else { return };
    let session = session.without_bus();
    let program = session.compile("tests/backend.c");
    Ran::of(&mut session.command("unjank-keyfile", &[&program, "keyfile-fork"])).expect_good();
}

#[test]
fn programs_that_write_the_text_file_at_once_lose_nothing() {
    let Some(session) = TestSession::new(&ours()) else { return };
    let session = session.without_bus();
    let script = r#"
        for round in 1 2 3; do
            for key in $(seq 20); do gsettings set org.unjank.test k$key $round$key & done
            wait
            for key in $(seq 20); do
                grep -qx "k$key=$round$key" $HOME/.config/glib-2.0/settings/keyfile || echo "k$key is lost"
            done
        done
        echo good
    "#;
    Ran::of(&mut session.command("unjank-keyfile", &["sh", "-c", script])).expect_good();
}

#[test]
fn valgrind_finds_nothing() {
    let found = Command::new("valgrind").arg("--version").output();
    if !found.is_ok_and(|found| found.status.success()) {
        assert!(must_run().is_none(), "valgrind is needed");
        println!("SKIPPED: no valgrind");
        return;
    }
    let Some(session) = TestSession::new(&ours()) else { return };
    let program = session.compile("tests/backend.c");
    // What GLib keeps for ever counts as lost where it is kept by a tagged pointer only.
    let valgrind = ["valgrind", "-q", "--error-exitcode=9", "--trace-children=no"];
    let command = [&valgrind[..], &[&program, "ordinary"]].concat();
    let mut command = session.command("unjank", &command);
    Ran::of(command.env("G_SLICE", "always-malloc")).expect_good();
}
