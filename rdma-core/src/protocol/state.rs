use std::collections::VecDeque;
use std::time::Duration;

use super::{
    EnqueueError, Incoming, Kind, MAX_EAGER, Params, ProtocolConfig, Token, Trailer, Transmit, Violation,
};
use crate::probe::{self, ConnectionState};
use crate::{Time, frames};

/// State of one side of a connection over one cable
///
/// The caller posts the sends that [`poll_transmit`](Self::poll_transmit) returns and the receives of
/// [`next_bulk_receive`](Self::next_bulk_receive), and reports each completion. See the [module](super) for the protocol and an
/// example.
#[derive(Debug)]
pub struct Protocol {
    config: ProtocolConfig,
    peer: Params,
    keep_alive_interval: Duration,
    peer_timeout: Duration,

    /// Queued, not yet sent nor announced.
    queue: VecDeque<(Token, u32)>,
    /// Announced and not yet posted on the bulk lane.
    announced: VecDeque<(Token, u32)>,
    announced_total: u32,
    bulk_posted_total: u32,
    bulk_frames_in_flight: u32,
    eager_in_flight: u32,
    next_seq: u32,
    peer_credits: u32,
    peer_grants: u32,
    /// When a send on the eager lane completed last.
    last_sent: Time,
    is_keep_alive_due: bool,
    /// The first message of the queue waited for a credit at the last look.
    is_starved: bool,
    fin: Fin,
    /// Bulk messages that the peer has posted in total, once it has confirmed our [`Kind::Fin`].
    bulk_due_total: u32,

    expected_seq: u32,
    posted_total: u32,
    posted_reported: u32,
    /// Announced by the peer and not yet granted.
    ungranted: VecDeque<u32>,
    /// Granted and not yet arrived.
    granted: VecDeque<u32>,
    granted_total: u32,
    granted_reported: u32,
    bulk_received_total: u32,
    last_received: Time,
    peer_fin: PeerFin,
}

/// Progress of this side's closing
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fin {
    Open,
    /// To be sent after all queued messages
    Queued,
    Sent,
    /// The peer has confirmed that everything arrived
    Acknowledged,
    /// [`Kind::Done`] is posted: this side sends no more messages
    Done,
}

/// Progress of the peer's closing
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum PeerFin {
    Open,
    Received,
    /// [`Kind::FinAck`] is posted, and the peer has not confirmed its arrival
    Acknowledged,
    /// The peer has confirmed the arrival of the [`Kind::FinAck`]
    Done,
}

impl Protocol {
    /// Creates the state of a connection to a peer with the limits `peer`
    ///
    /// The caller has already posted `config.params.window` eager receives.
    ///
    /// # Panics
    ///
    /// If the configuration or the peer's parameters are not usable.
    pub fn new(config: ProtocolConfig, peer: Params, now: Time) -> Self {
        assert!(config.is_usable() && peer.is_usable(), "unusable parameters: {config:?}, {peer:?}");
        let peer_timeout = config.params.peer_timeout.min(peer.peer_timeout);
        Self {
            config,
            peer,
            keep_alive_interval: config.keep_alive_interval.min(peer_timeout / 2),
            peer_timeout,
            queue: VecDeque::with_capacity(config.max_queued as usize),
            announced: VecDeque::with_capacity(config.max_queued as usize),
            announced_total: 0,
            bulk_posted_total: 0,
            bulk_frames_in_flight: 0,
            eager_in_flight: 0,
            next_seq: 0,
            peer_credits: peer.window,
            peer_grants: 0,
            last_sent: now,
            is_keep_alive_due: false,
            is_starved: false,
            fin: Fin::Open,
            bulk_due_total: 0,
            expected_seq: 0,
            posted_total: config.params.window,
            posted_reported: config.params.window,
            ungranted: VecDeque::with_capacity(config.params.announces as usize),
            granted: VecDeque::with_capacity(config.bulk_receives as usize),
            granted_total: 0,
            granted_reported: 0,
            bulk_received_total: 0,
            last_received: now,
            peer_fin: PeerFin::Open,
        }
    }

    /// The longest message that can be queued, in bytes
    pub fn max_message(&self) -> usize {
        let bulk = (self.peer.max_message as usize).min(self.config.bulk_send_frames as usize * crate::FRAME);
        bulk.max(MAX_EAGER.min(self.peer.max_message as usize))
    }

    /// Time without a message from the peer after which the peer counts as lost: the shorter one of both sides
    pub fn peer_timeout(&self) -> Duration {
        self.peer_timeout
    }

    /// Whether a message of `len` bytes can be queued, now or when others are sent
    ///
    /// # Errors
    ///
    /// [`EnqueueError::Closed`] after a close of either side, [`EnqueueError::TooLong`] beyond
    /// [`max_message`](Self::max_message).
    pub fn check(&self, len: usize) -> Result<(), EnqueueError> {
        if self.fin != Fin::Open || self.peer_fin != PeerFin::Open {
            return Err(EnqueueError::Closed);
        }
        let max = self.max_message();
        if len > max { Err(EnqueueError::TooLong { len, max }) } else { Ok(()) }
    }

    /// Queues a message of `len` bytes
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check), and [`EnqueueError::Full`] while the configured number of messages is queued. The state has not
    /// changed.
    pub fn enqueue(&mut self, token: Token, len: usize) -> Result<(), EnqueueError> {
        self.check(len)?;
        if self.queue.len() + self.announced.len() >= self.config.max_queued as usize {
            return Err(EnqueueError::Full);
        }
        self.queue.push_back((token, len as u32));
        Ok(())
    }

    /// Closes this side: no more messages can be queued, and [`Kind::Fin`] is sent after the queued ones
    pub fn finish(&mut self) {
        if self.fin == Fin::Open {
            self.fin = Fin::Queued;
            probe::reached(ConnectionState::Closing);
        }
    }

    /// Advances time to `now`; makes a keep-alive due if no send completed for the keep-alive interval
    #[inline]
    pub fn tick(&mut self, now: Time) {
        let is_due = self.eager_in_flight == 0 && now >= self.last_sent + self.keep_alive_interval;
        if is_due && !std::mem::replace(&mut self.is_keep_alive_due, true) {
            probe::reached(ConnectionState::KeepAliveDue);
        }
    }

    /// Whether there is neither a send nor a receive to post, which is so most of the time
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty()
            && self.announced.is_empty()
            && self.ungranted.is_empty()
            && self.fin == Fin::Open
            && self.peer_fin == PeerFin::Open
            && !self.is_update_due()
    }

    /// Returns the next send that the caller must post, if one is possible
    ///
    /// It counts as posted. `control` is whether the caller has a buffer for a control message.
    pub fn poll_transmit(&mut self, control: bool) -> Option<Transmit> {
        let is_read = self.peer_fin == PeerFin::Open;
        if is_read && let Some(token) = self.next_bulk() {
            return Some(Transmit::Bulk { token });
        }
        let credits = self.peer_credits.wrapping_sub(self.next_seq);
        let is_starved = is_read && !self.queue.is_empty() && credits <= self.peer.reserve();
        if is_starved && !self.is_starved {
            probe::reached(ConnectionState::CreditStarved);
        }
        self.is_starved = is_starved;
        if self.eager_in_flight >= self.config.eager_send_frames || credits == 0 {
            return None;
        }
        if is_read
            && credits > self.peer.reserve()
            && let Some(&(token, len)) = self.queue.front()
        {
            if len as usize <= MAX_EAGER {
                self.queue.pop_front();
                return Some(Transmit::Eager { token, trailer: self.trailer(Kind::Data) });
            }
            let waiting = self.announced_total.wrapping_sub(self.peer_grants);
            if control && waiting < self.peer.announces {
                self.queue.pop_front();
                self.announced.push_back((token, len));
                probe::reached(ConnectionState::BulkAnnounced);
                self.announced_total = self.announced_total.wrapping_add(1);
                let trailer = self.trailer(Kind::Announce);
                return Some(Transmit::Control { body: Some(len), trailer });
            }
        }
        if !control {
            return None;
        }
        let kind = self.next_control()?;
        let body = (kind == Kind::FinAck).then_some(self.bulk_posted_total);
        Some(Transmit::Control { body, trailer: self.trailer(kind) })
    }

    fn next_bulk(&mut self) -> Option<Token> {
        let &(token, len) = self.announced.front()?;
        let span = frames(len as usize) as u32;
        let is_granted = self.bulk_posted_total != self.peer_grants;
        if !is_granted || self.bulk_frames_in_flight + span > self.config.bulk_send_frames {
            return None;
        }
        self.announced.pop_front();
        self.bulk_posted_total = self.bulk_posted_total.wrapping_add(1);
        self.bulk_frames_in_flight += span;
        Some(token)
    }

    fn next_control(&mut self) -> Option<Kind> {
        if self.fin == Fin::Acknowledged && self.bulk_received_total == self.bulk_due_total {
            self.fin = Fin::Done;
            return Some(Kind::Done);
        }
        if self.peer_fin == PeerFin::Received && self.ungranted.is_empty() && self.granted.is_empty() {
            self.peer_fin = PeerFin::Acknowledged;
            return Some(Kind::FinAck);
        }
        if self.peer_fin == PeerFin::Open
            && self.fin == Fin::Queued
            && self.queue.is_empty()
            && self.announced.is_empty()
        {
            self.fin = Fin::Sent;
            return Some(Kind::Fin);
        }
        if self.fin == Fin::Done {
            return None;
        }
        self.is_update_due().then_some(Kind::Update)
    }

    /// Whether to send an update if there is no other message to send
    #[inline]
    fn is_update_due(&self) -> bool {
        let unreported = self.posted_total.wrapping_sub(self.posted_reported);
        unreported >= self.config.params.report_after()
            || self.granted_total != self.granted_reported
            || self.is_keep_alive_due
    }

    fn trailer(&mut self, kind: Kind) -> Trailer {
        let seq = self.next_seq;
        self.next_seq = seq.wrapping_add(1);
        self.eager_in_flight += 1;
        self.posted_reported = self.posted_total;
        self.granted_reported = self.granted_total;
        self.is_keep_alive_due = false;
        Trailer { kind, seq, credits: self.posted_total, grants: self.granted_total }
    }

    /// Reports that a send on the eager lane has completed
    pub fn eager_sent(&mut self, now: Time) {
        self.eager_in_flight -= 1;
        self.last_sent = now;
    }

    /// Reports that the send of a message of `len` bytes on the bulk lane has completed
    pub fn bulk_sent(&mut self, len: usize) {
        self.bulk_frames_in_flight -= frames(len) as u32;
    }

    /// Decodes a message that has arrived on the eager lane
    ///
    /// # Errors
    ///
    /// Any [`Violation`] but [`Violation::BulkLength`], if a correct peer does not send this message now; the caller ends the
    /// connection.
    pub fn on_eager(&mut self, now: Time, message: &[u8]) -> Result<Incoming, Violation> {
        let (payload, trailer) = Trailer::split(message)?;
        if trailer.seq != self.expected_seq {
            return Err(Violation::Sequence { expected: self.expected_seq, received: trailer.seq });
        }
        self.accept_totals(&trailer)?;
        self.expected_seq = self.expected_seq.wrapping_add(1);
        self.last_received = now;

        let is_past_fin = self.peer_fin != PeerFin::Open;
        let body = || match <[u8; 4]>::try_from(payload) {
            Ok(body) => Ok(u32::from_le_bytes(body)),
            Err(_) => Err(Violation::Unexpected(trailer.kind)),
        };
        match trailer.kind {
            Kind::Data | Kind::Announce if is_past_fin => Err(Violation::PastFin),
            Kind::Data if payload.len() > self.config.params.max_message as usize => {
                Err(Violation::TooLong(payload.len()))
            }
            Kind::Data => Ok(Incoming::Data { len: payload.len() }),
            Kind::Announce => {
                let len = body()?;
                if len as usize <= MAX_EAGER || len > self.config.params.max_message {
                    return Err(Violation::AnnouncedLength(len.into()));
                }
                if self.ungranted.len() >= self.config.params.announces as usize {
                    return Err(Violation::AnnouncedTooMany);
                }
                self.ungranted.push_back(len);
                Ok(Incoming::Announced { len })
            }
            Kind::FinAck => {
                let total = body()?;
                let due = total.wrapping_sub(self.bulk_received_total);
                if self.fin != Fin::Sent || due > self.granted.len() as u32 {
                    return Err(Violation::Unexpected(Kind::FinAck));
                }
                self.fin = Fin::Acknowledged;
                self.bulk_due_total = total;
                Ok(Incoming::Control)
            }
            kind if !payload.is_empty() => Err(Violation::Unexpected(kind)),
            Kind::Fin if is_past_fin => Err(Violation::PastFin),
            Kind::Fin => {
                self.peer_fin = PeerFin::Received;
                probe::reached(match self.fin {
                    Fin::Sent => ConnectionState::ClosedAtOnce,
                    _ => ConnectionState::PeerClosing,
                });
                Ok(Incoming::Fin)
            }
            Kind::Done if self.peer_fin != PeerFin::Acknowledged => Err(Violation::Unexpected(Kind::Done)),
            Kind::Done => {
                self.peer_fin = PeerFin::Done;
                Ok(Incoming::Control)
            }
            Kind::Update => Ok(Incoming::Control),
        }
    }

    fn accept_totals(&mut self, trailer: &Trailer) -> Result<(), Violation> {
        let credits = trailer.credits.wrapping_sub(self.next_seq);
        let is_later = trailer.credits.wrapping_sub(self.peer_credits) <= self.peer.window;
        if credits > self.peer.window || !is_later {
            return Err(Violation::Credits(trailer.credits));
        }
        let granted = trailer.grants.wrapping_sub(self.peer_grants);
        if granted > self.announced_total.wrapping_sub(self.peer_grants) {
            return Err(Violation::Grants(trailer.grants));
        }
        self.peer_credits = trailer.credits;
        self.peer_grants = trailer.grants;
        Ok(())
    }

    /// Reports that an eager receive has been posted again
    pub fn eager_receive_posted(&mut self) {
        self.posted_total = self.posted_total.wrapping_add(1);
    }

    /// Length of the next announced message, if its receive should be posted now
    ///
    /// The caller posts it on the bulk lane and reports it with [`bulk_receive_posted`](Self::bulk_receive_posted).
    pub fn next_bulk_receive(&self) -> Option<u32> {
        self.ungranted.front().copied().filter(|_| self.granted.len() < self.config.bulk_receives as usize)
    }

    /// Reports that the receive for [`next_bulk_receive`](Self::next_bulk_receive) has been posted
    pub fn bulk_receive_posted(&mut self) {
        if let Some(len) = self.ungranted.pop_front() {
            self.granted.push_back(len);
            probe::reached(ConnectionState::BulkGranted);
            self.granted_total = self.granted_total.wrapping_add(1);
        }
    }

    /// Reports that a message of `len` bytes has arrived on the bulk lane
    ///
    /// # Errors
    ///
    /// [`Violation::BulkLength`] if the next granted message has another length; the caller ends the connection.
    pub fn on_bulk(&mut self, now: Time, len: u32) -> Result<(), Violation> {
        let announced = self.granted.pop_front().unwrap_or(0);
        if announced != len {
            return Err(Violation::BulkLength { announced, received: len });
        }
        self.bulk_received_total = self.bulk_received_total.wrapping_add(1);
        self.last_received = now;
        Ok(())
    }

    /// Removes a queued message that will never be posted because the peer has closed
    pub fn poll_refused(&mut self) -> Option<Token> {
        if self.peer_fin == PeerFin::Open {
            return None;
        }
        let (token, _) = self.announced.pop_front().or_else(|| self.queue.pop_front())?;
        Some(token)
    }

    /// The next time at which [`tick`](Self::tick) or [`is_peer_lost`](Self::is_peer_lost) can change the state
    ///
    /// A keep-alive that is due waits for a credit, and none is needed while a send is in flight: time changes neither.
    pub fn next_timeout(&self) -> Time {
        let lost = self.last_received + self.peer_timeout;
        let waits = self.is_keep_alive_due || self.eager_in_flight > 0 || self.fin == Fin::Done;
        if waits { lost } else { lost.min(self.last_sent + self.keep_alive_interval) }
    }

    /// Whether no message of the peer has arrived for the peer timeout
    pub fn is_peer_lost(&self, now: Time) -> bool {
        now >= self.last_received + self.peer_timeout
    }

    /// Whether the peer has closed
    pub fn is_peer_finished(&self) -> bool {
        self.peer_fin != PeerFin::Open
    }

    /// Whether the peer has confirmed that everything arrived
    pub fn is_acknowledged(&self) -> bool {
        matches!(self.fin, Fin::Acknowledged | Fin::Done)
    }

    /// Whether this side loses nothing if no further message of the peer arrives
    ///
    /// Only the peer may still wait: for bytes in flight, or for a confirmation.
    pub fn can_end_without_peer(&self) -> bool {
        match self.fin {
            Fin::Done => true,
            Fin::Acknowledged => self.bulk_received_total == self.bulk_due_total,
            Fin::Sent => false,
            Fin::Open | Fin::Queued => matches!(self.peer_fin, PeerFin::Acknowledged | PeerFin::Done),
        }
    }

    /// Whether both sides know that no more message follows: the queue pairs can be destroyed
    ///
    /// A side that has sent [`Kind::FinAck`] keeps its queue pairs until the peer confirms the arrival, because the
    /// completion of a send does not mean delivery.
    pub fn is_closed(&self) -> bool {
        let is_peer_done = matches!(self.peer_fin, PeerFin::Open | PeerFin::Done);
        match self.fin {
            Fin::Done => is_peer_done && self.eager_in_flight == 0,
            Fin::Open | Fin::Queued => self.peer_fin == PeerFin::Done,
            Fin::Sent | Fin::Acknowledged => false,
        }
    }
}
