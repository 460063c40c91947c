//! A client of a listing, as a file manager is one: it holds names, attributes and the order in which they are shown.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use listing::collation::{Collation, Digits};
use listing::model::{Model, RowOrder, ViewFilter};
use listing::{AttributeSet, Listing, ListingError, ListingRequest, Update, WorkerProgram};
use sys::clock::Clock;

/// What a client saw, and when, from its first call on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientView {
    /// The first names, enough for a screen or all there are.
    pub first: Duration,
    /// Every name in its place, if the client sorts.
    pub sorted: Duration,
    /// Everything.
    pub done: Duration,
    /// How many entries there are.
    pub entries: u32,
}

/// What a client does with what arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeps {
    /// It holds what arrived.
    Arrival,
    /// It keeps the rows of a view in the order of names.
    Rows,
}

/// Lists `path` with `fields` in a worker process and takes everything in.
///
/// # Errors
///
/// The listing failed; a client would show its error.
pub fn client(
    path: &Path,
    worker: &WorkerProgram,
    fields: AttributeSet,
    keeps: Keeps,
    clock: &dyn Clock,
) -> Result<(ClientView, Listing, Option<Model>), ListingError> {
    let start = clock.monotonic();
    let since = || clock.monotonic().saturating_sub(start);
    let request = ListingRequest::of(path).with_fields(fields);
    let mut listing = Listing::in_worker(worker, &request)?;
    let mut model = (keeps == Keeps::Rows).then(|| {
        let collation = Arc::new(Collation::new("en_US.UTF-8", Digits::ByValue));
        Model::new(collation, RowOrder::default(), ViewFilter::default())
    });
    let mut seen = ClientView::default();
    loop {
        // Without a time limit there is always an update.
        let Some(update) = listing.next(None)? else { continue };
        match update {
            Update::Names(_) => {
                if let Some(model) = &mut model {
                    model.arrived(listing.entries(), listing.len());
                    seen.sorted = since();
                }
                if seen.first == Duration::ZERO {
                    seen.first = since();
                }
            }
            Update::Attributes(ids) => {
                if let Some(model) = &mut model {
                    model.attributes_changed(listing.entries(), ids.iter());
                }
            }
            Update::Done(entries) => {
                seen.done = since();
                seen.entries = entries;
                return Ok((seen, listing, model));
            }
            _ => (),
        }
    }
}
