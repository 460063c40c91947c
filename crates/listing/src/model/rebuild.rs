//! Another order or filter for many entries: computed beside the model, on another thread if one likes, and then put in its place.

use std::sync::Arc;

use super::{Changes, Model, ModelSource, RowOrder, ViewFilter};
use crate::EntryId;

/// What happened to a model while another one is made from it.
#[derive(Debug, Default)]
pub(super) struct Log {
    pub(super) touched: Vec<EntryId>,
    pub(super) removed: Vec<EntryId>,
    pub(super) renamed: Vec<EntryId>,
}

/// A model that is being made in the place of another.
#[derive(Debug)]
pub struct Rebuild {
    model: Model,
    count: u32,
}

impl Model {
    /// Plans the same entries in another order or with another filter. The model goes on meanwhile and remembers what it is told.
    pub fn plan(&mut self, order: RowOrder, filter: ViewFilter) -> Rebuild {
        self.log = Some(Log::default());
        let mut model = Model::new(Arc::clone(&self.collation), order, filter);
        model.gone = self.gone.clone();
        Rebuild { model, count: self.known() }
    }

    /// Makes a model of the same names in another order or with another filter, for a caller that fills it some at a time
    /// with [`Model::sort_arrivals`] and [`Model::show_arrivals`], tells it what happens meanwhile, and then takes it in the
    /// place of this one.
    #[must_use]
    pub fn successor<S: ModelSource + ?Sized>(
        &self,
        source: &S,
        order: RowOrder,
        filter: ViewFilter,
    ) -> Model {
        let mut model = Model::new(Arc::clone(&self.collation), order, filter);
        // For all of them at once: other keys in between would undo what is sorted.
        model.choose_names(source, self.known());
        model
    }

    /// Takes the place of the old rows, with everything that has happened since [`Model::plan`]. A plan that is not the last one changes nothing.
    pub fn adopt<S: ModelSource + ?Sized>(&mut self, source: &S, rebuild: Rebuild) -> Changes {
        let Some(log) = self.log.take() else { return Changes::none() };
        let mut model = rebuild.model;
        // First, because the names of others are compared with these.
        model.renamed(source, log.renamed);
        model.arrived(source, self.known());
        model.removed(source, log.removed);
        model.attributes_changed(source, log.touched);
        *self = model;
        Changes::Reset
    }
}

impl Rebuild {
    /// Does the work; any thread may, with a listing as it was when it was planned or later.
    pub fn run<S: ModelSource + ?Sized>(&mut self, source: &S) {
        self.model.arrived(source, self.count);
    }
}
