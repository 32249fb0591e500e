//! The verbs ABI: its structures, and a provider that is loaded at run time
//!
//! Unsafe throughout, and the only modules of this crate that are.

#![allow(unsafe_code, reason = "declares functions of the provider")]

mod provider;

pub use self::provider::{ListError, LoadError, Provider};

use rdma_core::{Cause, Invalid, Resource};

/// Clears the calling thread's error number: a NULL does not always set it
pub(crate) fn clear_errno() {
    // SAFETY: the call has no preconditions.
    #[cfg(target_os = "macos")]
    let place = unsafe { libc::__error() };
    // SAFETY: the call has no preconditions.
    #[cfg(not(target_os = "macos"))]
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the place is that of the calling thread, and always valid.
    unsafe { *place = 0 };
}

/// The calling thread's error number
pub(crate) fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// What an error number means when no verb says more about it
///
/// Providers return it positive or negative, and in Darwin's numbering or Linux's: the numbers that differ mean nothing else
/// that verbs report.
pub(crate) fn cause(errno: i32) -> Cause {
    match errno.abs() {
        6 | 19 => Cause::DeviceGone,
        12 => Cause::QueueFull,
        16 => Cause::Busy,
        22 => Cause::Invalid(Invalid::Refused),
        60 | 110 => Cause::PeerUnreachable,
        61 | 96 => Cause::GidTableEmpty,
        45 | 95 | 102 => Cause::Unsupported,
        other => Cause::Os(other),
    }
}

/// What an error number means when something could not be created of which there are `limit`
pub(crate) fn creation_cause(errno: i32, resource: Resource, limit: u32) -> Cause {
    match cause(errno) {
        // A NULL without a number is how a full protection domain table shows.
        Cause::Os(0) | Cause::QueueFull => Cause::Exhausted { resource, limit },
        Cause::Busy if resource == Resource::QueuePairs => Cause::Exhausted { resource, limit },
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sources: the errno table of Apple's device as published by several projects; Linux's errno.h.
    #[test]
    fn both_numberings_mean_the_same() {
        let table = [
            (22, Cause::Invalid(Invalid::Refused)),
            (60, Cause::PeerUnreachable),
            (110, Cause::PeerUnreachable),
            (96, Cause::GidTableEmpty),
            (61, Cause::GidTableEmpty),
            (16, Cause::Busy),
            (-12, Cause::QueueFull),
            (12, Cause::QueueFull),
            (102, Cause::Unsupported),
            (95, Cause::Unsupported),
            (-102, Cause::Unsupported),
            (5, Cause::Os(5)),
        ];
        for (errno, expected) in table {
            assert_eq!(cause(errno), expected, "{errno}");
        }
        let exhausted = Cause::Exhausted { resource: Resource::QueuePairs, limit: 10 };
        assert_eq!(creation_cause(16, Resource::QueuePairs, 10), exhausted);
        assert_eq!(creation_cause(102, Resource::QueuePairs, 10), Cause::Unsupported);
        assert_eq!(
            creation_cause(0, Resource::ProtectionDomains, 11),
            Cause::Exhausted { resource: Resource::ProtectionDomains, limit: 11 }
        );
    }
}
