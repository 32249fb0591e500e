//! The rings from this host to the others

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rdma_core::FRAME;
use rdma_sim::remote::{LinkMessage, Transport};

use super::codec::{self, Stamp};
use super::ring::{WORDS, Writer};
use super::segment::Segment;
use super::wake_pipe::WakePipe;

/// The incarnation of each host to which this one has announced itself; 0 for none
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
    writer: Writer,
    /// Messages that found no room: few, because data waits in the memory of its program.
    backlog: VecDeque<([u64; WORDS], Box<[u8]>)>,
    path: PathBuf,
    /// Opened when the host sleeps for the first time.
    pipe: Option<WakePipe>,
}

impl Senders {
    pub(super) fn new(
        segment: Arc<Segment>,
        host: usize,
        incarnation: u32,
        announced: Announced,
        is_blocked: Arc<AtomicBool>,
        path: impl Fn(usize) -> PathBuf,
    ) -> Self {
        let sender = |to| Sender {
            writer: Writer::new(segment.ring(host, to)),
            backlog: VecDeque::new(),
            path: path(to),
            pipe: None,
        };
        let senders = (0..segment.hosts()).map(sender).collect();
        Self { segment, incarnation, announced, is_blocked, senders }
    }

    /// Wakes a host that sleeps, after a record was published
    fn wake(&mut self, host: usize) {
        if self.segment.slot(host).sleep_flag.must_wake() {
            let sender = &mut self.senders[host];
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
    fn room(&mut self, host: u32) -> usize {
        let sender = &mut self.senders[host as usize];
        let room = if sender.backlog.is_empty() { sender.writer.room() } else { 0 };
        if room < FRAME {
            self.is_blocked.store(true, Ordering::Relaxed);
            // Data that was sent before has not woken the host.
            self.wake(host as usize);
        }
        room
    }

    fn send(&mut self, host: u32, message: &LinkMessage<'_>) {
        let to = self.announced[host as usize].load(Ordering::Relaxed);
        if to == 0 {
            return;
        }
        let (words, bytes) = codec::encode(Stamp { from: self.incarnation, to }, message);
        let sender = &mut self.senders[host as usize];
        if !sender.backlog.is_empty() || !sender.writer.write(&words, bytes) {
            sender.backlog.push_back((words, bytes.into()));
            self.is_blocked.store(true, Ordering::Relaxed);
        } else if !matches!(message, LinkMessage::Data { .. }) {
            // Data completes nothing: the message that ends its receive follows, or else there is no room.
            self.wake(host as usize);
        }
    }

    fn flush(&mut self) {
        for host in 0..self.senders.len() {
            if self.senders[host].flush() {
                self.wake(host);
            }
            if !self.senders[host].backlog.is_empty() {
                self.is_blocked.store(true, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rdma_core::Qpn;
    use rdma_sim::remote::QpName;

    use super::super::ring::Reader;
    use super::*;

    fn senders() -> (Arc<Segment>, Senders, Arc<AtomicBool>) {
        let file = tempfile::tempfile().unwrap();
        let segment = Arc::new(Segment::create(&file, "", 2, 0).unwrap());
        let announced: Announced = [0, 5].map(AtomicU32::new).into();
        let is_blocked = Arc::<AtomicBool>::default();
        let nowhere = |_| PathBuf::from("/nonexistent");
        let senders = Senders::new(Arc::clone(&segment), 0, 3, announced, Arc::clone(&is_blocked), nowhere);
        (segment, senders, is_blocked)
    }

    const QP: QpName = QpName { device: 7, qpn: Qpn(9) };

    /// Catches messages that are lost when a ring is full, or that are overtaken by those that find room.
    #[test]
    fn messages_without_room_are_sent_later_and_in_order() {
        let (segment, mut senders, is_blocked) = senders();
        let mut reader = Reader::new(segment.ring(0, 1));
        let (count, mut next) = (100_000, 0);
        for len in 0..count {
            senders.send(1, &LinkMessage::ReceivePosted { qp: QP, len });
            let has_sent_all = senders.senders[1].backlog.is_empty();
            assert!(has_sent_all || senders.room(1) == 0 && is_blocked.load(Ordering::Relaxed), "{len}");
            // Now and then the reader runs, but not always for long enough.
            let read = if len % 30_000 == 29_999 { 5_000 } else { 0 };
            for _ in 0..read {
                assert!(reader.read(|words, bytes| next = check(words, bytes, next)));
            }
        }
        senders.send(0, &LinkMessage::Closed { qp: QP });
        while next < count {
            senders.flush();
            while reader.read(|words, bytes| next = check(words, bytes, next)) {}
        }
        is_blocked.store(false, Ordering::Relaxed);
        senders.flush();
        assert!(senders.room(1) > 0 && !is_blocked.load(Ordering::Relaxed));
        assert!(segment.ring(0, 0).is_empty(), "no announcement was made to host 0");
    }

    /// Catches a reader that sleeps while a ring is full of data, or while a receive has ended.
    #[test]
    fn a_sleeping_host_is_woken_by_the_end_of_a_receive_and_by_a_full_ring() {
        let (segment, mut senders, _) = senders();
        let sleep_flag = &segment.slot(1).sleep_flag;
        let asleep = |sender: &mut dyn FnMut()| sleep_flag.sleep_unless(|| false, sender);
        let data = LinkMessage::Data { to: QP, from: Qpn(1), bytes: &[0; FRAME] };
        let mut reader = Reader::new(segment.ring(0, 1));
        asleep(&mut || {
            senders.send(1, &data);
            assert!(sleep_flag.must_wake_own(), "data alone wakes no host");
        });
        asleep(&mut || {
            senders.send(1, &LinkMessage::Closed { qp: QP });
            assert!(!sleep_flag.must_wake_own(), "another message does");
        });
        asleep(&mut || {
            while senders.room(1) >= FRAME {
                senders.send(1, &data);
            }
            assert!(!sleep_flag.must_wake_own(), "a ring without room does");
        });
        while reader.read(|_, _| ()) {}
        assert!(senders.room(1) >= FRAME);
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
