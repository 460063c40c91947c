//! Samples: one line of JSON each, with all that was the case when it was taken; appended when it is measured and read again by the next run.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::cell::MatrixCell;
use super::disturbance::MOST;
use super::{LaunchError, step};

/// The version of a line.
const FORMAT: u32 = 1;

/// How every line begins, whatever its version: what was cut off before this cannot be told from another's text.
const START: &[u8] = b"{\"format\":";

/// One measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Sample {
    /// The version of the line.
    pub format: u32,
    /// Which combination.
    #[serde(flatten)]
    pub cell: MatrixCell,
    /// A time in milliseconds, or for [`super::cell::Measure::Alone`] and `Shared` bytes a second.
    pub value: f64,
    /// What was the case.
    #[serde(flatten)]
    pub context: Context,
}

/// What was the case when a sample was taken.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Context {
    /// When it was taken, in UTC.
    pub at: String,
    /// The scheduler in effect.
    pub scheduler_seen: String,
    /// The throttling target in effect, in microseconds.
    pub wbt_lat_usec: Option<u64>,
    /// In which order a model disk takes requests: `fifo`, `nearest`.
    pub order: Option<String>,
    /// What the background was at when the launch began.
    pub phase: String,
    /// Memory waiting to be written when it began, in KiB.
    pub dirty_kib: u64,
    /// How long the launched program waited for disks, in milliseconds; `None` without pressure files.
    pub waited_ms: Option<f64>,
    /// Bytes that the disk read for everybody meanwhile.
    pub read_bytes: u64,
    /// Bytes that it wrote for everybody meanwhile.
    pub written_bytes: u64,
    /// Flushes of a model disk meanwhile.
    pub flushes: u64,
    /// Bytes that went out in the idle class since the sample before.
    pub idle_bytes: Option<u64>,
    /// Bytes that went out in another class since then.
    pub other_bytes: Option<u64>,
    /// Which share of the processors other programs used meanwhile, or the host of a virtual machine; `None` where it was not looked at.
    pub others_share: Option<f64>,
    /// How the launched program ended, or `timeout`.
    pub ended: String,
}

impl Sample {
    /// Returns whether other programs used so much of the processors meanwhile that it tells about them.
    #[must_use]
    pub(crate) fn is_disturbed(&self) -> bool {
        self.context.others_share.is_some_and(|share| share > MOST)
    }

    /// Creates one of the current version.
    #[must_use]
    pub fn new(cell: MatrixCell, value: f64, context: Context) -> Sample {
        Sample { format: FORMAT, cell, value, context }
    }
}

/// The file of the samples.
#[derive(Debug)]
pub struct SampleFile {
    path: PathBuf,
    /// `None`: nothing is kept.
    file: Option<File>,
    samples: Vec<Sample>,
}

impl SampleFile {
    /// Opens the file at `path`, made if it is not there, and reads what is in it. A last line that was cut off is cut away.
    ///
    /// # Errors
    ///
    /// It cannot be opened, or a line is none of ours: nothing was changed.
    pub fn open(path: &Path) -> Result<SampleFile, LaunchError> {
        let cannot = |what: &str| step(format!("{what} {}", path.display()));
        let mut options = OpenOptions::new();
        let file = options.read(true).append(true).create(true).open(path);
        let file = file.map_err(cannot("open"))?;
        let (samples, whole) = lines(path, &file)?;
        file.set_len(whole).map_err(cannot("cut"))?;
        Ok(SampleFile { path: path.to_owned(), file: Some(file), samples })
    }

    /// Reads the file at `path`, and neither makes nor changes it. A last line that was cut off is left out.
    ///
    /// # Errors
    ///
    /// It cannot be opened, or a line is none of ours.
    pub fn read(path: &Path) -> Result<SampleFile, LaunchError> {
        let file = File::open(path).map_err(step(format!("open {}", path.display())))?;
        let (samples, _) = lines(path, &file)?;
        Ok(SampleFile { path: path.to_owned(), file: None, samples })
    }

    /// Creates one that is in memory only.
    #[must_use]
    pub fn forgotten() -> SampleFile {
        SampleFile { path: PathBuf::new(), file: None, samples: Vec::new() }
    }

    /// Returns all samples.
    #[must_use]
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// Returns how many samples of `cell` there are.
    #[must_use]
    pub fn count(&self, cell: &MatrixCell) -> usize {
        self.samples.iter().filter(|sample| sample.cell == *cell).count()
    }

    /// Returns how many of them others have disturbed.
    #[must_use]
    pub fn disturbed(&self, cell: &MatrixCell) -> usize {
        let own = self.samples.iter().filter(|sample| sample.cell == *cell);
        own.filter(|sample| sample.is_disturbed()).count()
    }

    /// Appends a sample.
    ///
    /// # Errors
    ///
    /// As `write(2)`: a part of the line may be there, which the next run cuts away.
    pub fn add(&mut self, sample: Sample) -> Result<(), LaunchError> {
        if let Some(file) = &mut self.file {
            let line = serde_json::to_vec(&sample).map_err(io::Error::from);
            let written = line.and_then(|mut line| {
                line.push(b'\n');
                file.write_all(&line)
            });
            written.map_err(step(format!("write {}", self.path.display())))?;
        }
        self.samples.push(sample);
        Ok(())
    }
}

/// Reads the samples of an open file, and returns how many bytes their lines take.
fn lines(path: &Path, file: &File) -> Result<(Vec<Sample>, u64), LaunchError> {
    let mut reader = BufReader::new(file);
    let (mut samples, mut whole) = (Vec::new(), 0);
    let mut text = Vec::new();
    for line in 1.. {
        text.clear();
        let length = reader
            .read_until(b'\n', &mut text)
            .map_err(step(format!("read {}", path.display())))?;
        let is_torn = text.last() != Some(&b'\n');
        if length == 0 || (is_torn && (text.starts_with(START) || START.starts_with(&text))) {
            break;
        }
        let sample: Sample = serde_json::from_slice(&text).map_err(|source| LaunchError::Line {
            path: path.display().to_string(),
            line,
            source,
        })?;
        samples.push(sample);
        whole += u64::try_from(length).unwrap_or(u64::MAX);
    }
    Ok((samples, whole))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::cell::{LoadClass, Measure, Throttling};
    use super::*;

    pub(crate) fn sample(scheduler: &str, class: LoadClass, value: f64) -> Sample {
        let background = if class == LoadClass::Unloaded { "" } else { "tar" };
        let cell = MatrixCell {
            measure: Measure::Launch,
            disk: "model:emmc".to_owned(),
            scheduler: scheduler.to_owned(),
            wbt: Throttling::Default,
            background: background.to_owned(),
            class,
            foreground: "python".to_owned(),
        };
        Sample::new(cell, value, Context { idle_bytes: Some(3), ..Context::default() })
    }

    #[test]
    fn what_was_measured_is_there_again_and_a_torn_line_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("samples.jsonl");
        let mut record = SampleFile::open(&path).unwrap();
        let samples = [sample("none", LoadClass::Run, 712.5), sample("bfq", LoadClass::Plain, 1.0)];
        for sample in &samples {
            record.add(sample.clone()).unwrap();
        }
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"format\":1,\"meas").unwrap();
        let mut record = SampleFile::open(&path).unwrap();
        assert_eq!(record.samples(), samples);
        assert_eq!(record.count(&samples[0].cell), 1);
        record.add(samples[0].clone()).unwrap();
        assert_eq!(SampleFile::open(&path).unwrap().count(&samples[0].cell), 2);
    }

    #[test]
    fn who_only_reads_makes_and_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("samples.jsonl");
        assert!(matches!(SampleFile::read(&path), Err(LaunchError::Step { .. })) && !path.exists());
        SampleFile::open(&path).unwrap().add(sample("none", LoadClass::Run, 1.0)).unwrap();
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"form").unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(SampleFile::read(&path).unwrap().samples().len(), 1);
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
    }

    #[test]
    fn somebody_elses_file_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notes.txt");
        for text in ["dear diary\ntoday", "dear diary", "{}", "{}\n", "[1]\n", "\n", "\u{0}\n"] {
            let mut options = OpenOptions::new();
            let mut file = options.write(true).create(true).truncate(true).open(&path).unwrap();
            file.write_all(text.as_bytes()).unwrap();
            assert!(matches!(SampleFile::open(&path), Err(LaunchError::Line { line: 1, .. })));
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
    }
}
