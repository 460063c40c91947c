//! What the shell of a terminal keeps beside a host command: the modes, what is typed for it, and its jobs.

use super::*;

/// A client in a session of its own for which nobody waits is in the background of the terminal that it has open.
fn type_beside_a_client_that_left(screen: &Screen<'_>, client: &str) {
    screen.line(&format!("setsid --fork {client} --watch-bus sleep 100"));
    screen.sleeps('S');
    // If the command read there, too, it would get some of them.
    for time in 0..10 {
        screen.line(&format!("echo he''re-{time}"));
        screen.see(&format!("\nhere-{time}"));
        screen.prompt(screen.prompt);
        assert!(!screen.is_raw(), "{}", screen.shown());
    }
}

#[test]
fn a_client_that_left_the_session_takes_nothing_from_the_shell() {
    on_screens_of_the_original(type_beside_a_client_that_left);
}

/// A client in a session of its own is where the script is that waits for it.
fn interrupt_a_script_around_a_session(screen: &Screen<'_>, client: &str) {
    screen.line(&format!("sh -c 'setsid --wait {client} sleep 100; echo go''es-on'"));
    screen.sleeps('S');
    screen.wait("raw modes", |_| screen.is_raw());
    screen.key("C-c");
    screen.prompt(screen.prompt);
    assert!(!screen.shown().contains("goes-on"), "{}", screen.shown());
}

#[test]
fn ctrl_c_ends_a_script_that_waits_for_another_session() {
    on_screens_of_the_original(interrupt_a_script_around_a_session);
}

#[test]
fn a_command_in_place_with_a_time_limit_reads_the_terminal() {
    on_each_screen(|screen, client| {
        let nowhere = "env -u DBUS_SESSION_BUS_ADDRESS XDG_RUNTIME_DIR=/nowhere";
        // What a script starts does not lead its job.
        let asks = "sh -c \"read word; echo got-\\$word\"";
        screen.line(&format!("sh -c '{nowhere} {client} --timeout 100 -- {asks}; true'"));
        screen.see("there is no bus");
        screen.line("a-word");
        screen.see("\ngot-a-word");
        screen.prompt(screen.prompt);
    });
}

#[test]
fn a_command_ends_although_something_that_it_left_writes_without_end() {
    on_each_screen(|screen, client| {
        screen.line(&format!("{client} sh -c 'yes & yes | head -c 1000000'; echo en''ded"));
        // Behind the part of a line.
        screen.see("ended");
        screen.prompt(screen.prompt);
    });
}

/// What is typed behind Ctrl-Z is for the shell, however quickly it is typed.
fn stop_and_type_on(screen: &Screen<'_>, client: &str) {
    screen.line(&format!("{client} sleep 100"));
    screen.sleeps('S');
    screen.wait("raw modes", |_| screen.is_raw());
    let typed = screen.tmux(&["send-keys", "C-z", "f", "g", "Enter"]).status().unwrap();
    assert!(typed.success());
    screen.see("Stopped");
    screen.sleeps('S');
    screen.wait("raw modes", |_| screen.is_raw());
    screen.key("C-c");
    screen.prompt(screen.prompt);
    screen.line("echo status $?");
    screen.see("status 130");
}

#[test]
fn what_is_typed_with_a_stop_is_for_the_shell() {
    on_screens_of_the_original(stop_and_type_on);
    on_each_screen(stop_and_type_on);
}

/// A command that reads the terminal from the background is stopped, as a program of the shell's own.
fn read_in_the_background(screen: &Screen<'_>, client: &str) {
    screen.line(&format!("{client} sh -c 'read word </dev/tty; echo got-$word' &"));
    screen.wait("stop", |shown| {
        let is_told = shown.contains("Stopped");
        if !is_told {
            screen.line("");
            pause();
        }
        is_told
    });
    screen.line("fg");
    screen.wait("raw modes", |_| screen.is_raw());
    screen.line("a-word");
    screen.see("\ngot-a-word");
    screen.prompt(screen.prompt);
}

#[test]
fn a_command_that_reads_from_the_background_is_stopped() {
    on_screens_of_the_original(read_in_the_background);
}
