//! Our settings service, as the bus starts it: this test program itself.

use std::path::Path;
use std::process::ExitCode;

use clap::Parser;

/// The name of the variable that makes a service of this program.
pub(crate) const SERVES: &str = "UNJANK_GIO_TEST_SERVES";

/// The settings service that dconf brings.
pub(crate) const DCONF: &str = "/usr/libexec/dconf-service";

#[derive(Parser)]
struct Service {
    #[command(flatten)]
    arguments: daemon::program::Arguments,
}

/// Serves settings where the bus started this program; elsewhere there is nothing to do.
#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the bus starts this test with a variable of its own"
)]
fn serves_settings() {
    if std::env::var_os(SERVES).is_some() {
        let service = Service::parse_from(["unjankd", "--names", "dconf", "--log-level", "error"]);
        assert_eq!(daemon::program::run(&service.arguments), ExitCode::SUCCESS);
    }
}

/// Returns the command by which the bus starts our service.
pub(crate) fn ours() -> String {
    let program = std::env::current_exe().unwrap();
    let program = program.display();
    let test = format!("{program} --exact service::serves_settings --nocapture");
    // What the test harness prints is not for the program that is tested.
    format!("/bin/sh -c '{SERVES}=1 exec {test} >/dev/null'")
}

/// Whether dconf's own service and its programs are installed.
pub(crate) fn has_dconf() -> bool {
    Path::new(DCONF).exists()
}
