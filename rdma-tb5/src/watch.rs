//! Whether the port is up, asked before posting when nothing else has shown it lately
//!
//! After a cable was pulled, posting has been seen to crash inside of Apple's provider. Asking before each post would cost a
//! system call; so would a clock, nearly. What is free is what completions tell: whose requests complete has a port. The port is
//! asked before the first post on a device, and again before the first one after [`SILENCE`] polls in a row that found nothing.
//! The posts between two such questions are a batch.

use std::sync::atomic::{AtomicU8, Ordering};

use rdma_core::{Cause, Error, Verb};

/// Polls in a row without a completion after which the port is asked again: some ten microseconds of spinning, several times
/// the round trip between two Macs, so that a conversation that goes on never asks.
pub(crate) const SILENCE: u32 = 1024;

/// What is known of the port of a device
#[derive(Debug)]
pub(crate) struct Watch {
    state: AtomicU8,
    /// Whether a port that was down has taken the queue pairs of its device with it, for good.
    is_final: bool,
}

/// Nothing has shown lately that the port is up.
const DOUBTED: u8 = 0;
/// Something has.
const UP: u8 = 1;
/// The port was down, and what was open then leads nowhere.
const GONE: u8 = 2;

impl Watch {
    /// `is_final` if what was open on a port stays dead when the port comes back, as on Apple's device
    pub(crate) fn new(is_final: bool) -> Self {
        Self { state: AtomicU8::new(DOUBTED), is_final }
    }

    /// Refuses to go on if the port is down; `ask` queries it
    #[inline]
    pub(crate) fn check(&self, verb: Verb, ask: impl FnOnce() -> Result<bool, Error>) -> Result<(), Error> {
        if self.state.load(Ordering::Relaxed) == UP { Ok(()) } else { self.look(verb, ask) }
    }

    #[cold]
    fn look(&self, verb: Verb, ask: impl FnOnce() -> Result<bool, Error>) -> Result<(), Error> {
        let gone = Err(Error::new(verb, Cause::DeviceGone));
        if self.state.load(Ordering::Relaxed) == GONE {
            return gone;
        }
        match ask() {
            Ok(true) => {
                self.step(DOUBTED, UP);
                Ok(())
            }
            Ok(false) if !self.is_final => Err(Error::new(verb, Cause::PortDown)),
            Err(error) if !self.is_final => Err(Error::new(verb, error.cause)),
            _ => {
                self.state.store(GONE, Ordering::Relaxed);
                gone
            }
        }
    }

    /// A request has completed well
    #[inline]
    pub(crate) fn completed(&self) {
        if self.state.load(Ordering::Relaxed) == DOUBTED {
            self.step(DOUBTED, UP);
        }
    }

    /// Nothing has completed for long, or something has failed
    pub(crate) fn doubt(&self) {
        self.step(UP, DOUBTED);
    }

    /// From one state to another; one that is gone stays gone
    fn step(&self, from: u8, to: u8) {
        // Another thread knew it already, or knows better.
        let _ = self.state.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn never() -> Result<bool, Error> {
        panic!("nobody has to ask")
    }

    fn cause(result: Result<(), Error>) -> Option<Cause> {
        result.err().map(|error| error.cause)
    }

    #[test]
    fn the_first_post_asks_and_those_after_it_do_not() {
        let watch = Watch::new(true);
        assert_eq!(watch.check(Verb::PostSend, || Ok(true)), Ok(()));
        assert_eq!(watch.check(Verb::PostRecv, never), Ok(()));
    }

    #[test]
    fn completions_stand_for_an_answer() {
        let watch = Watch::new(true);
        watch.completed();
        assert_eq!(watch.check(Verb::PostSend, never), Ok(()));
        watch.doubt();
        watch.completed();
        assert_eq!(watch.check(Verb::PostSend, never), Ok(()));
    }

    #[test]
    fn on_apples_device_what_is_gone_does_not_come_back() {
        for answer in [Ok(false), Err(Error::new(Verb::QueryPort, Cause::Os(5)))] {
            let watch = Watch::new(true);
            assert_eq!(cause(watch.check(Verb::PostSend, || answer)), Some(Cause::DeviceGone));
            watch.completed();
            assert_eq!(cause(watch.check(Verb::PostRecv, never)), Some(Cause::DeviceGone));
        }
    }

    #[test]
    fn elsewhere_a_port_comes_back() {
        let watch = Watch::new(false);
        assert_eq!(cause(watch.check(Verb::PostSend, || Ok(false))), Some(Cause::PortDown));
        let failed = Err(Error::new(Verb::QueryPort, Cause::DeviceGone));
        assert_eq!(cause(watch.check(Verb::PostSend, || failed)), Some(Cause::DeviceGone));
        assert_eq!(watch.check(Verb::PostSend, || Ok(true)), Ok(()));
        watch.doubt();
        assert_eq!(cause(watch.check(Verb::PostSend, || Ok(false))), Some(Cause::PortDown));
    }
}
