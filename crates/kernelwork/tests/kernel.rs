//! The programs in this kernel.
#![expect(
    clippy::disallowed_methods,
    reason = "whether a skip is a failure is said by the environment"
)]

use sys::bpf::{LoadError, Map, MapKind};
use unjank_kernelwork::kernel::WorkTracer;

#[test]
fn this_kernel_takes_all_programs_and_they_watch_only_who_is_in_the_filter() {
    let filter = match Map::new(MapKind::Hash, "unjank_test", 4, 4, 16) {
        Ok(filter) => filter,
        Err(why) => {
            assert!(std::env::var_os("REQUIRE_ALL").is_none(), "REQUIRE_ALL: {why}");
            eprintln!("SKIPPED: {why}");
            return;
        }
    };
    let mut tracer = match WorkTracer::load((&filter).into(), 0) {
        Ok(tracer) => tracer,
        Err(
            why @ (LoadError::NotAllowed(_) | LoadError::OtherNumbers | LoadError::OtherMachine),
        ) => {
            assert!(std::env::var_os("REQUIRE_ALL").is_none(), "REQUIRE_ALL: {why}");
            eprintln!("SKIPPED: {why}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    // An older kernel tells less and says so; one of these tests must have one that tells all.
    let is_new = std::fs::read_to_string("/proc/sys/kernel/osrelease").is_ok_and(|release| {
        let mut numbers = release.split('.').map_while(|number| number.parse::<u32>().ok());
        numbers.next().zip(numbers.next()).is_some_and(|version| version >= (6, 12))
    });
    assert!(!is_new || tracer.unseen().is_empty(), "{:?}", tracer.unseen());
    // Nobody is in the filter, whatever the rest of the machine does.
    assert_eq!(tracer.take(|record| panic!("{record:?}")), 0);
    assert_eq!((tracer.totals().unwrap().len(), tracer.running().unwrap().len()), (0, 0));
    let losses = tracer.losses().unwrap();
    assert_eq!((losses.records, losses.not_summed), (0, 0));
    tracer.detach();
}
