//! The texts of the files: templates, and paths that may stand in them.

use std::path::Path;

use crate::error::SetupError;

/// Returns a template with this directory of programs in it.
///
/// D-Bus, systemd and `environment.d` quote differently; a path that none of them takes for anything else needs no quotes.
pub(crate) fn fill(template: &str, programs: &Path) -> Result<Vec<u8>, SetupError> {
    Ok(template.replace("@bindir@", plain(programs)?).into_bytes())
}

/// Returns a path as text, if it can stand in every kind of file as it is.
pub(crate) fn plain(path: &Path) -> Result<&str, SetupError> {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+@,=~".contains(c);
    let text = path.to_str().filter(|text| text.chars().all(is_plain));
    text.ok_or_else(|| SetupError::UnusablePath { path: path.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_a_unit_would_take_apart_is_refused() {
        assert_eq!(plain(Path::new("/home/ána/.local/bin")).unwrap(), "/home/ána/.local/bin");
        for strange in ["/a b", "/a\"b", "/a'b", "/a\\b", "/a$b", "/a%b", "/a\nb", "/a;b", "/a:b"] {
            assert!(plain(Path::new(strange)).is_err(), "{strange:?}");
        }
    }
}
