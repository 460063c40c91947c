//! Choosing an application for a MIME type: a changed `mimeapps.list`, everything else in it as it stood.

use xdg::keyfile::{KeyFile, KeyFileError};

const DEFAULTS: &str = "Default Applications";
const ADDED: &str = "Added Associations";
const REMOVED: &str = "Removed Associations";

/// Makes `id` the default for a type in the text of a `mimeapps.list`; comments, order and all other lines stay.
///
/// As GLib does it: the application becomes the only default, is added to the associations if it is not there, and is no longer removed.
///
/// # Errors
///
/// The text is no key file, or the type cannot be a key; nothing was changed.
pub fn set_default(text: &[u8], mime_type: &str, id: &str) -> Result<Vec<u8>, KeyFileError> {
    let mut file = KeyFile::parse(text)?;
    file.set(DEFAULTS, mime_type, id)?;
    let added = items(&file, ADDED, mime_type);
    if !added.iter().any(|known| known == id) {
        let all: Vec<&str> = [id].into_iter().chain(added.iter().map(String::as_str)).collect();
        file.set(ADDED, mime_type, &list(&all))?;
    }
    let removed = items(&file, REMOVED, mime_type);
    if removed.iter().any(|known| known == id) {
        let left: Vec<&str> =
            removed.iter().map(String::as_str).filter(|known| *known != id).collect();
        if left.is_empty() {
            file.remove_key(REMOVED, mime_type);
        } else {
            file.set(REMOVED, mime_type, &list(&left))?;
        }
    }
    Ok(file.to_bytes())
}

fn items(file: &KeyFile, group: &str, key: &str) -> Vec<String> {
    let value = file.get(group, key).unwrap_or_default();
    value.split(';').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect()
}

/// Writes a list as GLib does, with a semicolon after each.
fn list(items: &[&str]) -> String {
    items.iter().map(|item| format!("{item};")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_else_stays_as_it_stood() {
        let text = "# mine\n\n[Added Associations]\nimage/png=a.desktop;\n\n[Removed Associations]\ntext/plain=b.desktop;c.desktop;\n[Default Applications]\n# chosen\ntext/plain=a.desktop\nimage/png=z.desktop\n";
        let new =
            String::from_utf8(set_default(text.as_bytes(), "text/plain", "b.desktop").unwrap())
                .unwrap();
        assert_eq!(
            new,
            "# mine\n\n[Added Associations]\nimage/png=a.desktop;\ntext/plain=b.desktop;\n\n[Removed Associations]\ntext/plain=c.desktop;\n[Default Applications]\n# chosen\ntext/plain=b.desktop\nimage/png=z.desktop\n"
        );
        assert_eq!(set_default(new.as_bytes(), "text/plain", "b.desktop").unwrap(), new.as_bytes());
    }

    #[test]
    fn a_new_file_has_what_is_needed() {
        let new = set_default(b"", "image/png", "a.desktop").unwrap();
        let text = String::from_utf8(new).unwrap();
        assert!(text.contains("[Default Applications]\nimage/png=a.desktop\n"), "{text}");
        assert!(text.contains("[Added Associations]\nimage/png=a.desktop;\n"), "{text}");
    }
}
