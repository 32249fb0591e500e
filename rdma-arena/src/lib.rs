//! Mapped memory that an RDMA device may register
//!
//! An [`Arena`] is anonymous memory with the address and alignment that the devices of this workspace need, and it is not
//! inherited by forked children.
//!
//! # What it is not
//!
//! It hands out no parts of itself: `rdma-async` has a pool for that. It does not register: see `Device::register` of
//! `rdma-core`.

mod fork;
mod mapped_bytes;
mod mapping;
mod reuse;

use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

pub use self::mapped_bytes::MappedBytes;
use self::mapping::{BOUNDARY, Mapping};
pub use self::reuse::Reuse;

/// Anonymous, zero-filled memory: mapped, aligned to 16 KiB, never across a 4 GiB boundary, not inherited by `fork`
///
/// Access is by raw pointer only: a device may write here at any time, so the arena hands out no reference.
///
/// | property | source |
/// |---|---|
/// | mapped, not from the heap | Apple's provider has refused heap memory and taken mapped memory (field reports) |
/// | 16 KiB alignment | the page size of Apple silicon |
/// | inside one 4 GiB window | a region across such a boundary has received data exactly 4 GiB too low (field reports) |
/// | not inherited by `fork` | a copy-on-write page moves the parent's data away from the frames that the device writes (`ibv_fork_init(3)`) |
///
/// ```
/// use rdma_arena::Arena;
///
/// let arena = Arena::new(1 << 20)?;
/// assert_eq!(arena.len(), 1 << 20);
/// assert!(arena.as_ptr().addr().get().is_multiple_of(16 * 1024));
/// # Ok::<_, std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Arena {
    mapping: Arc<Mapping>,
}

impl Arena {
    /// Maps `len` bytes
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] for a `len` of zero or of more than 4 GiB; [`io::ErrorKind::OutOfMemory`] or
    /// another error of the system if it has no such memory.
    pub fn new(len: usize) -> io::Result<Self> {
        if len == 0 || len > BOUNDARY {
            let what = format!("an arena of {len} bytes is impossible; ask for 1 byte to 4 GiB");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        if let Some(mapping) = reuse::take(len) {
            return Ok(Self { mapping });
        }
        let mapping = Arc::new(Mapping::new(len)?);
        reuse::keep(&mapping);
        Ok(Self { mapping })
    }

    /// Drops the arena, of which no byte was written outside of `written`: ranges in bytes
    ///
    /// A mapping that is [reused](Reuse) is then cleared there only, without a look at its other pages. With wrong ranges, a later arena may
    /// begin with old bytes; no memory rule is broken.
    ///
    /// # Panics
    ///
    /// If a range ends before it begins, or after the arena.
    pub fn retire(self, written: Vec<Range<usize>>) {
        for range in &written {
            assert!(range.start <= range.end && range.end <= self.len(), "{range:?} is not inside the arena");
        }
        self.mapping.set_written(written);
    }

    /// The memory, valid for reads and writes until the arena is dropped
    pub fn as_slice_ptr(&self) -> NonNull<[u8]> {
        NonNull::slice_from_raw_parts(self.as_ptr(), self.len())
    }

    /// Address of the first byte
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.mapping.as_ptr()
    }

    /// Length in bytes
    #[expect(clippy::len_without_is_empty, reason = "an arena is never empty")]
    pub fn len(&self) -> usize {
        self.mapping.len()
    }
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(test)]
mod tests {
    use super::mapping::ALIGN;
    use super::*;

    #[test]
    fn an_arena_is_aligned_and_inside_one_4_gib_window() {
        let _alone = alone();
        for len in [1, 4096, 16 * 1024, 1 << 20, (1 << 30) + 1, 3 << 30] {
            let arena = Arena::new(len).unwrap();
            assert_eq!(arena.len(), len);
            assert_eq!(arena.as_ptr().addr().get() % ALIGN, 0);
            assert!(!arena.mapping.crosses_boundary(), "{len} bytes at {:p}", arena.as_ptr());
        }
    }

    #[test]
    fn impossible_lengths_are_errors() {
        let _alone = alone();
        assert_eq!(Arena::new(0).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(Arena::new(BOUNDARY + 1).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    /// Catches an `Arena::new` that does not call `fork::exclude_from_children`.
    #[cfg(unix)]
    #[test]
    fn a_forked_child_does_not_have_the_pages() {
        let _alone = alone();
        let arena = Arena::new(3 * ALIGN).unwrap();
        let (_read, write) = io::pipe().unwrap();
        for offset in [0, ALIGN, 3 * ALIGN - 1] {
            let byte = arena.as_ptr().as_ptr().wrapping_add(offset);
            assert!(is_readable(&write, byte), "the parent has byte {offset}");
            assert!(!in_child(|| is_readable(&write, byte)), "the child has byte {offset}");
        }
    }

    /// Whether this process can read the byte: the system refuses to write to a pipe from an unmapped address
    #[cfg(unix)]
    #[allow(unsafe_code, reason = "the system call names memory by address")]
    fn is_readable(pipe: &io::PipeWriter, byte: *const u8) -> bool {
        use std::os::fd::AsRawFd as _;
        // SAFETY: `write` reports an address that is not mapped as an error.
        unsafe { libc::write(pipe.as_raw_fd(), byte.cast(), 1) == 1 }
    }

    /// Lets no other test map memory meanwhile: a fork finds what other threads were about to do half done
    pub(crate) fn alone() -> std::sync::MutexGuard<'static, ()> {
        static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
        ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// What `answer` says in a forked child
    #[cfg(unix)]
    #[allow(unsafe_code, reason = "fork has no safe form")]
    pub(crate) fn in_child(answer: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child has the one thread that called, and the allocator of the system works after a fork.
        let child = unsafe { libc::fork() };
        assert_ne!(child, -1, "{}", io::Error::last_os_error());
        if child == 0 {
            let status = i32::from(answer());
            // SAFETY: ends the child without running anything else.
            unsafe { libc::_exit(status) };
        }
        let mut status = 0;
        // SAFETY: the child is this process's own, and `status` is valid for writing.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert!(libc::WIFEXITED(status), "the child ended with status {status:#x}");
        libc::WEXITSTATUS(status) == 1
    }
}
