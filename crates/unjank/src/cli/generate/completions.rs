//! Completions for a shell: what clap generates from the definitions of the commands, and around it the values that only the program knows and the words of a command that another one runs.

use clap::{Arg, Command, ValueHint};
use clap_complete::Shell;

/// Stands at the first line of the script for zsh, behind which its functions are defined.
const ZSH_HEAD: &str = "#compdef unjank\n";

/// What each hint makes of an argument in zsh, and what completes it there. No argument of ours is a user, a host or an address, so that these hints can say which of our values is meant.
const ZSH_VALUES: [(ValueHint, &str, &str); 4] = [
    (ValueHint::Username, ":_users'", ":_unjank_keys'"),
    (ValueHint::Hostname, ":_hosts'", ":_unjank_directories'"),
    (ValueHint::EmailAddress, ":_email_addresses'", ":_unjank_apps'"),
    (ValueHint::CommandWithArguments, ":_cmdambivalent'", ":_normal'"),
];

/// Returns the script for a shell; `root` is built.
pub(super) fn script(shell: Shell, root: &Command) -> String {
    let mut shown = shown(root);
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut shown, "unjank", &mut script);
    let mut script = String::from_utf8_lossy(&script).into_owned();
    match shell {
        Shell::Bash => script.push_str(include_str!("values.bash")),
        Shell::Fish => script.push_str(include_str!("values.fish")),
        Shell::Zsh => {
            for (_, generated, ours) in ZSH_VALUES {
                script = script.replace(generated, ours);
            }
            let functions = concat!("#compdef unjank\n", include_str!("values.zsh"));
            script = script.replacen(ZSH_HEAD, functions, 1);
        }
        _ => {}
    }
    script
}

/// Returns the tree of commands as a person may type it, made anew from one that is built.
///
/// The built tree also has the commands that only our own programs call, and its `help` knows no deeper level of those whose tables are deferred.
fn shown(built: &Command) -> Command {
    let is_shown = |command: &&Command| !command.is_hide_set() && command.get_name() != "help";
    let arguments = built.get_arguments().filter(|argument| !argument.is_hide_set());
    let mut whole = named(built.get_name())
        .args(arguments.map(|argument| hinted(argument.clone())))
        .subcommands(built.get_subcommands().filter(is_shown).map(shown));
    if let Some(about) = built.get_about() {
        whole = whole.about(about.clone());
    }
    if let Some(help) = built.find_subcommand("help").filter(|help| !help.is_hide_set()) {
        let about = help.get_about().cloned().unwrap_or_default();
        whole = whole.subcommand(names("help", built).about(about));
    }
    whole
}

/// Returns an argument that says what its values are.
fn hinted(argument: Arg) -> Arg {
    let value =
        argument.get_value_names().and_then(|names| names.first()).map(|name| name.as_str());
    let is_command = argument.is_trailing_var_arg_set() || argument.is_last_set();
    let hint = match value {
        Some("CMD" | "COMMAND" | "CMD|FILE") if is_command => ValueHint::CommandWithArguments,
        Some("KEY") if argument.is_positional() => ValueHint::Username,
        Some("PATH") if argument.get_value_hint() == ValueHint::Unknown => ValueHint::Username,
        Some("DIR") if argument.get_value_hint() == ValueHint::Unknown => ValueHint::Hostname,
        Some("APP") => ValueHint::EmailAddress,
        _ => return argument,
    };
    argument.value_hint(hint)
}

/// Returns the commands below `built` without their options: what can follow `help`.
fn names(name: &str, built: &Command) -> Command {
    let is_shown = |command: &&Command| !command.is_hide_set() && command.get_name() != "help";
    let below = built.get_subcommands().filter(is_shown).map(|command| {
        let about = command.get_about().cloned().unwrap_or_default();
        names(command.get_name(), command).about(about)
    });
    named(name).subcommands(below)
}

/// Starts a command to which nothing is added by itself.
fn named(name: &str) -> Command {
    // clap keeps names that live for ever; this program ends when the script is written.
    Command::new(&*name.to_owned().leak())
        .version(env!("CARGO_PKG_VERSION"))
        .disable_help_flag(true)
        .disable_version_flag(true)
        .disable_help_subcommand(true)
}
