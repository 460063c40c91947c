//! Handles: numbers in the shape of pointers, looked up before they are used, so that one that is closed, of another type or invented is an error.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, RwLock, TryLockError};

use crate::error::CallError;

/// The next handle's number. It is never used twice, also not in a child of this process.
static NEXT: AtomicUsize = AtomicUsize::new(1);
/// The first number that this process gives: those below it are the parent's.
static FIRST: AtomicUsize = AtomicUsize::new(1);
/// Bits of a handle that are 0: it looks like an aligned pointer.
const SHIFT: u32 = 4;

/// The values of one type of handle.
pub(crate) struct Registry<T> {
    /// Made when it is first used; left behind in a forked child, where a thread that is not there any more may have held its lock.
    table: AtomicPtr<HandleTable<T>>,
    values: PhantomData<T>,
}

struct HandleTable<T> {
    /// The first number of the process that made it.
    first: usize,
    values: RwLock<BTreeMap<usize, Arc<T>>>,
}

impl<T: Send + Sync + 'static> Registry<T> {
    pub(crate) const fn new() -> Registry<T> {
        Registry { table: AtomicPtr::new(ptr::null_mut()), values: PhantomData }
    }

    /// Keeps a value and returns its handle.
    pub(crate) fn add<H>(&self, value: Arc<T>) -> *mut H {
        watch_forks();
        let table = self.table();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        table.write().unwrap_or_else(PoisonError::into_inner).insert(number, value);
        ptr::without_provenance_mut(number << SHIFT)
    }

    /// Returns the value of a handle.
    pub(crate) fn get<H>(&self, handle: *mut H) -> Result<Arc<T>, CallError> {
        let number = number_of(handle)?;
        let table = self.table().read().unwrap_or_else(PoisonError::into_inner);
        table.get(&number).cloned().ok_or_else(closed)
    }

    /// Takes a value out; its handle is closed.
    pub(crate) fn remove<H>(&self, handle: *mut H) -> Result<Arc<T>, CallError> {
        let number = number_of(handle)?;
        let mut table = self.table().write().unwrap_or_else(PoisonError::into_inner);
        table.remove(&number).ok_or_else(closed)
    }

    fn table(&self) -> &RwLock<BTreeMap<usize, Arc<T>>> {
        let first = FIRST.load(Ordering::Acquire);
        let mut known = self.table.load(Ordering::Acquire);
        loop {
            // SAFETY: it is null, or came from `Box::into_raw` below and is never freed.
            if let Some(table) = unsafe { known.as_ref() }.filter(|table| table.first == first) {
                return &table.values;
            }
            let made = Box::into_raw(Box::new(HandleTable { first, values: RwLock::default() }));
            match self.table.compare_exchange(known, made, Ordering::AcqRel, Ordering::Acquire) {
                // The parent's stays where it is, for nobody can say that its lock is free.
                Ok(_) => known = made,
                Err(other) => {
                    // SAFETY: it came from `Box::into_raw`, and nobody else has seen it.
                    drop(unsafe { Box::from_raw(made) });
                    known = other;
                }
            }
        }
    }
}

/// Returns the number of a handle of this process.
fn number_of<H>(handle: *mut H) -> Result<usize, CallError> {
    let address = handle.addr();
    let number = address >> SHIFT;
    if number == 0 || number << SHIFT != address {
        return Err(closed());
    }
    if number < FIRST.load(Ordering::Acquire) {
        return Err(CallError::new(libc::ESTALE, "the handle belongs to the process before fork"));
    }
    Ok(number)
}

fn closed() -> CallError {
    CallError::new(libc::EBADF, "the handle is closed, of another type, or none")
}

/// Returns what a handle stands for, for this thread alone.
pub(crate) fn lock<T>(value: &Mutex<T>) -> Result<MutexGuard<'_, T>, CallError> {
    value.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => CallError::new(libc::EBUSY, "another thread uses the handle"),
        TryLockError::Poisoned(_) => CallError::new(
            libc::ENOTRECOVERABLE,
            "the handle cannot be used after an internal error: close it",
        ),
    })
}

/// Closes a handle that no other thread uses; also one that an internal error left.
pub(crate) fn close<T: Send + 'static, H>(
    registry: &Registry<Mutex<T>>,
    handle: *mut H,
) -> Result<(), CallError> {
    match lock(&*registry.get(handle)?) {
        Err(error) if error.number() == libc::EBUSY => return Err(error),
        _ => {}
    }
    registry.remove(handle)?;
    Ok(())
}

/// Has a child that is forked take the handles that there are for those of its parent.
fn watch_forks() {
    static WATCHED: Once = Once::new();
    extern "C" fn in_child() {
        // Nothing but this may be done here: another thread may have held any lock.
        FIRST.store(NEXT.load(Ordering::Acquire), Ordering::Release);
    }
    WATCHED.call_once(|| {
        // SAFETY: the function lives as long as the library, which is never unloaded, and stores a number.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_good_until_it_is_closed() {
        static TEXTS: Registry<String> = Registry::new();
        let handle: *mut u8 = TEXTS.add(Arc::new("a".to_owned()));
        assert_eq!(*TEXTS.get(handle).unwrap(), "a");
        assert_eq!(*TEXTS.remove(handle).unwrap(), "a");
        assert_eq!(TEXTS.remove(handle).unwrap_err().number(), libc::EBADF);
        assert_eq!(TEXTS.get(handle).unwrap_err().number(), libc::EBADF);
        let again: *mut u8 = TEXTS.add(Arc::new("b".to_owned()));
        assert_ne!(again, handle, "no number is given twice");
        for invented in [0_usize, 1, 7, 17, usize::MAX, handle.addr() + 1] {
            let invented: *mut u8 = ptr::without_provenance_mut(invented);
            assert_eq!(TEXTS.get(invented).unwrap_err().number(), libc::EBADF);
        }
    }
}
