//! The bulk lane of a path: what its receives are for

use std::collections::VecDeque;
use std::time::Duration;

use super::ids::{IncomingId, SessionId};
use super::rate::{Rate, SHORT_ROUND_TRIP};
use super::{Address, Grant, Violation};
use crate::Time;

/// The most receives that may be granted and not served on a bulk lane
pub const MAX_SLOTS: u32 = 32;
/// Time without progress after which a receiver asks first; each part that was granted takes 57 µs at 40 Gb/s.
const PATIENCE: Duration = Duration::from_millis(2);

/// The receiving side of a bulk lane: the receives that were posted and have not completed, oldest first
#[derive(Debug)]
pub(super) struct BulkReceiver {
    slots: VecDeque<Slot>,
    /// Number of the next receive.
    next: u32,
    /// Slots whose grant was not sent, or was lost.
    ungranted: VecDeque<u32>,
    /// Bytes that were granted and have not arrived.
    outstanding: u64,
    /// When a receive completed or was posted into an empty lane.
    last_progress: Time,
    /// How long to wait for progress before this side asks whether the path is alive.
    patience: Duration,
    /// How many receives may be posted.
    max: u32,
    /// Whether the latest receive was not posted yet, because the device has no room.
    is_waiting: bool,
    /// Whether the peer should answer all grants soon, because this side needs the memory of the receives.
    is_urgent: bool,
    rate: Rate,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    /// The message; `None` if it was given up, or there is none
    pub(super) id: Option<IncomingId>,
    pub(super) address: Address,
    pub(super) offset: u64,
    pub(super) len: u32,
    /// Whether it was granted before its message was announced
    pub(super) is_expected: bool,
    /// When the receive was posted
    pub(super) since: Time,
}

impl BulkReceiver {
    pub(super) fn new(now: Time, max: u32, rate: u64) -> Self {
        let slots = VecDeque::with_capacity(max as usize);
        Self {
            slots,
            next: 0,
            ungranted: VecDeque::new(),
            outstanding: 0,
            last_progress: now,
            patience: PATIENCE,
            max,
            is_waiting: false,
            is_urgent: false,
            rate: Rate::new(rate),
        }
    }

    pub(super) fn has_room(&self) -> bool {
        !self.is_waiting && self.slots.len() < self.max as usize
    }

    /// Whether a part may be granted of a message that is expected
    ///
    /// Half of the receives stay for messages that the peer has announced.
    pub(super) fn has_room_for_expected(&self) -> bool {
        let expected = self.slots.iter().filter(|slot| slot.is_expected).count();
        self.has_room() && expected < self.max as usize / 2
    }

    /// Notes that the receive that was just added waits for room: it is not granted yet, and the lane has room for those before it only
    pub(super) fn wait(&mut self) {
        self.ungranted.pop_back_if(|slot| *slot == self.next.wrapping_sub(1));
        self.max = (self.slots.len() as u32).saturating_sub(1).max(1);
        self.is_waiting = true;
    }

    /// Notes that the receive that has waited is posted
    pub(super) fn posted(&mut self) {
        if std::mem::take(&mut self.is_waiting) {
            self.ungranted.push_back(self.next.wrapping_sub(1));
        }
    }

    /// The receives that have not completed, oldest first
    pub(super) fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter()
    }

    /// Lets the peer answer all grants soon: no grant for a message that may still come waits in front of one that asks for a trailer alone
    pub(super) fn hurry(&mut self) {
        self.is_urgent = !self.slots.is_empty();
    }

    /// Whether the next grant should be one that asks for a trailer alone, because the [peer is hurried](Self::hurry)
    pub(super) fn hurries(&self) -> bool {
        self.is_urgent && self.has_room()
    }

    /// Bytes that arrive before a part that is granted now
    ///
    /// If nothing has arrived for long, the peer has nothing to send for parts of messages that it has not announced: it answers them at once
    /// when it can answer what is granted behind.
    pub(super) fn outstanding(&self, now: Time) -> u64 {
        if now < self.last_progress + PATIENCE {
            return self.outstanding;
        }
        self.slots.iter().filter(|slot| !slot.is_expected).map(|slot| u64::from(slot.len)).sum()
    }

    /// Adds a receive
    pub(super) fn push(&mut self, now: Time, slot: Slot) {
        if self.slots.is_empty() {
            self.note_progress(now);
        }
        self.is_urgent &= slot.len > 0;
        self.ungranted.push_back(self.next);
        self.next = self.next.wrapping_add(1);
        self.outstanding += u64::from(slot.len);
        self.slots.push_back(slot);
    }

    /// Removes the oldest receive, which has completed
    pub(super) fn pop(&mut self, now: Time) -> Option<(u32, Slot)> {
        let number = self.first();
        let slot = self.slots.pop_front()?;
        self.note_progress(now);
        self.outstanding -= u64::from(slot.len);
        Some((number, slot))
    }

    /// Notes that the bytes of a receive have arrived, for which nothing but the lane had to wait, after progress at `before`
    pub(super) fn note_arrival(&mut self, now: Time, slot: &Slot, before: Time) {
        let begin = before.max(slot.since + SHORT_ROUND_TRIP).min(now);
        self.rate.note(now, slot.len.into(), now - begin);
    }

    /// How fast the lane is
    pub(super) fn rate(&self) -> &Rate {
        &self.rate
    }

    fn note_progress(&mut self, now: Time) {
        self.last_progress = now;
        self.patience = PATIENCE;
    }

    /// When to ask whether the path is alive, because nothing comes that was granted
    ///
    /// A port that was down for a moment shows in a post alone.
    pub(super) fn question_at(&self) -> Time {
        if self.slots.is_empty() { Time::MAX } else { self.last_progress + self.patience }
    }

    /// Notes that a question goes out at `now`
    pub(super) fn asked(&mut self, now: Time) {
        if now >= self.question_at() {
            self.patience *= 2;
        }
    }

    fn first(&self) -> u32 {
        self.next.wrapping_sub(self.slots.len() as u32)
    }

    /// How many grants are to be sent
    pub(super) fn grants(&self) -> usize {
        self.ungranted.len()
    }

    /// The next grant to send
    pub(super) fn next_grant(&mut self) -> Option<Grant> {
        loop {
            let number = self.ungranted.pop_front()?;
            if let Some(slot) = self.slots.get(number.wrapping_sub(self.first()) as usize) {
                let Slot { address, offset, len, .. } = *slot;
                return Some(Grant { slot: number, len, offset, address });
            }
        }
    }

    /// Notes that a packet with the grants of `slots` was lost
    pub(super) fn lost(&mut self, slots: &[u32]) {
        self.ungranted.extend(slots);
    }

    /// Forgets that receives were posted for messages of a session
    pub(super) fn withdraw(&mut self, session: SessionId) {
        let of_session = |slot: &&mut Slot| slot.address.session == session.number();
        self.slots.iter_mut().filter(of_session).for_each(|slot| slot.id = None);
    }

    /// Forgets that receives were posted for a message
    pub(super) fn forget(&mut self, id: IncomingId) {
        let of_message = |slot: &&mut Slot| slot.id == Some(id);
        self.slots.iter_mut().filter(of_message).for_each(|slot| slot.id = None);
    }

    /// The receives that have not completed, when the path is gone
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Slot> {
        self.ungranted.clear();
        (self.is_waiting, self.is_urgent) = (false, false);
        self.outstanding = 0;
        self.slots.drain(..)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub(super) fn last_progress(&self) -> Time {
        self.last_progress
    }
}

/// The sending side of a bulk lane: grants in the order of the receives that they stand for
#[derive(Debug)]
pub(super) struct BulkSender {
    /// From number `next` on, with their arrival; `None` where the packet with the grant has not arrived.
    grants: VecDeque<Option<(Grant, Time)>>,
    next: u32,
    /// Answers whose send has not completed.
    in_flight: u32,
    /// How many there may be.
    max: u32,
    /// How long a grant waits for its message.
    patience: Duration,
    /// When bytes of a message were sent last.
    last_progress: Time,
    /// Whether nothing has changed since the first grant waits.
    is_settled: bool,
    /// Whether grants wait, because the caller has no memory to send from.
    is_paused: bool,
}

impl BulkSender {
    pub(super) fn new(max: u32, patience: Duration) -> Self {
        let (grants, last_progress) = (VecDeque::new(), Time::ZERO);
        Self {
            grants,
            next: 0,
            in_flight: 0,
            max,
            patience,
            last_progress,
            is_settled: false,
            is_paused: false,
        }
    }

    /// Takes in a grant; ignores one that came before
    pub(super) fn push(&mut self, now: Time, grant: Grant) -> Result<(), Violation> {
        let index = grant.slot.wrapping_sub(self.next);
        if index > u32::MAX / 2 {
            return Ok(());
        }
        if index >= MAX_SLOTS {
            return Err(Violation::Slot(grant.slot));
        }
        let index = index as usize;
        if index >= self.grants.len() {
            self.grants.resize(index + 1, None);
        }
        self.grants[index].get_or_insert((grant, now));
        self.is_settled = false;
        Ok(())
    }

    /// The grants of a message that are not served
    pub(super) fn granted(&self, address: Address) -> impl Iterator<Item = &Grant> {
        let grants = self.grants.iter().flatten().map(|(grant, _)| grant);
        grants.filter(move |grant| grant.address == address)
    }

    /// Whether answers are under way, or follow now
    pub(super) fn is_serving(&self) -> bool {
        self.in_flight > 0 || self.has_grants()
    }

    /// Whether grants are not served, and do not only wait for their messages
    pub(super) fn has_grants(&self) -> bool {
        !self.grants.is_empty() && !self.is_settled && !self.is_paused
    }

    /// The grant to serve next, unless it waits for its message
    pub(super) fn front(&self, now: Time) -> Option<Grant> {
        let waits = self.is_settled && !self.has_waited(now);
        let may_send = self.in_flight < self.max && !self.is_paused;
        let (grant, _) = (*self.grants.front()?).filter(|_| may_send && !waits)?;
        Some(grant)
    }

    /// Pauses answers, or resumes them
    pub(super) fn set_paused(&mut self, is_paused: bool) {
        self.is_paused = is_paused;
    }

    /// Answers whose send has not completed
    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// How many grants are not served
    pub(super) fn unserved(&self) -> u32 {
        self.grants.iter().flatten().count() as u32
    }

    /// The grants that can follow it
    pub(super) fn behind(&self) -> impl Iterator<Item = &Grant> {
        self.grants.iter().skip(1).map_while(Option::as_ref).map(|(grant, _)| grant)
    }

    /// Lets the first grant wait for its message
    pub(super) fn wait(&mut self) {
        self.is_settled = true;
    }

    /// Whether the first grant has waited for long enough
    pub(super) fn has_waited(&self, now: Time) -> bool {
        now >= self.patient_until()
    }

    /// Until when the first grant may wait
    ///
    /// Those that came together and get nothing end together: what comes then waits behind none of them.
    fn patient_until(&self) -> Time {
        let arrival = self.grants.front().and_then(|first| Some(first.as_ref()?.1));
        arrival.map_or(Time::MAX, |arrival| arrival.max(self.last_progress) + self.patience)
    }

    /// When the first grant has waited for long enough
    pub(super) fn waits_until(&self) -> Time {
        if self.is_settled { self.patient_until() } else { Time::MAX }
    }

    /// What can be sent has changed, for which the first grant may have waited
    pub(super) fn look_again(&mut self) {
        self.is_settled = false;
    }

    /// Takes the first grant, which is served now, with bytes of its message or without
    pub(super) fn pop(&mut self, now: Time, is_void: bool) {
        if self.grants.pop_front().is_some() {
            self.next = self.next.wrapping_add(1);
            self.in_flight += 1;
            self.is_settled = false;
            if !is_void {
                self.last_progress = now;
            }
        }
    }

    /// The send of an answer has completed
    pub(super) fn completed(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(slot: u32) -> Grant {
        Grant { slot, len: 5, offset: 1 << 40, address: Address { session: 1, stream: 2, message: 3 } }
    }

    /// Catches a sender that serves a later receive first, or one twice.
    #[test]
    fn grants_are_served_in_the_order_of_their_receives() {
        let mut sender = BulkSender::new(MAX_SLOTS, Duration::ZERO);
        let next = |sender: &mut BulkSender| {
            let grant = sender.front(Time::ZERO);
            grant.is_some().then(|| sender.pop(Time::ZERO, false));
            grant
        };
        let push = |sender: &mut BulkSender, grant| sender.push(Time::ZERO, grant);
        push(&mut sender, grant(1)).unwrap();
        assert_eq!(next(&mut sender), None, "grant 0 is on its way");
        push(&mut sender, grant(0)).unwrap();
        push(&mut sender, grant(1)).unwrap();
        assert_eq!([(); 3].map(|()| next(&mut sender)), [Some(grant(0)), Some(grant(1)), None]);
        push(&mut sender, grant(1)).unwrap();
        assert_eq!(next(&mut sender), None, "it was served");
        assert_eq!(push(&mut sender, grant(2 + MAX_SLOTS)), Err(Violation::Slot(2 + MAX_SLOTS)));
        assert_eq!(push(&mut sender, grant(1 + MAX_SLOTS)), Ok(()));
    }

    /// Catches answers that go on, or that count as due, while they are paused, and a grant that is lost by the pause.
    #[test]
    fn paused_answers_wait() {
        let mut sender = BulkSender::new(MAX_SLOTS, Duration::ZERO);
        sender.push(Time::ZERO, grant(0)).unwrap();
        sender.set_paused(true);
        assert_eq!(sender.front(Time::ZERO), None);
        assert!(!sender.has_grants() && !sender.is_serving());
        sender.set_paused(false);
        assert_eq!(sender.front(Time::ZERO), Some(grant(0)));
        assert!(sender.has_grants());
    }

    fn slot() -> Slot {
        let (address, since) = (grant(0).address, Time::ZERO);
        Slot { id: None, address, offset: 1 << 40, len: 5, is_expected: false, since }
    }

    /// Catches a receive that is granted before the device has it, or never, and one more that the device has no room for.
    #[test]
    fn a_receive_that_the_device_has_no_room_for_is_granted_later() {
        let mut receiver = BulkReceiver::new(Time::ZERO, MAX_SLOTS, 1);
        (0..3).for_each(|_| receiver.push(Time::ZERO, slot()));
        receiver.wait();
        assert_eq!([(); 3].map(|()| receiver.next_grant()), [Some(grant(0)), Some(grant(1)), None]);
        receiver.pop(Time::ZERO);
        receiver.pop(Time::ZERO);
        assert!(!receiver.has_room(), "one waits");
        receiver.posted();
        assert_eq!([receiver.next_grant(), receiver.next_grant()], [Some(grant(2)), None]);
        assert!(receiver.has_room());
        receiver.push(Time::ZERO, slot());
        assert!(!receiver.has_room(), "the device has room for two");
        receiver.posted();
        assert_eq!([receiver.next_grant(), receiver.next_grant()], [Some(grant(3)), None]);
    }

    /// Catches a peer that seems busy for ever with what it has not announced.
    #[test]
    fn expected_bytes_are_outstanding_for_a_bounded_time() {
        let mut receiver = BulkReceiver::new(Time::ZERO, MAX_SLOTS, 1);
        receiver.push(Time::ZERO, slot());
        receiver.push(Time::ZERO, Slot { is_expected: true, len: 7, ..slot() });
        let end = Time::ZERO + PATIENCE;
        assert_eq!(receiver.outstanding(Time::from_nanos(end.as_nanos() - 1)), 12);
        assert_eq!(receiver.outstanding(end), 5);
    }

    #[test]
    fn a_lost_grant_is_sent_again_unless_it_was_served() {
        let mut receiver = BulkReceiver::new(Time::ZERO, MAX_SLOTS, 1);
        let slot = slot();
        receiver.push(Time::ZERO, slot);
        receiver.push(Time::ZERO, slot);
        assert_eq!([receiver.next_grant(), receiver.next_grant()], [Some(grant(0)), Some(grant(1))]);
        assert_eq!(receiver.grants(), 0);
        assert_eq!(receiver.outstanding(Time::ZERO), 10);
        assert_eq!(receiver.pop(Time::ZERO).map(|(number, _)| number), Some(0));
        receiver.lost(&[0, 1]);
        assert_eq!([receiver.next_grant(), receiver.next_grant()], [Some(grant(1)), None]);
        assert_eq!((receiver.drain().count(), receiver.outstanding(Time::ZERO)), (1, 0));
    }
}
