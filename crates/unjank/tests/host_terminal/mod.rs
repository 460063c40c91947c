//! Real terminals: what a person sees in tmux while a command runs on the host.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};

use super::fixture::{has, in_time, pause, sandbox, setting, skip, terminal};
use super::{Host, PATIENCE, SPAWN, UNJANK, told, wait_until};

mod shell;

/// A terminal with a shell in it, on the bus of a service.
struct Screen<'a> {
    host: &'a Host,
    socket: PathBuf,
    /// What the shell says that waits for a command.
    prompt: &'static str,
}

impl Screen<'_> {
    fn start(host: &Host) -> Screen<'_> {
        let socket = host.bus.dir().join("tmux");
        let screen = Screen { host, socket, prompt: "out>" };
        let mut start =
            screen.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24"]);
        start.args(["env", "PS1=out> ", "LC_ALL=C.UTF-8", "TERM=screen", "bash", "--norc", "-i"]);
        assert!(start.status().unwrap().success());
        screen.see("out>");
        screen
    }

    /// Goes into a sandbox, as who runs an application in a terminal; says whether there is one. `variables` are for the
    /// program that makes it.
    fn enter_sandbox(&mut self, variables: &str) -> bool {
        let shell = ["env", "PS1=box> ", "bash", "--norc", "-i"];
        let Some(command) = sandbox::proxied(&self.host.bus, "org.unjank.Terminal", &shell) else {
            return false;
        };
        let words: Vec<String> =
            command.get_args().map(|word| format!("'{}'", word.to_str().unwrap())).collect();
        self.line(&format!("{variables} python3 {}", words.join(" ")));
        self.prompt = "box>";
        self.prompt(self.prompt);
        true
    }

    fn tmux(&self, arguments: &[&str]) -> Command {
        let mut command = self.host.bus.command("tmux");
        command.arg("-S").arg(&self.socket).args(arguments);
        command.env("LC_ALL", "C.UTF-8").env_remove("TMUX").stdin(Stdio::null());
        command
    }

    /// Types a line.
    fn line(&self, text: &str) {
        assert!(self.tmux(&["send-keys", "-l", text]).status().unwrap().success());
        self.key("Enter");
    }

    /// Presses a key, as `C-z`.
    fn key(&self, key: &str) {
        assert!(self.tmux(&["send-keys", key]).status().unwrap().success());
    }

    /// What is on the screen, and what went off its top.
    fn shown(&self) -> String {
        told(self.tmux(&["capture-pane", "-p", "-S", "-200"]).output().unwrap()).1
    }

    /// Empties the screen and what went off its top.
    fn clear(&self) {
        self.line("clear");
        self.wait("a clear screen", |shown| {
            assert!(self.tmux(&["clear-history"]).status().unwrap().success());
            shown.trim() == self.prompt
        });
    }

    /// Waits until this is on the screen.
    fn see(&self, text: &str) {
        self.wait(text, |shown| shown.contains(text));
    }

    /// Types a line until something is seen that comes of it: what is typed before the command reads belongs to the shell.
    fn sees_after(&self, line: &str, text: &str) {
        self.wait(text, |shown| {
            if shown.contains(text) {
                return true;
            }
            self.line(line);
            pause();
            self.shown().contains(text)
        });
    }

    /// Waits until the last line is this.
    fn prompt(&self, text: &str) {
        self.wait(text, |shown| shown.trim_end().ends_with(text));
    }

    fn wait(&self, what: &str, is_so: impl Fn(&str) -> bool) {
        let start = Instant::now();
        loop {
            let shown = self.shown();
            if is_so(&shown) {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "no {what:?} on\n{shown}");
        }
    }

    /// Waits until `sleep 100` is in this state on the host, as `/proc` writes it.
    fn sleeps(&self, state: char) {
        wait_until(|| self.sleeper().is_some_and(|found| found == state));
    }

    /// How many `sleep 100` there are on this bus.
    fn sleepers(&self) -> usize {
        self.all_sleepers().len()
    }

    /// The state of the first `sleep 100` of this bus.
    fn sleeper(&self) -> Option<char> {
        self.all_sleepers().first().copied()
    }

    /// The states of each `sleep 100` of this bus.
    fn all_sleepers(&self) -> Vec<char> {
        let mut found = Vec::new();
        let read = |pid: &str, name: &str| std::fs::read(format!("/proc/{pid}/{name}"));
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let name = entry.file_name();
            let Some(pid) = name.to_str().filter(|it| it.parse::<u32>().is_ok()) else { continue };
            let is_sleep = read(pid, "cmdline").is_ok_and(|line| line == b"sleep\x00100\x00");
            let address = self.host.bus.address().as_bytes();
            let environment = read(pid, "environ").unwrap_or_default();
            if is_sleep && environment.windows(address.len()).any(|part| part == address) {
                let stat = String::from_utf8(read(pid, "stat").unwrap_or_default()).unwrap();
                let state = stat.split(") ").nth(1).and_then(|rest| rest.chars().next());
                found.extend(state.filter(|state| *state != 'Z'));
            }
        }
        found
    }

    /// Whether the terminal passes each key on as it is.
    fn is_raw(&self) -> bool {
        let terminal =
            told(self.tmux(&["display-message", "-p", "#{pane_tty}"]).output().unwrap()).1;
        let modes = Command::new("stty").args(["-a", "-F", terminal.trim()]).output().unwrap();
        told(modes).1.contains("-isig")
    }

    /// The first child of a process.
    fn child_of(&self, parent: Pid) -> Option<Pid> {
        let path = format!("/proc/{0}/task/{0}/children", parent.as_raw_nonzero());
        let children = std::fs::read_to_string(path).ok()?;
        Pid::from_raw(children.split_whitespace().next()?.parse().ok()?)
    }

    fn shell(&self) -> Pid {
        let pid = told(self.tmux(&["display-message", "-p", "#{pane_pid}"]).output().unwrap()).1;
        Pid::from_raw(pid.trim().parse().unwrap()).unwrap()
    }
}

impl Drop for Screen<'_> {
    fn drop(&mut self) {
        let _ = self.tmux(&["kill-server"]).status();
    }
}

/// Runs a test with the unmodified client of Flatpak through our service.
fn on_a_screen_of_the_original(test: fn(&Screen<'_>, &str)) {
    in_time(move || {
        if !has(&["tmux", "bash", "vim"]) {
            return;
        }
        if !Path::new(SPAWN).exists() {
            return skip("no flatpak-spawn");
        }
        if let Some(host) = Host::ours() {
            test(&Screen::start(&host), &format!("{SPAWN} --host"));
        }
    });
}

/// Runs a test with our client through each service.
fn on_each_screen(test: fn(&Screen<'_>, &str)) {
    in_time(move || {
        if !has(&["tmux", "bash", "vim"]) {
            return;
        }
        for host in Host::all() {
            test(&Screen::start(&host), &format!("{UNJANK} host"));
        }
    });
}

/// Runs a test with the unmodified client through our service: on the host, and in sandboxes with a proxy, of which all that
/// the bus knows is the proxy. In the second of them nobody can find out who speaks through it.
fn on_screens_of_the_original(test: fn(&Screen<'_>, &str)) {
    on_a_screen_of_the_original(test);
    for variables in ["", "HIDDEN_SANDBOX=1"] {
        let times = setting("TERMINAL_TIMES").unwrap_or(1);
        in_time(move || in_a_sandbox(variables, times, test));
    }
}

fn in_a_sandbox(variables: &str, times: u64, test: fn(&Screen<'_>, &str)) {
    if !has(&["tmux", "bash", "vim"]) || !Path::new(SPAWN).exists() {
        return;
    }
    let Some(host) = Host::ours() else { return };
    let mut screen = Screen::start(&host);
    if !screen.enter_sandbox(variables) {
        return;
    }
    for _ in 0..times {
        test(&screen, &format!("{SPAWN} --host"));
        screen.clear();
    }
    if variables.is_empty() {
        // Who asked is the client inside, not its proxy.
        let log = told(host.host(&["log", "--json"]).output().unwrap()).1;
        assert!(log.contains(SPAWN) && !log.contains("xdg-dbus-proxy"), "{log}");
    }
}

fn job_control(screen: &Screen<'_>, client: &str) {
    screen.line("stty -g > before");
    screen.line(&format!("{client} env 'PS1=in> ' bash --norc -i"));
    screen.prompt("in>");
    assert!(!screen.shown().contains("no job control"), "{}", screen.shown());
    screen.line("sleep 100");
    screen.sleeps('S');
    screen.key("C-z");
    screen.see("Stopped");
    screen.prompt("in>");
    screen.line("bg");
    screen.see("sleep 100 &");
    screen.line("fg");
    screen.see("in> fg");
    screen.see("\nsleep 100");
    screen.key("C-c");
    screen.see("^C");
    screen.prompt("in>");
    screen.line("tty < /dev/tty > /dev/null && echo has-a-terminal");
    screen.see("\nhas-a-terminal");
    screen.line("exit 7");
    screen.prompt(screen.prompt);
    screen.line("echo status $?");
    screen.see("status 7");
    screen.line("stty -g | cmp - before && echo as-before");
    screen.see("\nas-before");
}

fn sizes(screen: &Screen<'_>, client: &str) {
    screen.line(&format!("{client} vim -u NONE -N"));
    screen.see("VIM - Vi IMproved");
    let resized = screen.tmux(&["resize-window", "-x", "61", "-y", "17"]).status().unwrap();
    assert!(resized.success());
    screen.wait("17 61", |shown| {
        screen.line(":echo &lines &columns");
        shown.contains("17 61")
    });
    screen.line(":q!");
    screen.prompt(screen.prompt);
}

fn password(screen: &Screen<'_>, client: &str) {
    if !has(&["sudo", "setpriv"]) || !rustix::process::geteuid().is_root() {
        return skip("no root, no sudo or no setpriv");
    }
    let user = "setpriv --reuid=65534 --regid=65534 --clear-groups";
    screen.line(&format!("{client} {user} sudo -k true"));
    screen.see("password for");
    screen.line("sesame-open");
    screen.see("try again");
    screen.key("C-c");
    screen.prompt(screen.prompt);
    assert!(!screen.shown().contains("sesame"), "{}", screen.shown());
}

#[test]
fn a_shell_on_the_host_has_job_control() {
    on_each_screen(job_control);
}

#[test]
fn sizes_reach_an_editor_on_the_host() {
    on_each_screen(sizes);
}

#[test]
fn a_password_is_asked_for_and_not_shown() {
    on_each_screen(password);
}

#[test]
fn a_shell_has_job_control_through_the_client_of_flatpak() {
    on_screens_of_the_original(job_control);
}

#[test]
fn sizes_reach_an_editor_through_the_client_of_flatpak() {
    on_screens_of_the_original(sizes);
}

#[test]
fn a_password_is_asked_for_through_the_client_of_flatpak() {
    on_screens_of_the_original(password);
}

#[test]
fn a_command_by_itself_stops_and_goes_on_with_its_client() {
    on_each_screen(stop_and_go_on);
}

#[test]
fn a_command_by_itself_stops_and_goes_on_with_the_client_of_flatpak() {
    on_screens_of_the_original(stop_and_go_on);
}

fn stop_a_script(screen: &Screen<'_>, client: &str) {
    // The shell in between has no job control: the terminal stops it together with what it waits for.
    screen.line(&format!("sh -c '{client} sleep 100; echo sta''tus $?'"));
    screen.sleeps('S');
    screen.key("C-z");
    screen.see("Stopped");
    screen.sleeps('T');
    screen.line("fg");
    screen.sleeps('S');
    screen.key("C-c");
    screen.prompt(screen.prompt);
}

#[test]
fn a_script_stops_and_goes_on_with_its_command() {
    on_screens_of_the_original(stop_a_script);
}

#[test]
fn a_script_stops_and_goes_on_with_the_command_of_our_client() {
    on_each_screen(stop_a_script);
}

/// What a shell reads as the job of one line, and Ctrl-C ends at once: pipelines with other programs and with a second client, and scripts.
fn interrupt_a_job(screen: &Screen<'_>, client: &str) {
    screen.line("stty -g > before");
    for line in [
        format!("sleep 100 | {client} sleep 100"),
        format!("{client} sleep 100 | {client} sleep 100"),
        format!("sh -c '{client} sleep 100; echo go''es-on'"),
        format!("sh -c \"trap 'echo tr''apped' INT; {client} sleep 100; echo af''ter\""),
    ] {
        screen.line(&line);
        screen.sleeps('S');
        // Each client has its command, and the modes are those of its terminal.
        let clients = line.matches(client).count();
        screen.wait(&format!("{clients} commands"), |_| screen.sleepers() >= clients);
        // In a pipeline the terminal stays as it is: its own signals are for the job.
        if line.starts_with("sh") {
            screen.wait("raw modes", |_| screen.is_raw());
        }
        screen.key("C-c");
        screen.wait("end of the commands", |_| screen.sleepers() == 0);
        screen.prompt(screen.prompt);
    }
    let shown = screen.shown();
    assert!(shown.contains("trapped") && shown.contains("\nafter"), "{shown}");
    assert!(!shown.contains("goes-on"), "{shown}");
    screen.line("stty -g | cmp - before && echo as-''before");
    screen.see("\nas-before");
}

/// A shell on the host is a job of its own: what is typed there is not for the script that it runs in.
fn interrupt_a_shell_in_a_script(screen: &Screen<'_>, client: &str) {
    screen.line(&format!("sh -c '{client} env PS1=\"in> \" bash --norc -i; echo sta''tus $?'"));
    screen.prompt("in>");
    screen.line("some words");
    screen.prompt("in>");
    screen.key("C-c");
    // What is typed before the shell has it goes with it.
    screen.see("^C");
    screen.prompt("in>");
    screen.line("sleep 100");
    screen.sleeps('S');
    screen.key("C-c");
    screen.prompt("in>");
    screen.line("exit 9");
    screen.see("status 9");
    screen.prompt(screen.prompt);
}

#[test]
fn ctrl_c_ends_all_of_a_job_with_the_client_of_flatpak() {
    on_screens_of_the_original(interrupt_a_job);
}

#[test]
fn ctrl_c_ends_all_of_a_job_with_our_client() {
    on_each_screen(interrupt_a_job);
}

#[test]
fn ctrl_c_in_a_shell_on_the_host_ends_no_script_around_it() {
    on_screens_of_the_original(interrupt_a_shell_in_a_script);
    on_each_screen(interrupt_a_shell_in_a_script);
}

/// A command that a script starts in the background has no input: what is typed is for the script.
fn read_beside_a_command(screen: &Screen<'_>, client: &str) {
    screen.line(&format!(
        "sh -c '{client} sleep 100 & read word; echo go''t-$word; kill $!; wait'; echo en''ded"
    ));
    screen.sleeps('S');
    screen.line("a-word");
    screen.see("\ngot-a-word");
    screen.see("\nended");
    assert!(screen.shown().contains("\na-word\n"), "no echo on\n{}", screen.shown());
    screen.prompt(screen.prompt);
}

/// In a pipeline it is the first program that reads the terminal, whoever writes there.
fn read_in_a_pipeline(screen: &Screen<'_>, client: &str) {
    screen.line("stty -g > before");
    screen.line(&format!("{client} cat | {client} sed -u s/^/got-/; echo en''ded"));
    screen.sees_after("some-words", "\ngot-some-words");
    screen.key("C-d");
    screen.see("\nended");
    screen.line(&format!("{client} cat | {client} cat; echo le''ft"));
    screen.sees_after("more-words", "\nmore-words\nmore-words");
    screen.key("C-c");
    screen.prompt(screen.prompt);
    screen.line("stty -g | cmp - before && echo as-''before");
    screen.see("\nas-before");
}

/// Who asks in a pipeline asks the terminal, and reads a line there as it is.
fn ask_in_a_pipeline(screen: &Screen<'_>, client: &str) {
    let asks = "printf Su''re? >/dev/tty; read word </dev/tty; echo said-$word";
    screen.line(&format!("true | {client} sh -c '{asks}'"));
    screen.see("Sure?");
    screen.wait("raw modes", |_| !client.starts_with(SPAWN) || screen.is_raw());
    screen.line("yes");
    screen.see("\nsaid-yes");
    screen.prompt(screen.prompt);
}

/// A shell on the host whose output goes through a pipe has jobs, too.
fn interrupt_a_job_of_a_shell_in_a_pipeline(screen: &Screen<'_>, client: &str) {
    screen.line(&format!("{client} env 'PS1=in> ' bash --norc -i 2>&1 | cat"));
    screen.prompt("in>");
    screen.line("sleep 100");
    screen.sleeps('S');
    screen.key("C-c");
    screen.wait("end of the command", |_| screen.sleepers() == 0);
    // The other end of the pipe is of the job that the key is for, too: the shell ends with the first thing that it writes then, which may
    // not be its next prompt if it was quicker.
    screen.wait("the shell in the sandbox", |shown| {
        let is_back = shown.trim_end().ends_with(screen.prompt);
        if !is_back {
            screen.line("");
            pause();
        }
        is_back
    });
}

/// What is typed after an interrupt that its script outlives is shown once.
fn type_after_an_interrupt(screen: &Screen<'_>, client: &str) {
    screen.line(&format!("bash -c '{client} /usr/bin/python3 -q; echo sta''tus'"));
    screen.prompt(">>>");
    screen.key("C-c");
    screen.see("KeyboardInterrupt");
    screen.line("12*12");
    screen.see("\n144");
    let shown = screen.shown();
    assert_eq!(shown.matches("12*12").count(), 1, "{shown}");
    screen.key("C-d");
    screen.see("\nstatus");
    screen.prompt(screen.prompt);
}

#[test]
fn the_first_of_a_pipeline_reads_the_terminal() {
    on_screens_of_the_original(read_in_a_pipeline);
    on_each_screen(read_in_a_pipeline);
}

#[test]
fn a_command_in_a_pipeline_asks_the_terminal() {
    on_screens_of_the_original(ask_in_a_pipeline);
}

#[test]
fn a_job_of_a_shell_in_a_pipeline_is_interrupted() {
    on_screens_of_the_original(interrupt_a_job_of_a_shell_in_a_pipeline);
}

#[test]
fn what_is_typed_after_an_interrupt_is_shown_once() {
    on_screens_of_the_original(type_after_an_interrupt);
    on_each_screen(type_after_an_interrupt);
}

#[test]
fn a_script_keeps_the_terminal_beside_its_command_in_the_background() {
    on_screens_of_the_original(read_beside_a_command);
    on_each_screen(read_beside_a_command);
}

#[test]
fn an_end_of_input_is_one_whenever_it_is_typed() {
    on_screens_of_the_original(|screen, client| {
        for time in 0..5 {
            screen.line(&format!("echo g''o-{time}; {client} cat; echo e''nd-{time}"));
            screen.see(&format!("go-{time}"));
            screen.key("C-d");
            screen.see(&format!("end-{time}"));
            screen.prompt(screen.prompt);
        }
    });
}

/// Runs a line of a shell in a terminal of its own, and answers its prompt the moment that it is seen; returns all that was on the
/// terminal.
fn answered_at_once(host: &Host, line: &str) -> String {
    let (ours, theirs) = terminal::open();
    let mut session = host.bus.command("setsid");
    session.args(["--ctty", "--wait", "sh", "-c", line]);
    let (input, output) = (theirs.try_clone().unwrap(), theirs.try_clone().unwrap());
    let mut running = session.stdin(input).stdout(output).stderr(theirs).spawn().unwrap();
    // What it holds of the terminal.
    drop(session);
    let mut keyboard = File::from(ours);
    let (mut shown, mut is_answered) = (Vec::new(), false);
    let mut piece = [0; 4096];
    // It fails when nobody has the terminal open any more.
    while let Ok(read @ 1..) = keyboard.read(&mut piece) {
        shown.extend_from_slice(&piece[..read]);
        if !is_answered && shown.ends_with(b"Pw:") {
            keyboard.write_all(b"sesame\r").unwrap();
            is_answered = true;
        }
    }
    assert!(running.wait().unwrap().success());
    String::from_utf8(shown).unwrap()
}

/// A program is not as slow as people are: `expect`, or what fills in passwords.
#[test]
fn what_answers_a_prompt_at_once_is_not_shown_and_lines_end_once() {
    in_time(|| {
        if !has(&["setsid", "bash", "stty"]) {
            return;
        }
        let clients = [format!("{UNJANK} host --"), format!("{SPAWN} --host")];
        let is_there = |client: &&String| Path::new(client.split(' ').next().unwrap()).exists();
        let Some(host) = Host::ours() else { return };
        for client in clients.iter().filter(is_there) {
            for time in 0..2 * setting("TERMINAL_TIMES").unwrap_or(5) {
                let script = "echo first; stty -echo; printf Pw:; read p; echo; echo got ${#p}";
                let shown = answered_at_once(&host, &format!("exec {client} bash -c '{script}'"));
                assert_eq!(shown, "first\r\nPw:\r\ngot 6\r\n", "{client}, time {time}");
                // Its output is no terminal: what it shows there comes another way.
                for prompt in ["/dev/tty", "/dev/stderr"] {
                    let script = format!(
                        "exec 3<>/dev/tty; stty -echo <&3; printf Pw: >{prompt}; read p <&3; stty echo <&3; echo got ${{#p}}"
                    );
                    let line = format!("{client} bash -c '{script}' | cat");
                    let shown = answered_at_once(&host, &line);
                    let is_right = shown.starts_with("Pw:") && shown.contains("got 6");
                    let is_hidden = !shown.contains("sesame");
                    assert!(is_right && is_hidden, "{client}, {prompt}, time {time}: {shown:?}");
                }
            }
        }
    });
}

fn comes_to_the_front(screen: &Screen<'_>, client: &str) {
    from_the_background(screen, client, screen.prompt);
}

/// Starts a command in the background of the shell that has this prompt, and takes it to the front.
fn from_the_background(screen: &Screen<'_>, client: &str, prompt: &str) {
    screen.line("stty -g > before");
    screen.line(&format!("{client} sh -c 'echo run''s; exec sed -u s/^/got-/' &"));
    screen.see("runs");
    let lines = |shown: &str| shown.replace('\n', "").matches("exec sed").count();
    let before = lines(&screen.shown());
    screen.line("fg");
    screen.wait("the command once more", |shown| lines(shown) > before);
    screen.line("to-and-fro");
    screen.see("got-to-and-fro");
    // Once more after a stop, by way of the background.
    screen.key("C-z");
    screen.see("Stopped");
    screen.prompt(prompt);
    screen.line("bg");
    screen.prompt(prompt);
    screen.line("fg");
    screen.line("there-and-back");
    screen.see("got-there-and-back");
    screen.key("C-d");
    screen.prompt(prompt);
    screen.line("stty -g | cmp - before && echo as-''before");
    screen.see("as-before");
}

#[test]
fn a_command_of_the_background_comes_to_the_front_as_any_other() {
    on_screens_of_the_original(comes_to_the_front);
}

#[test]
fn a_command_of_our_client_comes_from_the_background_to_the_front() {
    on_each_screen(comes_to_the_front);
}

#[test]
fn a_command_comes_to_the_front_in_a_shell_that_leaves_the_modes_alone() {
    if has(&["dash"]) {
        on_each_screen(|screen, client| {
            screen.line("PS1='dash> ' dash -i");
            screen.prompt("dash>");
            from_the_background(screen, client, "dash>");
            screen.line("exit");
            screen.prompt(screen.prompt);
        });
    }
}

fn stop_and_go_on(screen: &Screen<'_>, client: &str) {
    screen.line(&format!("{client} sleep 100"));
    screen.sleeps('S');
    screen.key("C-z");
    screen.see("Stopped");
    assert!(screen.shown().contains("^Z"), "no echo on\n{}", screen.shown());
    screen.sleeps('T');
    screen.line("fg");
    screen.sleeps('S');
    screen.key("C-c");
    screen.prompt(screen.prompt);
    screen.line("echo status $?");
    screen.see("status 130");
}

#[test]
fn a_killed_client_leaves_the_terminal_as_it_was() {
    on_each_screen(|screen, client| {
        screen.line("stty -g > before");
        screen.line(&format!("{client} sh -c 'echo run''s; exec sleep 100'"));
        screen.see("\nruns");
        let client = screen.child_of(screen.shell()).unwrap();
        kill_process(client, Signal::KILL).unwrap();
        screen.see("Killed");
        // The process that puts the mode back may come after the prompt.
        screen.wait("the mode of before", |shown| {
            screen.line("stty -g | cmp -s - before && echo as-''before");
            shown.contains("\nas-before")
        });
    });
}
