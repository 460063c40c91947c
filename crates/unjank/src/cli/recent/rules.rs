//! The file with the rules of what is recorded.

use recents::Recents;
use recents::policy::RetentionRules;
use store::publish::publish;

use crate::error::{Error, FailureCategory};

/// Changes the rules; writes the file if `change` returns whether something changed.
pub(super) fn change(
    recents: &Recents,
    change: impl FnOnce(&mut RetentionRules) -> Result<bool, Error>,
) -> Result<bool, Error> {
    let (disk, path) = (recents.disk(), recents.places().rules());
    let fail = || Error::new(FailureCategory::Config, format!("change {}", path.display()));
    let text = match disk.read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(fail().because(error)),
    };
    let mut rules = RetentionRules::parse(&text);
    if !change(&mut rules)? {
        return Ok(false);
    }
    publish(disk, &path, &rules.to_bytes()).map_err(|error| fail().because(error))?;
    Ok(true)
}
