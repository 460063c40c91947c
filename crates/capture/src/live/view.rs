//! The state of the live screen: the messages that match a filter, the cursor, and the tabs. Drawing is elsewhere.

use std::collections::VecDeque;

use super::Live;
use crate::capture::CaptureEvent;
use crate::filter::Filter;
use crate::model::Row;
use crate::stats::{Stats, collect};
use wire::MessageType;

/// The tab.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Tab {
    /// Messages as they come.
    #[default]
    Messages,
    /// Methods and signals with their figures.
    Statistics,
    /// Connections.
    Connections,
}

impl Tab {
    /// All of them, in order.
    pub const ALL: [Tab; 3] = [Tab::Messages, Tab::Statistics, Tab::Connections];

    /// Returns its title.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Tab::Messages => "Messages",
            Tab::Statistics => "Statistics",
            Tab::Connections => "Connections",
        }
    }
}

/// Whether messages come onto the screen.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Flow {
    /// They do.
    #[default]
    Running,
    /// They are kept, but not shown yet.
    Paused,
}

/// Where answers stand.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Answers {
    /// Beside their calls.
    #[default]
    Joined,
    /// In rows of their own.
    Apart,
}

/// The state of the screen.
#[derive(Debug, Default)]
pub struct LiveView {
    live: Live,
    rows: VecDeque<u32>,
    /// The first message that the rows do not know of yet.
    next: u32,
    filter: Filter,
    typed: String,
    fault: Option<String>,
    cursor: usize,
    /// Whether the cursor stays at the newest.
    follows: bool,
    flow: Flow,
    answers: Answers,
    stats: Stats,
}

impl LiveView {
    /// Begins with nothing, at the newest.
    #[must_use]
    pub fn new(filter: Filter, typed: &str) -> LiveView {
        LiveView { filter, typed: typed.to_owned(), follows: true, ..LiveView::default() }
    }

    /// Returns the messages.
    #[must_use]
    pub fn live(&self) -> &Live {
        &self.live
    }

    /// Returns the messages, to note what is known beside them.
    pub fn live_mut(&mut self) -> &mut Live {
        &mut self.live
    }

    /// Takes an event in.
    pub fn take(&mut self, event: &CaptureEvent<'_>) {
        self.live.take(event);
    }

    /// Notes what time it is, in nanoseconds since the epoch.
    pub fn set_now(&mut self, now_ns: u64) {
        self.live.set_now(now_ns);
    }

    /// Brings the rows up to date with what was taken in; nothing while it is paused.
    pub fn refresh(&mut self) {
        let model = self.live.model();
        if self.flow == Flow::Paused {
            return;
        }
        let first = model.first();
        let gone = self.rows.iter().take_while(|number| **number < first).count();
        self.rows.drain(..gone);
        self.cursor = self.cursor.saturating_sub(gone);
        for number in self.next.max(first)..model.end() {
            if self.is_shown(number) {
                self.rows.push_back(number);
            }
            // An answer may make its call one that is chosen: a slow one, a failed one.
            let answered = model.row(number).filter(|row| is_answer(row)).map(|row| row.partner);
            if let Some(call) = answered.filter(|call| model.row(*call).is_some())
                && let Err(at) = self.rows.binary_search(&call)
                && self.is_shown(call)
            {
                self.rows.insert(at, call);
                self.cursor += usize::from(at <= self.cursor && !self.follows);
            }
        }
        self.next = model.end();
        if self.filter.depends_on_time() {
            // A call that waits becomes a slow one while nothing comes.
            for call in model.open_calls() {
                if let Err(at) = self.rows.binary_search(&call)
                    && self.is_shown(call)
                {
                    self.rows.insert(at, call);
                    self.cursor += usize::from(at <= self.cursor && !self.follows);
                }
            }
        }
        let last = self.rows.len().saturating_sub(1);
        self.cursor = if self.follows { last } else { self.cursor.min(last) };
    }

    fn is_shown(&self, number: u32) -> bool {
        let model = self.live.model();
        let Some(row) = model.row(number) else { return false };
        let is_joined =
            self.answers == Answers::Joined && is_answer(row) && model.partner(row).is_some();
        !is_joined
            && !model.is_recorders(number)
            && (self.filter.is_every() || self.filter.chooses(model, number))
    }

    fn renew(&mut self) {
        let at = self.selected();
        self.rows.clear();
        self.next = 0;
        let flow = std::mem::take(&mut self.flow);
        self.refresh();
        self.flow = flow;
        if let Some(number) = at.filter(|_| !self.follows) {
            self.cursor = self.rows.partition_point(|row| *row < number);
            self.cursor = self.cursor.min(self.rows.len().saturating_sub(1));
        }
    }

    /// Counts anew what the filter chooses, for the tabs with figures.
    pub fn count(&mut self) {
        self.stats = collect(self.live.model(), &self.filter);
    }

    /// Returns the figures as they were counted last.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Returns the numbers of the messages that are shown, oldest first.
    #[must_use]
    pub fn rows(&self) -> &VecDeque<u32> {
        &self.rows
    }

    /// Returns which row the cursor is on.
    #[must_use]
    pub fn cursor(&self) -> usize {
        self.cursor
    }

    /// Returns the message under the cursor.
    #[must_use]
    pub fn selected(&self) -> Option<u32> {
        self.rows.get(self.cursor).copied()
    }

    /// Returns whether the cursor stays at the newest.
    #[must_use]
    pub fn follows(&self) -> bool {
        self.follows
    }

    /// Moves the cursor by so many rows; at the last one it stays with the newest.
    pub fn step(&mut self, by: isize) {
        let last = self.rows.len().saturating_sub(1);
        self.cursor = self.cursor.saturating_add_signed(by).min(last);
        self.follows = self.cursor == last && by > 0;
    }

    /// Returns the text of the filter.
    #[must_use]
    pub fn typed(&self) -> &str {
        &self.typed
    }

    /// Returns the error in the text of the filter.
    #[must_use]
    pub fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    /// Applies the filter while it is typed; while it is invalid, the previous one stays in effect.
    pub fn set_filter(&mut self, typed: &str) {
        typed.clone_into(&mut self.typed);
        match typed.parse::<Filter>() {
            Ok(filter) => {
                self.filter = filter;
                self.fault = None;
                self.renew();
            }
            Err(error) => self.fault = Some(error.to_string()),
        }
    }

    /// Returns whether messages come onto the screen.
    #[must_use]
    pub fn flow(&self) -> Flow {
        self.flow
    }

    /// Stops messages from coming onto the screen, or lets those that waited come.
    pub fn pause(&mut self) {
        self.flow = match self.flow {
            Flow::Running => Flow::Paused,
            Flow::Paused => Flow::Running,
        };
        self.refresh();
    }

    /// Returns how many messages wait to be shown.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        self.live.model().end().saturating_sub(self.next.max(self.live.model().first()))
    }

    /// Returns where answers stand.
    #[must_use]
    pub fn answers(&self) -> Answers {
        self.answers
    }

    /// Puts answers beside their calls, or into rows of their own.
    pub fn turn_answers(&mut self) {
        self.answers = match self.answers {
            Answers::Joined => Answers::Apart,
            Answers::Apart => Answers::Joined,
        };
        self.renew();
    }

    /// Clears the list.
    pub fn clear(&mut self) {
        self.live.forget(0);
        self.renew();
    }
}

fn is_answer(row: &Row) -> bool {
    matches!(row.kind, MessageType::Return | MessageType::Error)
}

#[cfg(test)]
mod tests {
    use super::super::tests::take;
    use super::*;
    use crate::model::sample::SampleMessage;

    fn call(serial: u32) -> SampleMessage {
        SampleMessage::call(serial, ":1.1", ":1.2", "org.example.I.Say")
    }

    #[test]
    fn answers_stand_beside_their_calls_or_in_rows() {
        let mut view = LiveView::new(Filter::default(), "");
        take(&mut view.live, 0, &call(1));
        take(&mut view.live, 5, &SampleMessage::answer(1, ":1.2", ":1.1"));
        take(&mut view.live, 9, &SampleMessage::answer(7, ":1.2", ":1.1"));
        view.refresh();
        assert_eq!(view.rows(), &[0, 2], "an answer to nothing is not hidden");
        view.turn_answers();
        assert_eq!(view.rows(), &[0, 1, 2]);
    }

    #[test]
    fn a_call_appears_when_its_answer_makes_it_slow() {
        let mut view = LiveView::new(Filter::default(), "");
        view.set_filter("slower-than:1ms");
        take(&mut view.live, 0, &call(1));
        take(&mut view.live, 10, &call(2));
        view.refresh();
        assert!(view.rows().is_empty());
        take(&mut view.live, 2000, &SampleMessage::answer(2, ":1.2", ":1.1"));
        take(&mut view.live, 2001, &SampleMessage::answer(1, ":1.2", ":1.1"));
        view.refresh();
        assert_eq!(view.rows(), &[0, 1]);
    }

    #[test]
    fn a_call_appears_when_it_has_waited_for_long() {
        let mut view = LiveView::new(Filter::default(), "");
        view.set_filter("slower-than:1s");
        take(&mut view.live, 0, &call(1));
        view.refresh();
        assert!(view.rows().is_empty());
        view.set_now(2_000_000_000);
        view.refresh();
        assert_eq!(view.rows(), &[0]);
    }

    #[test]
    fn a_filter_that_is_half_typed_leaves_the_one_before() {
        let mut view = LiveView::new(Filter::default(), "");
        for serial in 1..=3 {
            take(&mut view.live, 0, &call(serial));
        }
        take(&mut view.live, 0, &SampleMessage::signal(9, ":1.2", "org.example.I.Done"));
        view.set_filter("type:signal");
        assert_eq!(view.rows(), &[3]);
        view.set_filter("type:signal or (");
        assert!(view.fault().is_some());
        assert_eq!(view.rows(), &[3]);
        view.set_filter("");
        assert_eq!((view.rows().len(), view.fault()), (4, None));
    }

    #[test]
    fn a_pause_keeps_the_screen_and_loses_nothing() {
        let mut view = LiveView::new(Filter::default(), "");
        take(&mut view.live, 0, &call(1));
        view.refresh();
        view.pause();
        take(&mut view.live, 0, &call(2));
        view.refresh();
        assert_eq!((view.rows().len(), view.waiting()), (1, 1));
        view.pause();
        assert_eq!((view.rows().len(), view.waiting()), (2, 0));
        assert_eq!(view.cursor(), 1, "at the newest");
        view.step(-1);
        take(&mut view.live, 0, &call(3));
        view.refresh();
        assert_eq!((view.cursor(), view.follows()), (0, false));
        view.step(5);
        assert!(view.follows());
    }
}
