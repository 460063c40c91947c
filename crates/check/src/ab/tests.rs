//! Comparisons of real programs: what is skipped, what is held, what is refused.

use sys::clock::SystemClock;

use super::*;

/// A program that syncs a file of its directory `count` times by `dd`, which calls fdatasync.
fn syncs(directory: &Path, count: usize) -> ComparisonPlan {
    let script = format!(
        "for i in $(seq {count}); do dd if=/dev/zero of=file bs=1 count=1 conv=fdatasync status=none; done"
    );
    ComparisonPlan {
        command: ["sh", "-c", &script].map(OsString::from).into(),
        environment: std::env::vars_os().collect(),
        directory: directory.to_owned(),
        temp_dir: std::env::temp_dir(),
        change: CallDifference::default(),
        stake: DataRisk::Nothing,
        pairs: Some(3),
    }
}

fn done(plan: &ComparisonPlan) -> Result<Comparison, AbError> {
    compare(plan, &SystemClock::start(), &AtomicBool::new(false), &mut |_, _, _| ())
}

fn skip(names: &[&str]) -> CallDifference {
    CallDifference::default()
        .skip(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
        .unwrap()
}

#[test]
fn what_could_lose_something_is_refused_without_a_copy_or_consent() {
    let dir = tempfile::tempdir().unwrap();
    let mut plan = syncs(dir.path(), 2);
    plan.change = skip(&["fsync", "fdatasync"]);
    assert!(matches!(done(&plan), Err(AbError::Unsafe)));
    assert!(!dir.path().join("file").exists(), "nothing ran");
    plan.stake = DataRisk::Agreed;
    let comparison = done(&plan).unwrap();
    assert_eq!((comparison.matched, comparison.with.len()), (2, 3));
    assert_eq!(comparison.files, [(Some(dir.path().canonicalize().unwrap().join("file")), 2)]);
    assert!(comparison.same_end && comparison.failures.is_empty());
    assert!(text(&comparison, 80, report::paint::Paint::Off).contains("Durability was off"));
}

#[test]
fn a_copy_takes_the_place_of_the_files() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().canonicalize().unwrap().join("home");
    std::fs::create_dir(&home).unwrap();
    let mut plan = syncs(&home, 1);
    plan.change = skip(&["fdatasync"]);
    plan.stake = DataRisk::Copies(vec![home.clone()]);
    let comparison = done(&plan).unwrap();
    assert_eq!(comparison.matched, 1);
    assert!(comparison.in_copies && !home.join("file").exists());
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
    // The same command on a file outside the copy ran once, with its sync, and is refused.
    let other = dir.path().canonicalize().unwrap().join("other");
    plan.command = ["dd", "if=/dev/zero", "bs=1", "count=1", "conv=fdatasync", "status=none"]
        .iter()
        .map(OsString::from)
        .chain([format!("of={}", other.display()).into()])
        .collect();
    let Err(AbError::Outside(outside)) = done(&plan) else { panic!("not refused") };
    assert_eq!(outside, [(other.display().to_string(), 1)]);
}

#[test]
fn only_files_under_a_pattern_are_skipped() {
    let dir = tempfile::tempdir().unwrap();
    let mut plan = syncs(dir.path(), 2);
    plan.stake = DataRisk::Agreed;
    plan.change = skip(&["fdatasync"]).under(b"*/file".to_vec()).unwrap();
    assert_eq!(done(&plan).unwrap().matched, 2);
    plan.change = skip(&["fdatasync"]).under(b"*/other".to_vec()).unwrap();
    let comparison = done(&plan).unwrap();
    assert_eq!((comparison.matched, comparison.with.len()), (0, 0));
    assert_eq!(sentence(&comparison), "Nothing to compare: the program makes no fdatasync.");
}

#[test]
fn a_call_that_everything_waits_for_lengthens_the_run_by_its_delay() {
    let dir = tempfile::tempdir().unwrap();
    let mut plan = syncs(dir.path(), 2);
    plan.change = CallDifference::default().delay("fdatasync", Duration::from_millis(150)).unwrap();
    let comparison = done(&plan).unwrap();
    assert_eq!(comparison.matched, 2);
    assert_eq!(comparison.held.median(), 300e6);
    assert!(comparison.with.min() > 300e6, "{comparison:?}");
    assert!(text(&comparison, 200, report::paint::Paint::Off).contains("300 ms were added"));
}

#[test]
fn a_variable_is_a_change_too() {
    let dir = tempfile::tempdir().unwrap();
    let mut plan = syncs(dir.path(), 0);
    plan.command = ["sh", "-c", "test -z \"$SLOW\" || sleep 0.2"].map(OsString::from).into();
    plan.change = CallDifference::default().set("SLOW".into(), "1".into());
    plan.pairs = Some(5);
    let comparison = done(&plan).unwrap();
    assert!(comparison.differs(), "{comparison:?}");
    assert!(sentence(&comparison).ends_with("with SLOW=1."), "{}", sentence(&comparison));
}

#[test]
fn runs_that_do_not_end_alike_are_said() {
    let dir = tempfile::tempdir().unwrap();
    let mut plan = syncs(dir.path(), 0);
    plan.command = ["sh", "-c", "exit ${STATUS:-0}"].map(OsString::from).into();
    plan.change = CallDifference::default().set("STATUS".into(), "7".into());
    let comparison = done(&plan).unwrap();
    assert!(!comparison.same_end);
    assert_eq!(comparison.failures.get("with status 7"), Some(&3));
}

#[test]
fn what_cannot_be_run_is_an_error_that_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut plan = syncs(dir.path(), 0);
    plan.command = vec!["/no/such/program".into()];
    plan.change = CallDifference::default().delay("fsync", Duration::from_millis(1)).unwrap();
    let error = done(&plan).unwrap_err();
    assert_eq!(error.to_string(), "cannot run \"/no/such/program\"");
    plan.change = CallDifference::default();
    assert!(matches!(done(&plan), Err(AbError::NoChange)));
}

#[test]
fn an_interruption_ends_the_program_and_the_comparison() {
    let dir = tempfile::tempdir().unwrap();
    let mut plan = syncs(dir.path(), 0);
    plan.command = ["sh", "-c", "exec sleep 100"].map(OsString::from).into();
    plan.change = CallDifference::default().set("A".into(), "b".into());
    let stop = AtomicBool::new(true);
    let error = compare(&plan, &SystemClock::start(), &stop, &mut |_, _, _| ()).unwrap_err();
    assert!(matches!(error, AbError::Interrupted));
}
