//! A ring of records in shared memory, from one process to another
//!
//! One writer, one reader, no locks. A record exists when the writer has moved the head over it, and is gone when the reader has
//! moved the tail: a process that is killed leaves no half of a record. Each side checks the record between head and tail
//! before it uses it.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes for records in a ring
pub(crate) const RING_BYTES: usize = 1 << 20;
/// Bytes before the records: head and tail, each in its own cache line.
const COUNTERS: usize = 256;

/// Words of a record beside its size and its bytes
pub(crate) const WORDS: usize = 7;
/// The size, and the words
const FIXED: usize = 8 * (1 + WORDS);
/// Set in the size of padding up to the end of the ring.
const SKIP: u64 = 1 << 63;
/// The most bytes of a record: enough to be worth its cost, and few enough for both ends to work at once
pub(crate) const MAX_PAYLOAD: usize = 64 * 1024;

/// The mapped memory of a ring; each copy leads to the same memory
#[derive(Clone, Copy)]
pub(crate) struct RingMemory(NonNull<u8>);

// SAFETY: only `Writer` and `Reader` access the records, each for itself alone and ordered by the atomic head and tail; the
// other methods read head and tail.
unsafe impl Send for RingMemory {}
// SAFETY: as above.
unsafe impl Sync for RingMemory {}

impl RingMemory {
    pub(crate) const BYTES: usize = COUNTERS + RING_BYTES;

    /// # Safety
    ///
    /// `start` leads to [`BYTES`](Self::BYTES) bytes that are aligned to 128, stay mapped for as long as any copy is used, and
    /// are used as a ring only.
    pub(crate) unsafe fn new(start: *mut u8) -> Self {
        // SAFETY: mapped memory is not at NULL.
        Self(unsafe { NonNull::new_unchecked(start) })
    }

    /// Whether the reader has taken all records
    ///
    /// A reader takes a record by moving the tail, after it was used.
    pub(crate) fn is_empty(&self) -> bool {
        self.head().load(Ordering::Acquire) == self.tail().load(Ordering::Acquire)
    }

    /// Bytes that were ever written
    fn head(&self) -> &AtomicU64 {
        self.counter(0)
    }

    /// Bytes that were ever read
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
        let offset = COUNTERS + (position % RING_BYTES as u64) as usize;
        // SAFETY: the offset is inside.
        unsafe { self.0.add(offset) }
    }

    /// Reads a word; `position` is a multiple of 8
    fn word(&self, position: u64) -> u64 {
        // SAFETY: the place is inside, aligned, and between tail and head, where the writer does not write.
        unsafe { self.byte(position).cast::<u64>().read() }
    }

    /// Writes a word; `position` is a multiple of 8
    fn set_word(&self, position: u64, word: u64) {
        // SAFETY: the place is inside, aligned, and not between tail and head, so that the reader does not read it.
        unsafe { self.byte(position).cast::<u64>().write(word) };
    }
}

/// Bytes before the end of the ring
const fn until_end(position: u64) -> u64 {
    RING_BYTES as u64 - position % RING_BYTES as u64
}

/// The end that writes
pub(crate) struct Writer {
    ring: RingMemory,
    head: u64,
    /// The last value that was loaded.
    tail: u64,
}

impl Writer {
    pub(crate) fn new(ring: RingMemory) -> Self {
        // The records of a predecessor stay for the reader to skip.
        let head = ring.head().load(Ordering::Acquire).wrapping_add(7) & !7;
        Self { ring, head, tail: ring.tail().load(Ordering::Acquire) }
    }

    fn free(&mut self, enough: u64) -> u64 {
        let free = |this: &Self| (RING_BYTES as u64).saturating_sub(this.head.wrapping_sub(this.tail));
        if free(self) < enough {
            self.tail = self.ring.tail().load(Ordering::Acquire);
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
            self.ring.set_word(self.head, skipped | SKIP);
            self.head = self.head.wrapping_add(skipped);
        }
        self.ring.set_word(self.head, size);
        for (number, word) in words.iter().enumerate() {
            self.ring.set_word(self.head.wrapping_add(8 * (1 + number as u64)), *word);
        }
        let place = self.ring.byte(self.head.wrapping_add(FIXED as u64));
        // SAFETY: the record lies before the end of the ring, in memory that the reader has left.
        unsafe { place.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
        self.head = self.head.wrapping_add(size);
        self.ring.head().store(self.head, Ordering::Release);
        true
    }
}

/// The end that reads
pub(crate) struct Reader {
    ring: RingMemory,
    tail: u64,
    /// The last value that was loaded.
    head: u64,
}

impl Reader {
    pub(crate) fn new(ring: RingMemory) -> Self {
        let tail = ring.tail().load(Ordering::Acquire);
        Self { ring, tail, head: tail }
    }

    /// Whether there is something to read
    pub(crate) fn has_next(&mut self) -> bool {
        if self.head == self.tail {
            self.head = self.ring.head().load(Ordering::Acquire);
        }
        self.head != self.tail
    }

    /// Gives the next record to `f`; false if there is none
    ///
    /// A ring with an invalid record is emptied.
    pub(crate) fn read(&mut self, f: impl FnOnce(&[u64; WORDS], &[u8])) -> bool {
        while self.has_next() {
            if !self.tail.is_multiple_of(8) {
                self.leave(self.head);
                return false;
            }
            let size = self.ring.word(self.tail);
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
                std::array::from_fn(|number| self.ring.word(self.tail.wrapping_add(8 * (1 + number as u64))));
            let place = self.ring.byte(self.tail.wrapping_add(FIXED as u64));
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
        self.ring.tail().store(tail, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use rdma_sim::{Choices as _, Seeded};

    use super::*;

    fn ring() -> (Vec<u128>, RingMemory) {
        let mut memory = vec![0_u128; RingMemory::BYTES / 16 + 8];
        let start = memory.as_mut_ptr().cast::<u8>();
        let start = start.wrapping_add(start.align_offset(128));
        // SAFETY: the memory is that long and outlives the ring in each test.
        let ring = unsafe { RingMemory::new(start) };
        (memory, ring)
    }

    /// Catches a writer that overtakes the reader, and records that are torn at the end of the ring.
    #[test]
    fn records_arrive_in_order_and_whole() {
        let (memory, ring) = ring();
        let (mut writer, mut reader) = (Writer::new(ring), Reader::new(ring));
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
    fn a_record_that_has_room_can_be_written() {
        let (memory, ring) = ring();
        let (mut writer, mut reader) = (Writer::new(ring), Reader::new(ring));
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
                assert!(writer.room() >= MAX_PAYLOAD / 2 - FIXED, "an empty ring has room");
            }
        }
        drop(memory);
    }

    /// A process of another kind may have written anything.
    #[test]
    fn a_ring_with_an_invalid_record_is_emptied() {
        for (at, word) in [(0, 3), (0, 0), (0, u64::MAX), (0, RING_BYTES as u64 * 2), (0, 8)] {
            let (memory, ring) = ring();
            let (mut writer, mut reader) = (Writer::new(ring), Reader::new(ring));
            assert!(writer.write(&[1; WORDS], b"sound"));
            ring.set_word(at, word);
            assert!(!reader.read(|_, _| panic!("it is not sound")), "{word}");
            assert!(writer.write(&[2; WORDS], b""));
            assert!(reader.read(|words, _| assert_eq!(words[0], 2)));
            drop(memory);
        }
        let (memory, ring) = ring();
        ring.head().store(u64::MAX - 3, Ordering::Release);
        assert!(!Reader::new(ring).read(|_, _| panic!("it is not sound")));
        drop(memory);
    }

    /// Regression: words were read across the end of the ring, and positions at the end of all numbers overflowed.
    #[test]
    fn any_head_tail_and_record_are_read_without_harm() {
        let mut random = Seeded::new(5);
        let mut any = move |n| random.pick(n);
        for _ in 0..2_000 {
            let (memory, ring) = ring();
            let mut end = || match any(4) {
                0 => u64::MAX - u64::from(any(80)),
                1 => (RING_BYTES as u64 - 40).wrapping_add(any(80).into()),
                2 => u64::from(any(200)),
                _ => u64::from(any(u32::MAX)) << 32 | u64::from(any(u32::MAX)),
            };
            ring.tail().store(end(), Ordering::Release);
            let mut reader = Reader::new(ring);
            for _ in 0..4 {
                ring.head().store(end(), Ordering::Release);
                ring.set_word(end() & !7, end());
                ring.set_word(reader.tail & !7, end() & 0x1f8);
                ring.set_word((reader.tail & !7).wrapping_add(16), end());
                for _ in 0..4 {
                    reader.read(|words, bytes| {
                        std::hint::black_box((words, bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>()));
                    });
                }
            }
            let mut writer = Writer::new(ring);
            if writer.room() > 0 {
                assert!(writer.write(&[1; WORDS], &[]));
            }
            drop(memory);
        }
    }
}
