//! Anonymous memory of the system, with room to choose where an arena begins

use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::OnceLock;

use memmap2::{MmapOptions, MmapRaw};

use crate::fork;

/// Page size of Apple silicon.
pub(crate) const ALIGN: usize = 16 * 1024;
/// The provider carries only 32 bits of an address beside the base of its region.
pub(crate) const BOUNDARY: usize = 1 << 32;

/// Mapped memory, a part of which is an arena's
#[derive(Debug)]
pub(crate) struct Mapping {
    /// Never resized, unmapped on drop.
    map: MmapRaw,
    /// Where the arena begins.
    offset: usize,
    len: usize,
    /// All bytes of the arena that may have been written, once it is gone; without it, each byte may.
    written: OnceLock<Vec<Range<usize>>>,
}

impl Mapping {
    /// Maps memory for an arena of `len` bytes
    pub(crate) fn new(len: usize) -> io::Result<Self> {
        // Mapping is lazy: the slack is address space, not memory.
        let mapping = Self::map(len, len + ALIGN)?;
        let mapping = if mapping.crosses_boundary() { Self::map(len, 2 * len + BOUNDARY)? } else { mapping };
        fork::exclude_from_children(&mapping.map)?;
        Ok(mapping)
    }

    fn map(len: usize, mapped: usize) -> io::Result<Self> {
        let map: MmapRaw = MmapOptions::new().len(mapped).map_anon()?.into();
        let start = map.as_ptr().addr();
        let mut first = start.next_multiple_of(ALIGN);
        if first / BOUNDARY != (first + len - 1) / BOUNDARY && mapped > len + ALIGN {
            first = first.next_multiple_of(BOUNDARY);
        }
        Ok(Self { map, offset: first - start, len, written: OnceLock::new() })
    }

    pub(crate) fn crosses_boundary(&self) -> bool {
        let first = self.as_ptr().addr().get();
        first / BOUNDARY != (first + self.len - 1) / BOUNDARY
    }

    /// Address of the first byte of the arena
    pub(crate) fn as_ptr(&self) -> NonNull<u8> {
        let first = self.map.as_mut_ptr().wrapping_add(self.offset);
        NonNull::new(first)
            .expect("`map` put the first byte inside a mapping, which is never at address zero")
    }

    /// Length of the arena
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Remembers that no byte of the arena was written outside of `written`
    pub(crate) fn set_written(&self, written: Vec<Range<usize>>) {
        // A second answer would come from a second owner of the arena, of which there is none.
        drop(self.written.set(written));
    }

    /// Makes all bytes zero, as fast as if it were new or faster
    ///
    /// # Errors
    ///
    /// The error of the system; the bytes are then unspecified.
    #[cfg(target_os = "linux")]
    pub(crate) fn clear(&mut self) -> io::Result<()> {
        let written = self.written.take().unwrap_or_else(|| std::iter::once(0..self.len).collect());
        let mut cleared = 0;
        for range in written {
            self.clear_range(self.offset + range.start..self.offset + range.end, &mut cleared)?;
        }
        Ok(())
    }

    /// Makes the pages of a range of the mapping zero, and counts those that were not given back to the system
    #[cfg(target_os = "linux")]
    #[expect(unsafe_code, reason = "the system is asked about pages by address")]
    fn clear_range(&mut self, range: Range<usize>, cleared: &mut usize) -> io::Result<()> {
        /// Most pages that are cleared: with more of them, fresh pages are faster
        const MAX_CLEARED: usize = 512;
        /// Pages that are looked at together, which is fast without optimisation, too
        const CHUNK: usize = 64;

        // SAFETY: asks for a number.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let page = usize::try_from(page).map_err(|_| io::Error::last_os_error())?;
        let range = range.start / page * page..range.end.min(self.map.len());
        let mut resident = vec![0; range.len().div_ceil(page)];
        // SAFETY: the range begins inside the mapping.
        let start = unsafe { self.map.as_mut_ptr().add(range.start) };
        // SAFETY: `resident` has a byte for each page of the range.
        if unsafe { libc::mincore(start.cast(), range.len(), resident.as_mut_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let mut end = range.start;
        for (number, chunk) in resident.chunks(CHUNK).enumerate() {
            if *chunk == [0; CHUNK][..chunk.len()] {
                continue;
            }
            // All of a chunk at once, or one page after the other.
            let pages = if *chunk == [1; CHUNK][..chunk.len()] { chunk.len() } else { 1 };
            for position in (0..chunk.len()).step_by(pages).filter(|position| chunk[*position] != 0) {
                if *cleared + pages > MAX_CLEARED {
                    return self.discard(end..range.end);
                }
                *cleared += pages;
                let offset = range.start + (number * CHUNK + position) * page;
                // A page that is not resident may be swapped out.
                self.discard(end..offset)?;
                end = (offset + pages * page).min(self.map.len());
                // SAFETY: the pages begin inside the mapping.
                let first = unsafe { self.map.as_mut_ptr().add(offset) };
                // SAFETY: they end there, too, and the mapping is borrowed exclusively, and has no arena.
                unsafe { first.write_bytes(0, end - offset) };
            }
        }
        self.discard(end..range.end)
    }

    /// Gives pages back to the system: they are zero when they are used again
    #[cfg(target_os = "linux")]
    #[expect(unsafe_code, reason = "the contents of the pages change")]
    fn discard(&mut self, range: Range<usize>) -> io::Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        // SAFETY: the range is inside the mapping, which is borrowed exclusively, and has no arena.
        unsafe {
            self.map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, range.start, range.len())
        }
    }

    /// An error: mappings are reused on Linux only
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn clear(&mut self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
