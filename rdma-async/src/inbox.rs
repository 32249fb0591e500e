//! What has arrived, in order, until the application takes it

use std::collections::VecDeque;
use std::task::{Context, Poll};

use crate::gate::{Next, Ticket, Turns};

/// Messages of a connection, from the reactor to `recv`
///
/// A message whose bytes are still to come holds its place. Under the lock of its connection: what changes an inbox tells who should
/// be woken, and no message is dropped here, because that, too, may wake somebody.
#[derive(Debug)]
pub(crate) struct Inbox<T, E>(Turns<Inner<T, E>>);

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
        Self(Turns::new(Inner { messages: VecDeque::with_capacity(capacity), end: None }, WAITING))
    }

    /// Appends a message
    pub(crate) fn push(&mut self, message: T) -> Next {
        self.0.update(|inner| inner.messages.push_back(Some(message))).1
    }

    /// Holds a place for a message
    pub(crate) fn expect(&mut self) -> Next {
        self.0.update(|inner| inner.messages.push_back(None)).1
    }

    /// Fills the first place that is held; gives the message back if there is none
    #[must_use = "the message may have come back, and somebody may wait"]
    pub(crate) fn fill(&mut self, message: T) -> (Option<T>, Next) {
        self.0.update(|inner| match inner.messages.iter_mut().find(|place| place.is_none()) {
            Some(place) => place.replace(message),
            None => Some(message),
        })
    }

    /// Says that there will be nothing after what came, and what is expected
    pub(crate) fn finish(&mut self) -> Next {
        self.0.update(|inner| inner.end = inner.end.take().or(Some(Ok(())))).1
    }

    /// Says that nothing more will come, not even what is expected
    ///
    /// What came in order can still be taken; what came out of order is given back. A peer that said it had finished, and of which
    /// everything came, has finished whatever `end` says.
    #[must_use = "messages have come back, and somebody may wait"]
    pub(crate) fn close(&mut self, end: Result<(), E>) -> (impl Iterator<Item = T> + use<T, E>, Next) {
        let (rest, next) = self.0.update(|inner| {
            let mut rest = VecDeque::new();
            if let Some(missing) = inner.messages.iter().position(Option::is_none) {
                rest = inner.messages.split_off(missing);
                inner.end = None;
            }
            inner.end.get_or_insert(end);
            rest
        });
        (rest.into_iter().flatten(), next)
    }

    /// The next message, or the end
    pub(crate) fn poll_next(
        &mut self,
        ticket: &mut Ticket,
        cx: &Context<'_>,
    ) -> (Poll<Result<Option<T>, E>>, Next) {
        self.0.poll_take(ticket, cx, |inner| match inner.messages.front() {
            Some(Some(_)) => inner.messages.pop_front().flatten().map(|message| Ok(Some(message))),
            Some(None) => None,
            None => inner.end.clone().map(|end| end.map(|()| None)),
        })
    }

    /// Gives up waiting; see [`Turns::leave`]
    pub(crate) fn leave(&mut self, ticket: &mut Ticket) -> Next {
        self.0.leave(ticket)
    }

    /// Takes a message that nobody will read
    #[must_use = "the message has memory, and somebody may wait"]
    pub(crate) fn discard(&mut self) -> (Option<T>, Next) {
        self.0.update(|inner| match inner.messages.front() {
            Some(Some(_)) => inner.messages.pop_front().flatten(),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Regression: they were dropped under the lock, and who waited for their memory was woken there.
    #[test]
    fn what_came_out_of_order_comes_back_at_the_end() {
        let mut inbox = Inbox::<_, ()>::new(4);
        let [first, behind] = [Arc::new(1), Arc::new(2)];
        for next in [inbox.push(Arc::clone(&first)), inbox.expect(), inbox.push(Arc::clone(&behind))] {
            next.wake();
        }
        let (rest, _) = inbox.close(Ok(()));
        assert_eq!(Arc::strong_count(&behind), 2, "nothing was dropped yet");
        assert_eq!(rest.collect::<Vec<_>>(), [behind]);
        assert_eq!(inbox.discard().0, Some(first));
        assert_eq!(inbox.discard().0, None);
    }
}
