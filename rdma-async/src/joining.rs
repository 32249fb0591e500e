//! New peerings on their way to the reactor

use crate::sync::{AtomicBool, Mutex, Ordering};

/// Items that many tasks add and one takes over, until that one closes
#[derive(Debug)]
pub(crate) struct Joining<T> {
    /// `None` once it is closed.
    list: Mutex<Option<Vec<T>>>,
    /// Spares the taker the lock most of the time.
    has_some: AtomicBool,
}

impl<T> Joining<T> {
    pub(crate) fn new() -> Self {
        Self { list: Mutex::new(Some(Vec::new())), has_some: AtomicBool::new(false) }
    }

    /// Adds an item; gives it back if the list is closed
    pub(crate) fn push(&self, item: T) -> Result<(), T> {
        match &mut *self.list.lock() {
            Some(list) => list.push(item),
            None => return Err(item),
        }
        self.has_some.store(true, Ordering::Release);
        Ok(())
    }

    /// Whether items may be there
    pub(crate) fn has_some(&self) -> bool {
        self.has_some.load(Ordering::Acquire)
    }

    /// Moves the items to `all`
    pub(crate) fn take_into(&self, all: &mut Vec<T>) {
        if self.has_some() {
            self.has_some.store(false, Ordering::Release);
            all.extend(self.list.lock().iter_mut().flat_map(|list| list.drain(..)));
        }
    }

    /// Moves the items to `all`, and takes no more
    pub(crate) fn close_into(&self, all: &mut Vec<T>) {
        let list = self.list.lock().take();
        all.extend(list.into_iter().flatten());
    }
}
