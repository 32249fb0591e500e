//! The turns of queue pairs that may have something to do: one each, in the order of the first reason

use std::sync::Arc;

/// The turn of an endpoint, and the readiness of its socket
pub(super) struct Turn<T> {
    pub(super) endpoint: Arc<T>,
    pub(super) is_readable: bool,
    pub(super) is_writable: bool,
}

/// Turns that are to be taken
pub(super) struct Turns<T>(Vec<Turn<T>>);

impl<T> Default for Turns<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Turns<T> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Gives `endpoint` a turn, or adds the readiness to the one that it has
    pub(super) fn add(&mut self, endpoint: Arc<T>, is_readable: bool, is_writable: bool) {
        // There are at most as many as queue pairs of a device.
        match self.0.iter_mut().find(|turn| Arc::ptr_eq(&turn.endpoint, &endpoint)) {
            Some(turn) => {
                turn.is_readable |= is_readable;
                turn.is_writable |= is_writable;
            }
            None => self.0.push(Turn { endpoint, is_readable, is_writable }),
        }
    }

    /// Exchanges all turns for `other`, which is empty: its memory is used again
    pub(super) fn swap(&mut self, other: &mut Vec<Turn<T>>) {
        std::mem::swap(&mut self.0, other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches more turns for what has more reasons, and readiness that is forgotten.
    #[test]
    fn each_has_one_turn() {
        let (busy, other) = (Arc::new(0), Arc::new(1));
        let mut turns = Turns::default();
        for (is_readable, is_writable) in [(false, false), (true, false), (false, true), (false, false)] {
            turns.add(Arc::clone(&busy), is_readable, is_writable);
            turns.add(Arc::clone(&other), false, false);
        }
        let mut taken = Vec::new();
        turns.swap(&mut taken);
        let taken = taken.iter().map(|turn| (*turn.endpoint, turn.is_readable, turn.is_writable));
        assert_eq!(taken.collect::<Vec<_>>(), [(0, true, true), (1, false, false)]);
        assert!(turns.is_empty());
    }
}
