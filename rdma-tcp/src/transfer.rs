//! Vectored reads and writes of a socket, by raw addresses
//!
//! No reference to posted memory is ever made: the system copies to and from addresses.
#![allow(unsafe_code, reason = "system calls name memory by its address")]

use std::ffi::c_int;
use std::io;
use std::marker::PhantomData;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

/// The most ranges of one call; systems take at least 1024.
pub(crate) const MAX_RANGES: usize = 64;

/// Ranges of memory for one call, which borrow what keeps the memory valid
pub(crate) struct Ranges<'a> {
    list: [libc::iovec; MAX_RANGES],
    count: usize,
    bytes: usize,
    valid: PhantomData<&'a mut ()>,
}

impl<'a> Ranges<'a> {
    pub(crate) fn new() -> Self {
        let none = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        Self { list: [none; MAX_RANGES], count: 0, bytes: 0, valid: PhantomData }
    }

    /// Bytes of all ranges
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a range; there is space for [`MAX_RANGES`]
    ///
    /// # Safety
    ///
    /// For `'a`, the range is valid for reads, and for writes if the ranges are read into, and no other thread writes it; nor
    /// does any read it if the ranges are read into.
    pub(crate) unsafe fn push(&mut self, at: NonNull<u8>, len: usize) {
        if len > 0 {
            self.list[self.count] = libc::iovec { iov_base: at.as_ptr().cast(), iov_len: len };
            self.count += 1;
            self.bytes += len;
        }
    }

    /// Adds bytes that are only read
    pub(crate) fn push_slice(&mut self, bytes: &'a [u8]) {
        // SAFETY: the slice is valid for `'a`, and shared references exclude writes. `send` does not write.
        unsafe { self.push(NonNull::from(bytes).cast(), bytes.len()) };
    }

    /// Adds a buffer
    pub(crate) fn push_buffer(&mut self, buffer: &'a mut [u8]) {
        let len = buffer.len();
        // SAFETY: the buffer is borrowed mutably for `'a`.
        unsafe { self.push(NonNull::from(buffer).cast(), len) };
    }

    /// Writes to a socket as much as it takes, without a signal if its connection is gone
    pub(crate) fn send(&self, socket: &impl AsRawFd) -> io::Result<usize> {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        const FLAGS: c_int = libc::MSG_NOSIGNAL;
        // There, `suppress_signals` does it.
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        const FLAGS: c_int = 0;
        // SAFETY: a message header of zeros is a value of its type.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = self.list.as_ptr().cast_mut();
        message.msg_iovlen = self.count as _;
        // SAFETY: the list has `count` entries, whose memory is valid for reads by the contract of `push`; the call changes neither.
        let n = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, FLAGS) };
        usize::try_from(n).map_err(|_| io::Error::last_os_error())
    }
}

/// Has writes to a connection that is gone fail without a signal, where this is an option of the socket
#[cfg(target_vendor = "apple")]
pub(crate) fn suppress_signals(socket: &impl AsRawFd) {
    let (fd, on, len) = (socket.as_raw_fd(), 1 as c_int, size_of::<c_int>() as libc::socklen_t);
    // SAFETY: the option is an integer, which is valid during the call. Rust programs ignore the signal anyway, so that a failure
    // matters in others only.
    unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_NOSIGPIPE, (&raw const on).cast(), len) };
}

/// Nothing is to be done here: [`Ranges::send`] states it for each call
#[cfg(not(target_vendor = "apple"))]
pub(crate) fn suppress_signals(_: &impl AsRawFd) {}

/// Reads from a socket into `ranges`, which were pushed as memory to write
pub(crate) fn receive(ranges: &mut Ranges<'_>, socket: &impl AsRawFd) -> io::Result<usize> {
    // SAFETY: the list has `count` entries, whose memory is valid for writes by the contract of `push`.
    let n = unsafe { libc::readv(socket.as_raw_fd(), ranges.list.as_ptr(), ranges.count as c_int) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}
