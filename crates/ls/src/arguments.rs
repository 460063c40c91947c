//! The options of `unjank ls` as clap's table, and what was given in the order in which it was given.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use clap::builder::{OsStringValueParser, PossibleValuesParser};
use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint};

use super::quote::Style;

/// An option without a value: its name here, its letter, its long name, its help.
type Switch = (&'static str, Option<char>, Option<&'static str>, &'static str);

const WHAT: &[Switch] = &[
    ("all", Some('a'), Some("all"), "Do not leave out names that begin with a dot"),
    ("almost-all", Some('A'), Some("almost-all"), "As -a, without . and .."),
    ("ignore-backups", Some('B'), Some("ignore-backups"), "Leave out names that end in ~"),
    ("directory", Some('d'), Some("directory"), "List directories themselves, not what is in them"),
    ("recursive", Some('R'), Some("recursive"), "List directories in directories too"),
    ("dereference", Some('L'), Some("dereference"), "Show what links lead to instead of the links"),
    (
        "dereference-command-line",
        Some('H'),
        Some("dereference-command-line"),
        "Follow links that are named on the command line",
    ),
    (
        "dereference-directories",
        None,
        Some("dereference-command-line-symlink-to-dir"),
        "Follow links to directories that are named on the command line",
    ),
    (
        "follow",
        None,
        Some("follow"),
        "Continue until Ctrl-C, and print entries that are added, removed or changed",
    ),
];

const ORDER: &[Switch] = &[
    ("reverse", Some('r'), Some("reverse"), "Reverse the order"),
    ("by-time", Some('t'), None, "Newest first"),
    ("by-size", Some('S'), None, "Largest first"),
    ("by-extension", Some('X'), None, "By extension"),
    ("by-version", Some('v'), None, "By the numbers in names: a2 before a10"),
    ("unsorted", Some('U'), None, "In the order of the file system"),
    ("fast", Some('f'), None, "As -aU, without -l, -s and colours"),
    ("dirs-first", None, Some("dirs-first"), "Directories first"),
];

const HOW: &[Switch] = &[
    ("long", Some('l'), None, "One line for each entry, with its attributes"),
    ("long-no-owner", Some('g'), None, "As -l, without the owner"),
    ("long-no-group", Some('o'), None, "As -l, without the group"),
    ("no-group", Some('G'), Some("no-group"), "No groups with -l"),
    ("author", None, Some("author"), "With -l, also the author, which is the owner"),
    ("numeric", Some('n'), Some("numeric-uid-gid"), "As -l, with numbers for owners and groups"),
    ("full-time", None, Some("full-time"), "As -l --time-style=full-iso"),
    (
        "acl",
        None,
        Some("acl"),
        "With -l, a + for entries with an access control list (one call for each)",
    ),
    ("lines", Some('1'), None, "One name a line"),
    ("columns", Some('C'), None, "In columns, downwards"),
    ("across", Some('x'), None, "In columns, across"),
    ("commas", Some('m'), None, "With commas, as many on a line as fit"),
    ("json", None, Some("json"), "One JSON document (fields: docs/ls.md)"),
    ("zero", None, Some("zero"), "NUL instead of a newline after each name, without quoting"),
    ("inode", Some('i'), Some("inode"), "The number of the inode"),
    ("blocks", Some('s'), Some("size"), "The allocated size"),
    ("human", Some('h'), Some("human-readable"), "Sizes as 1.5K, 234M with -l and -s"),
    ("si", None, Some("si"), "As -h, in powers of 1000"),
    ("kibibytes", Some('k'), Some("kibibytes"), "Sizes on the disk in blocks of 1024 bytes"),
    ("slash", Some('p'), None, "A slash after directories"),
    (
        "file-type",
        None,
        Some("file-type"),
        "A character for the type after each name, none for programs",
    ),
    (
        "show-changed",
        Some('c'),
        None,
        "The time of the last change of attributes, and by it without -l",
    ),
    ("show-accessed", Some('u'), None, "The time of the last access, and by it without -l"),
];

const QUOTING: &[Switch] = &[
    ("quote-c", Some('Q'), Some("quote-name"), "Names in double quotes"),
    ("escape", Some('b'), Some("escape"), "Backslash escapes for nonprintable characters"),
    ("literal", Some('N'), Some("literal"), "Names unchanged"),
    (
        "question-marks",
        Some('q'),
        Some("hide-control-chars"),
        "A question mark for nonprintable characters",
    ),
    ("show-control", None, Some("show-control-chars"), "Control characters unchanged"),
];

/// The values of `--sort`.
const SORTS: [&str; 9] =
    ["name", "natural", "none", "size", "time", "extension", "version", "type", "width"];
const WHEN: [&str; 9] = ["always", "yes", "force", "auto", "tty", "if-tty", "never", "no", "none"];
const TIMES: [&str; 10] = [
    "mtime",
    "modification",
    "atime",
    "access",
    "use",
    "ctime",
    "status",
    "change",
    "birth",
    "creation",
];

/// Adds the options to `command`.
pub(super) fn add_to(command: Command) -> Command {
    let mut command = command
        .disable_help_flag(true)
        .infer_long_args(true)
        .args_override_self(true)
        .before_help("Example: unjank ls -l --sort size ~/Downloads")
        .arg(
            Arg::new("paths")
                .value_name("PATH")
                .help("Files and directories; . if there is none")
                .num_args(0..)
                .value_hint(ValueHint::AnyPath)
                .value_parser(OsStringValueParser::new()),
        );
    for (heading, switches) in
        [("What is listed", WHAT), ("Order", ORDER), ("What is shown", HOW), ("Quoting", QUOTING)]
    {
        for (id, letter, long, help) in switches {
            // A switch may be given again; a counter would say so behind each name in the help.
            let arg = Arg::new(*id).action(ArgAction::SetTrue);
            let mut arg = arg.help(*help).help_heading(heading);
            if let Some(letter) = letter {
                arg = arg.short(*letter);
            }
            if let Some(long) = long {
                arg = arg.long(*long);
            }
            arg = match *id {
                "dirs-first" => arg.alias("group-directories-first"),
                "zero" => arg.alias("null"),
                _ => arg,
            };
            command = command.arg(arg);
        }
    }
    command
        .args(valued())
        .arg(Arg::new("help").long("help").action(ArgAction::Help).help("Print this help"))
}

fn valued() -> [Arg; 15] {
    let one = |id: &'static str, value: &'static str, heading: &'static str, help: &'static str| {
        Arg::new(id)
            .long(id)
            .value_name(value)
            .action(ArgAction::Append)
            .value_parser(OsStringValueParser::new())
            .help_heading(heading)
            .help(help)
    };
    let word = |arg: Arg, words: &'static [&'static str]| {
        arg.value_parser(PossibleValuesParser::new(words.iter().copied()))
            .hide_possible_values(true)
    };
    let when = |id: &'static str, help: &'static str| {
        word(one(id, "WHEN", "What is shown", help), &WHEN)
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("always")
    };
    let (what, order, how) = ("What is listed", "Order", "What is shown");
    [
        one("filter", "PATTERN", what, "List only names that match, for example '*.rs'"),
        one("ignore", "PATTERN", what, "Leave out names that match").short('I'),
        one("hide", "PATTERN", what, "Leave out names that match, unless -a or -A").short(None),
        word(
            one(
                "sort",
                "WORD",
                order,
                "name, natural, none, size, time, extension, version, type or width",
            ),
            &SORTS,
        ),
        word(
            one("time", "WORD", order, "Which time: modification, access, change or birth"),
            &TIMES,
        ),
        one(
            "format",
            "WORD|TEMPLATE",
            how,
            "across, commas, long, single-column, vertical, or a template as '{size} {name}' (docs/ls.md)",
        ),
        one("time-style", "STYLE", how, "full-iso, long-iso, iso, locale or +FORMAT"),
        one("block-size", "SIZE", how, "Sizes in blocks of this size, for example M or 512"),
        one("width", "COLUMNS", how, "The width of a line; 0 means no limit").short('w'),
        one("tabsize", "COLUMNS", how, "The distance of tab stops").short('T'),
        when("color", "Colours by LS_COLORS: always, auto or never"),
        when("hyperlink", "Names as hyperlinks for terminals"),
        when("classify", "A character for the type after each name").short('F'),
        word(
            one("indicator-style", "WORD", how, "none, slash, file-type or classify"),
            &["none", "slash", "file-type", "classify"],
        ),
        word(
            one(
                "quoting-style",
                "STYLE",
                "Quoting",
                "literal, shell, shell-escape, c, escape, locale …",
            ),
            const {
                &[
                    Style::NAMES[0].0,
                    Style::NAMES[1].0,
                    Style::NAMES[2].0,
                    Style::NAMES[3].0,
                    Style::NAMES[4].0,
                    Style::NAMES[5].0,
                    Style::NAMES[6].0,
                    Style::NAMES[7].0,
                    Style::NAMES[8].0,
                    Style::NAMES[9].0,
                ]
            },
        ),
    ]
}

/// Returns every option without a value.
fn switches() -> impl Iterator<Item = &'static Switch> {
    [WHAT, ORDER, HOW, QUOTING].into_iter().flatten()
}

/// Reads a command line that has only switches, `--color` and paths; nothing for any other, which clap reads.
///
/// Building clap's table of options takes longer than listing a small directory.
pub(super) fn read_plain(words: &[OsString]) -> Option<(Vec<Given>, Vec<PathBuf>)> {
    let mut given: Vec<Given> = Vec::new();
    let mut paths = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let bytes = word.as_bytes();
        if bytes == b"--" {
            paths.extend(words.by_ref().map(PathBuf::from));
        } else if let Some(long) = bytes.strip_prefix(b"--") {
            given.push(plain_long(long)?);
        } else if bytes.len() > 1 && bytes[0] == b'-' {
            for letter in &bytes[1..] {
                let known = switches().find(|switch| switch.1 == Some(char::from(*letter)))?;
                given.push(Given { id: known.0.to_owned(), value: None });
            }
        } else {
            paths.push(PathBuf::from(word));
        }
    }
    // Of a repeated switch the last one counts, as in `in_order`.
    let mut kept: Vec<Given> = Vec::new();
    for option in given.into_iter().rev() {
        if option.value.is_some() || kept.iter().all(|later| later.id != option.id) {
            kept.push(option);
        }
    }
    kept.reverse();
    Some((kept, paths))
}

/// Reads what stands behind `--` of a long option.
fn plain_long(long: &[u8]) -> Option<Given> {
    let color = |value: &[u8]| {
        let is_known = WHEN.iter().any(|word| word.as_bytes() == value);
        let value = OsStr::from_bytes(value).to_owned();
        is_known.then(|| Given { id: "color".to_owned(), value: Some(value) })
    };
    if long == b"color" {
        return color(b"always");
    }
    if let Some(value) = long.strip_prefix(b"color=") {
        return color(value);
    }
    let named = |switch: &&Switch| switch.2.is_some_and(|name| name.as_bytes() == long);
    switches().find(named).map(|switch| Given { id: switch.0.to_owned(), value: None })
}

/// One option as it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Given {
    /// Its name in the table.
    pub(super) id: String,
    /// Its value; nothing for a switch.
    pub(super) value: Option<OsString>,
}

/// Returns the options in the order in which they were given, of a repeated switch the last one.
pub(super) fn in_order(matches: &ArgMatches) -> Vec<Given> {
    let mut given: Vec<(usize, Given)> = Vec::new();
    for id in matches.ids().map(clap::Id::as_str).filter(|id| *id != "paths") {
        if matches.value_source(id) != Some(clap::parser::ValueSource::CommandLine) {
            continue;
        }
        let mut indices = matches.indices_of(id).into_iter().flatten();
        let raw: Vec<OsString> =
            matches.get_raw(id).into_iter().flatten().map(OsString::from).collect();
        if switches().any(|known| known.0 == id) {
            let index = indices.next_back().unwrap_or(0);
            given.push((index, Given { id: id.to_owned(), value: None }));
        } else {
            for (index, value) in indices.zip(raw) {
                given.push((index, Given { id: id.to_owned(), value: Some(value) }));
            }
        }
    }
    given.sort_by_key(|(index, _)| *index);
    given.into_iter().map(|(_, given)| given).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_names_switches_as_they_are_typed() {
        let help = add_to(Command::new("ls")).render_help().to_string();
        let mut switches = help.lines().filter(|line| line.trim_start().starts_with('-'));
        assert!(switches.clone().any(|line| line.trim() == "-a, --all"), "{help}");
        assert!(switches.all(|line| !line.contains("...")), "{help}");
    }

    fn parse(arguments: &[&str]) -> Vec<String> {
        let command = add_to(Command::new("ls"));
        let matches =
            command.try_get_matches_from(std::iter::once(&"ls").chain(arguments)).unwrap();
        let show = |given: Given| match given.value {
            Some(value) => format!("{}={}", given.id, value.to_string_lossy()),
            None => given.id,
        };
        in_order(&matches).into_iter().map(show).collect()
    }

    /// Reads a command line by clap alone.
    fn read_by_clap(words: &[OsString]) -> Option<(Vec<Given>, Vec<PathBuf>)> {
        let name = OsString::from("ls");
        let matches =
            add_to(Command::new("ls")).try_get_matches_from([&name].into_iter().chain(words));
        let matches = matches.ok()?;
        let paths = matches.get_many::<OsString>("paths").into_iter().flatten();
        Some((in_order(&matches), paths.map(PathBuf::from).collect()))
    }

    #[test]
    fn what_is_read_without_clap_is_what_clap_reads() {
        let mut lines: Vec<Vec<OsString>> = Vec::new();
        for (_, letter, long, _) in switches() {
            lines.extend(letter.map(|letter| vec![OsString::from(format!("-{letter}"))]));
            lines.extend(long.map(|long| vec![OsString::from(format!("--{long}"))]));
        }
        let single = lines.len();
        for line in [
            &[][..],
            &["-la", "x", "-t", "y", "-l"],
            &["-l1Cl", "-1", "--all", "-a"],
            &["--color", "-l", "--color=never", "--color=auto", "z"],
            &["-l", "--", "-a", "--", "--all"],
            &["-", "", "-a", "a b", "-"],
            &["--reverse", "d", "--reverse", "-rS"],
            &["ls", "ls"],
        ] {
            lines.push(line.iter().map(OsString::from).collect());
        }
        lines.push(vec![OsStr::from_bytes(b"\xff").to_owned(), "-l".into()]);
        for line in &lines {
            let plain = read_plain(line);
            assert!(plain.is_some(), "{line:?}");
            assert_eq!(plain, read_by_clap(line), "{line:?}");
        }
        // Any two of them, too: what one does to the other depends on their order.
        for one in &lines[..single] {
            for other in lines[..single].iter().step_by(7) {
                let line = [&one[..], &other[..], &one[..]].concat();
                assert_eq!(read_plain(&line), read_by_clap(&line), "{line:?}");
            }
        }
    }

    #[test]
    fn what_needs_clap_is_left_to_clap() {
        for line in [
            &["--help"][..],
            &["--sort=size"],
            &["-F"],
            &["-lw", "80"],
            &["-I", "x"],
            &["--group-dir"],
            &["--color=sometimes"],
            &["--no-such"],
            &["-lé"],
            &["--all=x"],
            &["--="],
        ] {
            let line: Vec<OsString> = line.iter().map(OsString::from).collect();
            assert_eq!(read_plain(&line), None, "{line:?}");
        }
    }

    #[test]
    fn options_keep_their_order() {
        assert_eq!(
            parse(&["-la", "x", "--sort=size", "-t"]),
            ["long", "all", "sort=size", "by-time"]
        );
        assert_eq!(parse(&["-C1l", "-C"]), ["lines", "long", "columns"]);
        assert_eq!(
            parse(&["--color", "-F", "-Ia", "-I", "b", "--ignore=c"]),
            ["color=always", "classify=always", "ignore=a", "ignore=b", "ignore=c"]
        );
        assert_eq!(
            parse(&["--group-dir", "--full", "--quoting-style", "c"]),
            ["dirs-first", "full-time", "quoting-style=c"]
        );
    }
}
