//! What has arrived, in order, until the application takes it

use std::collections::VecDeque;
use std::task::{Context, Poll};

use crate::gate::{Gate, Ticket};

/// Messages of a connection, from the reactor to `recv`
///
/// A message whose bytes are still to come holds its place.
#[derive(Debug)]
pub(crate) struct Inbox<T, E>(Gate<Inner<T, E>>);

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
        Self(Gate::new(Inner { messages: VecDeque::with_capacity(capacity), end: None }, WAITING))
    }

    /// Appends a message
    pub(crate) fn push(&self, message: T) {
        self.0.update(|inner| inner.messages.push_back(Some(message)));
    }

    /// Holds a place for a message
    pub(crate) fn expect(&self) {
        self.0.update(|inner| inner.messages.push_back(None));
    }

    /// Fills the first place that is held; gives the message back if there is none
    pub(crate) fn fill(&self, message: T) -> Option<T> {
        self.0.update(|inner| match inner.messages.iter_mut().find(|place| place.is_none()) {
            Some(place) => place.replace(message),
            None => Some(message),
        })
    }

    /// Says that there will be nothing after what came, and what is expected
    pub(crate) fn finish(&self) {
        self.0.update(|inner| inner.end = inner.end.take().or(Some(Ok(()))));
    }

    /// Says that nothing more will come, not even what is expected
    ///
    /// What came in order can still be taken. A peer that said it had finished, and of which everything came, has finished
    /// whatever `end` says.
    pub(crate) fn close(&self, end: Result<(), E>) {
        self.0.update(|inner| {
            if let Some(missing) = inner.messages.iter().position(Option::is_none) {
                inner.messages.truncate(missing);
                inner.end = None;
            }
            inner.end.get_or_insert(end);
        });
    }

    /// The next message, or the end
    pub(crate) fn poll_next(&self, ticket: &mut Ticket, cx: &mut Context<'_>) -> Poll<Result<Option<T>, E>> {
        self.0.poll_take(ticket, cx, |inner| match inner.messages.front() {
            Some(Some(_)) => inner.messages.pop_front().flatten().map(|message| Ok(Some(message))),
            Some(None) => None,
            None => inner.end.clone().map(|end| end.map(|()| None)),
        })
    }

    /// Gives up waiting
    pub(crate) fn leave(&self, ticket: &mut Ticket) {
        self.0.leave(ticket);
    }

    /// Takes a message that nobody will read
    pub(crate) fn discard(&self) -> Option<T> {
        self.0.update(|inner| match inner.messages.front() {
            Some(Some(_)) => inner.messages.pop_front().flatten(),
            _ => None,
        })
    }
}
