//! Files of rows in a directory: one for each source and day, replaced as a whole, in which no row stands twice.
//!
//! The rows of a day are joined with those that are there already: the recorder's store is bounded, and what it has
//! dropped stays in the file.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt64Type};
use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch, new_null_array};
use arrow_schema::{ArrowError, Field, Schema};
use arrow_select::concat::concat_batches;
use arrow_select::filter::filter_record_batch;
use bytes::Bytes;
use hangs::model::Hang;
use hangs::store::StoredHistory;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{WriterProperties, WriterVersion};
use parquet::schema::types::ColumnPath;
use store::disk::{Disk, FileLock};
use store::publish::{PublishError, make_directory, publish};

use crate::facts::Fact;
use crate::identity::{RecordSource, hash_parts, hash_stack};
use crate::tables::{self, HashedStack, WatchedDay};

/// How long a second export of the same user waits for the first.
const PATIENCE: Duration = Duration::from_secs(10);

/// The most bytes of text of one export in a file: those of a column are counted in 31 bits.
const MOST_TEXT: usize = i32::MAX as usize;

/// The most bytes of memory that the rows of a file may take.
const MOST_MEMORY: usize = 2 * MOST_TEXT;

/// Stands before the checksum in the description of a file: the pages of Parquet have none that is written.
const CHECKSUM: &str = "unjank-export:";

/// Why rows were not written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LakeError {
    /// Nothing was changed.
    #[error("cannot use {path:?}")]
    Unusable {
        /// The directory or file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another export of the same records runs; nothing was changed.
    #[error("another export writes the same files into {path:?}")]
    Busy {
        /// The directory.
        path: PathBuf,
    },
    /// The file stays as it is; those before it in the order stacks, facts, watched, hangs may be new.
    #[error("cannot read {path:?}, which stays as it is")]
    NotRead {
        /// The file.
        path: PathBuf,
        /// Why.
        source: ParquetError,
    },
    /// The file has other columns, such as those of another version, and stays as it is.
    #[error("{path:?} has other columns than this version writes, and stays as it is")]
    OtherColumns {
        /// The file.
        path: PathBuf,
    },
    /// The error says which file is in place; those before it in the order stacks, facts, watched, hangs may be new.
    #[error("cannot write {path:?}")]
    NotWritten {
        /// The file.
        path: PathBuf,
        /// Why.
        source: PublishError,
    },
    /// The file stays as it is; those before it in the order stacks, facts, watched, hangs may be new.
    #[error("the rows for {path:?} have more than 2 GiB of text")]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// A fault of ours; nothing was changed.
    #[error("cannot make rows")]
    Rows(#[from] ArrowError),
    /// A fault of ours; nothing was changed.
    #[error("cannot pack rows")]
    Packing(#[from] ParquetError),
}

/// What an export has done.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct LakeOutcome {
    /// Hangs in the store.
    pub hangs: usize,
    /// Those that are new in the directory, or longer than before.
    pub new_hangs: usize,
    /// Files that were written.
    pub files: usize,
}

/// The four tables.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Table {
    Hangs,
    Stacks,
    Watched,
    Facts,
}

impl Table {
    fn folder(self) -> &'static str {
        match self {
            Table::Hangs => "hangs",
            Table::Stacks => "stacks",
            Table::Watched => "watched",
            Table::Facts => "facts",
        }
    }

    /// Returns for each row what it is about, and its rank: of two rows about the same, the one with the higher rank stays.
    fn keys(self, rows: &RecordBatch) -> Option<Vec<(u64, i64)>> {
        let column = |name: &str| rows.column_by_name(name);
        let number = |name| column(name)?.as_primitive_opt::<UInt64Type>();
        let time = |name| column(name)?.as_primitive_opt::<Int64Type>();
        let text = |name| column(name)?.as_string_opt::<i32>();
        let all = 0..rows.num_rows();
        Some(match self {
            Table::Hangs => {
                let (ids, lengths) = (number("id")?, time("length_us")?);
                let goes_on = column("goes_on")?.as_boolean_opt()?;
                let rank = |at| {
                    lengths.value(at).saturating_mul(2).saturating_add((!goes_on.value(at)).into())
                };
                all.map(|at| (ids.value(at), rank(at))).collect()
            }
            Table::Stacks => {
                let stacks = number("stack")?;
                all.map(|at| (stacks.value(at), 0)).collect()
            }
            Table::Watched => {
                let (programs, recorder) = (text("program")?, time("recorder_us")?);
                let watched = time("watched_us")?;
                let key = |at| match programs.is_null(at) {
                    true => 0,
                    false => hash_parts(&[programs.value(at).as_bytes()]),
                };
                let rank = |at: usize| recorder.value(at).saturating_add(watched.value(at));
                all.map(|at| (key(at), rank(at))).collect()
            }
            Table::Facts => {
                let (names, values) = (text("name")?, text("value")?);
                let parts = |at| [names.value(at).as_bytes(), values.value(at).as_bytes()];
                all.map(|at| (hash_parts(&parts(at)), 0)).collect()
            }
        })
    }
}

/// Joins new rows with those of a file. Returns all rows, and how many are new or better, or nothing if none is.
fn join_rows(
    table: Table,
    old: Option<RecordBatch>,
    new: RecordBatch,
) -> Result<Option<(RecordBatch, usize)>, ArrowError> {
    let keys = |rows: &RecordBatch| {
        let missing = || ArrowError::SchemaError("a column is missing".to_owned());
        table.keys(rows).ok_or_else(missing)
    };
    let Some(old) = old else {
        let count = new.num_rows();
        return Ok((count > 0).then_some((new, count)));
    };
    let (old_keys, new_keys) = (keys(&old)?, keys(&new)?);
    let ranks: HashMap<u64, i64> = old_keys.iter().copied().collect();
    let is_better = |(key, rank): &(u64, i64)| ranks.get(key).is_none_or(|known| rank > known);
    let taken: BooleanArray = new_keys.iter().map(|key| Some(is_better(key))).collect();
    let count = taken.true_count();
    if count == 0 {
        return Ok(None);
    }
    let replaced: HashSet<u64> =
        new_keys.iter().filter(|key| is_better(key)).map(|(key, _)| *key).collect();
    let kept: BooleanArray =
        old_keys.iter().map(|(key, _)| Some(!replaced.contains(key))).collect();
    let parts = [filter_record_batch(&old, &kept)?, filter_record_batch(&new, &taken)?];
    Ok(Some((concat_batches(&new.schema(), &parts)?, count)))
}

/// Returns the bytes of a file with these rows.
///
/// # Errors
///
/// The rows cannot be packed, which is a fault of ours.
pub fn pack_rows(rows: &RecordBatch) -> Result<Vec<u8>, ParquetError> {
    let random = |name: &str| ColumnPath::from(vec![name.to_owned()]);
    let properties = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_2_0)
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(9)?))
        // Hashes and moments repeat too seldom for a dictionary.
        .set_column_dictionary_enabled(random("id"), false)
        .set_column_dictionary_enabled(random("started"), false)
        .set_column_encoding(random("started"), Encoding::DELTA_BINARY_PACKED)
        .set_created_by("unjank-export".to_owned())
        .build();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, rows.schema(), Some(properties))?;
    writer.write(rows)?;
    let place = format!("{CHECKSUM}{:016x}", 0);
    writer.append_key_value_metadata(KeyValue::new("checksum".to_owned(), place));
    writer.close()?;
    let (at, hash) = checksum(&bytes).ok_or_else(damaged)?;
    bytes[at..at + hash.len()].copy_from_slice(hash.as_bytes());
    Ok(bytes)
}

fn damaged() -> ParquetError {
    ParquetError::General("it is damaged, or another program wrote it".to_owned())
}

/// Returns where the checksum of a file stands, and which one it has to be: that of the bytes with zeros in its place.
fn checksum(bytes: &[u8]) -> Option<(usize, String)> {
    let at = bytes.windows(CHECKSUM.len()).rposition(|part| part == CHECKSUM.as_bytes())?;
    let at = at + CHECKSUM.len();
    let (before, rest) = bytes.split_at(at);
    let (_, after) = rest.split_at_checked(16)?;
    Some((at, format!("{:016x}", hash_parts(&[before, after]))))
}

/// Reads the rows of a file that is as it was written. The reader of Parquet panics on some bytes, and takes others as they are.
///
/// What takes more than `most` bytes in memory is not read to its end: a small file can hold one value billions of times.
fn read_rows(disk: &dyn Disk, path: &Path, most: usize) -> Result<Vec<RecordBatch>, ParquetError> {
    // Also where others put something else there meanwhile, or made it huge.
    let bytes = disk.read(path)?;
    let (at, hash) = checksum(&bytes).ok_or_else(damaged)?;
    if bytes.get(at..at + hash.len()) != Some(hash.as_bytes()) {
        return Err(damaged());
    }
    let reader = ParquetRecordBatchReaderBuilder::try_new(Bytes::from(bytes))?.build()?;
    let (mut all, mut length) = (Vec::new(), 0_usize);
    for rows in reader {
        let rows = rows?;
        length = length.saturating_add(rows.get_array_memory_size());
        if length > most {
            return Err(ParquetError::General("its rows take too much memory".to_owned()));
        }
        all.push(rows);
    }
    Ok(all)
}

/// Returns rows with the columns of a schema. What an earlier version did not write is null in them. Nothing, if a column is missing
/// that cannot be, or there is another one: nobody may drop what a later version wrote.
fn complete(rows: &RecordBatch, schema: &Arc<Schema>) -> Option<RecordBatch> {
    let known = rows.schema();
    let is_ours = |field: &Arc<Field>| schema.fields().iter().any(|ours| ours == field);
    if !known.fields().iter().all(is_ours) {
        return None;
    }
    let column = |field: &Arc<Field>| match rows.column_by_name(field.name()) {
        Some(column) => Some(Arc::clone(column)),
        None => field.is_nullable().then(|| new_null_array(field.data_type(), rows.num_rows())),
    };
    let columns = schema.fields().iter().map(column).collect::<Option<Vec<ArrayRef>>>()?;
    // The description of a file that was read says more than ours, which counts.
    RecordBatch::try_new(Arc::clone(schema), columns).ok()
}

/// A directory that takes the rows of one source.
struct Lake<'a> {
    disk: &'a dyn Disk,
    dir: &'a Path,
    stem: String,
    files: usize,
}

impl Lake<'_> {
    fn path(&self, table: Table, day: Option<&str>) -> PathBuf {
        let folder = self.dir.join(table.folder());
        let folder = match day {
            Some(day) => folder.join(format!("day={day}")),
            None => folder,
        };
        folder.join(format!("{}.parquet", self.stem))
    }

    /// Puts rows into the file of a table and day. Returns how many are new.
    fn put(
        &mut self,
        table: Table,
        day: Option<&str>,
        new: RecordBatch,
    ) -> Result<usize, LakeError> {
        let path = self.path(table, day);
        let old = self.old_rows(&path, &new)?;
        let Some((rows, count)) = join_rows(table, old, new)? else { return Ok(0) };
        let image = pack_rows(&rows)?;
        publish(self.disk, &path, &image)
            .map_err(|source| LakeError::NotWritten { path, source })?;
        self.files += 1;
        Ok(count)
    }

    /// Refuses rows with more text than a column holds.
    fn check_text(
        &self,
        table: Table,
        day: Option<&str>,
        lengths: impl Iterator<Item = usize>,
    ) -> Result<(), LakeError> {
        let total = lengths.fold(0, usize::saturating_add);
        if total > MOST_TEXT {
            return Err(LakeError::TooLarge { path: self.path(table, day) });
        }
        Ok(())
    }

    /// Refuses to follow a link of another user below the directory: it would choose where files of ours come to be.
    fn check_links(&self, path: &Path) -> Result<(), LakeError> {
        let own = [rustix::process::geteuid().as_raw(), 0];
        let below = path.ancestors().take_while(|part| *part != self.dir);
        for part in below {
            let about = match part.symlink_metadata() {
                Ok(about) => about,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(source) => return Err(LakeError::Unusable { path: part.to_owned(), source }),
            };
            if about.is_symlink() && !own.contains(&about.uid()) {
                let source = io::Error::other("it is a symbolic link of another user");
                return Err(LakeError::Unusable { path: part.to_owned(), source });
            }
        }
        Ok(())
    }

    /// Reads the rows that are there, which have the columns of the new ones.
    fn old_rows(&self, path: &Path, new: &RecordBatch) -> Result<Option<RecordBatch>, LakeError> {
        self.check_links(path)?;
        match self.disk.stat(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(LakeError::Unusable { path: path.to_owned(), source }),
            Ok(stat) if !stat.is_file() => {
                let source = io::Error::other("it is not a regular file");
                return Err(LakeError::Unusable { path: path.to_owned(), source });
            }
            Ok(_) => {}
        }
        let old = read_rows(self.disk, path, MOST_MEMORY)
            .map_err(|source| LakeError::NotRead { path: path.to_owned(), source })?;
        let completed = old.iter().map(|rows| complete(rows, &new.schema()));
        let Some(completed) = completed.collect::<Option<Vec<RecordBatch>>>() else {
            return Err(LakeError::OtherColumns { path: path.to_owned() });
        };
        Ok(Some(concat_batches(&new.schema(), &completed)?))
    }
}

/// Returns the day of a moment in UTC.
#[must_use]
pub fn day_of(unix_ns: u64) -> String {
    let moment = Timestamp::from_nanosecond(i128::from(unix_ns)).unwrap_or(Timestamp::MAX);
    moment.to_zoned(TimeZone::UTC).date().to_string()
}

/// Adds up for how long programs were watched on each day.
fn watched_by_day(stored: &StoredHistory) -> BTreeMap<String, Vec<WatchedDay>> {
    // A record may have a program without a name, which is not the recorder itself.
    let mut days: BTreeMap<String, BTreeMap<Option<&str>, WatchedDay>> = BTreeMap::new();
    for period in &stored.periods {
        let day = days.entry(day_of(period.from_ns)).or_default();
        let total = day.entry(None).or_default();
        total.recorder_ns = total.recorder_ns.saturating_add(period.recorder_ns);
        total.watched_ns = total.watched_ns.saturating_add(period.watched_ns);
        total.lost = total.lost.saturating_add(period.lost.into());
        for program in &period.programs {
            let row = day.entry(Some(&program.program)).or_default();
            row.program = Some(program.program.clone());
            row.watched_ns = row.watched_ns.saturating_add(program.watched_ns);
            for (own, other) in row.steps.iter_mut().zip(program.steps.0) {
                *own = own.saturating_add(other);
            }
        }
    }
    days.into_iter().map(|(day, rows)| (day, rows.into_values().collect())).collect()
}

/// The right to export the records of a source into a directory, which is given up when the value is dropped.
///
/// What was read before it was taken may have been erased meanwhile.
pub struct ExportTurn<'a> {
    disk: &'a dyn Disk,
    dir: &'a Path,
    source: &'a RecordSource,
    _lock: Box<dyn FileLock>,
}

impl<'a> ExportTurn<'a> {
    /// Waits for another export into `dir`, which is made if it is missing.
    ///
    /// # Errors
    ///
    /// [`LakeError::Unusable`] and [`LakeError::Busy`].
    pub fn take(
        disk: &'a dyn Disk,
        dir: &'a Path,
        source: &'a RecordSource,
    ) -> Result<ExportTurn<'a>, LakeError> {
        let unusable = |path: &Path| {
            let path = path.to_owned();
            move |source| LakeError::Unusable { path, source }
        };
        make_directory(disk, dir).map_err(unusable(dir))?;
        let lock = dir.join(format!(".{}.lock", source.file_stem()));
        match disk.own(&lock, PATIENCE).map_err(unusable(&lock))? {
            Some(lock) => Ok(ExportTurn { disk, dir, source, _lock: lock }),
            None => Err(LakeError::Busy { path: dir.to_owned() }),
        }
    }
}

impl fmt::Debug for ExportTurn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExportTurn").field("dir", &self.dir).finish_non_exhaustive()
    }
}

/// Writes what a store holds into the directory. What is there already stays, and nothing stands there twice.
///
/// A row is written after the stack that it names. `facts` are those of now.
///
/// # Errors
///
/// [`LakeError`]; each file is the old or the new one.
pub fn export(
    turn: &ExportTurn<'_>,
    stored: &StoredHistory,
    facts: &[Fact],
) -> Result<LakeOutcome, LakeError> {
    let ExportTurn { disk, dir, source, .. } = *turn;
    let mut lake = Lake { disk, dir, stem: source.file_stem(), files: 0 };
    let mut outcome = LakeOutcome { hangs: stored.hangs.len(), ..LakeOutcome::default() };

    let mut stacks: BTreeMap<u64, HashedStack<'_>> = BTreeMap::new();
    let mut hangs: BTreeMap<String, Vec<&Hang>> = BTreeMap::new();
    for hang in stored.hangs.values() {
        if let Some(hash) = hash_stack(&hang.frames, hang.blamed) {
            stacks.entry(hash).or_insert((hash, hang.blamed, &hang.frames));
        }
        hangs.entry(day_of(hang.started_ns)).or_default().push(hang);
    }
    let stacks: Vec<HashedStack<'_>> = stacks.into_values().collect();
    let frames = stacks.iter().flat_map(|(_, _, frames)| *frames);
    let lengths = frames.map(|frame| frame.function.len() + frame.module.len());
    lake.check_text(Table::Stacks, None, lengths)?;
    lake.put(Table::Stacks, None, tables::stack_rows(&stacks)?)?;
    let mut facts_by_day: BTreeMap<String, Vec<Fact>> = BTreeMap::new();
    for fact in facts {
        facts_by_day.entry(day_of(fact.seen_ns)).or_default().push(fact.clone());
    }
    for (day, facts) in facts_by_day {
        lake.put(Table::Facts, Some(&day), tables::fact_rows(source, &facts)?)?;
    }
    for (day, watched) in watched_by_day(stored) {
        let lengths = watched.iter().map(|row| row.program.as_ref().map_or(0, String::len));
        lake.check_text(Table::Watched, Some(&day), lengths)?;
        lake.put(Table::Watched, Some(&day), tables::watched_rows(source, &watched)?)?;
    }
    for (day, mut hangs) in hangs {
        let lengths = hangs.iter().map(|hang| tables::text_bytes(hang));
        lake.check_text(Table::Hangs, Some(&day), lengths)?;
        // Rows that are alike lie beside each other.
        hangs.sort_by_key(|hang| (&hang.program, hang.started_ns));
        outcome.new_hangs +=
            lake.put(Table::Hangs, Some(&day), tables::hang_rows(source, &hangs)?)?;
    }
    outcome.files = lake.files;
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_text_than_a_column_holds_is_refused_by_the_name_of_the_file() {
        let (disk, dir) = (store::disk::real(), Path::new("/lake"));
        let lake = Lake { disk: &*disk, dir, stem: "a".to_owned(), files: 0 };
        lake.check_text(Table::Stacks, None, [MOST_TEXT].into_iter()).unwrap();
        let more = lake.check_text(Table::Stacks, None, [MOST_TEXT, 1].into_iter());
        let said = more.unwrap_err().to_string();
        assert!(said.contains("/lake/stacks/a.parquet") && said.contains("2 GiB"), "{said}");
    }

    #[test]
    fn a_small_file_with_many_rows_is_not_read_to_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let (disk, path) = (store::disk::real(), dir.path().join("a.parquet"));
        let texts = arrow_array::StringArray::from_iter_values(vec!["x".repeat(1000); 20_000]);
        let columns: Vec<(&str, arrow_array::ArrayRef)> = vec![("program", Arc::new(texts))];
        let image = pack_rows(&RecordBatch::try_from_iter(columns).unwrap()).unwrap();
        assert!(image.len() < 10_000, "{}", image.len());
        publish(&*disk, &path, &image).unwrap();
        let count = |rows: Vec<RecordBatch>| rows.iter().map(RecordBatch::num_rows).sum::<usize>();
        assert_eq!(read_rows(&*disk, &path, MOST_MEMORY).map(count).unwrap(), 20_000);
        let said = read_rows(&*disk, &path, 10 << 20).unwrap_err().to_string();
        assert!(said.contains("too much memory"), "{said}");
    }

    #[test]
    fn a_hang_of_a_file_that_never_ends_has_a_rank() {
        let columns: Vec<(&str, arrow_array::ArrayRef)> = vec![
            ("id", Arc::new(arrow_array::UInt64Array::from(vec![1]))),
            ("length_us", Arc::new(arrow_array::Int64Array::from(vec![i64::MAX]))),
            ("goes_on", Arc::new(BooleanArray::from(vec![false]))),
        ];
        let rows = RecordBatch::try_from_iter(columns).unwrap();
        assert_eq!(Table::Hangs.keys(&rows), Some(vec![(1, i64::MAX)]));
    }
}
