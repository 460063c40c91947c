//! A database as a key file: groups are directories, values are GVariant text.

use gvdb::gvariant::Variant;

use crate::database::KeyTable;
use crate::path;
use xdg::keyfile::{KeyFile, KeyFileError};

/// Returns the settings in a key file, and the number of invalid entries.
pub(super) fn read(file: &KeyFile) -> (KeyTable, usize) {
    let mut table = KeyTable::default();
    let mut skipped = 0;
    for group in file.groups() {
        let dir = if group == "/" { "/".to_owned() } else { format!("/{group}/") };
        for (key, text) in file.entries(group) {
            let path = format!("{dir}{key}");
            let value = Variant::parse(None, text).ok();
            match value.filter(|_| path::is_dir(&dir) && path::is_key(&path) && !key.contains('/'))
            {
                Some(value) => {
                    table.put(&path, Some(value));
                }
                None => skipped += 1,
            }
        }
    }
    (table, skipped)
}

/// Makes one change in a key file; comments elsewhere stay.
///
/// # Errors
///
/// The key has a name that a key file cannot hold; nothing is changed.
pub(super) fn edit(
    file: &mut KeyFile,
    path: &str,
    value: Option<&Variant>,
) -> Result<(), KeyFileError> {
    if path == "/" {
        *file = KeyFile::new();
        return Ok(());
    }
    if path.ends_with('/') {
        let dir = path.trim_matches('/');
        let below = |group: &&str| {
            group.strip_prefix(dir).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let doomed: Vec<String> = file.groups().filter(below).map(str::to_owned).collect();
        for group in doomed {
            file.remove_group(&group);
        }
        return Ok(());
    }
    let (group, key) = place(path);
    match value {
        Some(value) => file.set(group, key, &value.print()),
        None => {
            file.remove_key(group, key);
            Ok(())
        }
    }
}

/// Checks that a key file can hold a key.
///
/// # Errors
///
/// What is wrong with its name.
pub(super) fn check(path: &str) -> Result<(), KeyFileError> {
    let (group, key) = place(path);
    KeyFile::new().set(group, key, "true")
}

/// Returns the group and the key in which a path is kept.
fn place(path: &str) -> (&str, &str) {
    let (dir, key) = path.rsplit_once('/').unwrap_or(("", path));
    if dir.is_empty() { ("/", key) } else { (&dir[1..], key) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "# who we are\n[/]\ntop=true\n\n[a/b]\n# why\nx=1\nbad=oops(\n\n[a]\ny='z'\n\n[ab]\nq=2\n";

    fn keys(file: &KeyFile) -> Vec<String> {
        read(file).0.iter().map(|(key, value)| format!("{key}={value:?}")).collect()
    }

    #[test]
    fn groups_are_directories() {
        let file = KeyFile::parse(TEXT.as_bytes()).unwrap();
        assert_eq!(keys(&file), ["/a/b/x=1", "/a/y='z'", "/ab/q=2", "/top=true"]);
        assert_eq!(read(&file).1, 1);
    }

    #[test]
    fn edits_keep_comments_and_resets_take_whole_groups() {
        let mut file = KeyFile::parse(TEXT.as_bytes()).unwrap();
        let value = Variant::parse(None, "[byte 1]").unwrap();
        edit(&mut file, "/a/b/x", Some(&value)).unwrap();
        edit(&mut file, "/new", Some(&value)).unwrap();
        let text = String::from_utf8(file.to_bytes()).unwrap();
        assert!(
            text.contains("# who we are\n") && text.contains("# why\nx=[byte 0x01]\n"),
            "{text}"
        );
        edit(&mut file, "/a/", None).unwrap();
        assert_eq!(keys(&file), ["/ab/q=2", "/new=[byte 0x01]", "/top=true"]);
        edit(&mut file, "/", None).unwrap();
        assert_eq!(keys(&file), Vec::<String>::new());
        assert!(check("/a/b=c").is_err() && check("/a/b").is_ok());
    }
}
