use std::collections::VecDeque;

use super::{EnqueueError, Kind, MAX_EAGER, Params, ProtocolConfig, Trailer, Violation};
use crate::{Time, frames};

/// The caller's name for a queued message
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Token(pub u32);

/// Something to post, as decided by [`Protocol::poll_transmit`]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Transmit {
    /// On the bulk lane: the bytes of the message, nothing else
    Bulk {
        /// Which message
        token: Token,
    },
    /// On the eager lane: the bytes of the message, then the trailer
    Eager {
        /// Which message
        token: Token,
        /// What follows its bytes
        trailer: Trailer,
    },
    /// On the eager lane: a message of the protocol itself
    Control {
        /// For [`Kind::Announce`] and [`Kind::FinAck`], four bytes little-endian before the trailer
        body: Option<u32>,
        /// What follows
        trailer: Trailer,
    },
}

/// What a message on the eager lane was
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Incoming {
    /// A bulk message of `len` bytes will come; its place in the order is here
    Announced {
        /// Length in bytes
        len: u32,
    },
    /// The protocol's own business: the receive can be posted again at once
    Control,
    /// The first `len` bytes are a message
    Data {
        /// Length in bytes
        len: usize,
    },
    /// The peer is done: after what came before there is nothing more
    Fin,
}

/// One side of a connection over one cable
///
/// The caller posts what [`poll_transmit`](Self::poll_transmit) says and reports what completes. See the
/// [module](super) for the protocol.
#[derive(Debug)]
pub struct Protocol {
    config: ProtocolConfig,
    peer: Params,

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
    is_keepalive_due: bool,
    fin: Fin,
    /// Bulk messages that the peer has posted in total, once it has confirmed our [`Kind::Fin`].
    bulk_due_total: u32,

    expected_seq: u32,
    posted_total: u32,
    posted_reported: u32,
    /// Announced by the peer and not yet granted.
    wanted: VecDeque<u32>,
    /// Granted and not yet arrived.
    granted: VecDeque<u32>,
    granted_total: u32,
    granted_reported: u32,
    bulk_received_total: u32,
    last_heard: Time,
    peer_fin: PeerFin,
}

/// How far this side is with closing
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fin {
    Open,
    /// To be sent after everything that is queued
    Queued,
    Sent,
    /// The peer has everything
    Acknowledged,
    /// And has been told that this is known: there is nothing more to say
    Done,
}

/// How far the peer is with closing
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum PeerFin {
    Open,
    Received,
    /// Confirmed, and not yet known to have got the confirmation
    Acknowledged,
    /// It has the confirmation
    Done,
}

impl Protocol {
    /// The state of a new connection to a peer that offers `peer`
    ///
    /// The caller has already posted `config.params.window` eager receives.
    ///
    /// # Panics
    ///
    /// If the configuration or the peer's parameters are not usable.
    pub fn new(config: ProtocolConfig, peer: Params, now: Time) -> Self {
        assert!(config.is_usable() && peer.is_usable(), "unusable parameters: {config:?}, {peer:?}");
        Self {
            config,
            peer,
            queue: VecDeque::with_capacity(config.queue as usize),
            announced: VecDeque::with_capacity(config.queue as usize),
            announced_total: 0,
            bulk_posted_total: 0,
            bulk_frames_in_flight: 0,
            eager_in_flight: 0,
            next_seq: 0,
            peer_credits: peer.window,
            peer_grants: 0,
            last_sent: now,
            is_keepalive_due: false,
            fin: Fin::Open,
            bulk_due_total: 0,
            expected_seq: 0,
            posted_total: config.params.window,
            posted_reported: config.params.window,
            wanted: VecDeque::with_capacity(config.params.announces as usize),
            granted: VecDeque::with_capacity(config.bulk_receives as usize),
            granted_total: 0,
            granted_reported: 0,
            bulk_received_total: 0,
            last_heard: now,
            peer_fin: PeerFin::Open,
        }
    }

    /// The longest message that can be queued, in bytes
    pub fn max_message(&self) -> usize {
        let bulk = (self.peer.max_message as usize).min(self.config.bulk_send_frames as usize * crate::FRAME);
        bulk.max(MAX_EAGER)
    }

    /// Queues a message of `len` bytes
    ///
    /// # Errors
    ///
    /// It cannot be queued, now or ever; nothing has changed.
    pub fn enqueue(&mut self, token: Token, len: usize) -> Result<(), EnqueueError> {
        if self.fin != Fin::Open || self.peer_fin != PeerFin::Open {
            return Err(EnqueueError::Closed);
        }
        let max = self.max_message();
        if len > max {
            return Err(EnqueueError::TooLong { len, max });
        }
        if self.queue.len() + self.announced.len() >= self.config.queue as usize {
            return Err(EnqueueError::Full);
        }
        self.queue.push_back((token, len as u32));
        Ok(())
    }

    /// Says that nothing more will be queued; the peer is told after everything before it
    pub fn finish(&mut self) {
        if self.fin == Fin::Open {
            self.fin = Fin::Queued;
        }
    }

    /// Lets it become `now`: whoever has said nothing for long says that it lives
    #[inline]
    pub fn tick(&mut self, now: Time) {
        if self.eager_in_flight == 0 && now >= self.last_sent + self.config.keepalive {
            self.is_keepalive_due = true;
        }
    }

    /// Whether there is nothing to post, and no receive to post either: most of the time
    #[inline]
    pub fn is_quiet(&self) -> bool {
        self.queue.is_empty()
            && self.announced.is_empty()
            && self.wanted.is_empty()
            && self.fin == Fin::Open
            && self.peer_fin == PeerFin::Open
            && !self.is_update_due()
    }

    /// The next thing to post, if anything can be
    ///
    /// What is returned counts as posted. `control` says whether the caller has a buffer for a message of the protocol.
    pub fn poll_transmit(&mut self, control: bool) -> Option<Transmit> {
        let is_read = self.peer_fin == PeerFin::Open;
        if is_read && let Some(token) = self.next_bulk() {
            return Some(Transmit::Bulk { token });
        }
        let credits = self.peer_credits.wrapping_sub(self.next_seq);
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
        if self.peer_fin == PeerFin::Received && self.wanted.is_empty() && self.granted.is_empty() {
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

    /// Whether the peer should hear of this side even if there is nothing else to send
    #[inline]
    fn is_update_due(&self) -> bool {
        let unreported = self.posted_total.wrapping_sub(self.posted_reported);
        unreported >= self.config.params.report_after()
            || self.granted_total != self.granted_reported
            || self.is_keepalive_due
    }

    fn trailer(&mut self, kind: Kind) -> Trailer {
        let seq = self.next_seq;
        self.next_seq = seq.wrapping_add(1);
        self.eager_in_flight += 1;
        self.posted_reported = self.posted_total;
        self.granted_reported = self.granted_total;
        self.is_keepalive_due = false;
        Trailer { kind, seq, credits: self.posted_total, grants: self.granted_total }
    }

    /// A send on the eager lane has completed
    pub fn eager_sent(&mut self, now: Time) {
        self.eager_in_flight -= 1;
        self.last_sent = now;
    }

    /// The send of a message of `len` bytes on the bulk lane has completed
    pub fn bulk_sent(&mut self, len: usize) {
        self.bulk_frames_in_flight -= frames(len) as u32;
    }

    /// A message has arrived on the eager lane
    ///
    /// # Errors
    ///
    /// The peer broke the protocol: the connection cannot go on.
    pub fn on_eager(&mut self, now: Time, message: &[u8]) -> Result<Incoming, Violation> {
        let (payload, trailer) = Trailer::split(message)?;
        if trailer.seq != self.expected_seq {
            return Err(Violation::Sequence { expected: self.expected_seq, received: trailer.seq });
        }
        self.accept_totals(&trailer)?;
        self.expected_seq = self.expected_seq.wrapping_add(1);
        self.last_heard = now;

        let is_past_fin = self.peer_fin != PeerFin::Open;
        let body = || match <[u8; 4]>::try_from(payload) {
            Ok(body) => Ok(u32::from_le_bytes(body)),
            Err(_) => Err(Violation::Unexpected(trailer.kind)),
        };
        match trailer.kind {
            Kind::Data | Kind::Announce if is_past_fin => Err(Violation::PastFin),
            Kind::Data => Ok(Incoming::Data { len: payload.len() }),
            Kind::Announce => {
                let len = body()?;
                if len as usize <= MAX_EAGER || len > self.config.params.max_message {
                    return Err(Violation::AnnouncedLength(len.into()));
                }
                if self.wanted.len() >= self.config.params.announces as usize {
                    return Err(Violation::AnnouncedTooMany);
                }
                self.wanted.push_back(len);
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

    /// An eager receive has been posted again
    pub fn eager_posted(&mut self) {
        self.posted_total = self.posted_total.wrapping_add(1);
    }

    /// Length of the announced message for which a receive should be posted next
    ///
    /// Post it on the bulk lane and say so with [`bulk_posted`](Self::bulk_posted).
    pub fn next_wanted(&self) -> Option<u32> {
        self.wanted.front().copied().filter(|_| self.granted.len() < self.config.bulk_receives as usize)
    }

    /// The receive for [`next_wanted`](Self::next_wanted) has been posted
    pub fn bulk_posted(&mut self) {
        if let Some(len) = self.wanted.pop_front() {
            self.granted.push_back(len);
            self.granted_total = self.granted_total.wrapping_add(1);
        }
    }

    /// A message of `len` bytes has arrived on the bulk lane
    ///
    /// # Errors
    ///
    /// It is not the one that was announced.
    pub fn on_bulk(&mut self, now: Time, len: u32) -> Result<(), Violation> {
        let announced = self.granted.pop_front().unwrap_or(0);
        if announced != len {
            return Err(Violation::BulkLength { announced, received: len });
        }
        self.bulk_received_total = self.bulk_received_total.wrapping_add(1);
        self.last_heard = now;
        Ok(())
    }

    /// Takes back a message that will never be posted because the peer has closed
    pub fn poll_refused(&mut self) -> Option<Token> {
        if self.peer_fin == PeerFin::Open {
            return None;
        }
        let (token, _) = self.announced.pop_front().or_else(|| self.queue.pop_front())?;
        Some(token)
    }

    /// When [`tick`](Self::tick) or [`is_peer_lost`](Self::is_peer_lost) may next make a difference
    ///
    /// A keep-alive that is due already waits for a credit, and who has a send under way will be heard: time alone changes neither.
    pub fn next_timeout(&self) -> Time {
        let lost = self.last_heard + self.config.timeout;
        let waits = self.is_keepalive_due || self.eager_in_flight > 0 || self.fin == Fin::Done;
        if waits { lost } else { lost.min(self.last_sent + self.config.keepalive) }
    }

    /// Whether the peer has been silent for too long
    pub fn is_peer_lost(&self, now: Time) -> bool {
        now >= self.last_heard + self.config.timeout
    }

    /// Whether the peer has said that it is done
    pub fn is_peer_finished(&self) -> bool {
        self.peer_fin != PeerFin::Open
    }

    /// Whether the peer has confirmed that everything arrived
    pub fn is_acknowledged(&self) -> bool {
        matches!(self.fin, Fin::Acknowledged | Fin::Done)
    }

    /// Whether the connection has ended in good order for this side, even if the peer should not be heard of again
    ///
    /// Only the peer may still want something: bytes that are under way, or a confirmation.
    pub fn is_concluded(&self) -> bool {
        match self.fin {
            Fin::Done => true,
            Fin::Acknowledged => self.bulk_received_total == self.bulk_due_total,
            Fin::Sent => false,
            Fin::Open | Fin::Queued => matches!(self.peer_fin, PeerFin::Acknowledged | PeerFin::Done),
        }
    }

    /// Whether both sides know that no more will be said: the queue pairs may go
    ///
    /// Who has confirmed the end of the peer stays until it knows that the confirmation arrived, because the completion of
    /// a send does not tell.
    pub fn is_settled(&self) -> bool {
        let is_heard = matches!(self.peer_fin, PeerFin::Open | PeerFin::Done);
        match self.fin {
            Fin::Done => is_heard && self.eager_in_flight == 0,
            Fin::Open | Fin::Queued => self.peer_fin == PeerFin::Done,
            Fin::Sent | Fin::Acknowledged => false,
        }
    }
}
