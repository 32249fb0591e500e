//! Memory that programs register

#![allow(unsafe_code, reason = "tests name memory and call the verbs themselves")]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};

const PAGE: usize = 4096;

/// Page-aligned bytes; a sanitizer finds accesses after they are freed
pub(super) struct Pages {
    start: *mut u8,
    layout: Layout,
}

impl Pages {
    pub(super) fn new(len: usize) -> Self {
        let layout = Layout::from_size_align(len, PAGE).expect("the length is small");
        assert!(len > 0);
        // SAFETY: there is at least one byte.
        let start = unsafe { alloc(layout) };
        if start.is_null() {
            handle_alloc_error(layout);
        }
        // SAFETY: the allocation has `len` bytes.
        unsafe { start.write_bytes(0x5a, len) };
        Self { start, layout }
    }

    pub(super) fn start(&self) -> *mut u8 {
        self.start
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the memory was allocated with this layout.
        unsafe { dealloc(self.start, self.layout) };
    }
}

/// Memory of which only posted ranges may change
pub(super) struct Arena {
    pages: Pages,
    may_change: Vec<bool>,
}

impl Arena {
    const LEN: usize = 12 * PAGE;

    pub(super) fn new() -> Self {
        let pages = Pages::new(Self::LEN);
        for at in 0..Self::LEN {
            // SAFETY: the offset is inside of the pages.
            unsafe { pages.start.wrapping_add(at).write(Self::pattern(at)) };
        }
        Self { pages, may_change: vec![false; Self::LEN] }
    }

    fn pattern(at: usize) -> u8 {
        (at.wrapping_mul(0x9e37_79b9) >> 11) as u8
    }

    pub(super) fn len(&self) -> usize {
        Self::LEN
    }

    pub(super) fn start(&self) -> *mut u8 {
        self.pages.start
    }

    /// Permits the device to write a range from now on
    pub(super) fn post(&mut self, addr: u64, len: u32) {
        let start = self.pages.start.addr() as u64;
        let inside = |addr: u64| addr.saturating_sub(start).min(Self::LEN as u64) as usize;
        self.may_change[inside(addr)..inside(addr.saturating_add(len.into()))].fill(true);
    }

    pub(super) fn check(&self) {
        for (at, may_change) in self.may_change.iter().enumerate() {
            // SAFETY: the offset is inside of the pages, and no queue pair is left that could write.
            let byte = unsafe { self.pages.start.wrapping_add(at).read() };
            assert!(*may_change || byte == Self::pattern(at), "the byte at {at} has changed");
        }
    }
}
