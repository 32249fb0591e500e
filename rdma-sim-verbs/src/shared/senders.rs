//! The rings from this process to those of other hosts

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rdma_core::FRAME;
use rdma_sim::remote::{LinkMessage, MAX_PROCESSES, ProcessName, Transport};

use super::codec::{self, Stamp};
use super::ring::{WORDS, Writer};
use super::segment::{Segment, index};
use super::wake_pipe::WakePipe;

/// The incarnation of each process to which this one has announced itself; 0 for none
pub(super) type Announced = Arc<[AtomicU32]>;

pub(super) struct Senders {
    segment: Arc<Segment>,
    incarnation: u32,
    announced: Announced,
    /// Set when something waits for room in a ring.
    is_blocked: Arc<AtomicBool>,
    senders: Vec<Sender>,
}

struct Sender {
    process: ProcessName,
    writer: Writer,
    /// Messages that found no room: few, because data waits in the memory of its program.
    backlog: VecDeque<([u64; WORDS], Box<[u8]>)>,
    path: PathBuf,
    /// Opened when the process sleeps for the first time.
    pipe: Option<WakePipe>,
}

impl Senders {
    pub(super) fn new(
        segment: Arc<Segment>,
        from: ProcessName,
        incarnation: u32,
        announced: Announced,
        is_blocked: Arc<AtomicBool>,
        path: impl Fn(ProcessName) -> PathBuf,
    ) -> Self {
        let sender = |to| Sender {
            process: to,
            writer: Writer::new(segment.ring(from, to)),
            backlog: VecDeque::new(),
            path: path(to),
            pipe: None,
        };
        let numbers = |host| (0..MAX_PROCESSES).map(move |number| ProcessName { host, number });
        let senders = (0..segment.hosts() as u32).flat_map(numbers).map(sender).collect();
        Self { segment, incarnation, announced, is_blocked, senders }
    }

    /// Wakes a process that sleeps, after a record was published
    fn wake(&mut self, to: ProcessName) {
        if self.segment.slot(to).sleep_flag.must_wake() {
            let sender = &mut self.senders[index(to)];
            if sender.pipe.is_none() {
                sender.pipe = WakePipe::open(&sender.path).ok();
            }
            sender.pipe.iter().for_each(WakePipe::notify);
        }
    }
}

impl Sender {
    /// Sends what waits for room, as far as there is some; returns whether anything was sent
    fn flush(&mut self) -> bool {
        let before = self.backlog.len();
        while let Some((words, bytes)) = self.backlog.front() {
            if !self.writer.write(words, bytes) {
                break;
            }
            self.backlog.pop_front();
        }
        self.backlog.len() < before
    }
}

impl Transport for Senders {
    fn room(&mut self, to: ProcessName) -> usize {
        let sender = &mut self.senders[index(to)];
        let room = if sender.backlog.is_empty() { sender.writer.room() } else { 0 };
        if room < FRAME {
            self.is_blocked.store(true, Ordering::Relaxed);
            // Data that was sent before has not woken the process.
            self.wake(to);
        }
        room
    }

    fn send(&mut self, to: ProcessName, message: &LinkMessage<'_>) {
        let incarnation = self.announced[index(to)].load(Ordering::Relaxed);
        if incarnation == 0 {
            return;
        }
        let stamp = Stamp { from: self.incarnation, to: incarnation };
        let (words, bytes) = codec::encode(stamp, message);
        let sender = &mut self.senders[index(to)];
        if !sender.backlog.is_empty() || !sender.writer.write(&words, bytes) {
            sender.backlog.push_back((words, bytes.into()));
            self.is_blocked.store(true, Ordering::Relaxed);
        } else if !matches!(message, LinkMessage::Data { .. }) {
            // Data completes nothing: the message that ends its receive follows, or else there is no room.
            self.wake(to);
        }
    }

    fn flush(&mut self) {
        for number in 0..self.senders.len() {
            if self.senders[number].flush() {
                self.wake(self.senders[number].process);
            }
            if !self.senders[number].backlog.is_empty() {
                self.is_blocked.store(true, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rdma_core::{Qpn, Time};
    use rdma_sim::remote::QpName;

    use super::super::ring::Reader;
    use super::*;

    fn senders() -> (Arc<Segment>, Senders, Arc<AtomicBool>) {
        let file = tempfile::tempfile().unwrap();
        let segment = Arc::new(Segment::create(&file, "", 2, 0).unwrap());
        // No announcement was made to host 0, and none to the second process of host 1.
        let announced: Announced = [0, 0, 0, 0, 5, 0, 0, 0].map(AtomicU32::new).into();
        let is_blocked = Arc::<AtomicBool>::default();
        let nowhere = |_| PathBuf::from("/nonexistent");
        let senders =
            Senders::new(Arc::clone(&segment), HERE, 3, announced, Arc::clone(&is_blocked), nowhere);
        (segment, senders, is_blocked)
    }

    const QP: QpName = QpName { device: 7, qpn: Qpn(9) };
    const HERE: ProcessName = ProcessName { host: 0, number: 0 };
    const THERE: ProcessName = ProcessName { host: 1, number: 0 };
    const BESIDE: ProcessName = ProcessName { host: 1, number: 1 };

    /// Catches messages that are lost when a ring is full, or that are overtaken by those that find room.
    #[test]
    fn messages_without_room_are_sent_later_and_in_order() {
        let (segment, mut senders, is_blocked) = senders();
        let mut reader = Reader::new(segment.ring(HERE, THERE));
        let (count, mut next) = (100_000, 0);
        for len in 0..count {
            senders.send(THERE, &LinkMessage::ReceivePosted { qp: QP, len, at: Time::ZERO });
            let has_sent_all = senders.senders[index(THERE)].backlog.is_empty();
            assert!(has_sent_all || senders.room(THERE) == 0 && is_blocked.load(Ordering::Relaxed), "{len}");
            // Now and then the reader runs, but not always for long enough.
            let read = if len % 30_000 == 29_999 { 5_000 } else { 0 };
            for _ in 0..read {
                assert!(reader.read(|words, bytes| next = check(words, bytes, next)));
            }
        }
        senders.send(HERE, &LinkMessage::Closed { qp: QP });
        senders.send(BESIDE, &LinkMessage::Closed { qp: QP });
        while next < count {
            senders.flush();
            while reader.read(|words, bytes| next = check(words, bytes, next)) {}
        }
        is_blocked.store(false, Ordering::Relaxed);
        senders.flush();
        assert!(senders.room(THERE) > 0 && !is_blocked.load(Ordering::Relaxed));
        for other in [HERE, BESIDE] {
            assert!(segment.ring(HERE, other).is_empty(), "no announcement was made to {other:?}");
        }
    }

    /// Catches a reader that sleeps while a ring is full of data, or while a receive has ended.
    #[test]
    fn a_sleeping_host_is_woken_by_the_end_of_a_receive_and_by_a_full_ring() {
        let (segment, mut senders, _) = senders();
        let sleep_flag = &segment.slot(THERE).sleep_flag;
        let asleep = |sender: &mut dyn FnMut()| sleep_flag.sleep_unless(|| false, sender);
        let data = LinkMessage::Data { to: QP, from: Qpn(1), bytes: &[0; FRAME] };
        let mut reader = Reader::new(segment.ring(HERE, THERE));
        asleep(&mut || {
            senders.send(THERE, &data);
            assert!(sleep_flag.must_wake_own(), "data alone wakes no host");
        });
        asleep(&mut || {
            senders.send(THERE, &LinkMessage::Closed { qp: QP });
            assert!(!sleep_flag.must_wake_own(), "another message does");
        });
        asleep(&mut || {
            while senders.room(THERE) >= FRAME {
                senders.send(THERE, &data);
            }
            assert!(!sleep_flag.must_wake_own(), "a ring without room does");
        });
        while reader.read(|_, _| ()) {}
        assert!(senders.room(THERE) >= FRAME);
    }

    fn check(words: &[u64; WORDS], bytes: &[u8], next: u32) -> u32 {
        assert_eq!(codec::stamp(words), Stamp { from: 3, to: 5 });
        let message = codec::decode(words, bytes);
        assert!(
            matches!(message, Some(LinkMessage::ReceivePosted { len, .. }) if len == next),
            "{next}: {message:?}"
        );
        next + 1
    }
}
