//! Keeping a mapping out of forked children

use std::io;

use memmap2::MmapRaw;

/// Excludes the pages of `map` from the address space of every child that this process forks
///
/// Without it, `fork` marks the pages copy-on-write, and the next write of the parent moves the page to another frame
/// while the device keeps writing to the old one.
///
/// # Errors
///
/// The error of the system.
#[cfg(target_os = "linux")]
pub(crate) fn exclude_from_children(map: &MmapRaw) -> io::Result<()> {
    map.advise(memmap2::Advice::DontFork)
}

/// As on Linux
#[cfg(target_vendor = "apple")]
#[expect(unsafe_code, reason = "memmap2 has no safe form of minherit")]
pub(crate) fn exclude_from_children(map: &MmapRaw) -> io::Result<()> {
    let start = map.as_mut_ptr().cast();
    // SAFETY: the range is exactly the mapping, which outlives the call, and this process keeps all access to it.
    match unsafe { libc::minherit(start, map.len(), libc::VM_INHERIT_NONE) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Nothing to exclude: the other systems are only for the simulator
#[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
pub(crate) fn exclude_from_children(_map: &MmapRaw) -> io::Result<()> {
    Ok(())
}
