//! Calls of the C ABI that once did harm, on a device with reliable queue pairs

#![allow(unsafe_code, reason = "tests name memory and call the verbs themselves")]

use std::ffi::CStr;
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rdma_tests::hosts::library;
use rdma_verbs_abi::{Context, Device, Pd, QpAttr, QpInitAttr, RawGid, SendWr, Sge, Wc, constants};

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
    let _ = call!(rdma_sim_verbs::rdma_sim_configure(text.as_ptr()));
    let list = call!(rdma_sim_verbs::ibv_get_device_list(null_mut()));
    let find = |name: &CStr| {
        let mut places = (0..).map(|at| list.wrapping_add(at));
        let entries = places.by_ref().map(|place| call!(*place)).take_while(|device| !device.is_null());
        let is_called = |device: &*mut Device| {
            call!(CStr::from_ptr(rdma_sim_verbs::ibv_get_device_name(*device))) == name
        };
        entries.into_iter().find(is_called).expect("it is listed")
    };
    (alone, [find(c"rdma_en2@a"), find(c"rdma_en2@b")], list)
}

fn inject(plan: &CStr) -> i32 {
    call!(rdma_sim_verbs::rdma_sim_inject(plan.as_ptr()))
}

fn opened(device: *mut Device) -> (*mut Context, *mut Pd) {
    let context = call!(rdma_sim_verbs::ibv_open_device(device));
    let pd = call!(rdma_sim_verbs::ibv_alloc_pd(context));
    assert!(!pd.is_null());
    (context, pd)
}

fn closed((context, pd): (*mut Context, *mut Pd)) {
    assert_eq!(call!(rdma_sim_verbs::ibv_dealloc_pd(pd)), 0);
    assert_eq!(call!(rdma_sim_verbs::ibv_close_device(context)), 0);
}

/// Regression: a context led to a device that was freed with its list, and other objects counted as devices.
#[test]
fn devices_outlive_their_list_and_other_objects_are_no_devices() {
    let (_alone, [device, _], list) = devices();
    let context = call!(rdma_sim_verbs::ibv_open_device(device));
    call!(rdma_sim_verbs::ibv_free_device_list(list));
    let name = call!(CStr::from_ptr(rdma_sim_verbs::ibv_get_device_name((*context).device)));
    assert_eq!(name, c"rdma_en2@a");
    let again = call!(rdma_sim_verbs::ibv_open_device(device));
    assert!(!again.is_null() && call!(rdma_sim_verbs::ibv_get_device_guid(device)) != 0);
    assert_eq!(call!(rdma_sim_verbs::ibv_close_device(again)), 0);
    assert!(call!(rdma_sim_verbs::ibv_open_device(context.cast())).is_null());
    assert!(call!(rdma_sim_verbs::ibv_get_device_name(context.cast())).is_null());
    assert_eq!(call!(rdma_sim_verbs::ibv_close_device(device.cast())), 22);
    assert_eq!(call!(rdma_sim_verbs::ibv_close_device(context)), 0);
}

/// The functions of libibverbs 1.14 that take its objects
const WITH_OBJECTS: &[&CStr] = &[
    c"_ibv_query_gid_ex",
    c"_ibv_query_gid_table",
    c"ibv_ack_async_event",
    c"ibv_ack_cq_events",
    c"ibv_alloc_pd",
    c"ibv_attach_mcast",
    c"ibv_close_device",
    c"ibv_create_ah",
    c"ibv_create_ah_from_wc",
    c"ibv_create_comp_channel",
    c"ibv_create_cq",
    c"ibv_create_qp",
    c"ibv_create_srq",
    c"ibv_dealloc_pd",
    c"ibv_dereg_mr",
    c"ibv_destroy_ah",
    c"ibv_destroy_comp_channel",
    c"ibv_destroy_cq",
    c"ibv_destroy_qp",
    c"ibv_destroy_srq",
    c"ibv_detach_mcast",
    c"ibv_free_device_list",
    c"ibv_get_async_event",
    c"ibv_get_cq_event",
    c"ibv_get_device_guid",
    c"ibv_get_device_index",
    c"ibv_get_device_list",
    c"ibv_get_device_name",
    c"ibv_get_pkey_index",
    c"ibv_import_device",
    c"ibv_import_dm",
    c"ibv_import_mr",
    c"ibv_import_pd",
    c"ibv_init_ah_from_wc",
    c"ibv_modify_qp",
    c"ibv_modify_srq",
    c"ibv_open_device",
    c"ibv_qp_to_qp_ex",
    c"ibv_query_device",
    c"ibv_query_ece",
    c"ibv_query_gid",
    c"ibv_query_gid_type",
    c"ibv_query_pkey",
    c"ibv_query_port",
    c"ibv_query_qp",
    c"ibv_query_qp_data_in_order",
    c"ibv_query_srq",
    c"ibv_reg_dmabuf_mr",
    c"ibv_reg_mr",
    c"ibv_reg_mr_iova",
    c"ibv_reg_mr_iova2",
    c"ibv_rereg_mr",
    c"ibv_resize_cq",
    c"ibv_resolve_eth_l2_from_gid",
    c"ibv_set_ece",
    c"ibv_unimport_dm",
    c"ibv_unimport_mr",
    c"ibv_unimport_pd",
];

/// Catches functions that fall through to a genuine libibverbs, which crashes on objects of this library.
#[test]
fn every_function_that_takes_objects_is_of_this_library() {
    // SAFETY: loading the simulated provider has no preconditions.
    let provider = unsafe { libloading::Library::new(library()) }.unwrap();
    for name in WITH_OBJECTS {
        // SAFETY: the function is not called.
        let found = unsafe { provider.get::<unsafe extern "C" fn()>(name.to_bytes_with_nul()) };
        assert!(found.is_ok(), "{name:?}");
    }
}

#[test]
fn what_no_device_can_do_is_refused() {
    const ENOTSUP: i32 = 102;
    let (_alone, [device, _], list) = devices();
    let (context, pd) = opened(device);
    let cq = call!(rdma_sim_verbs::ibv_create_cq(context, 8, null_mut(), null_mut(), 0));
    assert_eq!(call!(rdma_sim_verbs::ibv_resize_cq(cq, 16)), ENOTSUP);
    assert_eq!(call!(rdma_sim_verbs::_ibv_query_gid_table(context, null_mut(), 0, 0, 32)), -102);
    assert!(call!(rdma_sim_verbs::ibv_reg_dmabuf_mr(pd, 0, 4096, 0, 0, 1)).is_null());
    assert!(call!(rdma_sim_verbs::ibv_import_pd(context, 1)).is_null());
    assert_eq!(call!(rdma_sim_verbs::ibv_get_async_event(context, null_mut())), -1);
    assert_eq!(call!(rdma_sim_verbs::ibv_get_device_index(device)), -1);
    for (pkey, index) in [(0xffff, 0), (1, -1)] {
        assert_eq!(call!(rdma_sim_verbs::ibv_get_pkey_index(context, 1, pkey)), index);
    }
    assert_eq!(call!(rdma_sim_verbs::ibv_destroy_cq(cq)), 0);
    closed((context, pd));
    call!(rdma_sim_verbs::ibv_free_device_list(list));
}

/// Registration at another address than that of the memory, shared receive queues, inline data.
#[test]
fn what_programs_ask_of_other_adapters_is_refused_or_not_granted() {
    let (_alone, [device, _], list) = devices();
    let (context, pd) = opened(device);
    let mut page = vec![0_u8; 8192];
    let start = page.as_mut_ptr().wrapping_add(page.as_ptr().align_offset(4096));
    assert!(call!(rdma_sim_verbs::ibv_reg_mr_iova2(pd, start.cast(), 4096, 0, 1)).is_null());
    assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(102));
    let mr = call!(rdma_sim_verbs::ibv_reg_mr_iova2(pd, start.cast(), 4096, start.addr() as u64, 1));
    assert_eq!(call!(rdma_sim_verbs::ibv_dereg_mr(mr)), 0);
    assert!(call!(rdma_sim_verbs::ibv_create_srq(pd, null_mut())).is_null());
    let cq = call!(rdma_sim_verbs::ibv_create_cq(context, 8, null_mut(), null_mut(), 0));
    // SAFETY: zeros are what the structure may hold.
    let mut init: QpInitAttr = unsafe { std::mem::zeroed() };
    (init.send_cq, init.recv_cq, init.qp_type) = (cq, cq, constants::QPT_UC);
    (init.cap.max_send_wr, init.cap.max_recv_wr, init.cap.max_inline_data) = (8, 8, 64);
    let qp = call!(rdma_sim_verbs::ibv_create_qp(pd, &raw mut init));
    assert_eq!(init.cap.max_inline_data, 0, "a program reads back what it may use");
    assert_eq!(call!(rdma_sim_verbs::ibv_query_ece(qp, null_mut())), 102);
    assert_eq!(call!(rdma_sim_verbs::ibv_query_qp_data_in_order(qp, 0, 0)), 0, "nothing is promised");
    let mr = call!(rdma_sim_verbs::ibv_reg_mr(pd, start.cast(), 4096, 1));
    assert_eq!(call!(rdma_sim_verbs::ibv_rereg_mr(mr, 4, pd, start.cast(), 4096, 3)), 102);
    assert_eq!(call!(rdma_sim_verbs::ibv_dereg_mr(mr)), 0);
    assert_eq!(call!(rdma_sim_verbs::ibv_destroy_qp(qp)), 0);
    init.srq = (&raw mut init).cast();
    assert!(call!(rdma_sim_verbs::ibv_create_qp(pd, &raw mut init)).is_null());
    assert_eq!(call!(rdma_sim_verbs::ibv_destroy_cq(cq)), 0);
    closed((context, pd));
    call!(rdma_sim_verbs::ibv_free_device_list(list));
}

/// Regression: a length beyond the end of the addresses was registered, or was a panic.
#[test]
fn impossible_memory_is_not_registered() {
    let (_alone, [device, _], list) = devices();
    let device = opened(device);
    let mut page = vec![0_u8; 8192];
    let start = page.as_mut_ptr().wrapping_add(page.as_ptr().align_offset(4096));
    for length in [0, usize::MAX, usize::MAX - 4095, 1 << 63, isize::MAX as usize + 1] {
        assert!(call!(rdma_sim_verbs::ibv_reg_mr(device.1, start.cast(), length, 15)).is_null(), "{length}");
    }
    let mr = call!(rdma_sim_verbs::ibv_reg_mr(device.1, start.cast(), 4096, 15));
    assert_eq!(call!(rdma_sim_verbs::ibv_dereg_mr(mr)), 0);
    closed(device);
    call!(rdma_sim_verbs::ibv_free_device_list(list));
}

/// Regression: a fault without a target in the topology was a panic, and those before it in its plan fired.
#[test]
fn a_fault_without_a_target_in_the_topology_is_refused() {
    let (_alone, [device, _], list) = devices();
    let plans = [
        c"at 0s a:rdma_en2 unplug; at 0s c:rdma_en2 unplug",
        c"at 0s a:rdma_en2 unplug; at 0s a:rdma_en99 unplug",
        c"at 0s a:rdma_en2 unplug; at 0s z kill",
        c"at 0s a:rdma_en2 unplug; nonsense",
    ];
    for plan in plans {
        assert_eq!(inject(plan), 22, "{plan:?}");
    }
    // Nothing was unplugged.
    closed(opened(device));
    call!(rdma_sim_verbs::ibv_free_device_list(list));
}

/// Regression: the sums of faults overflowed.
#[test]
fn faults_with_the_largest_numbers_are_accepted() {
    let (_alone, [device, _], list) = devices();
    let device = opened(device);
    for fault in ["leak-cqs", "leak-mrs", "leak-pds", "leak-qps", "corrupt", "lose"] {
        let plan = format!("at 0s a:rdma_en2 {fault} 4294967295; at 0s a:rdma_en2 {fault} 2\0");
        assert_eq!(inject(CStr::from_bytes_with_nul(plan.as_bytes()).unwrap()), 0);
    }
    assert!(call!(rdma_sim_verbs::ibv_alloc_pd(device.0)).is_null());
    assert!(call!(rdma_sim_verbs::ibv_create_cq(device.0, 4, null_mut(), null_mut(), 0)).is_null());
    closed(device);
    assert_eq!(inject(c"at 0s a reboot 1ns"), 0);
    rdma_sim_verbs::rdma_sim_rest(1_000);
    assert_eq!(inject(c"at 0s a restart"), 0);
    call!(rdma_sim_verbs::ibv_free_device_list(list));
}

/// Regression: on a virtual clock, a poll of an empty queue never ended while a reliable queue pair waited for a receive.
#[test]
fn a_poll_of_an_empty_queue_ends_while_the_peer_has_no_receive() {
    let (_alone, ends, list) = devices();
    let mut page = vec![0_u8; 8192];
    let start = page.as_mut_ptr().wrapping_add(page.as_ptr().align_offset(4096));
    let open = |device| {
        let (context, pd) = opened(device);
        let channel = call!(rdma_sim_verbs::ibv_create_comp_channel(context));
        assert_eq!(call!(libc::fcntl((*channel).fd, libc::F_SETFL, libc::O_NONBLOCK)), 0);
        let cq = call!(rdma_sim_verbs::ibv_create_cq(context, 8, null_mut(), channel, 0));
        let mr = call!(rdma_sim_verbs::ibv_reg_mr(pd, start.cast(), 4096, 15));
        // SAFETY: zeros are what the structure may hold.
        let mut init: QpInitAttr = unsafe { std::mem::zeroed() };
        (init.send_cq, init.recv_cq, init.qp_type) = (cq, cq, constants::QPT_RC);
        (init.cap.max_send_wr, init.cap.max_recv_wr) = (4, 4);
        let qp = call!(rdma_sim_verbs::ibv_create_qp(pd, &raw mut init));
        assert!(!qp.is_null());
        let mut gid = RawGid::default();
        assert_eq!(call!(rdma_sim_verbs::ibv_query_gid(context, 1, 1, &raw mut gid)), 0);
        ((context, pd), channel, cq, mr, qp, gid)
    };
    let both = ends.map(open);
    for (here, there) in [(&both[0], &both[1]), (&both[1], &both[0])] {
        let mut attr = QpAttr { port_num: 1, path_mtu: constants::MTU_1024, ..QpAttr::default() };
        attr.dest_qp_num = call!((*there.4).qp_num);
        attr.ah_attr.is_global = 1;
        (attr.ah_attr.grh.sgid_index, attr.ah_attr.grh.dgid) = (1, there.5);
        for state in 1..=3 {
            attr.qp_state = state;
            assert_eq!(call!(rdma_sim_verbs::ibv_modify_qp(here.4, &raw mut attr, i32::MAX)), 0);
        }
    }
    let ((context, _), channel, cq, mr, qp, _) = both[0];
    let mut sge = Sge { addr: start.addr() as u64, length: 8, lkey: call!((*mr).lkey) };
    // SAFETY: zeros are what the structure may hold.
    let mut request: SendWr = unsafe { std::mem::zeroed() };
    (request.sg_list, request.num_sge, request.opcode) = (&raw mut sge, 1, constants::WR_SEND);
    let ops = call!(&(*context).ops);
    assert_eq!(call!(ops.post_send.unwrap()(qp, &raw mut request, null_mut())), 0);
    let mut wc = Wc::default();
    for count in [0, 1] {
        assert_eq!(call!(ops.poll_cq.unwrap()(cq, count, &raw mut wc)), 0);
    }
    assert_eq!(call!(ops.req_notify_cq.unwrap()(cq, 0)), 0);
    let mut event_cq = null_mut();
    assert_eq!(call!(rdma_sim_verbs::ibv_get_cq_event(channel, &raw mut event_cq, null_mut())), -1);
    for (device, channel, cq, mr, qp, _) in both {
        assert_eq!(call!(rdma_sim_verbs::ibv_destroy_qp(qp)), 0);
        assert_eq!(call!(rdma_sim_verbs::ibv_dereg_mr(mr)), 0);
        assert_eq!(call!(rdma_sim_verbs::ibv_destroy_cq(cq)), 0);
        assert_eq!(call!(rdma_sim_verbs::ibv_destroy_comp_channel(channel)), 0);
        closed(device);
    }
    call!(rdma_sim_verbs::ibv_free_device_list(list));
}
