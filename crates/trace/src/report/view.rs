//! What a terminal browser of a report shows: rows that can be sorted, filtered and opened. It draws nothing.

use super::schema::{Slow, TraceMethod, TraceReport};
use super::text::busy_ns;
use super::verdict::{frames_of, time};

/// What a browser lists.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum BrowserList {
    /// Code paths.
    #[default]
    Paths,
    /// Kinds of calls.
    Calls,
    /// Files and peers.
    Targets,
    /// Slow calls one by one.
    Slow,
    /// Threads.
    Threads,
}

impl BrowserList {
    /// All of them, in the order of tabs.
    pub const ALL: [BrowserList; 5] = [
        BrowserList::Paths,
        BrowserList::Calls,
        BrowserList::Targets,
        BrowserList::Slow,
        BrowserList::Threads,
    ];

    /// Returns the title of the tab.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            BrowserList::Paths => "Code paths",
            BrowserList::Calls => "Calls",
            BrowserList::Targets => "Files and peers",
            BrowserList::Slow => "Slow calls",
            BrowserList::Threads => "Threads",
        }
    }

    /// Returns the headings; the first column is text, the others are figures.
    #[must_use]
    pub fn headings(self) -> &'static [&'static str] {
        match self {
            BrowserList::Paths => &["code path", "wall", "frames", "count", "longest"],
            BrowserList::Calls => &["call", "wall", "count", "errors", "p50", "p99", "longest"],
            BrowserList::Targets => &["what", "wall", "count", "errors", "longest"],
            BrowserList::Slow => &["call", "wall", "at"],
            BrowserList::Threads => &["thread", "stalled", "frames", "felt", "hung", "longest"],
        }
    }
}

/// A row of a list.
#[derive(Clone, Debug, PartialEq)]
pub struct ViewRow {
    /// Which entry of the list it is.
    pub at: usize,
    /// What stands in each column.
    pub cells: Vec<String>,
    /// By what each column but the first sorts.
    keys: Vec<u64>,
    /// How long it took, for whoever colours by it, in nanoseconds.
    pub worst_ns: u64,
    /// Whether nobody waited.
    pub is_idle: bool,
}

/// What is shown: a list, filtered and sorted, and where the cursor is.
#[derive(Clone, Debug)]
pub struct ReportView<'a> {
    report: &'a TraceReport,
    list: BrowserList,
    filter: String,
    /// A column and whether the smallest comes first.
    sort: (usize, ViewOrder),
    rows: Vec<ViewRow>,
    cursor: usize,
}

/// Which comes first.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ViewOrder {
    /// The largest.
    Largest,
    /// The smallest.
    Smallest,
}

impl<'a> ReportView<'a> {
    /// Begins with the code paths, the one that took most time first.
    #[must_use]
    pub fn new(report: &'a TraceReport) -> ReportView<'a> {
        let mut view = ReportView {
            report,
            list: BrowserList::default(),
            filter: String::new(),
            sort: (1, ViewOrder::Largest),
            rows: Vec::new(),
            cursor: 0,
        };
        view.refresh();
        view
    }

    /// Returns the list that is shown.
    #[must_use]
    pub fn list(&self) -> BrowserList {
        self.list
    }

    /// Shows another list, sorted by time.
    pub fn show(&mut self, list: BrowserList) {
        self.list = list;
        self.sort = (1, ViewOrder::Largest);
        self.cursor = 0;
        self.refresh();
    }

    /// Returns the word by which rows are filtered.
    #[must_use]
    pub fn filter(&self) -> &str {
        &self.filter
    }

    /// Shows only rows that have this word in them or in their stacks.
    pub fn set_filter(&mut self, filter: &str) {
        filter.clone_into(&mut self.filter);
        self.cursor = 0;
        self.refresh();
    }

    /// Returns the column by which rows are sorted, and how.
    #[must_use]
    pub fn sort(&self) -> (usize, ViewOrder) {
        self.sort
    }

    /// Sorts by a column; by the same one again the other way round.
    pub fn sort_by(&mut self, column: usize) {
        let order = match self.sort {
            (before, ViewOrder::Largest) if before == column => ViewOrder::Smallest,
            _ => ViewOrder::Largest,
        };
        self.sort = (column.min(self.list.headings().len() - 1), order);
        self.refresh();
    }

    /// Returns the rows.
    #[must_use]
    pub fn rows(&self) -> &[ViewRow] {
        &self.rows
    }

    /// Returns where the cursor is; 0 if there is no row.
    #[must_use]
    pub fn cursor(&self) -> usize {
        self.cursor
    }

    /// Moves the cursor by so many rows; it stays inside.
    pub fn step(&mut self, by: isize) {
        let last = self.rows.len().saturating_sub(1);
        self.cursor = self.cursor.saturating_add_signed(by).min(last);
    }

    /// Returns what is known of the row under the cursor, a line each.
    #[must_use]
    pub fn details(&self) -> Vec<String> {
        let Some(row) = self.rows.get(self.cursor) else { return Vec::new() };
        let report = self.report;
        match self.list {
            BrowserList::Paths => self.path(row.at),
            BrowserList::Calls => {
                let Some(kind) = report.calls.get(row.at) else { return Vec::new() };
                let mut lines = vec![format!(
                    "{}: {} calls, {} in all, {} of it idle",
                    kind.name,
                    kind.count,
                    time(kind.wall_ns),
                    time(kind.idle_ns)
                )];
                let errors = kind.errnos.iter();
                lines.extend(
                    errors.map(|errno| format!("{} failed with {}", errno.count, errno.name)),
                );
                lines
            }
            BrowserList::Targets => {
                let Some(target) = report.targets.get(row.at) else { return Vec::new() };
                let mut lines = vec![target.name.clone()];
                lines.extend(target.to.iter().map(|to| format!("-> {to}")));
                lines.extend(target.request.iter().map(|request| format!("was asked {request}")));
                lines.extend(report.place(target));
                lines.extend(target.calls.iter().map(|call| {
                    format!(
                        "{} {}, {}",
                        call.count,
                        report.call_name(call.call),
                        time(call.wall_ns)
                    )
                }));
                lines
            }
            BrowserList::Slow => {
                report.slow.get(row.at).map(|slow| self.slow(slow)).unwrap_or_default()
            }
            BrowserList::Threads => {
                let Some(thread) = report.threads.get(row.at) else { return Vec::new() };
                vec![
                    format!(
                        "{} {} of {} {}",
                        thread.name,
                        thread.id,
                        report.program(thread.process),
                        thread.process
                    ),
                    format!(
                        "{} in {} calls, {} of it idle",
                        time(thread.wall_ns),
                        thread.count,
                        time(thread.stalls.idle_ns)
                    ),
                    format!("the longest stall began at {}", time(thread.stalls.longest_at_ns)),
                ]
            }
        }
    }

    fn path(&self, at: usize) -> Vec<String> {
        let Some(path) = self.report.paths.get(at) else { return Vec::new() };
        let mut lines =
            vec![format!("{}{}", self.report.path_title(path), self.report.path_remark(path))];
        for share in &path.targets {
            let name = self.report.target_name(share.index).unwrap_or_default();
            lines.push(format!("{} × {name}, {}", share.count, time(share.wall_ns)));
        }
        for share in &path.stacks {
            lines.push(String::new());
            lines.push(format!("{} ×, {}", share.count, time(share.wall_ns)));
            lines.extend(self.stack(share.index));
        }
        lines
    }

    fn slow(&self, slow: &Slow) -> Vec<String> {
        let mut lines = vec![slow.arguments.clone()];
        let mut parts = vec![format!(
            "{} ({} frames)",
            time(slow.wall_ns),
            frames_of(slow.wall_ns, self.report)
        )];
        if let Some(cpu) = slow.cpu_ns {
            parts.push(format!("{} on a CPU", time(cpu)));
        }
        if let Some(queued) = slow.queued_ns {
            parts.push(format!("{} waiting for one", time(queued)));
        }
        if let Some(stopped) = slow.stopped_ns {
            parts.push(format!("{} stopped", time(stopped)));
        }
        parts.extend(slow.error.clone());
        lines.push(parts.join(", "));
        if let Some(stack) = slow.stack {
            lines.push(String::new());
            lines.extend(self.stack(stack));
        }
        lines
    }

    /// Writes a stack, the innermost frame first, with an arrow at the one to blame.
    fn stack(&self, at: u32) -> Vec<String> {
        let stack = usize::try_from(at).ok().and_then(|at| self.report.stacks.get(at));
        let Some(stack) = stack else { return Vec::new() };
        let frame = |(depth, at): (usize, &u32)| {
            let frame = self.report.frames.get(usize::try_from(*at).ok()?)?;
            let is_blamed = stack.blamed.is_some_and(|blamed| usize::try_from(blamed) == Ok(depth));
            let mark = if is_blamed { "→" } else { " " };
            let module = frame.module.as_deref().unwrap_or_default();
            let line = frame.line.as_deref().unwrap_or_default();
            Some(format!("{mark} {}  {module}  {line}", frame.name).trim_end().to_owned())
        };
        stack.frames.iter().enumerate().filter_map(frame).collect()
    }

    /// Makes the rows anew.
    fn refresh(&mut self) {
        let mut rows = rows(self.report, self.list);
        let word = self.filter.trim().to_lowercase();
        if !word.is_empty() {
            rows.retain(|row| {
                row.cells.iter().any(|cell| cell.to_lowercase().contains(&word))
                    || self.stacks_of(row.at).any(|name| name.to_lowercase().contains(&word))
            });
        }
        let (column, order) = self.sort;
        match column.checked_sub(1) {
            None => rows.sort_by(|a, b| a.cells[0].cmp(&b.cells[0])),
            Some(at) => rows.sort_by_key(|row| row.keys.get(at).copied()),
        }
        // Names read from A; figures from the largest.
        if (order == ViewOrder::Largest) == (column > 0) {
            rows.reverse();
        }
        // What nobody waited for is not what took the time.
        if column == 1 {
            rows.sort_by_key(|row| row.is_idle);
        }
        self.cursor = self.cursor.min(rows.len().saturating_sub(1));
        self.rows = rows;
    }

    /// Returns the functions on the stacks of an entry.
    fn stacks_of(&self, at: usize) -> impl Iterator<Item = &'a str> {
        let report = self.report;
        let stacks: Vec<u32> = match self.list {
            BrowserList::Paths => report
                .paths
                .get(at)
                .map(|path| path.stacks.iter().map(|share| share.index).collect())
                .unwrap_or_default(),
            BrowserList::Slow => {
                report.slow.get(at).and_then(|slow| slow.stack).into_iter().collect()
            }
            _ => Vec::new(),
        };
        stacks
            .into_iter()
            .filter_map(|at| report.stacks.get(usize::try_from(at).ok()?))
            .flat_map(|stack| &stack.frames)
            .filter_map(|at| Some(&*report.frames.get(usize::try_from(*at).ok()?)?.name))
    }
}

/// Makes the rows of a list, in the order of the report.
fn rows(report: &TraceReport, list: BrowserList) -> Vec<ViewRow> {
    let row = |at: usize,
               name: String,
               figures: Vec<(u64, String)>,
               worst_ns: u64,
               is_idle: bool| {
        let (keys, shown): (Vec<u64>, Vec<String>) = figures.into_iter().unzip();
        ViewRow { at, cells: std::iter::once(name).chain(shown).collect(), keys, worst_ns, is_idle }
    };
    let ns = |ns: u64| (ns, time(ns));
    let count = |count: u64| (count, count.to_string());
    match list {
        BrowserList::Paths => {
            let paths = report.paths.iter().enumerate();
            let one = |(at, path): (usize, &super::schema::CodePath)| {
                let frames = (path.wall_ns, frames_of(path.wall_ns, report));
                let figures =
                    vec![ns(path.wall_ns), frames, count(path.count), ns(path.longest_ns)];
                row(
                    at,
                    format!("{}{}", report.path_title(path), report.path_remark(path)),
                    figures,
                    path.longest_ns,
                    path.how != TraceMethod::Stall,
                )
            };
            paths.map(one).collect()
        }
        BrowserList::Calls => {
            let calls = report.calls.iter().enumerate();
            let one = |(at, kind): (usize, &super::schema::CallKind)| {
                let figures = vec![
                    ns(busy_ns(kind)),
                    count(kind.count),
                    count(kind.errors),
                    ns(kind.p50_ns),
                    ns(kind.p99_ns),
                    ns(kind.longest_ns),
                ];
                row(at, kind.name.clone(), figures, kind.longest_ns, busy_ns(kind) == 0)
            };
            calls.map(one).collect()
        }
        BrowserList::Targets => {
            let targets = report.targets.iter().enumerate();
            let one = |(at, target): (usize, &super::schema::Target)| {
                let wall = target.wall_ns.saturating_sub(target.idle_ns);
                let figures = vec![
                    ns(wall),
                    count(target.count),
                    count(target.errors),
                    ns(target.longest_ns),
                ];
                let name = u32::try_from(at).ok().and_then(|at| report.target_name(at));
                row(at, name.unwrap_or_default(), figures, target.longest_ns, wall == 0)
            };
            targets.map(one).collect()
        }
        BrowserList::Slow => {
            let slow = report.slow.iter().enumerate();
            let one = |(at, slow): (usize, &Slow)| {
                row(
                    at,
                    slow.arguments.clone(),
                    vec![ns(slow.wall_ns), ns(slow.at_ns)],
                    slow.wall_ns,
                    slow.how != TraceMethod::Stall,
                )
            };
            slow.map(one).collect()
        }
        BrowserList::Threads => {
            let threads = report.threads.iter().enumerate();
            let one = |(at, thread): (usize, &super::schema::Thread)| {
                let stalls = &thread.stalls;
                let figures = vec![
                    ns(stalls.wall_ns),
                    count(stalls.frames),
                    count(stalls.felt),
                    count(stalls.hung),
                    ns(stalls.longest_ns),
                ];
                row(
                    at,
                    format!("{} {}", thread.name, thread.id),
                    figures,
                    stalls.longest_ns,
                    stalls.wall_ns == 0,
                )
            };
            threads.map(one).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::example::report;

    fn names(view: &ReportView<'_>) -> Vec<String> {
        view.rows().iter().map(|row| row.cells[0].clone()).collect()
    }

    #[test]
    fn rows_sort_both_ways_and_by_name() {
        let report = report();
        let mut view = ReportView::new(&report);
        view.show(BrowserList::Calls);
        assert_eq!(names(&view)[0], "fdatasync");
        view.sort_by(2);
        assert_eq!(names(&view)[0], "access", "1375 calls");
        view.sort_by(2);
        assert_ne!(names(&view)[0], "access");
        view.sort_by(0);
        assert!(names(&view).is_sorted());
        view.show(BrowserList::Paths);
        assert!(view.rows().is_sorted_by_key(|row| row.is_idle));
        view.show(BrowserList::Slow);
        assert!(view.rows().is_sorted_by_key(|row| row.is_idle));
        assert!(view.rows()[view.rows().len() - 1].is_idle, "the longest of all, but idle");
        view.show(BrowserList::Calls);
        view.sort_by(99);
        assert_eq!(view.sort().0, BrowserList::Calls.headings().len() - 1);
        for list in BrowserList::ALL {
            view.show(list);
            assert!(view.rows().iter().all(|row| row.cells.len() == list.headings().len()));
        }
    }

    #[test]
    fn a_word_finds_rows_by_their_stacks_too() {
        let report = report();
        let mut view = ReportView::new(&report);
        view.set_filter("kconfig::SYNC");
        assert_eq!(names(&view), ["fdatasync by KConfig::sync()"]);
        view.set_filter("kf5kiocore");
        assert_eq!(view.rows().len(), 0);
        view.show(BrowserList::Slow);
        view.set_filter("KRecentDocument");
        assert_eq!(view.rows().len(), 1);
        assert!(view.details().iter().any(|line| line.starts_with("→ KRecentDocument::add")));
    }

    #[test]
    fn the_cursor_stays_on_the_rows() {
        let report = report();
        let mut view = ReportView::new(&report);
        view.step(-1);
        assert_eq!(view.cursor(), 0);
        view.step(1000);
        assert_eq!(view.cursor(), view.rows().len() - 1);
        view.set_filter("there is no such thing");
        view.step(1);
        assert_eq!((view.cursor(), view.details()), (0, Vec::<String>::new()));
    }
}
