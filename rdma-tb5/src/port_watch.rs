//! Whether the port is up, queried before a post when no completion has shown it lately
//!
//! After a cable was pulled, posting has been reported to crash inside of Apple's provider. A query before each post would cost a system
//! call, and a clock nearly as much. A completion costs nothing and proves that the port is up. So the port is queried before the
//! first post on a device, and again before the first post after [`SILENCE`] polls in a row without a completion. The posts between two
//! queries are a batch.

use rdma_core::{Cause, Error, Verb};

use crate::sync::atomic::{AtomicU8, Ordering};

/// Polls in a row without a completion after which the port is queried again: some ten microseconds of spinning, several times
/// the round trip between two Macs, so that steady traffic never queries it.
pub(crate) const SILENCE: u32 = 1024;

/// What is known about the port of a device
#[derive(Debug)]
pub(crate) struct PortWatch {
    state: AtomicU8,
    /// Whether queue pairs that were open while the port was down are dead for good, as on Apple's device.
    down_is_final: bool,
}

/// Neither a query nor a completion has shown lately that the port is up.
const UNCERTAIN: u8 = 0;
/// A query or a completion has shown that the port is up.
const UP: u8 = 1;
/// The port was down, and its queue pairs are dead for good.
const GONE: u8 = 2;

impl PortWatch {
    /// `down_is_final` if queue pairs that were open while the port was down stay dead, as on Apple's device
    pub(crate) fn new(down_is_final: bool) -> Self {
        Self { state: AtomicU8::new(UNCERTAIN), down_is_final }
    }

    /// Passes if the port is up as far as is known; calls `query` if that is uncertain, which has no result if the device does not answer
    ///
    /// # Errors
    ///
    /// [`Cause::PortDown`] or the cause of a failed query, or [`Cause::DeviceGone`] if the queue pairs are dead for good;
    /// [`Cause::Busy`] if there is no answer, which proves nothing.
    #[inline]
    pub(crate) fn check(
        &self,
        verb: Verb,
        query: impl FnOnce() -> Option<Result<bool, Error>>,
    ) -> Result<(), Error> {
        if self.state.load(Ordering::Relaxed) == UP { Ok(()) } else { self.check_by_query(verb, query) }
    }

    #[cold]
    fn check_by_query(
        &self,
        verb: Verb,
        query: impl FnOnce() -> Option<Result<bool, Error>>,
    ) -> Result<(), Error> {
        let gone = Err(Error::new(verb, Cause::DeviceGone));
        if self.state.load(Ordering::Relaxed) == GONE {
            return gone;
        }
        let Some(answer) = query() else { return Err(Error::new(verb, Cause::Busy)) };
        match answer {
            Ok(true) => {
                self.change(UNCERTAIN, UP);
                Ok(())
            }
            Ok(false) if !self.down_is_final => Err(Error::new(verb, Cause::PortDown)),
            Err(error) if !self.down_is_final => Err(Error::new(verb, error.cause)),
            _ => {
                self.state.swap(GONE, Ordering::Relaxed);
                gone
            }
        }
    }

    /// Notes that a request has completed successfully
    #[inline]
    pub(crate) fn completed(&self) {
        if self.state.load(Ordering::Relaxed) == UNCERTAIN {
            self.change(UNCERTAIN, UP);
        }
    }

    /// Notes that a query has shown that the port is down
    pub(crate) fn down(&self) {
        if self.down_is_final {
            self.state.store(GONE, Ordering::Relaxed);
        }
    }

    /// Whether the port was seen down, which was the end of everything on the device
    pub(crate) fn is_gone(&self) -> bool {
        self.state.load(Ordering::Relaxed) == GONE
    }

    /// Notes that nothing has completed for long, or that a request has failed: the next post queries the port
    pub(crate) fn suspect(&self) {
        self.change(UP, UNCERTAIN);
    }

    /// Changes one state into another; `GONE` stays
    fn change(&self, from: u8, to: u8) {
        // If this fails, another thread has changed the state; its knowledge is as new.
        let _ = self.state.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
    }
}
