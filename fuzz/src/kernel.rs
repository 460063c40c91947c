//! The kernel: what records of any bytes, and its types of any bytes, must keep to.

use sys::bpf::btf::{BtfKind, Types};
use trace::backend::bpf::record::BpfRecord;
use trace::backend::peek::blocked::{parse_schedstat, parse_syscall};

/// A record from the ring: what is taken from it lies inside of it.
pub fn record(data: &[u8]) {
    if let Some(BpfRecord::Call(call)) = BpfRecord::read(data) {
        let paths =
            call.first_path.map_or(0, <[u8]>::len) + call.second_path.map_or(0, <[u8]>::len);
        assert!(call.stack.len() + paths <= data.len());
        if let Some(file) = call.file {
            // Names, a slash before each, and what a deleted file's path ends with.
            assert!(file.link().len() <= 2 * data.len() + 32);
        }
    }
    let _ = parse_syscall(data);
    let _ = parse_schedstat(data);
}

/// The kernel's types: fields are found or not, and it ends.
pub fn types(data: &[u8]) {
    let wanted = [
        (BtfKind::Structure, "outer"),
        (BtfKind::Structure, "task_struct"),
        (BtfKind::Typedef, "named"),
    ];
    if let Some(types) = Types::read(data, &wanted) {
        for (structure, field) in
            [("outer", "in.c"), ("outer", "b"), ("task_struct", "se.exec_start")]
        {
            let _ = types.field(structure, field);
        }
        let _ = types.number(BtfKind::Typedef, "named");
    }
}
