//! The name of the program that a process runs: of its file, or of the script that an interpreter runs.
//!
//! An argument is a name only where the interpreter takes it for its script. What a person typed as code, and what the
//! script was given, is never looked at.

use std::fs;
use std::os::unix::ffi::OsStrExt;

use sys::process_file;

/// The most bytes of a command line that are read.
const COMMAND_LINE: u64 = 4096;

/// How an interpreter is called.
struct Interpreter {
    /// The name of its file, without the version.
    name: &'static str,
    /// Whether letters can be joined behind one dash, as in `-Iu`.
    joins: bool,
    /// Options whose value is the next argument.
    with_value: &'static [&'static str],
    /// Options whose value is code; there is no script then.
    code: &'static [&'static str],
    /// Options whose value is a module that runs as the script.
    module: &'static [&'static str],
}

/// Programs whose name says less than that of the script that they run, with the options of their manual pages.
const INTERPRETERS: [Interpreter; 9] = [
    Interpreter {
        name: "python",
        joins: true,
        with_value: &["-W", "-X", "--check-hash-based-pycs"],
        code: &["-c"],
        module: &["-m"],
    },
    Interpreter {
        name: "perl",
        joins: true,
        with_value: &["-I"],
        code: &["-e", "-E"],
        module: &[],
    },
    Interpreter {
        name: "ruby",
        joins: true,
        with_value: &["-C", "-E", "-I", "-r", "--encoding", "--external-encoding"],
        code: &["-e"],
        module: &[],
    },
    Interpreter { name: "lua", joins: false, with_value: &["-e", "-l"], code: &[], module: &[] },
    Interpreter {
        name: "gjs",
        joins: false,
        with_value: &["-I", "--include-path", "-C", "--coverage-prefix", "--coverage-output"],
        code: &["-c", "--command"],
        module: &[],
    },
    NODE,
    Interpreter { name: "electron", ..NODE },
    Interpreter {
        name: "java",
        joins: false,
        with_value: &[
            "-cp",
            "-classpath",
            "--class-path",
            "-p",
            "--module-path",
            "--upgrade-module-path",
            "--add-modules",
            "--add-exports",
            "--add-opens",
            "--add-reads",
            "--enable-native-access",
            "--limit-modules",
            "--patch-module",
            "--source",
        ],
        code: &[],
        module: &["-m", "--module"],
    },
    Interpreter { name: "mono", joins: false, with_value: &["--config"], code: &[], module: &[] },
];

const NODE: Interpreter = Interpreter {
    name: "node",
    joins: false,
    with_value: &[
        "-r",
        "--require",
        "--import",
        "--loader",
        "--experimental-loader",
        "-C",
        "--conditions",
        "--env-file",
        "--title",
        "--watch-path",
    ],
    code: &["-e", "--eval", "-p", "--print", "-pe"],
    module: &[],
};

impl Interpreter {
    /// Returns the interpreter with this file, such as `python3.13`.
    fn of(file: &str) -> Option<&'static Interpreter> {
        INTERPRETERS.iter().find(|interpreter| {
            file.strip_prefix(interpreter.name).is_some_and(|version| {
                version.chars().all(|letter| letter.is_ascii_digit() || letter == '.')
            })
        })
    }

    /// Returns the script among the arguments, without the name of the interpreter itself.
    fn script<'a>(&self, mut arguments: impl Iterator<Item = &'a [u8]>) -> Option<&'a [u8]> {
        let names =
            |options: &[&str], option: &[u8]| options.iter().any(|name| name.as_bytes() == option);
        while let Some(argument) = arguments.next() {
            if argument == b"--" {
                return arguments.next();
            }
            if argument == b"-" {
                return None;
            }
            if !argument.starts_with(b"-") {
                return Some(argument);
            }
            let is_joined = self.joins && !argument.starts_with(b"--");
            let letters = if is_joined { &argument[1..] } else { &argument[..0] };
            // The first letter that takes a value takes the rest of the argument, or else the next one.
            let whole = [(argument.to_vec(), &argument[argument.len()..])];
            let joined = letters.iter().enumerate();
            let joined = joined.map(|(at, letter)| (vec![b'-', *letter], &letters[at + 1..]));
            let options = joined.chain(whole.into_iter().filter(|_| !is_joined));
            for (option, rest) in options {
                let is_value = names(self.with_value, &option);
                let is_module = names(self.module, &option);
                if names(self.code, &option) {
                    return None;
                }
                if !is_value && !is_module {
                    continue;
                }
                let value = if rest.is_empty() { arguments.next() } else { Some(rest) };
                if is_module {
                    return value;
                }
                break;
            }
        }
        None
    }
}

/// Returns the name of the program that a process runs.
pub(crate) fn program_name(process: u32) -> String {
    let link = fs::read_link(format!("/proc/{process}/exe")).unwrap_or_default();
    let link = link.as_os_str().as_bytes();
    let file = last_component(link.strip_suffix(b" (deleted)").unwrap_or(link));
    if let Some(interpreter) = Interpreter::of(&file) {
        let line = process_file::read(process, "cmdline", COMMAND_LINE).unwrap_or_default();
        if let Some(script) = interpreter.script(line.split(|byte| *byte == 0).skip(1)) {
            let script = last_component(script);
            if !script.is_empty() {
                return script;
            }
        }
    }
    if !file.is_empty() {
        return file;
    }
    let name = fs::read(format!("/proc/{process}/comm")).unwrap_or_default();
    String::from_utf8_lossy(name.trim_ascii_end()).into_owned()
}

/// Returns what is behind the last slash of a path.
pub(super) fn last_component(path: &[u8]) -> String {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_named_by_whatever_arguments_it_is_started() {
        for (line, script) in [
            ("python3 notes.py", Some("notes.py")),
            ("python3.13 /usr/bin/notes --open x", Some("/usr/bin/notes")),
            ("python3 -Iu -W ignore -Xdev notes.py", Some("notes.py")),
            ("python3 -um http.server 80", Some("http.server")),
            ("python3 -mhttp.server", Some("http.server")),
            ("python3 -- notes.py", Some("notes.py")),
            ("perl -w -I lib notes.pl", Some("notes.pl")),
            ("ruby -rset -I lib notes.rb", Some("notes.rb")),
            ("lua5.4 -e x=1 notes.lua", Some("notes.lua")),
            ("gjs -m notes.js", Some("notes.js")),
            ("gjs -I lib notes.js", Some("notes.js")),
            ("node --inspect -r ./hook.js app/main.js x.js", Some("app/main.js")),
            ("electron --no-sandbox app.asar", Some("app.asar")),
            ("java -Xmx1g -cp a.jar:b.jar org.example.Notes x", Some("org.example.Notes")),
            ("java -jar notes.jar", Some("notes.jar")),
            ("mono --debug notes.exe", Some("notes.exe")),
            ("python3", None),
            ("python3 -", None),
            ("python3 -W", None),
        ] {
            let mut words = line.split(' ').map(str::as_bytes);
            let file = std::str::from_utf8(words.next().unwrap()).unwrap();
            let found = Interpreter::of(file).unwrap().script(words);
            assert_eq!(found, script.map(str::as_bytes), "{line}");
        }
    }

    #[test]
    fn code_and_what_follows_it_are_never_a_name() {
        for line in [
            "python3 -c open('/home/ann/secret') secret.txt",
            "python3 -Ic open('/home/ann/secret')",
            "python3 -copen('/home/ann/secret')",
            "perl -ne print/secret/ secret.txt",
            "perl -w -E say'/secret'",
            "ruby -e puts'/secret' secret.txt",
            "gjs -c '/secret' secret.txt",
            "node -e '/secret' secret.txt",
            "node --print '/secret'",
        ] {
            let mut words = line.split(' ').map(str::as_bytes);
            let file = std::str::from_utf8(words.next().unwrap()).unwrap();
            assert_eq!(Interpreter::of(file).unwrap().script(words), None, "{line}");
        }
    }

    #[test]
    fn a_program_whose_name_begins_like_an_interpreter_is_none() {
        for file in ["javac", "node-gyp", "pythonista", "luatex", "monodevelop", ""] {
            assert!(Interpreter::of(file).is_none(), "{file}");
        }
    }
}
