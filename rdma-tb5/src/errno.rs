//! Error numbers of the provider, and what they mean
#![allow(unsafe_code, reason = "a limit of the process is behind a C function")]

use rdma_core::{Cause, Invalid, Resource};

/// Clears the calling thread's error number: a call that returns NULL does not always set it
pub(crate) fn clear() {
    errno::set_errno(errno::Errno(0));
}

/// The calling thread's error number
pub(crate) fn last() -> i32 {
    errno::errno().0
}

/// The cause that an error number stands for if no verb gives it another meaning
///
/// Providers return error numbers positive or negative, in Darwin's numbering or in Linux's. Where the two numberings differ, no number of
/// one has another meaning for verbs in the other.
pub(crate) fn cause(errno: i32) -> Cause {
    match errno.abs() {
        6 | 19 => Cause::DeviceGone,
        12 => Cause::QueueFull,
        16 => Cause::Busy,
        22 => Cause::Invalid(Invalid::Refused),
        // ENETUNREACH and EHOSTUNREACH of Darwin, then of Linux.
        51 | 65 | 101 | 113 => Cause::NoRoute,
        60 | 110 => Cause::PeerUnreachable,
        61 | 96 => Cause::GidTableEmpty,
        // ENOSYS of Linux, then of Darwin.
        38 | 78 => Cause::NotImplemented,
        45 | 95 | 102 => Cause::Unsupported,
        other => Cause::Os(other),
    }
}

/// The cause that an error number stands for if an object could not be created, of which the device has `limit`
pub(crate) fn creation_cause(errno: i32, resource: Resource, limit: u32) -> Cause {
    match cause(errno) {
        // A full table of protection domains returns NULL without an error number.
        Cause::Os(0) | Cause::QueueFull => Cause::Exhausted { resource, limit },
        Cause::Busy if resource == Resource::QueuePairs => Cause::Exhausted { resource, limit },
        other => other,
    }
}

/// The cause that an error number of `ibv_reg_mr` stands for
///
/// On Linux `ENOMEM` usually means that the process may not lock that much memory; `lock_limit` is the limit that holds for it.
pub(crate) fn registration_cause(errno: i32, max_mr: u32, lock_limit: Option<u64>) -> Cause {
    match lock_limit {
        Some(limit) if errno.abs() == 12 => Cause::LockedMemory { limit },
        _ => creation_cause(errno, Resource::MemoryRegions, max_mr),
    }
}

/// The bytes of memory that this thread's process may lock; `None` if there is no limit, or none that the system would name `ENOMEM`
pub(crate) fn lock_limit() -> Option<u64> {
    #[cfg(target_os = "linux")]
    {
        /// Bit of `CAP_IPC_LOCK`, with which a thread may lock any amount.
        const IPC_LOCK: u32 = 14;
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
        let capabilities = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let capabilities = capabilities.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
        if capabilities.is_some_and(|bits| bits >> IPC_LOCK & 1 == 1) {
            return None;
        }
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: `limit` is a valid place for the result.
        let failed = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) };
        (failed == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
    }
    #[cfg(not(target_os = "linux"))]
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sources: the errno table of Apple's device as published by several projects; Linux's errno.h.
    #[test]
    fn numbers_of_darwin_and_linux_have_the_same_causes() {
        let table = [
            (22, Cause::Invalid(Invalid::Refused)),
            (51, Cause::NoRoute),
            (65, Cause::NoRoute),
            (101, Cause::NoRoute),
            (-113, Cause::NoRoute),
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
            (38, Cause::NotImplemented),
            (-38, Cause::NotImplemented),
            (78, Cause::NotImplemented),
            (5, Cause::Os(5)),
        ];
        for (errno, expected) in table {
            assert_eq!(cause(errno), expected, "{errno}");
        }
    }

    #[test]
    fn an_object_that_cannot_be_created_is_exhausted_or_has_the_cause_of_its_number() {
        let exhausted = Cause::Exhausted { resource: Resource::QueuePairs, limit: 10 };
        assert_eq!(creation_cause(16, Resource::QueuePairs, 10), exhausted);
        assert_eq!(creation_cause(102, Resource::QueuePairs, 10), Cause::Unsupported);
        let exhausted = Cause::Exhausted { resource: Resource::ProtectionDomains, limit: 11 };
        assert_eq!(creation_cause(0, Resource::ProtectionDomains, 11), exhausted);
    }

    #[test]
    fn without_memory_to_lock_the_limit_is_named_and_without_a_limit_the_regions_are_exhausted() {
        assert_eq!(registration_cause(12, 100, Some(65536)), Cause::LockedMemory { limit: 65536 });
        let exhausted = Cause::Exhausted { resource: Resource::MemoryRegions, limit: 100 };
        assert_eq!(registration_cause(12, 100, None), exhausted);
        assert_eq!(registration_cause(22, 100, Some(65536)), Cause::Invalid(Invalid::Refused));
    }
}
