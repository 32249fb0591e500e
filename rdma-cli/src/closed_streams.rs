//! Whether standard input and output were closed when the program started
//!
//! Before `main`, Rust opens /dev/null in their places: input would be empty, and output lost without an error.

#![allow(unsafe_code, reason = "a function that the loader calls before `main`")]

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

static INPUT: AtomicBool = AtomicBool::new(false);
static OUTPUT: AtomicBool = AtomicBool::new(false);

// SAFETY: the loader calls the functions in this section, which take no arguments that `look` would read.
#[used]
#[cfg_attr(target_os = "macos", unsafe(link_section = "__DATA,__mod_init_func"))]
#[cfg_attr(not(target_os = "macos"), unsafe(link_section = ".init_array"))]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    // SAFETY: the call has no preconditions.
    let is_closed = |descriptor| unsafe { libc::fcntl(descriptor, libc::F_GETFD) } < 0;
    INPUT.store(is_closed(libc::STDIN_FILENO), Ordering::Relaxed);
    OUTPUT.store(is_closed(libc::STDOUT_FILENO), Ordering::Relaxed);
}

/// Fails if standard input was closed
pub(crate) fn require_input() -> io::Result<()> {
    require(&INPUT)
}

/// Fails if standard output was closed
pub(crate) fn require_output() -> io::Result<()> {
    require(&OUTPUT)
}

fn require(is_closed: &AtomicBool) -> io::Result<()> {
    if is_closed.load(Ordering::Relaxed) { Err(io::Error::from_raw_os_error(libc::EBADF)) } else { Ok(()) }
}
