//! The matrix: which cells there are, and the order in which they are measured.

use std::path::PathBuf;
use std::time::Duration;

use super::LaunchError;
use super::background::{BackgroundLoad, Prepared};
use super::cell::{LoadClass, MatrixCell, Measure, Throttling};
use super::foreground::Foreground;
use super::ground::Site;
use super::sample::SampleFile;
use super::scene::{Duty, Scene};
pub use super::scene::{Lab, OtherPrograms};
use crate::run::BenchProgress;

/// What is to be measured.
#[derive(Clone, Debug)]
pub struct MatrixPlan {
    /// Where.
    pub site: Site,
    /// What.
    pub measures: Vec<Measure>,
    /// With which schedulers; `kept` is the one that is there.
    pub schedulers: Vec<String>,
    /// With which throttling.
    pub throttlings: Vec<Throttling>,
    /// What works in the background.
    pub backgrounds: Vec<BackgroundLoad>,
    /// How it behaves.
    pub classes: Vec<LoadClass>,
    /// What is launched.
    pub foreground: Foreground,
    /// What it needs of other places: copied to the disk.
    pub bring: Vec<PathBuf>,
    /// Samples a cell.
    pub runs: usize,
    /// How many of them are taken before the next cell has its turn.
    pub burst: usize,
    /// Bytes of what the built-in backgrounds install, unpack and copy.
    pub size: usize,
    /// How long a rate is measured.
    pub window: Duration,
    /// What is done about other programs on the machine.
    pub others: OtherPrograms,
}

impl MatrixPlan {
    /// Returns all cells: of each queue the unloaded one first.
    #[must_use]
    pub fn cells(&self) -> Vec<MatrixCell> {
        let mut cells = Vec::new();
        for &measure in &self.measures {
            for scheduler in &self.schedulers {
                for &wbt in &self.throttlings {
                    let unloaded = MatrixCell {
                        measure,
                        disk: self.site.name(),
                        scheduler: scheduler.clone(),
                        wbt,
                        background: String::new(),
                        class: LoadClass::Unloaded,
                        foreground: self.foreground.name().to_owned(),
                    };
                    if measure == Measure::Launch {
                        cells.push(unloaded.clone());
                    }
                    for background in &self.backgrounds {
                        cells.extend(self.classes.iter().map(|&class| {
                            let background = background.name().to_owned();
                            MatrixCell { background, class, ..unloaded.clone() }
                        }));
                    }
                }
            }
        }
        cells
    }

    /// Returns how many samples of `cell` are still to be taken.
    fn missing(&self, record: &SampleFile, cell: &MatrixCell) -> usize {
        let again = match self.others {
            OtherPrograms::Avoided => record.disturbed(cell).min(self.runs),
            OtherPrograms::LetBe => 0,
        };
        (self.runs + again).saturating_sub(record.count(cell))
    }

    /// Returns about how long a sample of `cell` takes, in seconds.
    fn seconds(&self, cell: &MatrixCell) -> u32 {
        match (cell.measure, cell.class) {
            (Measure::Launch, LoadClass::Unloaded) => 2,
            (Measure::Launch, _) => 5,
            (Measure::Whole, _) => 20,
            (Measure::Alone | Measure::Shared, _) => {
                u32::try_from(self.window.as_secs()).unwrap_or(u32::MAX).saturating_add(5)
            }
        }
    }
}

/// Measures what is not in `record` yet.
///
/// # Errors
///
/// What was measured until then is in `record`.
pub fn measure(
    plan: &MatrixPlan,
    record: &mut SampleFile,
    lab: &Lab<'_>,
    progress: BenchProgress<'_>,
) -> Result<(), LaunchError> {
    let cells = plan.cells();
    let missing = |record: &SampleFile, cell: &MatrixCell| plan.missing(record, cell);
    let seconds = |record: &SampleFile| -> u32 {
        let of = |cell: &MatrixCell| {
            let count = u32::try_from(missing(record, cell)).unwrap_or(u32::MAX);
            count.saturating_mul(plan.seconds(cell))
        };
        cells.iter().map(of).sum()
    };
    let whole = seconds(record);
    if whole == 0 {
        return Ok(());
    }
    progress("making the disk", 0, whole);
    let mut scene = Scene::make(&plan.site, lab, plan.others)?;
    scene.furnish(&plan.foreground, &plan.bring)?;
    let mut backgrounds: Vec<Prepared> = Vec::new();
    for background in &plan.backgrounds {
        progress(&format!("preparing {}", background.name()), 0, whole);
        backgrounds.push(background.prepare(&scene.ground, plan.size)?);
    }
    loop {
        let mut is_done = true;
        for cell in &cells {
            let count = missing(record, cell).min(plan.burst.max(1));
            if count == 0 {
                continue;
            }
            is_done = false;
            let place = match &*cell.scheduler {
                "kept" => cell.disk.clone(),
                _ => cell.queue(),
            };
            let said = match cell.class {
                LoadClass::Unloaded => format!("{place}: unloaded"),
                class => format!("{place}: {} {}", cell.background, class.name()),
            };
            progress(&said, whole.saturating_sub(seconds(record)), whole);
            let background = backgrounds.iter().find(|one| one.name == cell.background);
            match (cell.measure, background) {
                (Measure::Launch, background) => {
                    scene.launches(cell, background, count, &mut |sample| record.add(sample))?;
                }
                (Measure::Whole, Some(job)) => record.add(scene.whole(cell, job)?)?,
                (Measure::Alone, Some(background)) => {
                    record.add(scene.rate(cell, background, Duty::Never, plan.window)?)?;
                }
                (Measure::Shared, Some(background)) => {
                    record.add(scene.rate(cell, background, Duty::Half, plan.window)?)?;
                }
                (_, None) => (),
            }
        }
        if is_done {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::{Context, Sample};
    use super::*;
    use slowdisk::DiskProfile;

    #[test]
    fn every_queue_has_an_unloaded_cell_and_what_is_disturbed_is_taken_again() {
        let plan = MatrixPlan {
            site: Site::Model(DiskProfile::ALL[0], 1 << 30),
            measures: vec![Measure::Launch],
            schedulers: vec!["none".to_owned(), "bfq".to_owned()],
            throttlings: vec![Throttling::Default, Throttling::Off],
            backgrounds: vec![BackgroundLoad::Tar, BackgroundLoad::Flatpak],
            classes: vec![LoadClass::Plain, LoadClass::Idle, LoadClass::Run],
            foreground: Foreground::Command("true".to_owned()),
            bring: Vec::new(),
            runs: 10,
            burst: 5,
            size: 1 << 20,
            window: Duration::from_secs(1),
            others: OtherPrograms::Avoided,
        };
        let cells = plan.cells();
        assert_eq!(cells.len(), 2 * 2 * (1 + 2 * 3));
        assert!(cells.iter().all(|cell| cells.contains(&cell.unloaded())));
        let mut record = SampleFile::forgotten();
        for wanted in (0..10).rev() {
            let mut disturbed = Sample::new(cells[0].clone(), 1.0, Context::default());
            disturbed.context.others_share = Some(0.5);
            record.add(disturbed).unwrap();
            assert_eq!(plan.missing(&record, &cells[0]), 10, "it is taken again");
            let let_be = MatrixPlan { others: OtherPrograms::LetBe, ..plan.clone() };
            assert_eq!(let_be.missing(&record, &cells[0]), wanted);
        }
        for wanted in (0..10).rev() {
            record.add(Sample::new(cells[0].clone(), 1.0, Context::default())).unwrap();
            assert_eq!(plan.missing(&record, &cells[0]), wanted, "once each");
        }
        let rates = MatrixPlan { measures: vec![Measure::Alone, Measure::Whole], ..plan };
        assert_eq!(rates.cells().len(), 2 * 2 * 2 * (2 * 3));
    }
}
