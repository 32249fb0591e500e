//! One way from a process to another: a ring of records in shared memory
//!
//! One writer, one reader, no locks. A record is there when the writer has moved the head over it, and gone when the reader has
//! moved the tail; neither can leave half of one behind. The head and the tail are all that the other side believes, and it
//! checks what they enclose.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of records that a lane holds
pub(crate) const LANE_BYTES: usize = 1 << 20;
/// Bytes before the records: head and tail, each in a cache line of its own.
const COUNTERS: usize = 256;

/// Words of a record beside its size and its bytes
pub(crate) const WORDS: usize = 7;
/// The size, and the words
const FIXED: usize = 8 * (1 + WORDS);
/// Set in the size of what is only there to reach the end of the ring.
const SKIP: u64 = 1 << 63;
/// The most bytes of a record: enough to be worth its cost, and so few that both ends work at once
pub(crate) const MAX_PAYLOAD: usize = 64 * 1024;

/// A lane's memory, mapped
///
/// A copy of it is a second end.
#[derive(Clone, Copy)]
pub(crate) struct LaneMemory(NonNull<u8>);

// SAFETY: the memory is shared by its very nature; head and tail order the accesses to the rest.
unsafe impl Send for LaneMemory {}

impl LaneMemory {
    pub(crate) const BYTES: usize = COUNTERS + LANE_BYTES;

    /// # Safety
    ///
    /// `start` leads to [`BYTES`](Self::BYTES) bytes that are aligned to 128, stay mapped for as long as any copy is used, and
    /// are used as a lane only.
    pub(crate) unsafe fn new(start: *mut u8) -> Self {
        // SAFETY: mapped memory is not at NULL.
        Self(unsafe { NonNull::new_unchecked(start) })
    }

    /// How far has been written, since the beginning of time
    fn head(&self) -> &AtomicU64 {
        self.counter(0)
    }

    /// How far has been read
    fn tail(&self) -> &AtomicU64 {
        self.counter(128)
    }

    fn counter(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: both counters are inside.
        let place = unsafe { self.0.add(offset) };
        // SAFETY: it is mapped and aligned, and atomic on both sides.
        unsafe { place.cast::<AtomicU64>().as_ref() }
    }

    /// Where the byte at `position` of all that was ever written is
    fn byte(&self, position: u64) -> NonNull<u8> {
        let offset = COUNTERS + (position % LANE_BYTES as u64) as usize;
        // SAFETY: the offset is inside.
        unsafe { self.0.add(offset) }
    }

    /// Reads a word; `position` is a multiple of 8
    fn word(&self, position: u64) -> u64 {
        // SAFETY: the place is inside, aligned, and enclosed by head and tail, so that nobody writes to it.
        unsafe { self.byte(position).cast::<u64>().read() }
    }

    /// Writes a word; `position` is a multiple of 8
    fn set_word(&self, position: u64, word: u64) {
        // SAFETY: the place is inside, aligned, and not enclosed by head and tail, so that nobody reads it.
        unsafe { self.byte(position).cast::<u64>().write(word) };
    }
}

/// Bytes before the end of the ring
const fn until_end(position: u64) -> u64 {
    LANE_BYTES as u64 - position % LANE_BYTES as u64
}

/// The end that writes
pub(crate) struct Writer {
    lane: LaneMemory,
    head: u64,
    /// As it was seen last.
    tail: u64,
}

impl Writer {
    pub(crate) fn new(lane: LaneMemory) -> Self {
        // Whatever a predecessor has left is not ours to take back.
        let head = lane.head().load(Ordering::Acquire).wrapping_add(7) & !7;
        Self { lane, head, tail: lane.tail().load(Ordering::Acquire) }
    }

    fn free(&mut self, enough: u64) -> u64 {
        let free = |this: &Self| (LANE_BYTES as u64).saturating_sub(this.head.wrapping_sub(this.tail));
        if free(self) < enough {
            self.tail = self.lane.tail().load(Ordering::Acquire);
        }
        free(self)
    }

    /// The most bytes that a record could carry now
    pub(crate) fn room(&mut self) -> usize {
        const WANTED: u64 = (FIXED + MAX_PAYLOAD) as u64;
        let before_end = until_end(self.head);
        let free = self.free(before_end.min(WANTED) + WANTED);
        let here = free.min(before_end);
        let room = if here < WANTED / 2 { free.saturating_sub(before_end).max(here) } else { here };
        (room as usize).saturating_sub(FIXED).min(MAX_PAYLOAD)
    }

    /// Writes a record, if there is room
    pub(crate) fn write(&mut self, words: &[u64; WORDS], bytes: &[u8]) -> bool {
        debug_assert!(bytes.len() <= MAX_PAYLOAD);
        let size = ((FIXED + bytes.len()) as u64).next_multiple_of(8);
        let before_end = until_end(self.head);
        let skipped = if size > before_end { before_end } else { 0 };
        if self.free(skipped + size) < skipped + size {
            return false;
        }
        if skipped > 0 {
            self.lane.set_word(self.head, skipped | SKIP);
            self.head = self.head.wrapping_add(skipped);
        }
        self.lane.set_word(self.head, size);
        for (number, word) in words.iter().enumerate() {
            self.lane.set_word(self.head.wrapping_add(8 * (1 + number as u64)), *word);
        }
        let place = self.lane.byte(self.head.wrapping_add(FIXED as u64));
        // SAFETY: the record lies before the end of the ring, in memory that the reader has left.
        unsafe { place.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
        self.head = self.head.wrapping_add(size);
        self.lane.head().store(self.head, Ordering::Release);
        true
    }
}

/// The end that reads
pub(crate) struct Reader {
    lane: LaneMemory,
    tail: u64,
    /// As it was seen last.
    head: u64,
}

impl Reader {
    pub(crate) fn new(lane: LaneMemory) -> Self {
        let tail = lane.tail().load(Ordering::Acquire);
        Self { lane, tail, head: tail }
    }

    /// Whether there is something to read
    pub(crate) fn has_next(&mut self) -> bool {
        if self.head == self.tail {
            self.head = self.lane.head().load(Ordering::Acquire);
        }
        self.head != self.tail
    }

    /// Gives the next record to `f`; false if there is none
    ///
    /// A lane that makes no sense is emptied.
    pub(crate) fn read(&mut self, f: impl FnOnce(&[u64; WORDS], &[u8])) -> bool {
        while self.has_next() {
            if !self.tail.is_multiple_of(8) {
                self.leave(self.head);
                return false;
            }
            let size = self.lane.word(self.tail);
            let (is_skip, size) = (size & SKIP != 0, size & !SKIP);
            let available = self.head.wrapping_sub(self.tail).min(until_end(self.tail));
            let is_sound = size <= available && size.is_multiple_of(8) && (is_skip || size >= FIXED as u64);
            if !is_sound || size == 0 {
                self.leave(self.head);
                return false;
            }
            if is_skip {
                self.leave(self.tail.wrapping_add(size));
                continue;
            }
            let words =
                std::array::from_fn(|number| self.lane.word(self.tail.wrapping_add(8 * (1 + number as u64))));
            let place = self.lane.byte(self.tail.wrapping_add(FIXED as u64));
            let bytes = NonNull::slice_from_raw_parts(place, size as usize - FIXED);
            // SAFETY: the record is enclosed by head and tail and lies before the end of the ring; the writer leaves it alone
            // until the tail has passed.
            f(&words, unsafe { bytes.as_ref() });
            self.leave(self.tail.wrapping_add(size));
            return true;
        }
        false
    }

    fn leave(&mut self, tail: u64) {
        self.tail = tail;
        self.lane.tail().store(tail, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use rdma_sim::{Choices as _, Seeded};

    use super::*;
    use crate::shared::codec::Stamp;

    fn lane() -> (Vec<u128>, LaneMemory) {
        let mut memory = vec![0_u128; LaneMemory::BYTES / 16 + 8];
        let start = memory.as_mut_ptr().cast::<u8>();
        let start = start.wrapping_add(start.align_offset(128));
        // SAFETY: the memory is that long and outlives the lane in each test.
        let lane = unsafe { LaneMemory::new(start) };
        (memory, lane)
    }

    /// Catches a writer that overtakes the reader, and records that are torn at the end of the ring.
    #[test]
    fn records_arrive_in_order_and_whole() {
        let (memory, lane) = lane();
        let (mut writer, mut reader) = (Writer::new(lane), Reader::new(lane));
        let len = |number: u64| (number * 7919 % (MAX_PAYLOAD as u64 + 1)) as usize;
        let count = 2_000;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..count {
                    let bytes = vec![number as u8; len(number)];
                    while !writer.write(&[number; WORDS], &bytes) {
                        std::thread::yield_now();
                    }
                }
            });
            scope.spawn(|| {
                let mut next = 0;
                while next < count {
                    let was_there = reader.read(|words, bytes| {
                        assert_eq!(words, &[next; WORDS]);
                        assert_eq!(bytes.len(), len(next).next_multiple_of(8));
                        assert!(bytes[..len(next)].iter().all(|byte| *byte == next as u8));
                        next += 1;
                    });
                    if !was_there {
                        std::thread::yield_now();
                    }
                }
            });
        });
        drop(memory);
    }

    #[test]
    fn what_has_room_can_be_written() {
        let (memory, lane) = lane();
        let (mut writer, mut reader) = (Writer::new(lane), Reader::new(lane));
        for number in 0..5_000_u64 {
            let room = writer.room();
            assert!(room <= MAX_PAYLOAD);
            if room > 0 {
                assert!(writer.write(&[0; WORDS], &vec![0; room]), "{number}");
            }
            if number % 3 == 0 || room == 0 {
                reader.read(|_, _| ());
            }
            if number % 100 == 0 {
                while reader.read(|_, _| ()) {}
                assert!(writer.room() >= MAX_PAYLOAD / 2 - FIXED, "an empty lane has room");
            }
        }
        drop(memory);
    }

    /// A process that is not one of ours may have written anything.
    #[test]
    fn a_lane_that_makes_no_sense_is_emptied() {
        for (at, word) in [(0, 3), (0, 0), (0, u64::MAX), (0, LANE_BYTES as u64 * 2), (0, 8)] {
            let (memory, lane) = lane();
            let (mut writer, mut reader) = (Writer::new(lane), Reader::new(lane));
            assert!(writer.write(&[1; WORDS], b"sound"));
            lane.set_word(at, word);
            assert!(!reader.read(|_, _| panic!("it is not sound")), "{word}");
            assert!(writer.write(&[2; WORDS], b""));
            assert!(reader.read(|words, _| assert_eq!(words[0], 2)));
            drop(memory);
        }
        let (memory, lane) = lane();
        lane.head().store(u64::MAX - 3, Ordering::Release);
        assert!(!Reader::new(lane).read(|_, _| panic!("it is not sound")));
        drop(memory);
    }

    /// Regression: words were read across the end of the lane, and positions at the end of all numbers overflowed.
    #[test]
    fn any_head_tail_and_record_are_read_without_harm() {
        let mut random = Seeded::new(5);
        let mut any = move |n| random.pick(n);
        for _ in 0..2_000 {
            let (memory, lane) = lane();
            let mut end = || match any(4) {
                0 => u64::MAX - u64::from(any(80)),
                1 => (LANE_BYTES as u64 - 40).wrapping_add(any(80).into()),
                2 => u64::from(any(200)),
                _ => u64::from(any(u32::MAX)) << 32 | u64::from(any(u32::MAX)),
            };
            lane.tail().store(end(), Ordering::Release);
            let mut reader = Reader::new(lane);
            for _ in 0..4 {
                lane.head().store(end(), Ordering::Release);
                lane.set_word(end() & !7, end());
                lane.set_word(reader.tail & !7, end() & 0x1f8);
                lane.set_word((reader.tail & !7).wrapping_add(16), end());
                for _ in 0..4 {
                    reader.read(|words, bytes| {
                        crate::shared::codec::stamp(words);
                        if let Some(signal) = crate::shared::codec::decode(words, bytes) {
                            let _ = crate::shared::codec::encode(Stamp { from: 1, to: 2 }, &signal);
                        }
                    });
                }
            }
            let mut writer = Writer::new(lane);
            if writer.room() > 0 {
                assert!(writer.write(&[1; WORDS], &[]));
            }
            drop(memory);
        }
    }
}
