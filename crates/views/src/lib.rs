//! Full-screen views on a terminal: D-Bus traffic as it comes, and the report of a trace.
//!
//! Begin with [`Screen::enter`], then [`Screen::show_report`] or [`Screen::show_traffic`]. README.md has an example.

mod keys;
mod screen;
mod trace_report;
mod traffic;

use std::io;

pub use screen::Screen;
pub use trace_report::ReportBrowser;
pub use traffic::TrafficBrowser;

impl Screen {
    /// Shows the report of a trace until the user leaves.
    ///
    /// # Errors
    ///
    /// The terminal cannot be read or written any more; it is given back as far as it is there.
    pub fn show_report(self, browser: &mut ReportBrowser<'_>) -> io::Result<()> {
        self.show(browser)
    }

    /// Shows D-Bus traffic until the user leaves.
    ///
    /// # Errors
    ///
    /// As [`Screen::show_report`].
    pub fn show_traffic(self, browser: &mut TrafficBrowser) -> io::Result<()> {
        self.show(browser)
    }
}

/// The example of README.md, tested with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
