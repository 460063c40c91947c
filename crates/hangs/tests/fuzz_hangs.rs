//! Replays the body of the fuzz target over the committed corpus, and over small changes to it.

#[path = "../../../fuzz/src/hangs.rs"]
#[expect(unreachable_pub, reason = "the file belongs to another crate")]
mod bodies;
#[path = "../../../fuzz/replay.rs"]
#[expect(unreachable_pub, reason = "the file belongs to several tests")]
mod replay;

use std::fs;
use std::sync::Arc;

use replay::{corpus, replay};
use unjank_hangs::codec::{HangRecordError, MAX_FRAMES, MAX_TEXT, decode, encode};
use unjank_hangs::model::{
    CallObject, CallShare, CountedProcesses, DiskUse, DiskUser, Hang, HangCause, HangChain,
    HangFrame, HangHop, HangRecord, ObjectKind, ProgramSteps, StepHistogram, UnseenParts,
    WatchedPeriod,
};

/// A hang with every field.
pub(crate) fn hang(number: u64) -> Hang {
    let mut parts = trace::report::account::TimeParts::default();
    (parts.call_ns, parts.processor_ns, parts.unknown_ns) = (2_000_000_000, 300_000_000, 1);
    let frame = |function: &str, module: &str| HangFrame {
        function: function.to_owned(),
        module: module.into(),
    };
    Hang {
        number,
        started_ns: 1_763_900_000_000_000_000 + number * 1_000_000_000,
        length_ns: 2_300_000_001,
        uncertain_ns: 25_000_000,
        goes_on: number.is_multiple_of(2),
        process: 4711,
        process_began_ns: 1_763_800_000_000_000_000,
        program: "kate".to_owned(),
        unit: "app-kate@1.service".to_owned(),
        cause: HangCause::Sync,
        parts,
        calls: vec![
            CallShare {
                call: "fdatasync".to_owned(),
                blocked_ns: 2_000_000_000,
                seen: 1,
                object: Some(CallObject {
                    kind: ObjectKind::File,
                    name: "/home/ana/.local/share/recently-used.xbel".to_owned(),
                    file_system: "ext4".to_owned(),
                    device: "vda2".to_owned(),
                }),
            },
            CallShare { call: "futex".to_owned(), blocked_ns: 7, seen: 3, object: None },
        ],
        frames: vec![
            frame("fdatasync", "libc.so.6"),
            frame("KRecentDocument::add", "libKF5KIOCore.so.5"),
            frame("main", "kate"),
        ],
        blamed: Some(1),
        pressure: Some([12, 8150, 0]),
        unseen: UnseenParts::GAP,
        chain: Some(chain()),
        disk_use: Some(DiskUse {
            counted_ns: 1_900_000_000,
            read_bytes: 8192,
            written_bytes: 310_000_000,
            programs: vec![DiskUser {
                program: "dpkg".to_owned(),
                process: 4713,
                read_bytes: 4096,
                written_bytes: 400_000_000,
            }],
            processes: CountedProcesses::Newest,
        }),
        kernel_functions: vec!["io_schedule".to_owned()],
    }
}

fn chain() -> HangChain {
    let hop = |program: &str, process: u32| HangHop {
        program: program.to_owned(),
        process,
        unit: "a.service".to_owned(),
        call: "poll".to_owned(),
        function: "unix_stream_data_wait".to_owned(),
        waited_ns: 2_000_000_000,
    };
    HangChain {
        hops: vec![hop("kate", 4711), hop("kiod5", 812)],
        end: "disk".to_owned(),
        end_ns: 1_990_000_000,
        has_losses: false,
    }
}

fn period() -> WatchedPeriod {
    let mut steps = StepHistogram::default();
    [20_000_000, 60_000_000, 400_000_000].iter().for_each(|length| steps.add(*length));
    WatchedPeriod {
        from_ns: 1_763_900_000_000_000_000,
        to_ns: 1_763_900_060_000_000_000,
        recorder_ns: 60_000_000_000,
        watched_ns: 59_000_000_000,
        interval_ns: 50_000_000,
        programs: vec![ProgramSteps {
            program: "kate".to_owned(),
            watched_ns: 59_000_000_000,
            present_ns: 40_000_000_000,
            processes: 3,
            without_loop: 1,
            late_ns: 1_200_000_000,
            steps,
        }],
        over_limit: 1,
        refused: 2,
        lost: 3,
    }
}

#[test]
fn the_corpus_passes() {
    if std::env::var_os("WRITE_CORPUS").is_some() {
        let at = |name: &str| corpus("hang_record").join(name);
        fs::create_dir_all(corpus("hang_record")).unwrap();
        fs::write(at("hang"), encode(&HangRecord::Hang(Box::new(hang(1))))).unwrap();
        fs::write(at("chain"), encode(&HangRecord::Hang(Box::new(hang(3))))).unwrap();
        fs::write(at("period"), encode(&HangRecord::Watched(period()))).unwrap();
        let least =
            Hang { calls: Vec::new(), frames: Vec::new(), pressure: None, blamed: None, ..hang(2) };
        fs::write(at("least"), encode(&HangRecord::Hang(Box::new(least)))).unwrap();
    }
    let inputs = replay("hang_record", 400, &[0, 1, 0x7f, 0x80, 0xff], bodies::record);
    assert!(inputs.unwrap() >= 1200);
}

#[test]
fn a_body_that_panics_is_noticed() {
    let wrong = |data: &[u8]| assert!(decode(data).is_err(), "planted");
    assert!(replay("hang_record", 1, &[0], wrong).is_err());
}

#[test]
fn records_are_read_as_they_were_written_and_no_part_of_one_is() {
    for record in [HangRecord::Hang(Box::new(hang(7))), HangRecord::Watched(period())] {
        let bytes = encode(&record);
        assert_eq!(decode(&bytes), Ok(record));
        for length in 0..bytes.len() {
            assert_eq!(decode(&bytes[..length]), Err(HangRecordError::Damaged), "{length}");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert_eq!(decode(&longer), Err(HangRecordError::Damaged));
        let mut later = bytes;
        later[1] = 6;
        assert_eq!(decode(&later), Err(HangRecordError::UnknownVersion(6)));
    }
}

#[test]
fn records_of_earlier_versions_are_read() {
    let stored = |name: &str| fs::read(corpus("hang_record").join(name)).unwrap();
    let hang = |number| Hang { kernel_functions: Vec::new(), ..hang(number) };
    let expected = Hang { process_began_ns: 0, chain: None, disk_use: None, ..hang(1) };
    let mut bytes = stored("hang-version-1");
    assert_eq!((bytes[1], decode(&bytes)), (1, Ok(HangRecord::Hang(Box::new(expected.clone())))));
    // Where there is no chain, the first two versions differ by one byte at the end.
    bytes.push(0);
    assert_eq!(decode(&bytes), Err(HangRecordError::Damaged));
    bytes[1] = 2;
    assert_eq!(decode(&bytes), Ok(HangRecord::Hang(Box::new(expected))));
    let bytes = stored("hang-version-3");
    let expected = Hang { disk_use: None, ..hang(1) };
    assert_eq!((bytes[1], decode(&bytes)), (3, Ok(HangRecord::Hang(Box::new(expected)))));
    let bytes = stored("hang-version-4");
    let mut expected = hang(1);
    if let Some(used) = &mut expected.disk_use {
        used.processes = CountedProcesses::All;
    }
    assert_eq!((bytes[1], decode(&bytes)), (4, Ok(HangRecord::Hang(Box::new(expected)))));
    let mut expected = period();
    let steps = &mut expected.programs[0];
    (steps.present_ns, steps.processes) = (steps.watched_ns, 1);
    (steps.without_loop, steps.late_ns) = (0, 0);
    let mut bytes = stored("period-version-1");
    for version in [2, 1] {
        bytes[1] = version;
        assert_eq!(decode(&bytes), Ok(HangRecord::Watched(expected.clone())));
    }
}

#[test]
fn the_frames_of_a_record_share_the_names_of_their_files() {
    let mut deep = hang(1);
    let module: Arc<str> = "m".repeat(MAX_TEXT).into();
    let frame = |_| HangFrame { function: String::new(), module: Arc::clone(&module) };
    deep.frames = (0..64).map(frame).collect();
    let Ok(HangRecord::Hang(read)) = decode(&encode(&HangRecord::Hang(Box::new(deep)))) else {
        panic!("it cannot be read");
    };
    let first = &read.frames[0].module;
    assert_eq!((read.frames.len(), first), (64, &module));
    assert!(read.frames.iter().all(|frame| Arc::ptr_eq(&frame.module, first)));
}

#[test]
fn what_is_longer_than_the_bounds_is_cut_and_can_be_read() {
    let mut long = hang(1);
    long.program = "ä".repeat(MAX_TEXT);
    let frame =
        |at: usize| HangFrame { function: format!("f{at}"), module: format!("m{at}").into() };
    long.frames = (0..1000).map(frame).collect();
    long.blamed = Some(999);
    let Ok(HangRecord::Hang(read)) = decode(&encode(&HangRecord::Hang(Box::new(long)))) else {
        panic!("it cannot be read");
    };
    // Of letters with two bytes one fits less beside the mark.
    assert!(read.program.ends_with("ä…") && read.program.len() == MAX_TEXT - 1);
    assert_eq!((read.frames.len(), read.blamed), (MAX_FRAMES, None));
    assert_eq!(read.frames[63], frame(63));
}
