#![allow(unsafe_code, reason = "gives references to mapped memory")]

use std::io;
use std::ops::{Deref, DerefMut};

use stable_deref_trait::StableDeref;

use crate::Arena;

/// Bytes of an application where a device takes them: mapped, aligned to 16 KiB, never across a 4 GiB boundary
///
/// Like a vector of fixed length. Apple's device refuses memory of the heap, such as that of a `Vec` (field reports): what is sent or
/// received without a copy is best made here.
///
/// ```
/// use rdma_arena::MappedBytes;
///
/// let mut bytes = MappedBytes::zeroed(1 << 20)?;
/// bytes[..5].copy_from_slice(b"hello");
/// assert_eq!(bytes[3..7], *b"lo\0\0");
/// # Ok::<_, std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct MappedBytes(Arena);

impl MappedBytes {
    /// Maps `len` zeros
    ///
    /// # Errors
    ///
    /// Those of [`Arena::new`].
    pub fn zeroed(len: usize) -> io::Result<Self> {
        Arena::new(len).map(Self)
    }
}

impl Deref for MappedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the memory is mapped and was zero-filled; nothing but this value accesses it while it lives.
        unsafe { self.0.as_slice_ptr().as_ref() }
    }
}

impl DerefMut for MappedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the borrow is exclusive.
        unsafe { self.0.as_slice_ptr().as_mut() }
    }
}

// SAFETY: the bytes are in a mapping, which does not move with the value.
unsafe impl StableDeref for MappedBytes {}
