//! Readers of foreign files that may panic at what those say: each in a thread of its own, which ends then, and not the process.
//!
//! In a program that is built without unwinding (`panic = "abort"`), the thread rests for good instead, and what it holds stays in
//! memory; after [`MOST_LOST`] of them no further one begins. While it rests nobody can set another hook for panics, so that the hook
//! is set here and nowhere else.

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, SyncSender, channel, sync_channel};
use std::sync::{Mutex, Once, PoisonError};

use crate::thread::spawn;

/// The most threads of a process that may rest for good.
pub const MOST_LOST: usize = 16;

/// How many do.
static LOST: AtomicUsize = AtomicUsize::new(0);
static HOOK: Once = Once::new();
/// What is done before the message of a panic is written.
static FIRST: Mutex<Vec<fn()>> = Mutex::new(Vec::new());

thread_local! {
    /// Whoever waits for what this thread does now; `None` in a thread that is not sheltered.
    static ASKER: Cell<Option<Box<dyn Any>>> = const { Cell::new(None) };
}

/// Has `action` done before the message of any later panic is written: a terminal given back, so that the message is seen.
/// Doing it again changes nothing.
pub fn before_panic_message(action: fn()) {
    set_hook();
    let mut first = FIRST.lock().unwrap_or_else(PoisonError::into_inner);
    if !first.iter().any(|known| std::ptr::fn_addr_eq(*known, action)) {
        first.push(action);
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the one place")]
fn set_hook() {
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if let Ok(Some(asker)) = ASKER.try_with(Cell::take) {
                // Whoever waits learns of it by the end of the channel.
                drop(asker);
                while cfg!(panic = "abort") {
                    std::thread::park();
                }
                return;
            }
            for action in &*FIRST.lock().unwrap_or_else(PoisonError::into_inner) {
                action();
            }
            before(info);
        }));
    });
}

/// Counts a thread that rests for good; one that has ended costs nothing.
fn count_lost() {
    LOST.fetch_add(usize::from(cfg!(panic = "abort")), Ordering::Relaxed);
}

/// Answers whoever asked, unless that is not so any more.
fn answer<A: 'static>(answer: A) {
    if let Some(Ok(asker)) = ASKER.take().map(<Box<dyn Any>>::downcast::<SyncSender<A>>) {
        // Whoever asked waits, or has ended with the process.
        let _ = asker.send(answer);
    }
}

/// Questions, each with where its answer goes.
type Questions<Q, A> = Sender<(Q, SyncSender<A>)>;

/// A reader in a thread of its own.
pub struct ShelteredReader<Q, A>(Mutex<Option<Questions<Q, A>>>);

impl<Q, A> fmt::Debug for ShelteredReader<Q, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ShelteredReader")
    }
}

impl<Q: Send + 'static, A: Send + 'static> ShelteredReader<Q, A> {
    /// Starts a thread that the kernel shows as `name`, has it open a reader, and waits until that is done. It ends with this value.
    ///
    /// `None` if `open` returned none or panicked, if the kernel refuses a thread, or if too many rest for good already.
    pub fn start<R: 'static>(
        name: &'static str,
        open: impl FnOnce() -> Option<R> + Send + 'static,
        read: fn(&mut R, Q) -> A,
    ) -> Option<ShelteredReader<Q, A>> {
        if LOST.load(Ordering::Relaxed) >= MOST_LOST {
            return None;
        }
        set_hook();
        let (questions, asked) = channel::<(Q, SyncSender<A>)>();
        let (opened, is_open) = sync_channel::<bool>(1);
        let work = move || {
            ASKER.set(Some(Box::new(opened)));
            let Some(mut reader) = open() else { return answer(false) };
            answer(true);
            for (question, asker) in asked {
                ASKER.set(Some(Box::new(asker)));
                answer(read(&mut reader, question));
            }
            // Nobody waits; what the reader does when it goes is sheltered, too.
            ASKER.set(Some(Box::new(())));
        };
        let thread = spawn(name, work);
        drop(thread.ok()?);
        let is_open = is_open.recv().unwrap_or_else(|_| {
            count_lost();
            false
        });
        is_open.then(|| ShelteredReader(Mutex::new(Some(questions))))
    }

    /// Asks the reader and waits for what it says; `None` if it panicked at this question or at one before.
    pub fn ask(&self, question: Q) -> Option<A> {
        // Held until the answer is there: a question behind one that is never answered would wait for ever.
        let mut questions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (asker, answered) = sync_channel(1);
        questions.as_ref()?.send((question, asker)).ok()?;
        let answer = answered.recv().ok();
        if answer.is_none() {
            count_lost();
            *questions = None;
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn halves(divisor: &mut u32, number: u32) -> u32 {
        assert!(number < 1000, "planted");
        number / *divisor
    }

    #[test]
    fn a_reader_that_panics_is_lost_and_nothing_else() {
        let start =
            |divisor: Option<u32>| ShelteredReader::start("halves", move || divisor, halves);
        let reader = start(Some(2)).unwrap();
        let other = start(Some(3)).unwrap();
        assert_eq!(reader.ask(8), Some(4));
        assert_eq!(reader.ask(1000), None);
        assert_eq!(reader.ask(8), None, "a reader that panicked is not asked again");
        assert_eq!(other.ask(9), Some(3));
        assert!(start(None).is_none());
        let opened = ShelteredReader::start("halves", || panic!("planted"), halves);
        assert!(opened.is_none());
        // One that has panicked costs no other its reader.
        for _ in 0..2 * MOST_LOST {
            assert_eq!(start(Some(2)).unwrap().ask(1000), None);
        }
        assert_eq!(start(Some(2)).unwrap().ask(8), Some(4));
        before_panic_message(|| ());
        assert!(std::panic::catch_unwind(|| panic!("this panic ends its test alone")).is_err());
        assert_eq!(other.ask(12), Some(4));
    }

    #[test]
    fn threads_end_with_their_reader_and_answer_all_who_ask_at_once() {
        struct Goes(SyncSender<()>);
        impl Drop for Goes {
            fn drop(&mut self) {
                let _ = self.0.send(());
                panic!("planted: nobody waits for this thread");
            }
        }
        let (gone, is_gone) = sync_channel(1);
        let reader =
            ShelteredReader::start("adds", || Some(Goes(gone)), |_, number: u32| number + 1)
                .unwrap();
        std::thread::scope(|scope| {
            let ask = |number| {
                let reader = &reader;
                let ask = move || assert_eq!(reader.ask(number), Some(number + 1));
                crate::thread::spawn_scoped(scope, "asks", ask).unwrap()
            };
            let askers: Vec<_> = (0..16).map(ask).collect();
            askers.into_iter().for_each(|asker| asker.join().unwrap());
        });
        drop(reader);
        is_gone.recv().unwrap();
    }
}
