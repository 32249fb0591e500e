//! The peers that have not introduced themselves yet, or have offered no path yet, and their limit

use std::collections::VecDeque;
use std::sync::Arc;

use crate::sync::Mutex;
use crate::wait_queue::SharedWaitQueue;

/// Whether an attempt has given its place to a later one
type IsEvicted = Arc<SharedWaitQueue<bool>>;

/// The attempts of peers at one step of the introduction, the oldest first
///
/// If there are too many, the oldest gives way: an honest peer takes some round trips, and a silent one would stay for long.
pub(super) struct HalfOpen {
    places: Mutex<VecDeque<IsEvicted>>,
    max: u32,
}

impl HalfOpen {
    pub(super) fn new(max: u32) -> Self {
        Self { places: Mutex::new(VecDeque::new()), max }
    }

    /// A place for an attempt; takes that of the oldest one if there is no other
    pub(super) fn enter(&self) -> HalfOpenPlace<'_> {
        let is_evicted =
            Arc::new(SharedWaitQueue::for_all("a peer to introduce itself and offer a path", false, 1));
        let mut places = self.places.lock();
        places.push_back(Arc::clone(&is_evicted));
        let oldest = if places.len() > self.max as usize { places.pop_front() } else { None };
        drop(places);
        if let Some(oldest) = oldest {
            oldest.update(|is_evicted| *is_evicted = true);
        }
        HalfOpenPlace { half_open: self, is_evicted }
    }
}

/// The place of one attempt, until it is dropped
pub(super) struct HalfOpenPlace<'a> {
    half_open: &'a HalfOpen,
    is_evicted: IsEvicted,
}

impl HalfOpenPlace<'_> {
    /// Waits until a later attempt has taken the place; how many attempts there may be
    pub(super) async fn evicted(&self) -> u32 {
        self.is_evicted.take_when(|is_evicted| is_evicted.then_some(())).await;
        self.half_open.max
    }
}

impl Drop for HalfOpenPlace<'_> {
    fn drop(&mut self) {
        self.half_open.places.lock().retain(|place| !Arc::ptr_eq(place, &self.is_evicted));
    }
}
