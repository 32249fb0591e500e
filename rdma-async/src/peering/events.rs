//! What the protocol says that happened

use rdma_core::session::{Event, Token};
use rdma_core::{Device, Time};

use super::body::Effects;
use super::state::{Announced, REFUSED, State, find_stream};
use super::stream_state::StreamKey;
use crate::error::{SendError, SessionError};

impl<D: Device> State<D> {
    /// Returns whether anything has happened
    #[inline]
    pub(super) fn handle_events(&mut self, now: Time, effects: &mut Effects) -> bool {
        let mut has_happened = false;
        while let Some(event) = self.core.poll_event() {
            self.handle_event(event, now, effects);
            has_happened = true;
        }
        has_happened
    }

    fn handle_event(&mut self, event: Event, now: Time, effects: &mut Effects) {
        match event {
            Event::Opened(id) => {
                // A peer may not open more sessions than this side accepts, nor one that still has a handle here.
                if self.unaccepted >= self.max_unaccepted || self.sessions.contains_key(&id) {
                    self.core.reset(id, REFUSED);
                    return;
                }
                self.unaccepted += 1;
                self.new_session(id);
                self.opened.push(id);
            }
            Event::StreamOpened { session: id, stream } => {
                if let Some(session) = self.sessions.get_mut(&id).filter(|session| !session.is_over) {
                    session.add_opened(stream, effects);
                }
            }
            Event::StreamClosed { session: id, stream } => {
                if let Some(session) = self.sessions.get_mut(&id) {
                    session.stream_over(stream, effects);
                    self.remove_stream_if_unused(StreamKey { session: id, stream }, effects);
                }
            }
            Event::Message { session: id, stream, id: incoming } => {
                let Some((mut body, was_expected)) = self.incoming.take(incoming) else { return };
                let len = body.len();
                match self.sessions.get_mut(&id).filter(|session| !session.is_over) {
                    Some(session) => {
                        session.counts.received += 1;
                        session.counts.bytes_received += len as u64;
                        let key = StreamKey { session: id, stream };
                        match session.stream(stream) {
                            Some(stream) => {
                                if stream.is_held {
                                    effects.drop(body.leave_transit());
                                }
                                stream.push(body, was_expected, effects);
                                if !stream.is_held {
                                    self.discard(key, effects);
                                }
                            }
                            None => effects.drop([body]),
                        }
                    }
                    None => effects.drop([body]),
                }
            }
            Event::Finished { session, stream } => {
                if let Some(stream) = self.stream(StreamKey { session, stream }) {
                    stream.inbox.close(Ok(()), effects);
                }
            }
            Event::Stopped { session, stream } => {
                if let Some(stream) = self.stream(StreamKey { session, stream }) {
                    stream.refuse(SendError::StreamDropped, effects);
                }
            }
            Event::Announced { .. } if self.end.is_some() => (),
            Event::Announced { id, session, stream, len } => {
                self.announced.push_back(Announced { id, stream: StreamKey { session, stream }, len });
                effects.wake_reactor();
            }
            Event::Withdrawn(id) => {
                let before = self.announced.len();
                self.announced.retain(|announced| announced.id != id);
                if self.announced.len() < before {
                    // Others may stand behind it in line.
                    effects.wake_reactor();
                }
                effects.drop(self.incoming.withdraw(id));
            }
            Event::Unexpected(id) => effects.drop(self.incoming.withdraw(id)),
            Event::Delivered { token, .. } => self.on_decided(token, Ok(()), now, effects),
            Event::Undelivered { token, .. } => {
                let Some(message) = self.outgoing.get_mut(token.0 as usize) else { return };
                let stream = find_stream(&mut self.sessions, message.stream);
                let error = stream.as_ref().map_or(SendError::Closed, |stream| stream.send_error());
                if let Some(stream) = stream
                    && message.is_eager
                    && let Some(slot) = message.slot.take()
                {
                    stream.complete(slot, Err(error.clone()), effects);
                    message.unfinished = 0;
                }
                self.on_decided(token, Err(error), now, effects);
            }
            Event::Flushed(id) => {
                if let Some(session) = self.sessions.get_mut(&id) {
                    session.set_end(Ok(()), effects);
                }
            }
            Event::PeerClosed(id) => {
                if let Some(session) = self.sessions.get_mut(&id) {
                    session.closed_by_peer(effects);
                    self.core.close(id);
                }
            }
            Event::Closed(id) => {
                if let Some(session) = self.sessions.get_mut(&id) {
                    session.conclude(effects);
                }
                self.remove_if_unused(id, effects);
            }
            Event::Reset { session: id, code } => {
                if let Some(session) = self.sessions.get_mut(&id) {
                    session.fail(&SessionError::Reset(code), effects);
                }
                self.remove_if_unused(id, effects);
            }
            Event::PathProven(_) => self.paths_up.update(effects, |up| *up += 1),
            Event::PathLost { path, reason, was_proven } => {
                self.paths_up.update(effects, |up| *up -= usize::from(was_proven));
                self.stop_path(path, reason, was_proven);
            }
        }
    }

    /// The peer has a message, or never will
    fn on_decided(&mut self, token: Token, outcome: Result<(), SendError>, now: Time, effects: &mut Effects) {
        if let Some(message) = self.outgoing.get_mut(token.0 as usize) {
            if outcome.is_ok()
                && let Some(session) = self.sessions.get_mut(&message.stream.session)
            {
                session.counts.delivered += 1;
                session.deliveries.record(now - message.queued_at);
                session.counts.progress += 1;
            }
            message.outcome = Some(outcome);
            self.finish_message(token.0, effects);
        }
    }
}
