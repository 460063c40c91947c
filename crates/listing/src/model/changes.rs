//! What a view has to do after the model has changed.

/// More steps than this cost a view more than drawing itself anew.
const STEPS_AT_MOST: usize = 256;

/// What has changed in the rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changes {
    /// To be applied one after the other; a row number is that after the steps before it. Perhaps there are none.
    Steps(Vec<RowChange>),
    /// Too much to tell one by one: every row may be another.
    Reset,
}

/// One change of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowChange {
    /// These rows are new; those from `row` on went down by `count`.
    Inserted {
        /// The first new row.
        row: usize,
        /// How many.
        count: usize,
    },
    /// These rows are gone; those after them went up by `count`.
    Removed {
        /// The first row that is gone.
        row: usize,
        /// How many.
        count: usize,
    },
    /// One row left its place; those between went up or down by one.
    Moved {
        /// Where it was.
        from: usize,
        /// Where it is when it has been taken away from there.
        to: usize,
    },
    /// These rows are the same entries in the same places with other attributes.
    Updated {
        /// The first row.
        row: usize,
        /// How many.
        count: usize,
    },
}

impl Changes {
    /// Nothing has changed.
    #[must_use]
    pub fn none() -> Changes {
        Changes::Steps(Vec::new())
    }

    /// Returns whether a view has nothing to do.
    #[must_use]
    pub fn is_none(&self) -> bool {
        matches!(self, Changes::Steps(steps) if steps.is_empty())
    }

    /// Adds a step, or gives up counting.
    pub(super) fn push(&mut self, step: RowChange) {
        let Changes::Steps(steps) = self else { return };
        if steps.len() == STEPS_AT_MOST {
            *self = Changes::Reset;
            return;
        }
        steps.push(step);
    }

    /// Adds what came after.
    pub(super) fn append(&mut self, later: Changes) {
        match later {
            Changes::Reset => *self = Changes::Reset,
            Changes::Steps(steps) => steps.into_iter().for_each(|step| self.push(step)),
        }
    }
}
