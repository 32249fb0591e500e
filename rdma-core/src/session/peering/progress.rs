//! What becomes of packets, and with that of messages and sessions

use super::super::packets::Fate;
use super::super::{Address, Event, PathId, SessionId, StreamId, Token};
use super::Peering;
use super::message::{Incoming, Progress, withdraw};
use super::path::{Content, Part};
use crate::Time;
use crate::probe::{self, ProtocolState};

impl Peering {
    /// Removes a session that ends at once; false if there is none
    pub(super) fn remove(&mut self, id: SessionId) -> bool {
        let Some(mut session) = self.sessions[id.0 as usize & 1].remove(id) else { return false };
        for stream in session.streams.values_mut() {
            self.begun = self.begun.saturating_sub(stream.outgoing.begun());
            let tokens = stream.outgoing.abandon();
            self.events.extend(tokens.map(|token| Event::Undelivered { session: id, token }));
            for incoming in stream.incoming.abandon() {
                withdraw(&mut self.incoming, &mut self.events, incoming);
            }
        }
        if session.streams.values().any(|stream| stream.is_queued) {
            self.ready.iter_mut().for_each(|ready| ready.retain(|(other, _)| *other != id));
        }
        self.stops.retain(|(other, _)| *other != id);
        self.look_at_grants_again();
        if session.streams.values().any(|stream| stream.room.is_queued) {
            self.rooms.retain(|(other, _)| *other != id);
        }
        self.paths.iter_mut().flatten().for_each(|path| path.receiver.withdraw(id));
        self.stopping.retain(|(_, slot)| slot.address.session != id.0);
        let incoming = &self.incoming;
        let is_open = |message: &Incoming| matches!(message.progress, Progress::Bulk(_));
        self.ungranted.retain(|id| incoming.get(id.0 as usize).is_some_and(is_open));
        self.expected.retain(|(other, _)| *other != id);
        true
    }

    /// Forgets a stream whose both directions are over
    pub(super) fn remove_stream_if_over(&mut self, session: SessionId, stream: StreamId) {
        if self.session(session).is_some_and(|session| session.remove_if_over(stream)) {
            self.events.push_back(Event::StreamClosed { session, stream });
            probe::reached(ProtocolState::StreamClosed);
        }
    }

    /// Takes the next step of closing, if the peer has everything that comes before
    pub(super) fn on_progress(&mut self, id: SessionId) {
        let Some(session) = self.session(id) else { return };
        if session.is_over() {
            self.conclude(id);
        } else if session.is_closing && session.is_drained() && !session.is_flushed {
            session.is_flushed = true;
            self.events.push_back(Event::Flushed(id));
            self.finish_stream(id, StreamId::CONTROL);
        }
    }

    /// Removes a session that is over on both sides
    pub(super) fn conclude(&mut self, id: SessionId) {
        // Nothing is left of a session whose peer keeps to the protocol.
        self.remove(id);
        self.release(id);
        self.events.push_back(Event::Closed(id));
        probe::reached(ProtocolState::SessionClosed);
    }

    pub(super) fn release(&mut self, id: SessionId) {
        if id.0 & 1 == self.config.side.bit() {
            self.sessions[id.0 as usize & 1].release(id);
        }
    }

    /// Takes in what became of a packet
    #[inline]
    pub(super) fn on_fate(&mut self, path: PathId, Content { part, room_of }: Content, fate: Fate) {
        if fate == Fate::Lost && !matches!(part, Part::Nothing) {
            self.counts[path.0 as usize].eager.lost += 1;
            probe::reached(ProtocolState::PacketLost);
        }
        match (part, fate) {
            (Part::Message { address, fragment }, fate) => {
                let Address { session: id, stream, message } = address;
                let (id, stream) = (SessionId(id), StreamId(stream));
                let found = self.stream(id, stream);
                if let Some(found) = found {
                    if fate == Fate::Lost {
                        found.outgoing.lost(message, fragment);
                        self.enqueue(id, stream);
                    } else {
                        let token = found.outgoing.acknowledged(message, fragment);
                        self.on_delivered(id, stream, token);
                    }
                }
            }
            (Part::Bulk { slots, grants, addresses, arrivals }, Fate::Lost) => {
                if let Some(path) = &mut self.paths[path.0 as usize] {
                    path.receiver.lost(&slots[..grants as usize]);
                }
                for address in &addresses[..arrivals as usize] {
                    // Of a session that is over, the peer needs no notice.
                    if self.session(SessionId(address.session)).is_some() {
                        self.arrivals.push_back((Time::ZERO, *address));
                    }
                }
            }
            (Part::Control { number }, Fate::Lost) => self.control_messages.lost(number),
            (Part::Control { number }, Fate::Received) => self.control_messages.delivered(number),
            (Part::Stop { session, stream }, Fate::Lost) => self.stop(session, stream),
            (Part::Reset { session, code }, Fate::Lost) => self.resets.push_back((session, code)),
            (Part::Reset { session, .. }, Fate::Received) => {
                self.pending_resets = self.pending_resets.saturating_sub(1);
                self.release(session);
            }
            (Part::Bulk { .. } | Part::Stop { .. }, Fate::Received) | (Part::Nothing, _) => (),
        }
        if fate == Fate::Lost
            && let Some((id, stream)) = room_of
        {
            // What the peer knows is unclear now: it is sent again at once.
            self.enqueue_room(id, stream);
        }
    }

    pub(super) fn on_delivered(&mut self, id: SessionId, stream: StreamId, token: Option<Token>) {
        if let Some(token) = token {
            self.events.push_back(Event::Delivered { session: id, token });
        }
        let Some(found) = self.stream(id, stream) else { return };
        // A session closes by finishing its streams.
        if found.outgoing.is_finished() && found.outgoing.is_acknowledged() {
            self.remove_stream_if_over(id, stream);
            self.on_progress(id);
        }
    }
}
