//! A provider that refuses: nothing leaks, and the error says why
#![cfg(unix)]
#![allow(unsafe_code, reason = "registers memory")]

use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rdma_core::{Access, Cause, CompletionQueue, Device, Invalid, QpInit, Verb};
use rdma_tb5::{OpenError, OpenOptions, VerbsDevice};
use rdma_tests::stub;

/// The device of the stub, for one test at a time: what the stub refuses is set for the whole process
fn device() -> (MutexGuard<'static, ()>, VerbsDevice) {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    (alone, VerbsDevice::open(&stub::provider(), stub::DEVICE, OpenOptions::new()).unwrap())
}

/// Mutant: the port queried after `ibv_create_qp`, as it was, leaks a queue pair each time.
#[test]
fn a_queue_pair_that_cannot_be_set_up_is_not_leaked() {
    let (_alone, device) = device();
    let cq = device.create_cq(16).unwrap();
    stub::QUERY_PORT_ERRNO.store(libc::ENXIO, Ordering::Relaxed);
    for _ in 0..stub::MAX_QUEUE_PAIRS {
        let error = cq.create_qp(&QpInit::default()).unwrap_err();
        assert_eq!((error.verb, error.cause), (Verb::QueryPort, Cause::DeviceGone));
    }
    stub::QUERY_PORT_ERRNO.store(0, Ordering::Relaxed);
    assert_eq!(stub::QUEUE_PAIRS.load(Ordering::Relaxed), 0, "queue pairs of the provider are left");
    let pairs: Vec<_> =
        (0..stub::MAX_QUEUE_PAIRS).map(|_| cq.create_qp(&QpInit::default()).unwrap()).collect();
    let error = cq.create_qp(&QpInit::default()).unwrap_err();
    assert!(matches!(error.cause, Cause::Exhausted { limit: 10, .. }), "{error}");
    drop(pairs);
    assert_eq!(stub::QUEUE_PAIRS.load(Ordering::Relaxed), 0);
}

/// Catches NULL that is taken for a context: the next verb would get it. JACCL reports it as `Could not open device`.
#[test]
fn a_device_that_the_provider_does_not_open_is_an_error_with_its_cause() {
    let (_alone, device) = device();
    for (errno, cause) in [(libc::ENODEV, Cause::DeviceGone), (libc::EBUSY, Cause::Busy)] {
        stub::OPEN_DEVICE_ERRNO.store(errno, Ordering::Relaxed);
        let opened = VerbsDevice::open(&stub::provider(), stub::DEVICE, OpenOptions::new());
        stub::OPEN_DEVICE_ERRNO.store(0, Ordering::Relaxed);
        let Err(OpenError::Verbs(error)) = opened else { panic!("{opened:?}") };
        assert_eq!((error.verb, error.cause), (Verb::OpenDevice, cause));
    }
    drop(device);
    assert_eq!(stub::PROTECTION_DOMAINS.load(Ordering::Relaxed), 0, "nothing is left");
}

/// Mutant: a protection domain that is deallocated although the link was lost, which blocks for ever on Macs.
#[test]
fn a_protection_domain_is_not_deallocated_after_its_link_was_lost() {
    let (_alone, device) = device();
    assert_eq!(stub::PROTECTION_DOMAINS.load(Ordering::Relaxed), 1);
    drop(device);
    assert_eq!(stub::PROTECTION_DOMAINS.load(Ordering::Relaxed), 0, "the link was up");
    let device = VerbsDevice::open(&stub::provider(), stub::DEVICE, OpenOptions::new()).unwrap();
    stub::QUERY_PORT_ERRNO.store(libc::ENXIO, Ordering::Relaxed);
    drop(device);
    stub::QUERY_PORT_ERRNO.store(0, Ordering::Relaxed);
    assert_eq!(stub::PROTECTION_DOMAINS.swap(0, Ordering::Relaxed), 1);
}

/// Mutant: a region that is not checked, as it was: the provider accepts such memory, and the device writes to other memory of the program.
#[test]
fn memory_across_a_4_gib_boundary_is_refused() {
    let (_alone, device) = device();
    let register = |addr: usize, len| {
        let start = std::ptr::without_provenance_mut::<u8>(addr);
        let memory = NonNull::slice_from_raw_parts(NonNull::new(start).unwrap(), len);
        // SAFETY: neither the stub nor this test accesses the memory, and nothing is posted.
        unsafe { device.register(memory, Access::LOCAL_WRITE) }.map(drop)
    };
    let boundary = 7 << 32;
    for (addr, len, crosses) in [
        (boundary - 16384, 16384, false),
        (boundary - 16384, 16385, true),
        (boundary - 16384, 1 << 20, true),
        (boundary, 1 << 32, false),
        (boundary, (1 << 32) + 1, true),
        (boundary - (3 << 30), 4 << 30, true),
        (boundary + 16384, 0, false),
    ] {
        let (addr64, len64) = (addr as u64, len as u64);
        let refused = Cause::Invalid(Invalid::CrossesBoundary { addr: addr64, len: len64 });
        let found = register(addr, len).map_err(|error| error.cause);
        assert_eq!(found, if crosses { Err(refused) } else { Ok(()) }, "{len} bytes at {addr:#x}");
    }
}

/// Mutant: `ENOMEM` that is always the exhaustion of regions, as it was.
#[test]
#[cfg(target_os = "linux")]
fn a_registration_beyond_the_limit_of_locked_memory_names_the_limit() {
    let (_alone, device) = device();
    let mut memory = vec![0_u8; 4096];
    stub::REG_MR_ERRNO.store(libc::ENOMEM, Ordering::Relaxed);
    let mut register = || {
        let memory = NonNull::from(&mut memory[..]);
        // SAFETY: the memory outlives the region, which is not created.
        unsafe { device.register(memory, Access::LOCAL_WRITE) }.unwrap_err()
    };
    // A thread with CAP_IPC_LOCK has no limit: this one gives it up.
    give_up_ipc_lock();
    let mut limit = libc::rlimit { rlim_cur: 65536, rlim_max: 65536 };
    // SAFETY: valid places for both limits.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) }, 0);
    // SAFETY: as above.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) }, 0);
    let error = register();
    stub::REG_MR_ERRNO.store(0, Ordering::Relaxed);
    assert_eq!((error.verb, error.cause), (Verb::RegMr, Cause::LockedMemory { limit: 65536 }));
    assert!(error.to_string().contains("65536 bytes (RLIMIT_MEMLOCK)"), "{error}");
    assert!(error.remedy().contains("ulimit -l") && error.remedy().contains("limits.conf"));
}

/// Removes `CAP_IPC_LOCK` from the effective capabilities of the calling thread
#[cfg(target_os = "linux")]
fn give_up_ipc_lock() {
    // Version 3 of the header, this thread; effective, permitted, inheritable, in two words each.
    let (mut header, mut sets) = ([0x2008_0522_u32, 0], [0_u32; 6]);
    // SAFETY: the structures have the sizes that version 3 reads and writes.
    assert_eq!(unsafe { libc::syscall(libc::SYS_capget, header.as_mut_ptr(), sets.as_mut_ptr()) }, 0);
    sets[0] &= !(1 << 14);
    // SAFETY: as above.
    assert_eq!(unsafe { libc::syscall(libc::SYS_capset, header.as_mut_ptr(), sets.as_ptr()) }, 0);
}
