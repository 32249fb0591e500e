//! What has arrived, in order, until the application takes it

use std::collections::VecDeque;
use std::task::{Context, Poll};

use crate::effects::Effects;
use crate::wait_queue::{WaitQueue, Waiter};

/// Messages of a stream, or streams of a session, from the reactor to the task that waits for them
///
/// Under the lock of its peering.
#[derive(Debug)]
pub(crate) struct Inbox<T, E>(WaitQueue<Inner<T, E>>);

#[derive(Debug)]
struct Inner<T, E> {
    messages: VecDeque<T>,
    /// What follows the last message.
    end: Option<Result<(), E>>,
}

impl<T, E: Clone> Inbox<T, E> {
    /// An inbox that holds `capacity` messages, and as many tasks, without an allocation; `name` follows "waits for"
    pub(crate) fn new(name: &'static str, capacity: usize) -> Self {
        let inner = Inner { messages: VecDeque::with_capacity(capacity), end: None };
        Self(WaitQueue::new(name, inner, capacity))
    }

    /// Appends a message
    pub(crate) fn push<B>(&mut self, message: T, effects: &mut Effects<B>) {
        self.0.update(effects, |inner| inner.messages.push_back(message));
    }

    /// Whether tasks wait for a message
    pub(crate) fn is_awaited(&self) -> bool {
        self.0.has_waiting()
    }

    /// How many messages no task has taken
    pub(crate) fn len(&self) -> usize {
        self.0.value().messages.len()
    }

    /// Ends the messages: none follow those that came; the first end counts
    pub(crate) fn close<B>(&mut self, end: Result<(), E>, effects: &mut Effects<B>) {
        self.0.end(effects, |inner| {
            inner.end.get_or_insert(end);
        });
    }

    /// The next message, or the end
    pub(crate) fn poll_next<B>(
        &mut self,
        waiter: &mut Waiter,
        cx: &Context<'_>,
        effects: &mut Effects<B>,
    ) -> Poll<Result<Option<T>, E>> {
        self.0.poll_take(waiter, cx, effects, Inner::next)
    }

    /// The next message, or the end, if it is there and no task waits for it; after [`close`](Self::close), even if tasks wait
    pub(crate) fn try_next(&mut self) -> Option<Result<Option<T>, E>> {
        self.0.try_take(Inner::next)
    }

    /// Gives up waiting; see [`WaitQueue::leave`]
    pub(crate) fn leave<B>(&mut self, waiter: &mut Waiter, effects: &mut Effects<B>) {
        self.0.leave(waiter, effects);
    }

    /// Takes a message that the application will not read
    #[must_use = "the message has memory"]
    pub(crate) fn discard<B>(&mut self, effects: &mut Effects<B>) -> Option<T> {
        self.0.update(effects, |inner| inner.messages.pop_front())
    }
}

impl<T, E: Clone> Inner<T, E> {
    fn next(&mut self) -> Option<Result<Option<T>, E>> {
        match self.messages.pop_front() {
            Some(message) => Some(Ok(Some(message))),
            None => self.end.clone().map(|end| end.map(|()| None)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches an end that overtakes messages, and a later one that replaces it.
    #[test]
    fn the_first_end_follows_the_messages() {
        let mut inbox = Inbox::<u8, _>::new("a message", 4);
        let mut effects = Effects::<()>::new();
        inbox.push(1, &mut effects);
        inbox.close(Ok(()), &mut effects);
        inbox.close(Err("lost"), &mut effects);
        assert_eq!(inbox.try_next(), Some(Ok(Some(1))));
        assert_eq!([inbox.try_next(), inbox.try_next()], [Some(Ok(None)), Some(Ok(None))]);
        assert_eq!(inbox.discard(&mut effects), None);
    }
}
