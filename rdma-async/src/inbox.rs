//! What has arrived, in order, until the application takes it

use std::collections::VecDeque;
use std::task::{Context, Poll};

use crate::effects::Effects;
use crate::wait_queue::{WaitQueue, Waiter};

/// Messages of a connection, from the reactor to `recv`
///
/// A message whose bytes are still to come holds its place. Under the lock of its connection.
#[derive(Debug)]
pub(crate) struct Inbox<T, E>(WaitQueue<Inner<T, E>>);

#[derive(Debug)]
struct Inner<T, E> {
    messages: VecDeque<Option<T>>,
    /// What follows the last message.
    end: Option<Result<(), E>>,
}

impl<T, E: Clone> Inbox<T, E> {
    /// An inbox that holds `capacity` messages without an allocation
    pub(crate) fn new(capacity: usize) -> Self {
        const WAITING: usize = 8;
        let inner = Inner { messages: VecDeque::with_capacity(capacity), end: None };
        Self(WaitQueue::new("a message of its peer", inner, WAITING))
    }

    /// Appends a message
    pub(crate) fn push(&mut self, message: T, effects: &mut Effects<T>) {
        self.0.update(effects, |inner| inner.messages.push_back(Some(message)));
    }

    /// Holds a place for a message
    pub(crate) fn expect(&mut self, effects: &mut Effects<T>) {
        self.0.update(effects, |inner| inner.messages.push_back(None));
    }

    /// Fills the first place that is held; drops the message if there is none
    pub(crate) fn fill(&mut self, message: T, effects: &mut Effects<T>) {
        let held = |inner: &mut Inner<T, E>| match inner.messages.iter_mut().find(|place| place.is_none()) {
            Some(place) => place.replace(message),
            None => Some(message),
        };
        let surplus = self.0.update(effects, held);
        effects.drop(surplus);
    }

    /// Ends the messages: none follow those that came and those that are expected; this end is handed out in line
    pub(crate) fn finish(&mut self, effects: &mut Effects<T>) {
        self.0.update(effects, |inner| inner.end = inner.end.take().or(Some(Ok(()))));
    }

    /// Ends the messages at once: none will come, not even those that are expected
    ///
    /// Messages that came in order can still be taken; those that came out of order are dropped. If the peer had finished and
    /// everything came, the end is that of [`finish`](Self::finish), whatever `end` says.
    pub(crate) fn close(&mut self, end: Result<(), E>, effects: &mut Effects<T>) {
        let rest = self.0.end(effects, |inner| {
            let mut rest = VecDeque::new();
            if let Some(missing) = inner.messages.iter().position(Option::is_none) {
                rest = inner.messages.split_off(missing);
                inner.end = None;
            }
            inner.end.get_or_insert(end);
            rest
        });
        effects.drop(rest.into_iter().flatten());
    }

    /// The next message, or the end
    pub(crate) fn poll_next(
        &mut self,
        waiter: &mut Waiter,
        cx: &Context<'_>,
        effects: &mut Effects<T>,
    ) -> Poll<Result<Option<T>, E>> {
        self.0.poll_take(waiter, cx, effects, Inner::next)
    }

    /// The next message, or the end, if it is there and no task waits for it; after [`close`](Self::close), even if tasks wait
    pub(crate) fn try_next(&mut self) -> Option<Result<Option<T>, E>> {
        self.0.try_take(Inner::next)
    }

    /// Gives up waiting; see [`WaitQueue::leave`]
    pub(crate) fn leave(&mut self, waiter: &mut Waiter, effects: &mut Effects<T>) {
        self.0.leave(waiter, effects);
    }

    /// Takes a message that the application will not read
    #[must_use = "the message has memory"]
    pub(crate) fn discard(&mut self, effects: &mut Effects<T>) -> Option<T> {
        self.0.update(effects, |inner| match inner.messages.front() {
            Some(Some(_)) => inner.messages.pop_front().flatten(),
            _ => None,
        })
    }
}

impl<T, E: Clone> Inner<T, E> {
    fn next(&mut self) -> Option<Result<Option<T>, E>> {
        match self.messages.front() {
            Some(Some(_)) => self.messages.pop_front().flatten().map(|message| Ok(Some(message))),
            Some(None) => None,
            None => self.end.clone().map(|end| end.map(|()| None)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Catches messages that are dropped under the lock: a task that waits for their memory would be woken there.
    #[test]
    fn messages_out_of_order_are_dropped_with_the_effects_of_the_end() {
        let mut inbox = Inbox::<_, ()>::new(4);
        let mut effects = Effects::new();
        let [first, behind] = [Arc::new(1), Arc::new(2)];
        inbox.push(Arc::clone(&first), &mut effects);
        inbox.expect(&mut effects);
        inbox.push(Arc::clone(&behind), &mut effects);
        inbox.close(Ok(()), &mut effects);
        assert_eq!(Arc::strong_count(&behind), 2, "nothing was dropped yet");
        effects.run_alone();
        assert_eq!(Arc::strong_count(&behind), 1);
        assert_eq!(inbox.discard(&mut effects), Some(first));
        assert_eq!(inbox.discard(&mut effects), None);
    }
    /// Catches an end that replaces the one that came in order, and one that is in order although a message is missing.
    #[test]
    fn the_first_end_stays_unless_a_message_is_missing() {
        for (is_missing, end) in [(false, Ok(None)), (true, Err("lost"))] {
            let mut inbox = Inbox::<u8, _>::new(4);
            let mut effects = Effects::new();
            if is_missing {
                inbox.expect(&mut effects);
            }
            inbox.finish(&mut effects);
            inbox.close(Err("lost"), &mut effects);
            inbox.close(Err("later"), &mut effects);
            assert_eq!(inbox.try_next(), Some(end));
        }
    }
}
