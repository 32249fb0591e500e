//! What the protocol says that happened

use rdma_core::session::{Event, StreamId, Token};
use rdma_core::{Device, Time};

use super::body::Effects;
use super::session_state::SessionState;
use super::state::{Announced, REFUSED, State};
use crate::error::{SendError, SessionError};

impl<D: Device> State<D> {
    pub(super) fn handle_events(&mut self, now: Time, effects: &mut Effects) {
        while let Some(event) = self.core.poll_event() {
            match event {
                Event::Opened(id) => {
                    // A peer may not open more sessions than this side accepts, nor one that still has a handle here.
                    if self.unaccepted >= self.max_unaccepted || self.sessions.contains_key(&id) {
                        self.core.reset(id, REFUSED);
                        continue;
                    }
                    self.unaccepted += 1;
                    self.had_session = true;
                    self.sessions.insert(id, SessionState::new(self.max_in_flight));
                    self.opened.push(id);
                }
                Event::Message { session: id, id: incoming, .. } => {
                    let Some(body) = self.incoming.take(incoming) else { continue };
                    match self.sessions.get_mut(&id).filter(|session| !session.is_over) {
                        Some(session) => {
                            session.counts.received += 1;
                            session.inbox.push(body, effects);
                            self.discard(id, effects);
                        }
                        None => effects.drop([body]),
                    }
                }
                Event::Finished { session: id, stream: StreamId::MAIN } => {
                    if let Some(session) = self.sessions.get_mut(&id) {
                        session.inbox.close(Ok(()), effects);
                    }
                }
                Event::Announced { .. } if self.end.is_some() => (),
                Event::Announced { id, session, len } => {
                    self.announced.push_back(Announced { id, session, len });
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
                Event::Delivered { token, .. } => self.on_decided(token, Ok(()), effects),
                Event::Undelivered { session: id, token } => {
                    if let Some(session) = self.sessions.get_mut(&id)
                        && let Some(message) = self.outgoing.get_mut(token.0 as usize)
                        && message.is_eager
                        && let Some(slot) = message.slot.take()
                    {
                        session.ops.complete(slot, Err(session.send_error()), effects);
                        message.unfinished = 0;
                    }
                    let error = self.sessions.get(&id).map_or(SendError::Closed, SessionState::send_error);
                    self.on_decided(token, Err(error), effects);
                }
                Event::Finished { .. } => (),
                Event::Flushed(id) => {
                    if let Some(session) = self.sessions.get_mut(&id) {
                        session.set_end(Ok(()), effects);
                    }
                }
                Event::PeerClosed(id) => {
                    if let Some(session) = self.sessions.get_mut(&id) {
                        session.refuse(SendError::PeerClosed, effects);
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
                Event::PathLost { path, reason } => self.stop_path(path, reason, now, effects),
            }
        }
    }

    /// The peer has a message, or never will
    fn on_decided(&mut self, token: Token, outcome: Result<(), SendError>, effects: &mut Effects) {
        if let Some(message) = self.outgoing.get_mut(token.0 as usize) {
            if outcome.is_ok()
                && let Some(session) = self.sessions.get_mut(&message.session)
            {
                session.counts.delivered += 1;
                session.counts.progress += 1;
            }
            message.outcome = Some(outcome);
            self.finish_message(token.0, effects);
        }
    }
}
