//! Command lines in the documentation are understood by the command as it is.

use std::path::Path;

use clap::CommandFactory;
use clap::error::ErrorKind;

use super::Cli;

/// Returns README.md and the pages of docs/, with their names.
fn pages() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut paths = vec![root.join("README.md")];
    let found = std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    paths.extend(found.filter(|path| path.extension().is_some_and(|ending| ending == "md")));
    let page = |path: &std::path::PathBuf| {
        (path.file_name().unwrap().display().to_string(), std::fs::read_to_string(path).unwrap())
    };
    paths.iter().map(page).collect()
}

/// Splits a line as a shell does, up to where another command or a redirection begins; comments are left out.
fn words(line: &str) -> Option<Vec<String>> {
    let (mut words, mut word, mut is_word) = (Vec::new(), String::new(), false);
    let mut letters = line.chars();
    loop {
        match letters.next() {
            Some('\'') => {
                is_word = true;
                loop {
                    match letters.next()? {
                        '\'' => break,
                        letter => word.push(letter),
                    }
                }
            }
            Some('"') => {
                is_word = true;
                loop {
                    match letters.next()? {
                        '"' => break,
                        '\\' => word.push(letters.next()?),
                        letter => word.push(letter),
                    }
                }
            }
            Some('|' | '>' | '<' | '&' | ';') | None => break,
            Some('#') if !is_word => break,
            Some(letter) if letter.is_whitespace() => {
                if is_word {
                    words.push(std::mem::take(&mut word));
                }
                is_word = false;
            }
            Some('\\') => {
                is_word = true;
                word.push(letters.next()?);
            }
            Some(letter) => {
                is_word = true;
                word.push(letter);
            }
        }
    }
    if is_word {
        words.push(word);
    }
    Some(words)
}

/// Returns the arguments from the name of the command on, if the line calls it.
fn call(line: &str) -> Option<Vec<String>> {
    let line = line.trim().trim_start_matches("$ ");
    let words = words(line)?;
    let at = words.iter().position(|word| word == "unjank")?;
    // Only what runs another command, and variables, stand before it.
    let before =
        |word: &String| word.contains('=') || ["sudo", "dbus-run-session"].contains(&word.as_str());
    // As the shell does; any directory that exists stands for the home.
    let expanded = |word: &String| match word.strip_prefix('~') {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => format!("/{rest}"),
        _ => word.clone(),
    };
    words[..at].iter().all(before).then(|| words[at..].iter().map(expanded).collect())
}

fn refusal(words: &[String]) -> Option<clap::Error> {
    let mut whole = Cli::command();
    whole.build();
    whole.try_get_matches_from(words).err()
}

#[test]
fn every_command_line_in_a_block_of_the_documentation_is_understood() {
    let (mut count, mut problems) = (0, Vec::new());
    for (name, text) in pages() {
        let (mut is_fenced, mut is_block) = (false, false);
        for line in text.lines() {
            if line.starts_with("```") {
                is_fenced = !is_fenced;
                is_block = is_fenced && matches!(line.trim(), "```" | "```sh");
                continue;
            }
            let Some(words) = call(line).filter(|_| is_block) else { continue };
            count += 1;
            problems.extend(refusal(&words).map(|error| format!("{name}: {line}: {error}")));
        }
    }
    assert!(count > 60, "only {count} command lines were found");
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn every_command_that_a_sentence_of_the_documentation_names_is_there() {
    let (mut count, mut problems) = (0, Vec::new());
    for (name, text) in pages() {
        let mut is_block = false;
        for line in text.lines() {
            is_block ^= line.starts_with("```");
            if is_block {
                continue;
            }
            for span in line.split('`').skip(1).step_by(2) {
                let Some(words) = call(&span.replace(['…', '[', ']'], "")) else { continue };
                count += 1;
                // A sentence may leave out what a command needs, and put words in the place of values.
                let refused = refusal(&words).filter(|error| {
                    matches!(
                        error.kind(),
                        ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand
                    )
                });
                problems.extend(refused.map(|error| format!("{name}: {span}: {error}")));
            }
        }
    }
    assert!(count > 80, "only {count} commands were found");
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn an_option_that_is_not_there_would_be_noticed() {
    let words = call("$ sudo unjank doctor --none '| x' | less # why").unwrap();
    assert_eq!(words, ["unjank", "doctor", "--none", "| x"]);
    assert_eq!(refusal(&words).unwrap().kind(), ErrorKind::UnknownArgument);
    assert!(refusal(&call("unjank doctor --json > file").unwrap()).is_none());
}
