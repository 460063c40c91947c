//! Offsets of the kernel's structures that the programs read, and numbers of the places where they run, from its BTF.

use sys::bpf::btf::{self, BtfKind, KernelTypesError, Types};
use sys::bpf::file_names::FileOffsets;
use sys::bpf::processor_time::ProcessorTimeFields;

use super::layout::room;

/// What is known of the kernel; each part may be missing in an older one, and `Err` says what of it.
#[derive(Clone, Debug)]
pub(super) struct WorkOffsets {
    pub(super) task: TaskOffsets,
    pub(super) rings: Result<RingOffsets, &'static str>,
    pub(super) reclaim: Result<Vec<WorkPoint>, &'static str>,
    /// Where threads begin to need a page, in their own code and in the kernel.
    pub(super) faults: Result<[u32; 2], &'static str>,
}

/// `task_struct`.
#[derive(Clone, Copy, Debug)]
pub(super) struct TaskOffsets {
    pub(super) times: ProcessorTimeFields,
    /// How often it has forbidden itself to wait for a page: what looks at its memory then gets an error.
    pub(super) forbidden: i16,
}

/// Where a kind of work begins and ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct WorkPoint {
    pub(super) is_compaction: bool,
    pub(super) begin: u32,
    pub(super) end: u32,
}

/// How the end of an operation says its result.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ResultPlace {
    /// It is an argument.
    Argument,
    /// It is in the completion that the third argument points to, at this offset.
    Completion(i16),
}

/// Rings and requests.
#[derive(Clone, Debug)]
pub(super) struct RingOffsets {
    pub(super) create: Option<u32>,
    pub(super) register: Option<u32>,
    pub(super) submit: u32,
    pub(super) complete: u32,
    pub(super) worker: Option<u32>,
    pub(super) readiness: Option<u32>,
    pub(super) result: ResultPlace,
    /// `io_kiocb`.
    pub(super) request_file: i16,
    pub(super) request_opcode: i16,
    pub(super) request_flags: i16,
    pub(super) request_descriptor: i16,
    pub(super) request_ring: i16,
    /// Operations that are given a path: their numbers, and where the directory and the path are in the request.
    pub(super) paths: Vec<([i32; 2], i16, i16)>,
    /// None where the kernel has other structures than the known ones.
    pub(super) files: Option<FileOffsets>,
}

/// Operations with a path: their structure, numbers, and the names of the fields of the directory and the path.
const PATHS: [(&str, [i32; 2], &str, &str); 5] = [
    ("io_open", [18, 28], "dfd", "filename"),
    ("io_statx", [21, 21], "dfd", "filename"),
    ("io_unlink", [36, 36], "dfd", "filename"),
    ("io_rename", [35, 35], "old_dfd", "oldpath"),
    ("io_mkdir", [37, 37], "dfd", "filename"),
];

/// Where memory is taken back, and moved together.
const RECLAIM: [(bool, &str, &str); 3] = [
    (false, "btf_trace_mm_vmscan_direct_reclaim_begin", "btf_trace_mm_vmscan_direct_reclaim_end"),
    (false, "btf_trace_mm_vmscan_memcg_reclaim_begin", "btf_trace_mm_vmscan_memcg_reclaim_end"),
    (true, "btf_trace_mm_compaction_begin", "btf_trace_mm_compaction_end"),
];

const STRUCTURES: [&str; 3] = ["task_struct", "io_kiocb", "io_uring_cqe"];

const RING_POINTS: [&str; 7] = [
    "btf_trace_io_uring_create",
    "btf_trace_io_uring_register",
    "btf_trace_io_uring_submit_req",
    "btf_trace_io_uring_submit_sqe",
    "btf_trace_io_uring_complete",
    "btf_trace_io_uring_queue_async_work",
    "btf_trace_io_uring_poll_arm",
];

/// Where a page is needed.
const FAULTS: [&str; 2] = ["btf_trace_page_fault_user", "btf_trace_page_fault_kernel"];

impl WorkOffsets {
    pub(super) fn of_this_kernel() -> Result<WorkOffsets, KernelTypesError> {
        btf::of_this_kernel(WorkOffsets::read)
    }

    /// Reads them from a kernel's types.
    pub(super) fn read(bytes: &[u8]) -> Result<WorkOffsets, KernelTypesError> {
        let structures = STRUCTURES.into_iter().chain(FileOffsets::STRUCTURES);
        let structures =
            structures.chain(ProcessorTimeFields::STRUCTURES).chain(PATHS.map(|(name, ..)| name));
        let points = RING_POINTS.into_iter().chain(RECLAIM.iter().flat_map(|(_, a, b)| [*a, *b]));
        let wanted: Vec<(BtfKind, &str)> = structures
            .map(|name| (BtfKind::Structure, name))
            .chain(points.chain(FAULTS).map(|name| (BtfKind::Typedef, name)))
            .collect();
        let types = Types::read(bytes, &wanted).ok_or(KernelTypesError::NotUnderstood)?;
        let task = |path: &'static str| types.offset("task_struct", path);
        let missing = KernelTypesError::Missing;
        Ok(WorkOffsets {
            task: TaskOffsets {
                times: ProcessorTimeFields::read(&types)?,
                forbidden: task("pagefault_disabled").ok_or(missing("pagefault_disabled"))?,
            },
            rings: rings(&types),
            reclaim: reclaim(&types),
            faults: faults(&types),
        })
    }
}

fn reclaim(types: &Types<'_>) -> Result<Vec<WorkPoint>, &'static str> {
    let number = |name| types.number(BtfKind::Typedef, name);
    let points: Vec<WorkPoint> = RECLAIM
        .into_iter()
        .filter_map(|(is_compaction, begin, end)| {
            Some(WorkPoint { is_compaction, begin: number(begin)?, end: number(end)? })
        })
        .collect();
    // The first is there wherever memory is taken back at all; control groups may not be.
    if number(RECLAIM[0].1).is_some() { Ok(points) } else { Err("mm_vmscan_direct_reclaim_begin") }
}

fn faults(types: &Types<'_>) -> Result<[u32; 2], &'static str> {
    let number = |name| types.number(BtfKind::Typedef, name);
    let points = number(FAULTS[0]).zip(number(FAULTS[1]));
    points.map(|(user, kernel)| [user, kernel]).ok_or("page_fault_user")
}

fn rings(types: &Types<'_>) -> Result<RingOffsets, &'static str> {
    let number = |name| types.number(BtfKind::Typedef, name);
    // Up to Linux 5.18 no request was told, only what the program had asked for.
    let with_request = |name: &'static str| {
        let arguments = types.tracepoint_arguments(name)?;
        number(name).filter(|_| arguments.first() == Some(&&b"io_kiocb"[..]))
    };
    let submit = with_request("btf_trace_io_uring_submit_req")
        .or_else(|| with_request("btf_trace_io_uring_submit_sqe"))
        .ok_or("io_uring_submit_req")?;
    let complete = "btf_trace_io_uring_complete";
    let arguments = types.tracepoint_arguments(complete).ok_or("io_uring_complete")?;
    let result = match arguments.len() {
        3 if arguments[2] == b"io_uring_cqe" => {
            ResultPlace::Completion(types.offset("io_uring_cqe", "res").ok_or("io_uring_cqe.res")?)
        }
        5.. => ResultPlace::Argument,
        _ => return Err("io_uring_complete"),
    };
    let request = |path: &'static str| types.offset("io_kiocb", path).ok_or(path);
    let paths = PATHS.into_iter().filter_map(|(structure, numbers, directory, path)| {
        Some((numbers, types.offset(structure, directory)?, types.offset(structure, path)?))
    });
    let offsets = RingOffsets {
        create: number("btf_trace_io_uring_create"),
        register: number("btf_trace_io_uring_register"),
        submit,
        complete: number(complete).ok_or("io_uring_complete")?,
        worker: with_request("btf_trace_io_uring_queue_async_work"),
        readiness: with_request("btf_trace_io_uring_poll_arm"),
        result,
        request_file: request("file")?,
        request_opcode: request("opcode")?,
        request_flags: request("flags")?,
        request_descriptor: request("cqe.fd")?,
        request_ring: request("ctx")?,
        paths: paths.collect(),
        files: FileOffsets::read(types),
    };
    let paths = offsets.paths.iter().flat_map(|(_, directory, path)| [*directory, *path]);
    let fit = [offsets.request_file, offsets.request_opcode, offsets.request_flags]
        .into_iter()
        .chain([offsets.request_descriptor, offsets.request_ring])
        .chain(paths)
        .all(|offset| (0..=room::REQUEST_SIZE - 8).contains(&offset));
    if fit { Ok(offsets) } else { Err("io_kiocb") }
}
