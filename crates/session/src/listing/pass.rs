//! What those need to know of messages who pass them on: what is asked, and what ends a listing.

use std::io;
use std::path::Path;

use store::stream::{Builder, ChunkError};

use super::connection::Message;
use super::entry::EntryId;
use super::error::{Failure, Fault, Step};
use super::record::{FORMAT, done, failure, failure_of, request_of, tag, wanted_of};
use super::request::Request;

/// What a client asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// For a directory.
    List(Request),
    /// For the attributes of these entries before others.
    Entries(Vec<EntryId>),
    /// For the details of these entries.
    Details(Vec<EntryId>),
}

/// Something in a message that concerns the listing as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Everything was read once.
    Done,
    /// Something about the directory itself went wrong.
    Failed(Step),
}

impl Message {
    /// Returns what a client asks with it.
    ///
    /// # Errors
    ///
    /// [`Fault`]: it is not one question, or not as it must be.
    pub fn asked(&self) -> Result<Asked, Fault> {
        let mut records = self.chunk().records().map_err(ChunkError::from)?;
        let record = records.next().ok_or(Fault::Length { record: "question" })?;
        if let Some(more) = records.next() {
            return Err(Fault::Unexpected { tag: more.tag });
        }
        match record.tag {
            tag::REQUEST => Ok(Asked::List(request_of(record.payload)?)),
            tag::WANT => Ok(Asked::Entries(wanted_of(record.payload)?)),
            tag::ASK_DETAILS => Ok(Asked::Details(wanted_of(record.payload)?)),
            tag => Err(Fault::Unexpected { tag }),
        }
    }

    /// Returns what it says of the listing as a whole, in order.
    ///
    /// # Errors
    ///
    /// [`Fault`]: it is not as it must be. Its other records are not looked at.
    pub fn marks(&self) -> Result<Vec<Mark>, Fault> {
        let mut marks = Vec::new();
        for record in self.chunk().records().map_err(ChunkError::from)? {
            match record.tag {
                tag::DONE => marks.push(Mark::Done),
                tag::FAILURE => marks.push(Mark::Failed(failure_of(record.payload)?.step)),
                _ => {}
            }
        }
        Ok(marks)
    }
}

/// Makes the answer to a client that does not get a listing.
///
/// # Errors
///
/// None that can happen.
pub fn refusal(path: &Path, step: Step) -> io::Result<Message> {
    let mut builder = Builder::new(FORMAT);
    failure(&Failure { path: path.to_owned(), step, number: 0 }, &mut builder)?;
    done(0, &mut builder)?;
    Message::of(&builder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listing::{Entries, Limits, Update};

    #[test]
    fn a_refusal_is_a_listing_without_entries() {
        let message = refusal(Path::new("/a"), Step::Refused).unwrap();
        assert_eq!(message.marks().unwrap(), [Mark::Failed(Step::Refused), Mark::Done]);
        assert!(message.asked().is_err());
        let mut entries = Entries::new(Limits::default());
        let updates = entries.take(message.chunk()).unwrap();
        let [Update::Failed(failure), Update::Done(0)] = &updates[..] else {
            panic!("{updates:?}")
        };
        assert_eq!((&*failure.path, failure.step), (Path::new("/a"), Step::Refused));
    }

    #[test]
    fn a_question_is_one_record() {
        let request = Request::of(Path::new("/a")).followed();
        let mut builder = Builder::new(FORMAT);
        super::super::record::request(&request, &mut builder).unwrap();
        let once = Message::of(&builder).unwrap();
        assert_eq!(once.asked().unwrap(), Asked::List(request.clone()));
        super::super::record::request(&request, &mut builder).unwrap();
        assert!(Message::of(&builder).unwrap().asked().is_err());
    }
}
