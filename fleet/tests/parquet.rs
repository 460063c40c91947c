//! `parquet`: rows that stand once, whatever happens in between.

use std::fs;
use std::os::unix::fs::{MetadataExt, lchown, symlink};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt64Type};
use arrow_array::{Array, RecordBatch, new_null_array};
use arrow_schema::{DataType, Field, Schema};
use hangs::model::{
    DiskUse, DiskUser, Hang, HangCause, HangChain, HangHop, HangRecord, ObjectKind,
};
use hangs::store::{EraseSelection, erase};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use unjank_export::identity::RecordSource;
use unjank_export::lake::{ExportTurn, pack_rows};

use crate::fixture::{DAY_NS, Place, SECOND, files, hang, period, refusal, stdout};

fn rows(path: &Path) -> Vec<RecordBatch> {
    let file = fs::File::open(path).unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap();
    reader.map(Result::unwrap).collect()
}

/// The identifiers and lengths of the hangs of a lake.
fn hangs(lake: &Path) -> Vec<(u64, i64)> {
    let mut found = Vec::new();
    for path in files(&lake.join("hangs")) {
        for rows in rows(&path) {
            let ids = rows.column_by_name("id").unwrap().as_primitive::<UInt64Type>();
            let lengths = rows.column_by_name("length_us").unwrap().as_primitive::<Int64Type>();
            found.extend(ids.values().iter().copied().zip(lengths.values().iter().copied()));
        }
    }
    found.sort_unstable();
    found
}

#[test]
fn what_is_erased_while_another_export_runs_is_not_written() {
    let place = Place::new();
    place.record_hangs(1..4);
    let (disk, to) = (store::disk::real(), place.path("lake"));
    let dir = place.path("store");
    let user = rustix::process::geteuid().as_raw();
    let source = RecordSource::find(&*disk, &dir, Some("desk-1"), user).unwrap();
    let turn = ExportTurn::take(&*disk, &to, &source).unwrap();
    let mut second = place.command();
    let second = second.args(["parquet", "--to"]).arg(&to).stdout(Stdio::piped()).spawn().unwrap();
    // It has begun, and waits for its turn.
    let lock = format!("/proc/{}/fd", second.id());
    let waits = || {
        let open =
            std::fs::read_dir(&lock).unwrap().filter_map(|fd| fd.unwrap().path().read_link().ok());
        open.into_iter().any(|path| path.to_string_lossy().ends_with(".lock"))
    };
    while !waits() {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    erase(&*disk, &dir, &EraseSelection::default(), u64::MAX).unwrap();
    drop(turn);
    let said = stdout(&second.wait_with_output().unwrap());
    assert!(said.starts_with("Nothing new: 0 hangs"), "{said}");
}

fn export(place: &Place) -> String {
    stdout(&place.run(&["parquet", "--to", place.path("lake").to_str().unwrap()]))
}

#[test]
fn a_second_run_writes_nothing_and_later_hangs_come_once() {
    let place = Place::new();
    place.record_hangs(1..8);
    place.record(&[HangRecord::Watched(period(DAY_NS))]);
    assert!(export(&place).starts_with("7 hangs, 7 of them new: 3 files written"));
    let before: Vec<_> = files(&place.path("lake")).iter().map(|p| fs::read(p).unwrap()).collect();
    assert!(export(&place).starts_with("Nothing new: 7 hangs"));
    let after: Vec<_> = files(&place.path("lake")).iter().map(|p| fs::read(p).unwrap()).collect();
    assert_eq!(before, after);
    place.record_hangs(8..12);
    place.record(&[HangRecord::Hang(Box::new(hang(12, DAY_NS + 86_400 * SECOND)))]);
    assert!(export(&place).starts_with("12 hangs, 5 of them new: 2 files"));
    let found = hangs(&place.path("lake"));
    let mut ids: Vec<u64> = found.iter().map(|(id, _)| *id).collect();
    ids.dedup();
    assert_eq!((found.len(), ids.len()), (12, 12));
    assert!(place.path("lake/hangs/day=2026-11-25").is_dir());
}

#[test]
fn a_hang_that_goes_on_is_replaced_by_its_end() {
    let place = Place::new();
    let mut long = hang(1, DAY_NS);
    (long.goes_on, long.length_ns) = (true, SECOND);
    place.record(&[HangRecord::Hang(Box::new(long.clone()))]);
    export(&place);
    (long.goes_on, long.length_ns) = (false, 3 * SECOND);
    place.record(&[HangRecord::Hang(Box::new(long))]);
    assert!(export(&place).starts_with("1 hang, 1 of them new"));
    let lengths: Vec<i64> = hangs(&place.path("lake")).iter().map(|(_, length)| *length).collect();
    assert_eq!(lengths, [3_000_000]);
}

#[test]
fn what_the_store_has_dropped_stays() {
    let place = Place::new();
    place.record_hangs(1..5);
    place.record(&[
        HangRecord::Watched(period(DAY_NS)),
        HangRecord::Watched(period(DAY_NS + SECOND)),
    ]);
    export(&place);
    // The salt stays, the oldest file goes.
    fs::remove_file(place.path("store/00000001.hangs")).unwrap();
    fs::write(place.path("store/00000002.hangs"), b"").unwrap();
    place.record(&[
        HangRecord::Hang(Box::new(hang(5, DAY_NS + 100 * SECOND))),
        HangRecord::Watched(period(DAY_NS + 99 * SECOND)),
    ]);
    export(&place);
    assert_eq!(hangs(&place.path("lake")).len(), 5);
    let watched = rows(&files(&place.path("lake/watched"))[0]);
    let column = watched[0].column_by_name("watched_us").unwrap();
    assert_eq!(column.as_primitive::<Int64Type>().values(), &[120_000_000, 120_000_000]);
}

#[test]
fn a_damaged_file_is_named_and_stays() {
    let place = Place::new();
    place.record_hangs(1..3);
    export(&place);
    let file = files(&place.path("lake/hangs")).remove(0);
    let whole = fs::read(&file).unwrap();
    place.record_hangs(3..4);
    let mut random = fastrand::Rng::with_seed(7);
    for round in 0..60 {
        let mut bytes = whole.clone();
        match round {
            0 => bytes.clear(),
            1 => bytes = b"some other file".to_vec(),
            _ if round % 2 == 0 => bytes.truncate(random.usize(1..bytes.len())),
            _ => (0..8).for_each(|_| bytes[random.usize(whole.len() * 3 / 4..whole.len())] ^= 0xa5),
        }
        fs::write(&file, &bytes).unwrap();
        let output = place.run(&["parquet", "--to", place.path("lake").to_str().unwrap()]);
        assert!(!output.status.success(), "round {round}: {output:?}");
        let said = refusal(&output);
        assert!(said.starts_with("unjank-export: ") && said.contains("stays as it is"), "{said}");
        assert!(!said.contains("panicked"), "{said}");
        assert_eq!(fs::read(&file).unwrap(), bytes, "round {round}");
    }
    fs::write(&file, &whole).unwrap();
    export(&place);
    assert_eq!(hangs(&place.path("lake")).len(), 3);
}

#[test]
fn damaged_bytes_anywhere_end_no_export_with_a_panic() {
    let place = Place::new();
    place.record_hangs(1..40);
    export(&place);
    let file = files(&place.path("lake/hangs")).remove(0);
    let whole = fs::read(&file).unwrap();
    place.record_hangs(40..41);
    let mut random = fastrand::Rng::with_seed(11);
    for round in 0..400 {
        let mut bytes = whole.clone();
        (0..random.usize(1..4)).for_each(|_| bytes[random.usize(0..whole.len())] = random.u8(..));
        fs::write(&file, &bytes).unwrap();
        let output = place.run(&["parquet", "--to", place.path("lake").to_str().unwrap()]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!said.contains("panicked"), "round {round}: {said}");
        if bytes != whole {
            assert_eq!(output.status.code(), Some(2), "round {round}");
            assert_eq!(fs::read(&file).unwrap(), bytes, "round {round}");
        }
    }
}

#[test]
fn a_link_of_another_user_is_not_followed_and_an_own_one_is() {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        eprintln!("skipped: only root makes links of another user");
        return;
    }
    let place = Place::new();
    place.record_hangs(1..3);
    export(&place);
    let lake = place.path("lake");
    let stacks = files(&lake.join("stacks")).remove(0);
    let links = [lake.join("stacks"), stacks, lake.join("hangs/day=2026-11-24")];
    for link in links {
        for (owner, target) in [(65_534, "missing"), (65_534, "elsewhere"), (0, "elsewhere")] {
            fs::remove_dir_all(&lake).unwrap();
            fs::create_dir_all(link.parent().unwrap()).unwrap();
            let elsewhere = place.path(target);
            if target == "elsewhere" && link.extension().is_none() {
                fs::create_dir_all(&elsewhere).unwrap();
            }
            symlink(&elsewhere, &link).unwrap();
            lchown(&link, Some(owner), None).unwrap();
            let output = place.run(&["parquet", "--to", lake.to_str().unwrap()]);
            if owner == 0 {
                stdout(&output);
                fs::remove_dir_all(&elsewhere).or_else(|_| fs::remove_file(&elsewhere)).unwrap();
                continue;
            }
            let said = refusal(&output);
            assert!(said.contains("it is a symbolic link of another user"), "{said}");
            let is_empty = !elsewhere.exists() || files(&elsewhere).is_empty();
            assert!(is_empty, "{link:?} was followed");
        }
    }
}

#[test]
fn a_huge_file_is_not_loaded() {
    let place = Place::new();
    place.record_hangs(1..3);
    export(&place);
    let file = files(&place.path("lake/hangs")).remove(0);
    place.record_hangs(3..4);
    let huge = fs::File::options().write(true).open(&file).unwrap();
    huge.set_len(1 << 40).unwrap();
    let said = refusal(&place.run(&["parquet", "--to", place.path("lake").to_str().unwrap()]));
    assert!(said.contains("stays as it is") && said.contains("file too large"), "{said}");
    assert_eq!(huge.metadata().unwrap().len(), 1 << 40);
}

#[test]
fn what_cannot_be_read_or_written_is_an_error_with_a_hint() {
    let place = Place::new();
    let lake = place.path("lake");
    let output = place.run(&["parquet", "--to", lake.to_str().unwrap()]);
    let said = refusal(&output);
    assert!(said.contains("No such file") && said.contains("hint: "), "{said}");
    assert!(!lake.exists());
    place.record_hangs(1..2);
    fs::write(&lake, "a file").unwrap();
    let said = refusal(&place.run(&["parquet", "--to", lake.to_str().unwrap()]));
    assert!(said.contains("cannot use"), "{said}");
    let mut command = place.command();
    command.args(["--machine", "a/../b", "parquet", "--to"]).arg(place.path("other"));
    refusal(&command.output().unwrap());
}

#[test]
fn a_row_has_what_the_store_has_and_a_path_that_is_excluded_stays_a_hash() {
    let place = Place::new();
    place.record_hangs(1..2);
    export(&place);
    let rows = rows(&files(&place.path("lake/hangs"))[0]).remove(0);
    let text = |name: &str| {
        let column = rows.column_by_name(name).unwrap();
        column.as_string::<i32>().value(0).to_owned()
    };
    let names = ["machine", "program", "unit", "cause", "call", "object", "device", "function"];
    let expected = [
        "desk-1",
        "nautilus",
        "app-nautilus.scope",
        "sync",
        "fsync",
        "excluded:0011223344556677",
        "vda2",
        "save_notes",
    ];
    assert_eq!(names.map(text), expected);
    assert!(!place.path("lake/facts").exists(), "facts are written only for --facts");
    let stacks = self::rows(&files(&place.path("lake/stacks"))[0]).remove(0);
    let hash = |rows: &RecordBatch| {
        let column = rows.column_by_name("stack").unwrap();
        assert!(column.is_valid(0));
        column.as_primitive::<UInt64Type>().value(0)
    };
    assert_eq!(hash(&rows), hash(&stacks));
    let said = stdout(&place.run(&[
        "parquet",
        "--facts",
        "--fact",
        "nautilus=43.2-1",
        "--to",
        place.path("lake").to_str().unwrap(),
    ]));
    assert!(said.starts_with("1 hang, 0 of them new: 1 file written"), "{said}");
    refusal(&place.run(&["parquet", "--fact", "wrong", "--to", "x"]));
}

#[test]
fn a_fact_is_written_once_and_what_is_typed_holds_before_a_file() {
    let place = Place::new();
    place.record_hangs(1..2);
    let file = place.path("facts");
    fs::write(&file, "nautilus=43.2-1\nkernel=mine\ndesktop=GNOME\n").unwrap();
    let mut command = place.command();
    command.args(["parquet", "--facts", "--fact", "nautilus=44.0-1", "--facts-from"]).arg(&file);
    stdout(&command.arg("--to").arg(place.path("lake")).output().unwrap());
    let rows = rows(&files(&place.path("lake/facts"))[0]).remove(0);
    let column = |name: &str| {
        let column = rows.column_by_name(name).unwrap().as_string::<i32>();
        column.iter().map(|text| text.unwrap().to_owned()).collect::<Vec<_>>()
    };
    let all: Vec<(String, String)> = column("name").into_iter().zip(column("value")).collect();
    let values = |meant: &str| -> Vec<&str> {
        all.iter().filter(|(name, _)| name == meant).map(|(_, value)| &**value).collect()
    };
    assert_eq!(values("nautilus"), ["44.0-1"]);
    assert_eq!(values("kernel"), ["mine"]);
    assert_eq!(values("desktop"), ["GNOME"]);
    assert_eq!(values("system").len(), 1);
}

#[test]
fn a_verdict_says_that_a_part_of_the_store_was_not_read() {
    let place = Place::new();
    place.record_hangs(1..3);
    fs::write(place.path("store/00000009.hangs"), [7; 4096]).unwrap();
    let lake = place.path("lake");
    let to = lake.to_str().unwrap();
    let limit = "as far as the store can be read.\n";
    let verdicts = [&["parquet", "--to", to][..], &["parquet", "--to", to]];
    for arguments in verdicts {
        let output = place.run(arguments);
        assert!(stdout(&output).ends_with(limit), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).starts_with("Not read: "), "{output:?}");
    }
    let output = place.run(&["otlp", "--dry-run", "--to", "http://127.0.0.1:9"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("as far as the store can be read; nothing was."), "{said}");
    let text = stdout(&place.run(&["openmetrics", "--print"]));
    assert!(text.contains("\nunjank_store_whole 0\n"), "{text}");
}

#[test]
fn the_parts_of_a_hang_are_those_of_its_json() {
    use hangs::json::HangDocument;
    use unjank_export::tables::{PART_NAMES, part_times};
    let mut hang = hang(1, DAY_NS);
    let numbers = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
    let json = PART_NAMES
        .iter()
        .zip(numbers)
        .map(|(name, number)| (format!("{name}_ns"), serde_json::Value::from(number)));
    let json = serde_json::Value::Object(json.collect());
    hang.parts = serde_json::from_value(json.clone()).unwrap();
    assert_eq!(part_times(&hang), numbers);
    assert_eq!(serde_json::to_value(HangDocument::of(&hang)).unwrap()["parts"], json);
}

/// A hang with all that the store has of it.
pub(crate) fn followed_hang(number: u64) -> Hang {
    let hop = |program: &str, process, waited_ns| HangHop {
        program: program.to_owned(),
        process,
        unit: String::new(),
        call: "read".to_owned(),
        function: String::new(),
        waited_ns,
    };
    let mut followed = hang(number, DAY_NS + number * SECOND);
    followed.chain = Some(HangChain {
        hops: vec![
            hop("nautilus", 4711, 240_000_000),
            hop("dbus-daemon", 12, 239_000_000),
            hop("gvfsd", 13, 230_000_000),
        ],
        end: "disk".to_owned(),
        end_ns: 230_000_000,
        has_losses: false,
    });
    let user =
        DiskUser { program: "tar".to_owned(), process: 9, read_bytes: 4096, written_bytes: 8192 };
    let programs = vec![user];
    followed.disk_use = Some(DiskUse {
        counted_ns: 1,
        read_bytes: 20_000,
        written_bytes: 1,
        programs,
        ..DiskUse::default()
    });
    followed
}

#[test]
fn rows_of_an_earlier_version_stay_and_those_of_a_later_one_are_not_touched() {
    let place = Place::new();
    place.record_hangs(1..3);
    export(&place);
    let file = files(&place.path("lake/hangs")).remove(0);
    // As before the chains of hangs were written.
    let new = rows(&file).remove(0);
    let names =
        ["waited_for", "chain", "chain_end", "disk_kib", "disk_program", "disk_program_kib"];
    let is_old = |at: &usize| !names.contains(&new.schema().field(*at).name().as_str());
    let kept: Vec<usize> = (0..new.num_columns()).filter(is_old).collect();
    assert_eq!(kept.len() + names.len(), new.num_columns());
    fs::write(&file, pack_rows(&new.project(&kept).unwrap()).unwrap()).unwrap();
    place.record(&[HangRecord::Hang(Box::new(followed_hang(3)))]);
    assert!(export(&place).starts_with("3 hangs, 1 of them new"));
    let joined = rows(&file).remove(0);
    assert_eq!((joined.num_rows(), joined.schema()), (3, new.schema()));
    let column = |name: &str| joined.column_by_name(name).unwrap();
    assert!(names.iter().all(|name| column(name).null_count() == 2), "{joined:?}");
    let text = |name| column(name).as_string::<i32>().value(2).to_owned();
    let told = ["waited_for", "chain_end", "disk_program"].map(text);
    assert_eq!(told, ["gvfsd", "disk", "tar"]);
    let number = |name| column(name).as_primitive::<Int64Type>().value(2);
    assert_eq!(["disk_kib", "disk_program_kib"].map(number), [19, 12]);
    let hops = column("chain").as_list::<i32>().value(2);
    let hops = hops.as_struct();
    let programs = hops.column_by_name("program").unwrap().as_string::<i32>();
    let waits = hops.column_by_name("waited_us").unwrap().as_primitive::<Int64Type>();
    assert_eq!(programs.iter().flatten().collect::<Vec<_>>(), ["dbus-daemon", "gvfsd"]);
    assert_eq!(waits.values(), &[239_000, 230_000]);

    let mut fields = joined.schema().fields().to_vec();
    fields.push(Arc::new(Field::new("of_a_later_version", DataType::Utf8, true)));
    let mut columns = joined.columns().to_vec();
    columns.push(new_null_array(&DataType::Utf8, 3));
    let later = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap();
    let later = pack_rows(&later).unwrap();
    fs::write(&file, &later).unwrap();
    place.record_hangs(4..5);
    let said = refusal(&place.run(&["parquet", "--to", place.path("lake").to_str().unwrap()]));
    assert!(said.contains("has other columns"), "{said}");
    assert_eq!(fs::read(&file).unwrap(), later);
}

#[test]
fn the_program_at_the_other_end_of_a_socket_is_waited_for_where_no_chain_says_more() {
    let place = Place::new();
    let mut asks = hang(1, DAY_NS);
    asks.cause = HangCause::OtherProgram;
    let object = asks.calls[0].object.as_mut().unwrap();
    object.kind = ObjectKind::Socket;
    object.name = "pipewire (912) at /run/user/1000/pipewire-0".to_owned();
    asks.calls[0].call = "poll".to_owned();
    place.record(&[HangRecord::Hang(Box::new(asks))]);
    export(&place);
    let rows = rows(&files(&place.path("lake/hangs"))[0]).remove(0);
    let column = rows.column_by_name("waited_for").unwrap();
    assert_eq!(column.as_string::<i32>().value(0), "pipewire");
}
