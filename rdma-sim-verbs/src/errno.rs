//! Error numbers, and how functions of the ABI return them

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;

use crate::lifetime;

pub(crate) const EBUSY: c_int = 16;
pub(crate) const EINVAL: c_int = 22;
/// The device belongs to the process that this one was forked from.
pub(crate) const ENODEV: c_int = 19;
/// Apple's provider returns it for what the device cannot do.
pub(crate) const ENOTSUP: c_int = 102;

/// Runs `f`, unless this is a forked child; a panic inside becomes an error number instead of unwinding into C
///
/// `fail` makes what the function returns from an error number: [`same`], [`negative`], [`minus_one`] or [`null`].
pub(crate) fn guarded<T>(fail: impl FnOnce(c_int) -> T, f: impl FnOnce() -> T) -> T {
    if lifetime::is_child() {
        return fail(ENODEV);
    }
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|_| fail(EINVAL))
}

pub(crate) fn set_errno(errno: c_int) {
    #[cfg(target_os = "macos")]
    // SAFETY: the call has no preconditions.
    let place = unsafe { libc::__error() };
    #[cfg(not(target_os = "macos"))]
    // SAFETY: the call has no preconditions.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the place is that of the calling thread.
    unsafe { *place = errno };
}

/// The error number itself
pub(crate) fn same(errno: c_int) -> c_int {
    errno
}

/// The error number below zero
pub(crate) fn negative(errno: c_int) -> c_int {
    -errno
}

/// −1, with the number in `errno`
pub(crate) fn minus_one(errno: c_int) -> c_int {
    set_errno(errno);
    -1
}

/// NULL, with the number in `errno`
pub(crate) fn null<T>(errno: c_int) -> *mut T {
    set_errno(errno);
    null_mut()
}
