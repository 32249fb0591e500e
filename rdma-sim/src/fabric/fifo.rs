//! A queue with its elements in one slice

use std::fmt;
use std::ops::{Deref, DerefMut};

/// A queue of small elements
///
/// Unlike a [`VecDeque`](std::collections::VecDeque), it pushes inline: an element is built where it stays, and not copied from where it
/// was just written, for which processors wait.
pub(super) struct Fifo<T> {
    elements: Vec<T>,
    /// How many of `elements` have left
    taken: usize,
}

/// Places of elements that have left are used again when there are so many, and as many as elements that are left
const MOST_TAKEN: usize = 64;

impl<T> Fifo<T> {
    pub(super) const fn new() -> Self {
        Self { elements: Vec::new(), taken: 0 }
    }

    #[inline(always)]
    pub(super) fn push_back(&mut self, element: T) {
        self.elements.push(element);
    }

    /// How many elements have not left
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.elements.len() - self.taken
    }

    // As those of the slice, with one comparison.
    #[inline(always)]
    pub(super) fn get(&self, position: usize) -> Option<&T> {
        self.elements.get(self.taken + position)
    }

    #[inline(always)]
    pub(super) fn get_mut(&mut self, position: usize) -> Option<&mut T> {
        self.elements.get_mut(self.taken + position)
    }

    pub(super) fn clear(&mut self) {
        self.elements.clear();
        self.taken = 0;
    }
}

impl<T: Copy> Fifo<T> {
    #[inline(always)]
    pub(super) fn pop_front(&mut self) -> Option<T> {
        self.take_front(|first| *first)
    }

    /// Pops the first element, of which only what `read` returns is copied
    #[inline(always)]
    pub(super) fn take_front<R>(&mut self, read: impl FnOnce(&T) -> R) -> Option<R> {
        let first = read(self.elements.get(self.taken)?);
        self.taken += 1;
        if self.taken == self.elements.len() {
            self.clear();
        } else if self.taken >= MOST_TAKEN && 2 * self.taken >= self.elements.len() {
            self.compact();
        }
        Some(first)
    }

    #[cold]
    fn compact(&mut self) {
        self.elements.drain(..self.taken);
        self.taken = 0;
    }
}

impl<T: fmt::Debug> fmt::Debug for Fifo<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<T> Deref for Fifo<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // `taken` is never beyond the end: this spares a branch that panics.
        self.elements.get(self.taken..).unwrap_or_default()
    }
}

impl<T> DerefMut for Fifo<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        self.elements.get_mut(self.taken..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Catches places that are used again too early, and elements that come twice.
        #[test]
        fn it_is_a_queue(pushed in prop::collection::vec(0usize..200, 0..20)) {
            let (mut fifo, mut queue) = (Fifo::new(), VecDeque::new());
            for (round, pushed) in pushed.into_iter().enumerate() {
                for number in 0..pushed {
                    fifo.push_back((round, number));
                    queue.push_back((round, number));
                }
                for _ in 0..100 {
                    prop_assert_eq!(fifo.pop_front(), queue.pop_front());
                    prop_assert_eq!(fifo.len(), queue.len());
                    prop_assert_eq!(fifo.last_mut(), queue.back_mut());
                }
                prop_assert!(fifo.iter().eq(&queue));
            }
        }
    }
}
