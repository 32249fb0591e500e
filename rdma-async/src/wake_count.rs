//! A task that counts how often it is woken, for tests

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Wake, Waker};

#[derive(Default)]
pub(crate) struct WakeCount(AtomicU32);

impl WakeCount {
    pub(crate) fn new() -> (Arc<Self>, Waker) {
        let count = Arc::new(Self::default());
        (Arc::clone(&count), count.into())
    }

    pub(crate) fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Wake for WakeCount {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}
