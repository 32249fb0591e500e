//! The functions of the ABI
//!
//! # Safety
//!
//! All of them: pointers are NULL, or came from this library and were not destroyed, or lead to the caller's structures, as the
//! manual pages of libibverbs say. NULL and objects of another kind are answered with `EINVAL`.
#![allow(
    clippy::missing_safety_doc,
    missing_docs,
    reason = "one contract for all, above; the functions are those of libibverbs"
)]

mod channel;
mod completion;
mod control;
mod devices;
mod lacking;
mod memory;
mod post;
mod queue_pair;

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;

pub use self::channel::*;
pub use self::completion::*;
pub use self::control::*;
pub use self::devices::*;
pub use self::lacking::*;
pub use self::memory::*;
pub use self::queue_pair::*;

const EINVAL: c_int = 22;
const EBUSY: c_int = 16;
/// What Apple's provider says about what it cannot do.
const ENOTSUP: c_int = 102;

/// Runs `f`; a panic inside becomes an error number instead of unwinding into C
fn guarded<T>(failed: T, f: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or(failed)
}

fn set_errno(errno: c_int) {
    #[cfg(target_os = "macos")]
    // SAFETY: the call has no preconditions.
    let place = unsafe { libc::__error() };
    #[cfg(not(target_os = "macos"))]
    // SAFETY: the call has no preconditions.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the place is that of the calling thread.
    unsafe { *place = errno };
}

/// NULL, with an error number
fn null<T>(errno: c_int) -> *mut T {
    set_errno(errno);
    null_mut()
}
