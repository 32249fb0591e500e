//! Misuse of the C ABI that has gone wrong, on a device with reliable queue pairs

use std::ffi::CStr;
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rdma_tb5::verbs::layout::{Context, Device, Pd};

/// Calls a function of the ABI
macro_rules! call {
    ($call:expr) => {{
        // SAFETY: pointers are NULL, or came from the library, or lead to structures of the test's.
        unsafe { $call }
    }};
}

/// The devices, for one test at a time
fn devices() -> (MutexGuard<'static, ()>, [*mut Device; 2], *mut *mut Device) {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let text = c"RDMA_SIM_CLOCK=virtual,RDMA_SIM_TOPOLOGY=pair,RDMA_SIM_PROFILE=roce";
    let _ = call!(rdma::rdma_sim_configure(text.as_ptr()));
    let list = call!(rdma::ibv_get_device_list(null_mut()));
    let a = call!(*list);
    let b = call!(*list.add(1));
    (alone, [a, b], list)
}

fn inject(plan: &CStr) -> i32 {
    call!(rdma::rdma_sim_inject(plan.as_ptr()))
}

fn opened(device: *mut Device) -> (*mut Context, *mut Pd) {
    let context = call!(rdma::ibv_open_device(device));
    let pd = call!(rdma::ibv_alloc_pd(context));
    assert!(!pd.is_null());
    (context, pd)
}

fn closed((context, pd): (*mut Context, *mut Pd)) {
    assert_eq!(call!(rdma::ibv_dealloc_pd(pd)), 0);
    assert_eq!(call!(rdma::ibv_close_device(context)), 0);
}

/// Regression: a context led to a device that was freed with its list, and other objects were taken for devices.
#[test]
fn devices_outlive_their_list_and_nothing_else_is_one() {
    let (_alone, [device, _], list) = devices();
    let context = call!(rdma::ibv_open_device(device));
    call!(rdma::ibv_free_device_list(list));
    let name = call!(CStr::from_ptr(rdma::ibv_get_device_name((*context).device)));
    assert_eq!(name, c"rdma_en2@a");
    let again = call!(rdma::ibv_open_device(device));
    assert!(!again.is_null() && call!(rdma::ibv_get_device_guid(device)) != 0);
    assert_eq!(call!(rdma::ibv_close_device(again)), 0);
    assert!(call!(rdma::ibv_open_device(context.cast())).is_null());
    assert!(call!(rdma::ibv_get_device_name(context.cast())).is_null());
    assert_eq!(call!(rdma::ibv_close_device(device.cast())), 22);
    assert_eq!(call!(rdma::ibv_close_device(context)), 0);
}

/// Regression: a length that no memory has was registered, or a panic.
#[test]
fn memory_that_cannot_be_is_not_registered() {
    let (_alone, [device, _], list) = devices();
    let device = opened(device);
    let mut page = vec![0_u8; 8192];
    let start = page.as_mut_ptr().wrapping_add(page.as_ptr().align_offset(4096));
    for length in [0, usize::MAX, usize::MAX - 4095, 1 << 63, isize::MAX as usize + 1] {
        assert!(call!(rdma::ibv_reg_mr(device.1, start.cast(), length, 15)).is_null(), "{length}");
    }
    let mr = call!(rdma::ibv_reg_mr(device.1, start.cast(), 4096, 15));
    assert_eq!(call!(rdma::ibv_dereg_mr(mr)), 0);
    closed(device);
    call!(rdma::ibv_free_device_list(list));
}

/// Regression: a fault without a place was a panic, and those before it in its plan happened.
#[test]
fn a_fault_without_a_place_is_refused() {
    let (_alone, [device, _], list) = devices();
    let plans = [
        c"at 0s a:rdma_en2 unplug; at 0s c:rdma_en2 unplug",
        c"at 0s a:rdma_en2 unplug; at 0s a:rdma_en99 unplug",
        c"at 0s a:rdma_en2 unplug; at 0s nobody kill",
        c"at 0s a:rdma_en2 unplug; nonsense",
    ];
    for plan in plans {
        assert_eq!(inject(plan), 22, "{plan:?}");
    }
    // Nothing was unplugged.
    closed(opened(device));
    call!(rdma::ibv_free_device_list(list));
}

/// Regression: the sums of faults overflowed.
#[test]
fn faults_can_be_as_many_as_they_like() {
    let (_alone, [device, _], list) = devices();
    let device = opened(device);
    for fault in ["leak-cqs", "leak-mrs", "leak-pds", "leak-qps", "corrupt", "lose"] {
        let plan = format!("at 0s a:rdma_en2 {fault} 4294967295; at 0s a:rdma_en2 {fault} 2\0");
        assert_eq!(inject(CStr::from_bytes_with_nul(plan.as_bytes()).unwrap()), 0);
    }
    assert!(call!(rdma::ibv_alloc_pd(device.0)).is_null());
    assert!(call!(rdma::ibv_create_cq(device.0, 4, null_mut(), null_mut(), 0)).is_null());
    closed(device);
    assert_eq!(inject(c"at 0s a reboot 1ns"), 0);
    rdma::rdma_sim_rest(1_000);
    assert_eq!(inject(c"at 0s a restart"), 0);
    call!(rdma::ibv_free_device_list(list));
}
