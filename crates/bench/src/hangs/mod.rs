//! `bench hangs`: hangs of known causes in programs of real toolkits, what the recorder tells of them, and what it costs.

mod causes;
mod figures;
mod files;
mod groups;
mod idle;
mod judge;
mod overhead;
mod planting;
mod process;
mod program;
mod recorder;
mod scene;
mod served;
mod toolkits;
mod traced;
mod using;

use std::sync::atomic::AtomicBool;

use sys::clock::Clock;

pub use causes::{CAUSES, HangSource};
pub use figures::FIGURES;
pub use scene::HangScene;
pub use served::ServedBench;
pub use toolkits::{TOOLKITS, Toolkit};

use super::lab::{BenchError, Effort, Measuring, cannot};
use super::names::{BenchNames, HANGS, TRACED_HANGS};
use super::row::FigureRow;
use super::run;

/// What the figures are measured with.
#[derive(Debug)]
pub struct Lab<'a> {
    /// The display, the bus and the programs.
    pub scene: HangScene,
    /// The causes that are planted.
    pub causes: Vec<&'static HangSource>,
    /// How often each cause is planted in each program.
    pub runs: usize,
    /// In how many rounds programs run beside the recorder and beside nothing.
    pub rounds: usize,
    /// For how many minutes the recorder is watched beside programs at rest.
    pub minutes: usize,
    /// How much is measured.
    pub effort: Effort,
    /// Measures.
    pub clock: &'a dyn Clock,
    /// Set when the user wants to end.
    pub stop: &'a AtomicBool,
}

/// One figure, or a few that are measured together.
pub type Figure = run::Figure<fn(&Lab<'_>) -> Result<Vec<FigureRow>, BenchError>>;

/// The figures that can be had through the recorder service.
pub const THROUGH_SERVICE: [&str; 3] = ["planted", "idle", "overhead"];

impl Lab<'_> {
    /// Measures a figure; the rows say that they were measured through the recorder service, if they were.
    ///
    /// # Errors
    ///
    /// It cannot be measured, or not through the service.
    pub fn rows(&self, figure: &Figure) -> Result<Vec<FigureRow>, BenchError> {
        let Some(through) = self.scene.through() else { return (figure.run)(self) };
        if !THROUGH_SERVICE.contains(&figure.id) {
            return Err(cannot(figure.id, "it is not measured through the recorder service"));
        }
        let mut rows = (figure.run)(self)?;
        for row in &mut rows {
            row.note = noted(&through, &row.note);
        }
        Ok(rows)
    }
}

/// Puts how a figure was measured before its note.
fn noted(through: &str, note: &str) -> String {
    if note.is_empty() { through.to_owned() } else { format!("{through}; {note}") }
}

impl Measuring for Lab<'_> {
    const NAMES: BenchNames = HANGS;

    fn names(figures: &[&str]) -> BenchNames {
        let traced = figures.iter().filter(|figure| **figure == figures::TRACED).count();
        match figures.len() - traced {
            0 if traced > 0 => TRACED_HANGS,
            _ if traced > 0 => BenchNames { ours: "ours", ..HANGS },
            _ => HANGS,
        }
    }

    fn clock(&self) -> &dyn Clock {
        self.clock
    }

    fn stop(&self) -> &AtomicBool {
        self.stop
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_says_through_what_it_was_measured() {
        assert_eq!(noted("through it", ""), "through it");
        assert_eq!(noted("through it", "VmRSS"), "through it; VmRSS");
        let is_figure = |id: &str| FIGURES.iter().any(|figure| figure.id == id);
        assert!(THROUGH_SERVICE.into_iter().all(is_figure));
    }

    #[test]
    fn a_column_is_called_after_what_was_measured() {
        let ours = |figures: &[&str]| Lab::names(figures).ours;
        assert_eq!(ours(&["traced"]), "trace");
        assert_eq!(ours(&["planted", "idle", "overhead"]), "recorder");
        assert_eq!(ours(&["planted", "traced"]), "ours");
        assert!(FIGURES.iter().any(|figure| figure.id == figures::TRACED));
    }
}
