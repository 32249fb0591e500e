//! Memory that programs register

#![allow(unsafe_code, reason = "tests name memory and call the verbs themselves")]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};

const PAGE: usize = 4096;

/// Bytes that begin at a page; a sanitizer sees who touches them afterwards
pub(super) struct Pages {
    start: *mut u8,
    layout: Layout,
}

impl Pages {
    pub(super) fn new(len: usize) -> Self {
        let layout = Layout::from_size_align(len, PAGE).expect("so much can be");
        assert!(len > 0);
        // SAFETY: there is at least one byte.
        let start = unsafe { alloc(layout) };
        if start.is_null() {
            handle_alloc_error(layout);
        }
        // SAFETY: so many bytes are there.
        unsafe { start.write_bytes(0x5a, len) };
        Self { start, layout }
    }

    pub(super) fn start(&self) -> *mut u8 {
        self.start
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: it was allocated so.
        unsafe { dealloc(self.start, self.layout) };
    }
}

/// Memory of which only what was posted may change
pub(super) struct Arena {
    pages: Pages,
    may_change: Vec<bool>,
}

impl Arena {
    const LEN: usize = 12 * PAGE;

    pub(super) fn new() -> Self {
        let pages = Pages::new(Self::LEN);
        for at in 0..Self::LEN {
            // SAFETY: the place is inside.
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

    /// A device may write there from now on
    pub(super) fn post(&mut self, addr: u64, len: u32) {
        let start = self.pages.start.addr() as u64;
        let inside = |addr: u64| addr.saturating_sub(start).min(Self::LEN as u64) as usize;
        self.may_change[inside(addr)..inside(addr.saturating_add(len.into()))].fill(true);
    }

    pub(super) fn check(&self) {
        for (at, may_change) in self.may_change.iter().enumerate() {
            // SAFETY: the place is inside, and no device writes any more.
            let byte = unsafe { self.pages.start.wrapping_add(at).read() };
            assert!(*may_change || byte == Self::pattern(at), "the byte at {at} has changed");
        }
    }
}
