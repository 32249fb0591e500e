//! The I/O thread as long as an object of the device exists

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crate::shared::Shared;

/// Keeps a device open; the last one ends the I/O thread and waits for its end
pub(crate) struct Handle {
    pub(crate) shared: Arc<Shared>,
    pub(crate) thread: Option<JoinHandle<()>>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.mailbox.close();
        // A waker that the thread calls may drop the last object.
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != thread::current().id()
            && thread.join().is_err()
        {
            tracing::error!("the I/O thread has panicked");
        }
    }
}
