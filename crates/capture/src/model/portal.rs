//! Requests to portals: the call returns an object at once, and the user's choice arrives later as a signal of it.
//!
//! XDG Desktop Portal documentation, "org.freedesktop.portal.Request".

use foldhash::HashMap;

use super::texts::Text;
use super::{NONE, Request};

/// Objects that stand for requests are below this.
pub(super) const REQUESTS: &str = "/org/freedesktop/portal/desktop/request/";
/// The interface of such objects.
pub(super) const REQUEST: &str = "org.freedesktop.portal.Request";

/// The requests of a capture.
#[derive(Debug, Default)]
pub(super) struct Portals {
    all: Vec<Request>,
    open: HashMap<(u16, Text), usize>,
}

impl Portals {
    pub(super) fn requests(&self) -> &[Request] {
        &self.all
    }

    /// Records that a call was answered with the object of a request.
    pub(super) fn begin(&mut self, bus: u16, handle: Text, call: u32) {
        self.open.insert((bus, handle), self.all.len());
        self.all.push(Request { call, handle, response: NONE, code: None });
    }

    /// Notes the response to a request.
    pub(super) fn respond(&mut self, bus: u16, handle: Text, response: u32, code: Option<u32>) {
        let at = self.open.remove(&(bus, handle));
        if let Some(request) = at.and_then(|at| self.all.get_mut(at)) {
            request.response = response;
            request.code = code;
        }
    }

    pub(super) fn forget(&mut self, first: u32) {
        let gone = self.all.iter().take_while(|request| request.call < first).count();
        self.all.drain(..gone);
        self.open.retain(|_, at| {
            let kept = at.checked_sub(gone);
            *at = kept.unwrap_or(0);
            kept.is_some()
        });
    }
}
