//! Offsets of the kernel's structures that the programs read, from its BTF.

use sys::bpf::btf::{self, BtfKind, KernelTypesError, Types};
use sys::bpf::file_names::FileOffsets;
use sys::bpf::owner::OwnerFields;
use sys::bpf::processor_time::ProcessorTimeFields;

/// Offsets in bytes in the kernel's structures, and the numbers of its tracepoints' types.
#[derive(Clone, Copy, Debug)]
pub struct KernelOffsets {
    /// `btf_trace_sys_enter` and so on.
    pub tracepoints: Tracepoints,
    /// `task_struct`: the thread's number.
    pub task_thread: i16,
    /// `task_struct`: the process's number.
    pub task_process: i16,
    /// `task_struct`: its times.
    pub task_times: ProcessorTimeFields,
    /// `task_struct`: how often it waited for a page.
    pub task_faults: Option<i16>,
    /// `task_struct`: whether its call is one of 32-bit code, among other bits.
    pub task_status: i16,
    /// `task_struct`: the status that it ends with.
    pub task_exit_code: i16,
    /// `task_struct`: its name, of 16 bytes.
    pub task_name: i16,
    /// `task_struct`: its process's shared part.
    pub task_signal: i16,
    /// `signal_struct`: how many threads are alive.
    pub signal_live: i16,
    /// `task_struct`: its memory.
    pub task_memory: i16,
    /// `mm_struct`: where the command line begins.
    pub memory_arguments: i16,
    /// `mm_struct`: where the command line ends.
    pub memory_arguments_end: i16,
    /// `linux_binprm`: the path of the program.
    pub program_path: i16,
    /// `linux_binprm`: the first bytes of the program.
    pub program_head: i16,
    /// The offsets for resolving the path of a descriptor; `None` if the kernel has other structures than the known ones.
    pub paths: Option<PathFields>,
    /// The offsets for the other end of a socket; `None` if the kernel has other structures than the known ones.
    pub sockets: Option<SocketFields>,
    /// The offsets for the rule whose processes are recorded; `None` if the kernel has other structures than the known ones.
    pub owner: Option<OwnerFields>,
}

/// Where a socket's other end is.
#[derive(Clone, Copy, Debug)]
pub struct SocketFields {
    /// `file`: the socket.
    pub file_private: i16,
    /// `socket`: its type.
    pub socket_type: i16,
    /// `socket`: the part that the protocols use.
    pub socket_inner: i16,
    /// `sock`: the process at the other end, as `SO_PEERCRED` tells it.
    pub peer_process: i16,
    /// `pid`: its numbers, that of the first namespace first.
    pub process_number: i16,
    /// `sock`: the family of its addresses.
    pub family: i16,
    /// `sock`: the state of the connection.
    pub state: i16,
    /// `sock`: the port of the other end.
    pub port: i16,
    /// `sock`: the address of the other end.
    pub address: i16,
    /// `sock`: the address of the other end, of IPv6; none where the kernel has no IPv6.
    pub address_6: Option<i16>,
    /// `unix_sock`: the other end.
    pub unix_peer: i16,
    /// `unix_sock`: its address.
    pub unix_address: i16,
    /// `unix_address`: its length.
    pub unix_length: i16,
    /// `unix_address`: its bytes.
    pub unix_name: i16,
}

/// The numbers of the tracepoints' types.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "they are named as the tracepoints")]
pub struct Tracepoints {
    pub sys_enter: u32,
    pub sys_exit: u32,
    pub sched_process_fork: u32,
    pub sched_process_exec: u32,
    pub sched_process_exit: u32,
    pub sched_waking: u32,
}

/// Where a descriptor's file, its directory entry and its mount are.
#[derive(Clone, Copy, Debug)]
pub struct PathFields {
    /// `task_struct`: its table of descriptors.
    pub task_files: i16,
    /// `task_struct`: its directories.
    pub task_directories: i16,
    /// `files_struct`: the table in use.
    pub files_table: i16,
    /// `fdtable`: the array of files.
    pub table_files: i16,
    /// `fdtable`: how many there are.
    pub table_length: i16,
    /// `fs_struct`: mount and entry of the working directory.
    pub directories_working: i16,
    /// `fs_struct`: mount and entry of the root.
    pub directories_root: i16,
    /// Files, entries and mounts.
    pub files: FileOffsets,
}

const STRUCTURES: [&str; 14] = [
    "task_struct",
    "signal_struct",
    "mm_struct",
    "linux_binprm",
    "files_struct",
    "fs_struct",
    "fdtable",
    "socket",
    "sock",
    "unix_sock",
    "unix_address",
    "pid",
    "cred",
    "user_namespace",
];

const TRACEPOINTS: [&str; 6] = [
    "btf_trace_sys_enter",
    "btf_trace_sys_exit",
    "btf_trace_sched_process_fork",
    "btf_trace_sched_process_exec",
    "btf_trace_sched_process_exit",
    "btf_trace_sched_waking",
];

impl KernelOffsets {
    /// Reads them from the running kernel.
    ///
    /// # Errors
    ///
    /// [`KernelTypesError`]: it cannot be watched by programs in it.
    pub fn of_this_kernel() -> Result<KernelOffsets, KernelTypesError> {
        btf::of_this_kernel(KernelOffsets::read)
    }

    /// Reads them from a kernel's types.
    ///
    /// # Errors
    ///
    /// [`KernelTypesError`]: it cannot be watched by programs in it.
    pub fn read(bytes: &[u8]) -> Result<KernelOffsets, KernelTypesError> {
        let structures = STRUCTURES.iter().chain(&FileOffsets::STRUCTURES);
        let structures = structures.chain(&ProcessorTimeFields::STRUCTURES);
        let structures = structures.map(|name| (BtfKind::Structure, *name));
        let tracepoints = TRACEPOINTS.iter().map(|name| (BtfKind::Typedef, *name));
        let wanted: Vec<(BtfKind, &str)> = structures.chain(tracepoints).collect();
        let types = Types::read(bytes, &wanted).ok_or(KernelTypesError::NotUnderstood)?;
        let tracepoint = |name: &'static str| {
            types.number(BtfKind::Typedef, name).ok_or(KernelTypesError::Missing(name))
        };
        let field = |structure, path: &'static str| {
            types.offset(structure, path).ok_or(KernelTypesError::Missing(path))
        };
        Ok(KernelOffsets {
            tracepoints: Tracepoints {
                sys_enter: tracepoint("btf_trace_sys_enter")?,
                sys_exit: tracepoint("btf_trace_sys_exit")?,
                sched_process_fork: tracepoint("btf_trace_sched_process_fork")?,
                sched_process_exec: tracepoint("btf_trace_sched_process_exec")?,
                sched_process_exit: tracepoint("btf_trace_sched_process_exit")?,
                sched_waking: tracepoint("btf_trace_sched_waking")?,
            },
            task_thread: field("task_struct", "pid")?,
            task_process: field("task_struct", "tgid")?,
            task_times: ProcessorTimeFields::read(&types)?,
            task_faults: types.offset("task_struct", "maj_flt"),
            task_status: field("task_struct", "thread_info.status")?,
            task_exit_code: field("task_struct", "exit_code")?,
            task_name: field("task_struct", "comm")?,
            task_signal: field("task_struct", "signal")?,
            signal_live: field("signal_struct", "live.counter")?,
            task_memory: field("task_struct", "mm")?,
            memory_arguments: field("mm_struct", "arg_start")?,
            memory_arguments_end: field("mm_struct", "arg_end")?,
            program_path: field("linux_binprm", "filename")?,
            program_head: field("linux_binprm", "buf")?,
            paths: path_fields(&types),
            sockets: socket_fields(&types),
            owner: OwnerFields::find(&types),
        })
    }
}

fn socket_fields(types: &Types<'_>) -> Option<SocketFields> {
    let field = |structure, path| types.offset(structure, path);
    Some(SocketFields {
        file_private: field("file", "private_data")?,
        socket_type: field("socket", "type")?,
        socket_inner: field("socket", "sk")?,
        peer_process: field("sock", "sk_peer_pid")?,
        process_number: field("pid", "numbers")?,
        family: field("sock", "__sk_common.skc_family")?,
        state: field("sock", "__sk_common.skc_state")?,
        port: field("sock", "__sk_common.skc_dport")?,
        address: field("sock", "__sk_common.skc_daddr")?,
        address_6: field("sock", "__sk_common.skc_v6_daddr"),
        unix_peer: field("unix_sock", "peer")?,
        unix_address: field("unix_sock", "addr")?,
        unix_length: field("unix_address", "len")?,
        unix_name: field("unix_address", "name")?,
    })
}

fn path_fields(types: &Types<'_>) -> Option<PathFields> {
    let field = |structure, path| types.offset(structure, path);
    Some(PathFields {
        task_files: field("task_struct", "files")?,
        task_directories: field("task_struct", "fs")?,
        files_table: field("files_struct", "fdt")?,
        table_files: field("fdtable", "fd")?,
        table_length: field("fdtable", "max_fds")?,
        directories_working: field("fs_struct", "pwd")?,
        directories_root: field("fs_struct", "root")?,
        files: FileOffsets::read(types)?,
    })
}
