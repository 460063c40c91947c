//! Another order or filter for many entries: computed beside the model, on another thread if one likes, and then put in its place.

use std::sync::Arc;

use super::{Changes, Filter, Model, Order, Source};
use crate::listing::EntryId;

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
    pub fn plan(&mut self, order: Order, filter: Filter) -> Rebuild {
        self.log = Some(Log::default());
        let mut model = Model::new(Arc::clone(&self.collation), order, filter);
        model.gone = self.gone.clone();
        Rebuild { model, count: self.known() }
    }

    /// Takes the place of the old rows, with everything that has happened since [`Model::plan`]. A plan that is not the last one changes nothing.
    pub fn adopt<S: Source + ?Sized>(&mut self, source: &S, rebuild: Rebuild) -> Changes {
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
    pub fn run<S: Source + ?Sized>(&mut self, source: &S) {
        self.model.arrived(source, self.count);
    }
}
