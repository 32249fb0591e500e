use std::io;
use std::ptr::NonNull;

use memmap2::{MmapOptions, MmapRaw};

/// Anonymous memory as the device wants it: mapped, aligned to 16 KiB, never across a 4 GiB boundary
///
/// Zero-filled. Heap memory has been refused by Apple's provider, mapped memory has not; 16 KiB is its page size; and
/// a region across a 4 GiB boundary has been seen to receive data exactly 4 GiB too low, silently (field reports).
///
/// Access is by raw pointer only: a device may write here, so no reference can be handed out by the arena itself.
#[derive(Debug)]
pub struct Arena {
    /// Never resized, unmapped on drop.
    map: MmapRaw,
    offset: usize,
    len: usize,
}

/// Page size of Apple silicon.
const ALIGN: usize = 16 * 1024;
/// The provider carries only 32 bits of an address beside the base of its region.
const BOUNDARY: usize = 1 << 32;

impl Arena {
    /// Maps `len` bytes
    ///
    /// # Errors
    ///
    /// What the system says when it has no such memory, or [`io::ErrorKind::InvalidInput`] for a `len` of zero or of
    /// more than 4 GiB.
    pub fn new(len: usize) -> io::Result<Self> {
        if len == 0 || len > BOUNDARY {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "an arena holds 1 byte to 4 GiB"));
        }
        // Mapping is lazy: the slack is address space, not memory.
        let arena = Self::place(len, len + ALIGN)?;
        if arena.crosses_boundary() { Self::place(len, 2 * len + BOUNDARY) } else { Ok(arena) }
    }

    fn place(len: usize, mapped: usize) -> io::Result<Self> {
        let map: MmapRaw = MmapOptions::new().len(mapped).map_anon()?.into();
        let start = map.as_ptr().addr();
        let mut first = start.next_multiple_of(ALIGN);
        if first / BOUNDARY != (first + len - 1) / BOUNDARY && mapped > len + ALIGN {
            first = first.next_multiple_of(BOUNDARY);
        }
        Ok(Self { map, offset: first - start, len })
    }

    fn crosses_boundary(&self) -> bool {
        let first = self.as_ptr().addr().get();
        first / BOUNDARY != (first + self.len - 1) / BOUNDARY
    }

    /// The memory, valid for reads and writes until the arena is dropped
    pub fn as_slice_ptr(&self) -> NonNull<[u8]> {
        NonNull::slice_from_raw_parts(self.as_ptr(), self.len)
    }

    /// The first byte
    pub fn as_ptr(&self) -> NonNull<u8> {
        let start = NonNull::new(self.map.as_mut_ptr()).expect("a mapping is never at address zero");
        // SAFETY: `place` mapped at least `offset + len` bytes.
        unsafe { start.add(self.offset) }
    }

    /// Length in bytes
    #[expect(clippy::len_without_is_empty, reason = "an arena is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arena_is_aligned_and_inside_one_4_gib_window() {
        for len in [1, 4096, 16 * 1024, 1 << 20, (1 << 30) + 1, 3 << 30] {
            let arena = Arena::new(len).unwrap();
            assert_eq!(arena.len(), len);
            assert_eq!(arena.as_ptr().addr().get() % ALIGN, 0);
            assert!(!arena.crosses_boundary(), "{len} bytes at {:p}", arena.as_ptr());
        }
    }

    #[test]
    fn impossible_lengths_are_errors() {
        assert_eq!(Arena::new(0).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(Arena::new(BOUNDARY + 1).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
