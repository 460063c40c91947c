//! The kernel: what records of any bytes, and its types of any bytes, must keep to.

use unjank_probe::trace::backend::bpf::record::Record;
use unjank_probe::trace::backend::peek::glance::{parse_call, parse_used};
use unjank_sys::bpf::btf::{Kind, Types};

/// A record from the ring: what is taken from it lies inside of it.
pub fn record(data: &[u8]) {
    if let Some(Record::Call(call)) = Record::read(data) {
        let paths =
            call.first_path.map_or(0, <[u8]>::len) + call.second_path.map_or(0, <[u8]>::len);
        assert!(call.stack.len() + paths <= data.len());
        if let Some(file) = call.file {
            // Names, a slash before each, and what a deleted file's path ends with.
            assert!(file.link().len() <= 2 * data.len() + 32);
        }
    }
    let _ = parse_call(data);
    let _ = parse_used(data);
}

/// The kernel's types: fields are found or not, and it ends.
pub fn types(data: &[u8]) {
    let wanted =
        [(Kind::Structure, "outer"), (Kind::Structure, "task_struct"), (Kind::Typedef, "named")];
    if let Some(types) = Types::read(data, &wanted) {
        for (structure, field) in
            [("outer", "in.c"), ("outer", "b"), ("task_struct", "se.exec_start")]
        {
            let _ = types.field(structure, field);
        }
        let _ = types.number(Kind::Typedef, "named");
    }
}
