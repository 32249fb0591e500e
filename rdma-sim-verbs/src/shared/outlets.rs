//! The ways from this host to the others

use std::collections::VecDeque;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};

use rdma_core::FRAME;
use rdma_sim::remote::{LinkMessage, Transport};

use super::bell;
use super::codec::{self, Stamp};
use super::lane::{WORDS, Writer};
use super::segment::Segment;

/// Which incarnation of each host this one has introduced itself to; 0 for nobody
pub(super) type Introduced = Arc<[AtomicU32]>;

pub(super) struct Outlets {
    segment: Arc<Segment>,
    incarnation: u32,
    introduced: Introduced,
    /// Set when something has to wait for room.
    is_waiting: Arc<AtomicBool>,
    outlets: Vec<Outlet>,
}

struct Outlet {
    writer: Writer,
    /// What found no room: little, because data waits where it is.
    waiting: VecDeque<([u64; WORDS], Box<[u8]>)>,
    bell: PathBuf,
    rope: Option<File>,
}

impl Outlets {
    pub(super) fn new(
        segment: Arc<Segment>,
        host: usize,
        incarnation: u32,
        introduced: Introduced,
        is_waiting: Arc<AtomicBool>,
        bell: impl Fn(usize) -> PathBuf,
    ) -> Self {
        let outlet = |to| Outlet {
            writer: Writer::new(segment.lane(host, to)),
            waiting: VecDeque::new(),
            bell: bell(to),
            rope: None,
        };
        let outlets = (0..segment.hosts()).map(outlet).collect();
        Self { segment, incarnation, introduced, is_waiting, outlets }
    }

    /// Rings if the host sleeps, which it checks after it has said so
    fn ring(&mut self, host: usize) {
        fence(Ordering::SeqCst);
        let slot = self.segment.slot(host);
        if slot.is_asleep.load(Ordering::Relaxed) == 0 || slot.is_asleep.swap(0, Ordering::SeqCst) == 0 {
            return;
        }
        let outlet = &mut self.outlets[host];
        if outlet.rope.is_none() {
            outlet.rope = bell::rope(&outlet.bell).ok();
        }
        outlet.rope.iter_mut().for_each(bell::pull);
    }
}

impl Outlet {
    fn flush(&mut self) -> bool {
        let mut was_sent = false;
        while let Some((words, bytes)) = self.waiting.front() {
            if !self.writer.write(words, bytes) {
                break;
            }
            self.waiting.pop_front();
            was_sent = true;
        }
        was_sent
    }
}

impl Transport for Outlets {
    fn room(&mut self, host: u32) -> usize {
        let outlet = &mut self.outlets[host as usize];
        let room = if outlet.waiting.is_empty() { outlet.writer.room() } else { 0 };
        if room < FRAME {
            self.is_waiting.store(true, Ordering::Relaxed);
        }
        room
    }

    fn send(&mut self, host: u32, message: &LinkMessage<'_>) {
        let to = self.introduced[host as usize].load(Ordering::Relaxed);
        if to == 0 {
            return;
        }
        let (words, bytes) = codec::encode(Stamp { from: self.incarnation, to }, message);
        let outlet = &mut self.outlets[host as usize];
        if outlet.waiting.is_empty() && outlet.writer.write(&words, bytes) {
            self.ring(host as usize);
        } else {
            outlet.waiting.push_back((words, bytes.into()));
            self.is_waiting.store(true, Ordering::Relaxed);
        }
    }

    fn flush(&mut self) {
        for host in 0..self.outlets.len() {
            if self.outlets[host].flush() {
                self.ring(host);
            }
            if !self.outlets[host].waiting.is_empty() {
                self.is_waiting.store(true, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rdma_core::Qpn;
    use rdma_sim::remote::QpName;

    use super::super::lane::Reader;
    use super::*;

    /// Catches signals that are lost when a lane is full, or that are overtaken by those that find room.
    #[test]
    fn what_finds_no_room_is_told_later_and_in_order() {
        let file = tempfile::tempfile().unwrap();
        let segment = Arc::new(Segment::create(&file, "", 2, 2, 0).unwrap());
        let introduced: Introduced = [0, 5].map(AtomicU32::new).into();
        let is_waiting = Arc::<AtomicBool>::default();
        let nowhere = |_| PathBuf::from("/nonexistent");
        let mut outlets =
            Outlets::new(Arc::clone(&segment), 0, 3, introduced, Arc::clone(&is_waiting), nowhere);
        let mut reader = Reader::new(segment.lane(0, 1));
        let qp = QpName { device: 7, qpn: Qpn(9) };
        let (count, mut next) = (100_000, 0);
        for len in 0..count {
            outlets.send(1, &LinkMessage::ReceivePosted { qp, len });
            let has_told_all = outlets.outlets[1].waiting.is_empty();
            assert!(has_told_all || outlets.room(1) == 0 && is_waiting.load(Ordering::Relaxed), "{len}");
            // Now and then, somebody listens, but not always long enough.
            let heard = if len % 30_000 == 29_999 { 5_000 } else { 0 };
            for _ in 0..heard {
                assert!(reader.read(|words, bytes| next = check(words, bytes, next)));
            }
        }
        outlets.send(0, &LinkMessage::Closed { qp });
        while next < count {
            outlets.flush();
            while reader.read(|words, bytes| next = check(words, bytes, next)) {}
        }
        is_waiting.store(false, Ordering::Relaxed);
        outlets.flush();
        assert!(outlets.room(1) > 0 && !is_waiting.load(Ordering::Relaxed));
        assert!(!Reader::new(segment.lane(0, 0)).has_next(), "nobody was introduced there");
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
