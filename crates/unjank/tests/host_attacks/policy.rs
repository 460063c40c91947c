//! What a caller does whom a policy lets run one program.
//!
//! `LINK_TURNS` is how many commands are asked for while the link to their program is turned.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use super::REFUSED;
use super::fixture::setting;
use super::host_service::raw::{Host, Refused, Wanted, shell, until};

/// A command line.
fn line(words: &[&str]) -> Wanted<'static> {
    let words = words.iter().map(|word| format!("{word}\0").into_bytes()).collect();
    Wanted { words, ..shell("") }
}

fn is_refused<T: std::fmt::Debug>(answer: &Result<T, Refused>) -> bool {
    matches!(answer, Err((name, _)) if name == REFUSED)
}

#[test]
fn a_link_that_is_turned_between_the_check_and_the_start_runs_nothing_else() {
    let Some(host) = Host::under("[host]\nallow true\n") else { return };
    let (evil, sprung) = host.trap("true");
    let (one, other) = (host.bus.dir().join("one"), host.bus.dir().join("other"));
    std::os::unix::fs::symlink("/usr/bin", &one).unwrap();
    std::os::unix::fs::symlink(&evil, &other).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Both at once, again and again: the way to the program leads here, then there.
            use rustix::fs::{CWD, RenameFlags, renameat_with};
            while !over.load(Ordering::Relaxed) {
                renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).unwrap();
            }
        });
        let mut raw = host.raw();
        let path = one.join("true");
        let mut began = 0;
        for number in 0..setting("LINK_TURNS").unwrap_or(300) {
            if sprung.exists() {
                break;
            }
            let answer = raw.run(&line(&[path.to_str().unwrap()]));
            began += u32::from(answer.is_ok());
            assert!(answer.is_ok() || is_refused(&answer), "{number}: {answer:?}");
        }
        over.store(true, Ordering::Relaxed);
        assert!(began > 0, "no command was ever allowed");
    });
    assert!(!sprung.exists(), "another program ran than the one that is allowed");
}

#[test]
fn a_program_that_may_not_run_is_not_run_by_a_link_of_another_name() {
    let Some(host) = Host::under("[host]\ndeny env\n") else { return };
    let mut raw = host.raw();
    assert!(is_refused(&raw.run(&line(&["env"]))));
    let link = host.bus.dir().join("harmless");
    std::os::unix::fs::symlink("/usr/bin/env", &link).unwrap();
    let turned = raw.run(&line(&[link.to_str().unwrap(), "true"]));
    assert!(is_refused(&turned), "{turned:?}");
    assert_eq!(raw.run(&line(&["true"])), Ok(0));
}

#[test]
fn no_variable_of_the_caller_turns_a_program_that_is_allowed_into_another() {
    let Some(host) = Host::under("[host]\nallow git\nallow sh -c true\n") else { return };
    let (evil, sprung) = host.trap("evil");
    let program = evil.join("evil").display().to_string();
    let mut raw = host.raw();
    let directory = evil.display().to_string();
    for (name, value) in [
        ("GIT_PAGER", &program),
        ("GIT_EXTERNAL_DIFF", &program),
        ("GIT_SSH_COMMAND", &program),
        ("GIT_EDITOR", &program),
        ("GIT_CONFIG_COUNT", &"1".to_owned()),
        ("GIT_EXEC_PATH", &directory),
        ("PATH", &directory),
        ("HOME", &directory),
        ("XDG_CONFIG_HOME", &directory),
        ("BROWSER", &program),
        ("EDITOR", &program),
        ("VISUAL", &program),
        ("PAGER", &program),
        ("GCONV_PATH", &directory),
        ("LOCPATH", &directory),
        ("NLSPATH", &directory),
        ("PYTHONPATH", &directory),
        ("PYTHONSTARTUP", &program),
        ("PERL5OPT", &program),
        ("LD_PRELOAD", &program),
        ("LD_AUDIT", &program),
        ("BASH_ENV", &program),
        ("ENV", &program),
        ("DISPLAY", &":99".to_owned()),
        ("DBUS_SESSION_BUS_ADDRESS", &"unix:path=/evil".to_owned()),
        ("TERMINFO", &directory),
        ("LANG", &"../../evil".to_owned()),
        ("ANYTHING_ELSE", &"x".to_owned()),
    ] {
        let variables = vec![(name, value.as_str())];
        let git = raw.run(&Wanted { variables, ..line(&["git", "--version"]) });
        assert!(is_refused(&git), "{name}: {git:?}");
    }
    // What says how to show something goes along.
    let variables = vec![("TERM", "xterm-256color"), ("LANG", "de_DE.UTF-8"), ("COLUMNS", "80")];
    let shown = raw.run(&Wanted { variables, ..line(&["git", "--version"]) });
    assert_eq!(shown, Ok(0));
    // ENV is read by shells, PATH by what looks programs up.
    assert!(!sprung.exists());
    let reasons = host.log();
    assert!(until(|| host.log().len() >= 29), "{reasons:#?}");
}

#[test]
fn being_refused_says_nothing_about_files_rules_and_programs() {
    let Some(host) = Host::under("[host]\nallow git status\n") else { return };
    let mut raw = host.raw();
    let secret = host.bus.dir().join("home/secret");
    std::fs::write(&secret, "x").unwrap();
    let nowhere = host.bus.dir().join("home/nowhere");
    let mut answers = Vec::new();
    for words in [
        &["sh", "-c", "true"][..],
        &["no-such-program-at-all"],
        &["git"],
        &["git", "push"],
        &[secret.to_str().unwrap()],
        &[nowhere.to_str().unwrap()],
        &["/root/git"],
        &["/nowhere/at/all/git", "status"],
        &["/etc/passwd/git", "status"],
        &["/usr/share/git", "status"],
    ] {
        let (name, text) = raw.command(&line(words)).unwrap_err();
        assert_eq!(name, REFUSED, "{words:?}: {text}");
        // The caller's own word apart.
        answers.push(text.replace(&format!("{:?}", words[0]), "COMMAND"));
    }
    answers.dedup();
    assert_eq!(answers, ["cannot run COMMAND for host: this is not allowed"]);
    // Neither does where it was to run, nor what it was to get.
    for directory in ["/root", "/nowhere/at/all"] {
        let directory = format!("{directory}\0").into_bytes();
        let asked = Wanted { directory: &directory, ..line(&["git", "push"]) };
        assert!(is_refused(&raw.command(&asked)));
    }
}

#[test]
fn a_command_gets_no_descriptor_of_another_caller() {
    // Descriptors of others arrive on one thread while commands are started on others.
    let Some(host) = Host::under("") else { return };
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut raw = host.raw();
            let secret = std::fs::File::open("/etc/hostname").unwrap();
            while !over.load(Ordering::Relaxed) {
                let descriptors = (3..10).map(|target| (target, secret.as_fd())).collect();
                raw.run(&Wanted { descriptors, ..shell("true") }).unwrap();
            }
        });
        let mut raw = host.raw();
        for _ in 0..200 {
            let said = raw.output(&shell("ls -l /proc/self/fd")).unwrap();
            assert!(!said.contains("hostname"), "{said}");
        }
        over.store(true, Ordering::Relaxed);
    });
}
