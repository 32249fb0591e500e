//! Error numbers, and how functions of the ABI return them

use std::ffi::c_int;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;

use crate::lifetime;

/// Why a function of the ABI fails
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Errno(pub(crate) c_int);

/// The cable was pulled.
pub(crate) const ENXIO: Errno = Errno(6);
pub(crate) const EBUSY: Errno = Errno(16);
pub(crate) const EINVAL: Errno = Errno(22);
/// The device belongs to the process that this one was forked from.
const ENODEV: Errno = Errno(19);
/// Apple's provider returns it for what the device cannot do.
pub(crate) const ENOTSUP: Errno = Errno(102);

impl From<rdma_core::Error> for Errno {
    fn from(error: rdma_core::Error) -> Self {
        Self(error.errno())
    }
}

impl From<io::Error> for Errno {
    fn from(error: io::Error) -> Self {
        error.raw_os_error().map_or(EINVAL, Self)
    }
}

/// Runs `f`, unless this is a forked child; a panic inside becomes an error number instead of unwinding into C
///
/// `fail` makes what the function returns from an error number: [`same`], [`negative`], [`minus_one`] or [`null`].
pub(crate) fn guarded<T>(fail: impl FnOnce(Errno) -> T, f: impl FnOnce() -> Result<T, Errno>) -> T {
    let result = if lifetime::is_child() {
        Err(ENODEV)
    } else {
        catch_unwind(AssertUnwindSafe(f)).unwrap_or(Err(EINVAL))
    };
    result.unwrap_or_else(fail)
}

/// The error number itself
pub(crate) fn same(errno: Errno) -> c_int {
    errno.0
}

/// The error number itself, which is in `errno` as well
pub(crate) fn same_and_set(errno: Errno) -> c_int {
    minus_one(errno);
    errno.0
}

/// The error number below zero
pub(crate) fn negative(errno: Errno) -> c_int {
    -errno.0
}

/// −1, with the number in `errno`
pub(crate) fn minus_one(Errno(errno): Errno) -> c_int {
    errno::set_errno(errno::Errno(errno));
    -1
}

/// NULL, with the number in `errno`
pub(crate) fn null<T>(errno: Errno) -> *mut T {
    minus_one(errno);
    null_mut()
}
