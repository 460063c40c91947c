//! What `unjank ls` has beyond GNU `ls`: templates, JSON, filters; and how it ends.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test")]

use crate::fixture;
use crate::ls_tree;

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use ls_tree::Tree;

fn ls(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unjank"));
    command.arg("ls").args(arguments).current_dir(dir).env("LC_ALL", "C.UTF-8").env("TZ", "UTC");
    command
}

fn text(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn from_hex(text: &str) -> Vec<u8> {
    let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(byte).collect()
}

#[test]
fn json_holds_every_name_and_attribute() {
    let tree = Tree::make();
    let output = text(&ls(tree.path(), &["--json", "-A"]).output().unwrap());
    let document: serde_json::Value = serde_json::from_str(&output).unwrap();
    assert_eq!(document["schema"], "unjank.ls/1");
    assert_eq!(document["errors"].as_array().unwrap().len(), 0);
    let entries = document["listings"][0]["entries"].as_array().unwrap();
    let mut names: Vec<Vec<u8>> = entries
        .iter()
        .map(|entry| match entry.get("name_hex") {
            Some(hex) => from_hex(hex.as_str().unwrap()),
            None => entry["name"].as_str().unwrap().as_bytes().to_vec(),
        })
        .collect();
    let read = std::fs::read_dir(tree.path()).unwrap();
    let mut wanted: Vec<Vec<u8>> =
        read.map(|entry| entry.unwrap().file_name().as_bytes().to_vec()).collect();
    names.sort();
    wanted.sort();
    assert_eq!(names, wanted);
    let of = |name: &str| entries.iter().find(|entry| entry["name"] == name).unwrap();
    assert_eq!(of("suid")["mode"], "4755");
    assert_eq!(of("link")["target"], "plain");
    assert_eq!(of("y1970")["modified"], "1970-02-10T00:00:00.000000000Z");
    assert_eq!(of("before")["modified"], "1966-02-02T02:26:50.999999995Z");
    assert_eq!(of("huge")["size"], 5_u64 << 40);
    assert_eq!(of("hard")["links"], 2);
}

#[test]
fn errors_are_in_the_document_and_on_stderr() {
    let tree = Tree::make();
    let output = ls(tree.path(), &["--json", "nowhere", "empty"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["errors"][0]["path"], "nowhere");
    assert_eq!(document["errors"][0]["error"], "cannot access: No such file or directory");
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "unjank: cannot access 'nowhere': No such file or directory\n"
    );
}

#[test]
fn a_template_chooses_the_fields() {
    let tree = Tree::make();
    let list = |template: &str, name: &str| {
        text(&ls(tree.path(), &["--format", template, name]).output().unwrap())
    };
    assert_eq!(list("{size} {size:h} {name:q}|{type}", "large"), "12345678 12M large|file\n");
    assert_eq!(list("{mode} {permissions} {links}", "hard"), "0644 rw-r--r-- 2\n");
    assert_eq!(list("{modified} {modified:%F}", "y1970"), "3456000.000000000 1970-02-10\n");
    assert_eq!(list("{name} -> {target}\\t{{}}", "link"), "link -> plain\t{}\n");
    assert_eq!(list("{path}", "dir sp"), "dir sp/x y\n");
    let wrong = ls(tree.path(), &["--format", "{nmae}"]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8(wrong.stderr).unwrap().contains("unknown field \"nmae\""));
}

#[test]
fn names_are_filtered_and_separated_by_nul() {
    let tree = Tree::make();
    let filtered = |arguments: &[&str]| text(&ls(tree.path(), arguments).output().unwrap());
    assert_eq!(filtered(&["--filter", "x.*"]), "x.tar.gz\nx.zip\n");
    assert_eq!(filtered(&["--null", "--filter", "new*"]), "new\nline\0");
    assert_eq!(filtered(&["--filter", "f[0-9]*", "--sort", "natural"]), "f1\nf2\nf10\n");
    assert_eq!(
        filtered(&["--sort", "type", "--filter", "link*"]),
        "link\nlink sp\nlinkdir\nlinkexe\n"
    );
}

#[test]
fn an_access_control_list_is_shown_when_it_is_asked_for() {
    if !fixture::has(&["setfacl"]) {
        return;
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for name in ["with", "without"] {
        std::fs::write(dir.path().join(name), "").unwrap();
    }
    let with = dir.path().join("with");
    let set = Command::new("setfacl").args(["-m", "u:1:r"]).arg(&with).output().unwrap();
    if !set.status.success() {
        fixture::skip("this file system has no access control lists");
        return;
    }
    let mut theirs = Command::new("ls");
    theirs.arg("-l").env("LC_ALL", "C.UTF-8").env("TZ", "UTC").current_dir(dir.path());
    let theirs = theirs.output().unwrap();
    let ours = ls(dir.path(), &["-l", "--acl"]).output().unwrap();
    assert_eq!(text(&ours), text(&theirs));
    assert!(text(&ours).contains("-rw-r--r--+ "));
    assert!(!text(&ls(dir.path(), &["-l"]).output().unwrap()).contains("+ "));
}

#[test]
fn a_pipe_that_is_closed_early_is_no_error() {
    let dir = tempfile::tempdir().unwrap();
    for number in 0..5000 {
        std::fs::write(dir.path().join(format!("{number:0200}")), "").unwrap();
    }
    let mut child =
        ls(dir.path(), &["-l"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = ls(dir.path(), &[]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("cannot write the output"));
}

#[test]
fn a_directory_that_contains_itself_is_listed_once() {
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(".", dir.path().join("again")).unwrap();
    let output = ls(dir.path(), &["-RL"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(errors.lines().count(), 1, "{errors}");
}

#[test]
fn what_may_not_be_read_is_said_and_the_rest_is_listed() {
    let dir = tempfile::tempdir().unwrap();
    let inner = dir.path().join(OsStr::new("inner"));
    std::fs::create_dir(&inner).unwrap();
    std::fs::write(inner.join("file"), "").unwrap();
    let mode = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
    // Names can be read there, but nothing behind them.
    std::fs::set_permissions(&inner, mode(0o744)).unwrap();
    std::fs::set_permissions(dir.path(), mode(0o755)).unwrap();
    if !rustix::process::geteuid().is_root() || !fixture::has(&["setpriv"]) {
        fixture::skip("only root can become somebody else");
        return;
    }
    let run = |program: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--clear-groups"]).args(program);
        command.args(["-l", "inner"]).current_dir(dir.path()).env("LC_ALL", "C.UTF-8");
        command.output().unwrap()
    };
    // Where the tests are built may be closed to others.
    let copy = dir.path().join("unjank");
    fixture::copy_program(env!("CARGO_BIN_EXE_unjank"), &copy);
    let ours = run(&[copy.to_str().unwrap(), "ls"]);
    let theirs = run(&["ls"]);
    assert_eq!(ours.stdout.escape_ascii().to_string(), theirs.stdout.escape_ascii().to_string());
    assert_eq!((ours.status.code(), theirs.status.code()), (Some(1), Some(1)));
    assert_eq!(
        String::from_utf8(ours.stderr).unwrap(),
        "unjank: cannot access 'inner/file': Permission denied\n"
    );
}

/// Ends a program that was started, whatever becomes of the test.
struct Ends(std::process::Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn what_is_followed_is_told_as_it_comes() {
    fixture::in_time(|| {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("there"), "").unwrap();
        let format = ["--follow", "--format", "{name} {size}"];
        let mut child = Ends(ls(dir.path(), &format).stdout(Stdio::piped()).spawn().unwrap());
        let output = BufReader::new(child.0.stdout.take().unwrap());
        let mut lines = output.lines().map(Result::unwrap);
        let mut next = move || lines.next().unwrap();
        assert_eq!(next(), "there 0");
        std::os::unix::fs::symlink("no", dir.path().join("new")).unwrap();
        assert_eq!(next(), "+ new 2");
        std::fs::write(dir.path().join("there"), "12345").unwrap();
        // A file may be looked at between its opening and its writing.
        let mut changed = next();
        while changed == "~ there 0" {
            changed = next();
        }
        assert_eq!(changed, "~ there 5");
        std::fs::remove_file(dir.path().join("new")).unwrap();
        let mut gone = next();
        while gone.starts_with("~ there") {
            gone = next();
        }
        assert_eq!(gone, "- new");
    });
}

#[test]
fn what_cannot_be_followed_is_said_once() {
    let dir = tempfile::tempdir().unwrap();
    let output = ls(dir.path(), &["--follow", "nowhere"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(errors, "unjank: cannot follow 'nowhere': No such file or directory\n");
}

#[test]
fn what_is_followed_only_in_part_goes_on_and_what_is_removed_is_said() {
    fixture::in_time(|| {
        let dir = tempfile::tempdir().unwrap();
        // A file system that changes without the kernel telling of it.
        let mut child = ls(dir.path(), &["--follow", "-U", "/proc/self/net"]);
        let mut child = Ends(child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
        let mut errors = BufReader::new(child.0.stderr.take().unwrap()).lines();
        let remark = errors.next().unwrap().unwrap();
        let expected = "unjank: cannot fully follow '/proc/self/net': only changes made through this computer's file system are reported";
        assert_eq!(remark, expected);
        let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
        assert!(lines.next().is_some(), "what is there is told");
        assert!(child.0.try_wait().unwrap().is_none(), "it goes on");
        drop(child);

        let gone = dir.path().join("gone");
        std::fs::create_dir(&gone).unwrap();
        std::fs::write(gone.join("file"), "").unwrap();
        let mut child = ls(dir.path(), &["--follow", "gone"]);
        let mut child = Ends(child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
        let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "file");
        std::fs::remove_dir_all(&gone).unwrap();
        let errors = BufReader::new(child.0.stderr.take().unwrap()).lines();
        let errors: Vec<String> = errors.map(Result::unwrap).collect();
        assert_eq!(errors, ["unjank: cannot follow 'gone': it was removed, moved or unmounted"]);
        assert_eq!(child.0.wait().unwrap().code(), Some(2));
    });
}

/// The command as another user.
fn ls_as_other(dir: &Path, words: &[&str]) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(dir.join("unjank"));
    command.arg("ls").args(words).current_dir(dir).env("LC_ALL", "C.UTF-8");
    command
}

#[test]
fn a_directory_that_may_be_read_and_not_searched_is_followed_and_shown_with_question_marks() {
    use std::os::unix::fs::PermissionsExt;
    fixture::in_time(|| {
        if !rustix::process::geteuid().is_root() || !fixture::has(&["setpriv"]) {
            return fixture::skip("other users need root and setpriv");
        }
        let dir = tempfile::tempdir().unwrap();
        let only_read = dir.path().join("dir");
        std::fs::create_dir(&only_read).unwrap();
        std::fs::write(only_read.join("old"), "").unwrap();
        std::os::unix::fs::symlink("target", only_read.join("link")).unwrap();
        let mode = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        mode(dir.path(), 0o755);
        mode(&only_read, 0o744);
        // Where the tests are built may be closed to others.
        let program = dir.path().join("unjank");
        fixture::copy_program(env!("CARGO_BIN_EXE_unjank"), &program);
        mode(&program, 0o755);
        let output = ls_as_other(dir.path(), &["--format", "{name}:{target}", "dir"]).output();
        let output = output.unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "link:?\nold:?\n");

        let mut child = ls_as_other(dir.path(), &["--follow", "dir"]);
        let mut child = Ends(child.stdout(Stdio::piped()).spawn().unwrap());
        let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
        let mut next = || lines.next().unwrap().unwrap();
        assert_eq!([next(), next()], ["link", "old"]);
        std::fs::write(only_read.join("new"), "").unwrap();
        assert_eq!(next(), "+ new");
        std::fs::remove_file(only_read.join("old")).unwrap();
        assert_eq!(next(), "- old");
    });
}
