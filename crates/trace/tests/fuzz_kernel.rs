//! Replays the bodies of the fuzz targets of what the kernel says over the committed corpus, and over small changes to it.

#[path = "../../../fuzz/src/kernel.rs"]
#[expect(unreachable_pub, reason = "the file belongs to another crate")]
mod kernel;

use crate::replay::replay;

#[test]
fn records_and_types_of_the_corpus_pass() {
    assert!(replay("bpf_record", 500, &[0, 1, 0xff], kernel::record).unwrap() >= 3000);
    assert!(replay("kernel_types", 500, &[0, 1, 0xff], kernel::types).unwrap() >= 500);
}

#[test]
fn a_body_that_panics_is_noticed() {
    assert!(replay("bpf_record", 500, &[0, 1, 0xff], |data| assert!(data.len() > 100)).is_err());
}
