//! What those need to know of messages who pass them on: what is asked, and what ends a listing.

use std::io;
use std::path::Path;

use store::stream::{ChunkError, StreamBuilder};

use super::connection::ListingMessage;
use super::entry::EntryId;
use super::error::{Failure, ListingStep, StreamFault};
use super::record::{
    AttributeView, FORMAT, details_of, done, done_of, failure, failure_of, question_of, request_of,
    tag, wanted_of,
};
use super::request::ListingRequest;

/// What a client asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientRequest {
    /// For a directory.
    List(ListingRequest),
    /// For the attributes of these entries before others.
    Entries(Vec<EntryId>),
    /// For the details of these entries.
    Details(Vec<EntryId>),
}

/// Something in a message that concerns the listing as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamMark {
    /// Names or attributes arrived, or entries are gone or have other names.
    Entries,
    /// Everything was read once, in this many names.
    Done(u32),
    /// All changes were told that had happened when the question of this number was received, or one before it; see [`Connection::check`](super::Connection::check). Such a message is for those who pass others on alone.
    Checked(u32),
    /// Something about the directory itself went wrong.
    Failed(ListingStep),
}

impl ListingMessage {
    /// Returns what a client asks with it.
    ///
    /// # Errors
    ///
    /// [`StreamFault`]: it is not one question, or not as it must be.
    pub fn asked(&self) -> Result<ClientRequest, StreamFault> {
        let mut records = self.chunk().records().map_err(ChunkError::from)?;
        let record = records.next().ok_or(StreamFault::Length { record: "question" })?;
        if let Some(more) = records.next() {
            return Err(StreamFault::Unexpected { tag: more.tag });
        }
        match record.tag {
            tag::REQUEST => Ok(ClientRequest::List(request_of(record.payload)?)),
            tag::WANT => Ok(ClientRequest::Entries(wanted_of(record.payload)?)),
            tag::ASK_DETAILS => Ok(ClientRequest::Details(wanted_of(record.payload)?)),
            tag => Err(StreamFault::Unexpected { tag }),
        }
    }

    /// Returns what it says of the listing as a whole, in order.
    ///
    /// # Errors
    ///
    /// [`StreamFault`]: it is not as it must be. Its other records are not looked at.
    pub fn marks(&self) -> Result<Vec<StreamMark>, StreamFault> {
        let mut marks = Vec::new();
        for record in self.chunk().records().map_err(ChunkError::from)? {
            match record.tag {
                // Said once of several records.
                tag::NAMES | tag::ATTRIBUTES | tag::REMOVED | tag::RENAMED
                    if marks.last() == Some(&StreamMark::Entries) => {}
                tag::NAMES | tag::ATTRIBUTES | tag::REMOVED | tag::RENAMED => {
                    marks.push(StreamMark::Entries);
                }
                tag::DONE => marks.push(StreamMark::Done(done_of(record.payload)?.entries)),
                tag::CHECKED => marks.push(StreamMark::Checked(question_of(record.payload)?)),
                tag::FAILURE => marks.push(StreamMark::Failed(failure_of(record.payload)?.step)),
                _ => {}
            }
        }
        Ok(marks)
    }

    /// Returns whether a client that knows `names` names and follows nothing can take it: it says more of entries that the client knows, and not that any came or went.
    ///
    /// # Errors
    ///
    /// As [`ListingMessage::marks`].
    pub fn is_of_known(&self, names: u32) -> Result<bool, StreamFault> {
        for record in self.chunk().records().map_err(ChunkError::from)? {
            let is_known = match record.tag {
                tag::STRINGS | tag::OWNERS => true,
                tag::DETAILS => details_of(record.payload)?.id < names,
                tag::ATTRIBUTES => {
                    let view = AttributeView::of(record.payload)?;
                    (0..view.count).all(|row| view.id(record.payload, row) < names)
                }
                _ => false,
            };
            if !is_known {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Makes the answer to a client that does not get a listing.
///
/// # Errors
///
/// None that can happen.
pub fn refusal(path: &Path, step: ListingStep) -> io::Result<ListingMessage> {
    let mut builder = StreamBuilder::new(FORMAT);
    failure(&Failure { path: path.to_owned(), step, number: 0 }, &mut builder)?;
    done(0, &mut builder)?;
    ListingMessage::of(&builder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Entries, ListingLimits, Update};

    #[test]
    fn a_refusal_is_a_listing_without_entries() {
        let message = refusal(Path::new("/a"), ListingStep::Refused).unwrap();
        assert_eq!(
            message.marks().unwrap(),
            [StreamMark::Failed(ListingStep::Refused), StreamMark::Done(0)]
        );
        assert!(message.asked().is_err());
        let mut entries = Entries::new(ListingLimits::default());
        let updates = entries.take(message.chunk()).unwrap();
        let [Update::Failed(failure), Update::Done(0)] = &updates[..] else {
            panic!("{updates:?}")
        };
        assert_eq!((&*failure.path, failure.step), (Path::new("/a"), ListingStep::Refused));
    }

    #[test]
    fn a_question_is_one_record() {
        let request = ListingRequest::of(Path::new("/a")).followed();
        let mut builder = StreamBuilder::new(FORMAT);
        super::super::record::request(&request, &mut builder).unwrap();
        let once = ListingMessage::of(&builder).unwrap();
        assert_eq!(once.asked().unwrap(), ClientRequest::List(request.clone()));
        super::super::record::request(&request, &mut builder).unwrap();
        assert!(ListingMessage::of(&builder).unwrap().asked().is_err());
    }
}
