//! `compile` and `update`: databases from directories of key files.

use std::io::Write;
use std::path::Path;

use bus::client::blocking::BlockingClient;
use settings::compile;

use super::environment;
use super::session::MessageStyle;
use crate::cli::screen::{self, sayln};
use crate::error::{Error, FailureCategory};

/// Where the administrator's databases are.
pub(super) const SYSTEM_DATABASES: &str = "/etc/dconf/db";

/// Compiles one directory.
pub(super) fn one(output: &Path, dir: &Path) -> Result<(), Error> {
    compile::compile(&*store::disk::real(), output, dir, &environment::languages()).map_err(
        |error| {
            Error::new(FailureCategory::Dconf, format!("compile {}", dir.display()))
                .because(error.to_string())
        },
    )
}

/// Compiles every `X.d` in a directory and tells readers on the system bus.
pub(super) fn all(voice: &MessageStyle, dir: &Path) -> Result<(), Error> {
    let cannot = || Error::new(FailureCategory::Dconf, format!("update {}", dir.display()));
    let updated = compile::update(&*store::disk::real(), dir, &environment::languages())
        .map_err(|error| cannot().because(error.to_string()))?;
    let mut failed = false;
    let mut bus = None;
    for database in updated {
        if let Some(warning) = database.warning {
            say(voice, &format!("warning: {warning}"));
        }
        match database.result {
            Ok(()) => {
                // A machine without a system bus has nobody to tell; readers notice the marked file all the same.
                let bus = bus.get_or_insert_with(|| BlockingClient::system().ok());
                let object_path = format!("/ca/desrt/dconf/Writer/{}", database.name);
                if let Some(bus) = bus {
                    drop(bus.emit_writability(&object_path, "/"));
                }
            }
            Err(error) => {
                say(voice, &format!("{}: {error}", database.dir.display()));
                failed = true;
            }
        }
    }
    if failed {
        return Err(cannot().because("failed to update at least one of the databases"));
    }
    Ok(())
}

fn say(voice: &MessageStyle, text: &str) {
    let name = match voice {
        MessageStyle::Unjank => "unjank: ",
        MessageStyle::Dconf(_) => "",
    };
    // Nobody is left to be told when stderr is gone.
    drop(sayln!(screen::stderr(), "{name}{text}"));
}
