//! A verbs provider that does almost nothing, to measure the cost of the path to it
//!
//! All posted requests have completed when the queue is polled, sends before receives. There is one device and one queue pair.
#![allow(unsafe_code, reason = "this is a C library")]

use std::ffi::{c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use rdma_tb5::Provider;
use rdma_verbs_abi::{
    CompChannel, Context, Cq, Device, Mr, PORT_ATTR_COMPAT, Pd, PortAttr, Qp, QpAttr, QpInitAttr, RawGid,
    RecvWr, SendWr, Wc, constants,
};

/// The name of its device
pub const DEVICE: &str = "rdma_en0";
const QPN: u32 = 7;

/// Counts of posted and completed requests, each written by one thread at a time.
struct Queue {
    posted: AtomicU32,
    completed: AtomicU32,
}

static SENDS: Queue = Queue { posted: AtomicU32::new(0), completed: AtomicU32::new(0) };
static RECVS: Queue = Queue { posted: AtomicU32::new(0), completed: AtomicU32::new(0) };

/// The error number that queries of the port return; zero is success
pub static QUERY_PORT_ERRNO: AtomicI32 = AtomicI32::new(0);
/// The error number of opening a device, which then returns NULL; zero is success
pub static OPEN_DEVICE_ERRNO: AtomicI32 = AtomicI32::new(0);
/// The error number of registrations, which then return NULL; zero is success
pub static REG_MR_ERRNO: AtomicI32 = AtomicI32::new(0);
/// Protection domains that exist
pub static PROTECTION_DOMAINS: AtomicU32 = AtomicU32::new(0);
/// Queue pairs that exist
pub static QUEUE_PAIRS: AtomicU32 = AtomicU32::new(0);
/// The most queue pairs that may exist
pub const MAX_QUEUE_PAIRS: u32 = 10;

/// NULL, with an error number
fn refuse<T>(errno: i32) -> *mut T {
    errno::set_errno(errno::Errno(errno));
    null_mut()
}

/// The provider
///
/// # Panics
///
/// Never: the stub has all verbs.
pub fn provider() -> Arc<Provider> {
    let symbol = |name: &str| -> *const c_void {
        match name {
            "ibv_get_device_list" => get_device_list as *const c_void,
            "ibv_free_device_list" => free_device_list as *const c_void,
            "ibv_get_device_name" => get_device_name as *const c_void,
            "ibv_open_device" => open_device as *const c_void,
            "ibv_close_device" => free::<Context> as *const c_void,
            "ibv_query_port" => query_port as *const c_void,
            "ibv_query_gid" => query_gid as *const c_void,
            "ibv_alloc_pd" => alloc_pd as *const c_void,
            "ibv_dealloc_pd" => dealloc_pd as *const c_void,
            "ibv_reg_mr" => reg_mr as *const c_void,
            "ibv_dereg_mr" => free::<Mr> as *const c_void,
            "ibv_create_cq" => create_cq as *const c_void,
            "ibv_destroy_cq" => free::<Cq> as *const c_void,
            "ibv_create_qp" => create_qp as *const c_void,
            "ibv_modify_qp" => modify_qp as *const c_void,
            "ibv_destroy_qp" => destroy_qp as *const c_void,
            _ => null(),
        }
    };
    // SAFETY: the functions below have the types of the verbs and are there as long as the program.
    unsafe { Provider::from_symbols("the stub", symbol) }.expect("all verbs are there")
}

/// A completion queue and a queue pair as the provider makes them, for calls without a device around them
pub fn bare() -> (Box<Cq>, Box<Qp>) {
    // SAFETY: the functions of the stub need nothing that is not given here.
    let context = unsafe { open_device(null_mut()) };
    let (mut cq, mut qp) = (zeroed::<Cq>(), zeroed::<Qp>());
    (cq.context, qp.context, qp.qp_num) = (context, context, QPN);
    (cq, qp)
}

fn zeroed<T>() -> Box<T> {
    // SAFETY: the structures of the ABI that are made here hold numbers, pointers and optional functions.
    Box::new(unsafe { std::mem::zeroed() })
}

/// Frees what [`zeroed`] made and was handed out
unsafe extern "C" fn free<T>(place: *mut T) -> c_int {
    // SAFETY: the caller's: the place is of a box, and this is its end.
    drop(unsafe { Box::from_raw(place) });
    0
}

unsafe extern "C" fn get_device_list(count: *mut c_int) -> *mut *mut Device {
    // SAFETY: the caller's place for a number.
    unsafe { *count = 1 };
    // A device is nothing but its address.
    Box::into_raw(Box::new([Box::into_raw(Box::new(0_u64)), null_mut()])).cast()
}

unsafe extern "C" fn free_device_list(list: *mut *mut Device) {
    // SAFETY: the list is the one above.
    let list = unsafe { Box::from_raw(list.cast::<[*mut u64; 2]>()) };
    // SAFETY: its first entry, too.
    unsafe { free(list[0]) };
}

unsafe extern "C" fn get_device_name(_: *mut Device) -> *const c_char {
    c"rdma_en0".as_ptr()
}

unsafe extern "C" fn open_device(_: *mut Device) -> *mut Context {
    let errno = OPEN_DEVICE_ERRNO.load(Ordering::Relaxed);
    if errno != 0 {
        return refuse(errno);
    }
    let mut context = zeroed::<Context>();
    context.ops.post_send = Some(post_send);
    context.ops.post_recv = Some(post_recv);
    context.ops.poll_cq = Some(poll_cq);
    Box::into_raw(context)
}

unsafe extern "C" fn query_port(_: *mut Context, _: u8, attr: *mut PortAttr) -> c_int {
    let errno = QUERY_PORT_ERRNO.load(Ordering::Relaxed);
    if errno != 0 {
        return errno;
    }
    let answer = PortAttr { state: constants::PORT_ACTIVE, gid_tbl_len: 1, ..PortAttr::default() };
    // SAFETY: the caller's place for the compatible part.
    unsafe { (&raw const answer).cast::<u8>().copy_to_nonoverlapping(attr.cast(), PORT_ATTR_COMPAT) };
    0
}

unsafe extern "C" fn query_gid(_: *mut Context, _: u8, _: c_int, gid: *mut RawGid) -> c_int {
    // SAFETY: the caller's place for an entry.
    unsafe { *gid = RawGid { raw: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 169, 254, 0, 1] } };
    0
}

unsafe extern "C" fn alloc_pd(_: *mut Context) -> *mut Pd {
    PROTECTION_DOMAINS.fetch_add(1, Ordering::Relaxed);
    Box::into_raw(zeroed())
}

unsafe extern "C" fn dealloc_pd(pd: *mut Pd) -> c_int {
    PROTECTION_DOMAINS.fetch_sub(1, Ordering::Relaxed);
    // SAFETY: the caller's.
    unsafe { free(pd) }
}

unsafe extern "C" fn reg_mr(_: *mut Pd, addr: *mut c_void, length: usize, _: c_int) -> *mut Mr {
    let errno = REG_MR_ERRNO.load(Ordering::Relaxed);
    if errno != 0 {
        return refuse(errno);
    }
    let mut mr = zeroed::<Mr>();
    (mr.addr, mr.length, mr.lkey) = (addr, length, 0x101);
    Box::into_raw(mr)
}

unsafe extern "C" fn create_cq(
    context: *mut Context,
    _: c_int,
    _: *mut c_void,
    _: *mut CompChannel,
    _: c_int,
) -> *mut Cq {
    let mut cq = zeroed::<Cq>();
    cq.context = context;
    Box::into_raw(cq)
}

unsafe extern "C" fn create_qp(_: *mut Pd, attr: *mut QpInitAttr) -> *mut Qp {
    if QUEUE_PAIRS.fetch_add(1, Ordering::Relaxed) == MAX_QUEUE_PAIRS {
        QUEUE_PAIRS.fetch_sub(1, Ordering::Relaxed);
        return refuse(libc::EBUSY);
    }
    let mut qp = zeroed::<Qp>();
    // SAFETY: the caller's structure.
    let send_cq = unsafe { (*attr).send_cq };
    (qp.send_cq, qp.qp_num) = (send_cq, QPN);
    // SAFETY: the caller's queue exists.
    qp.context = unsafe { (*send_cq).context };
    Box::into_raw(qp)
}

unsafe extern "C" fn modify_qp(_: *mut Qp, _: *mut QpAttr, _: c_int) -> c_int {
    0
}

unsafe extern "C" fn destroy_qp(qp: *mut Qp) -> c_int {
    QUEUE_PAIRS.fetch_sub(1, Ordering::Relaxed);
    // SAFETY: the queue pair is of `create_qp`.
    unsafe { free(qp) }
}

/// Adds one, as cheaply as a thread that is alone in it can
fn count(place: &AtomicU32) {
    place.store(place.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
}

unsafe extern "C" fn post_send(_: *mut Qp, _: *mut SendWr, _: *mut *mut SendWr) -> c_int {
    count(&SENDS.posted);
    0
}

unsafe extern "C" fn post_recv(_: *mut Qp, _: *mut RecvWr, _: *mut *mut RecvWr) -> c_int {
    count(&RECVS.posted);
    0
}

unsafe extern "C" fn poll_cq(_: *mut Cq, wanted: c_int, wc: *mut Wc) -> c_int {
    let mut found = 0;
    for (queue, opcode) in [(&SENDS, constants::WC_SEND), (&RECVS, constants::WC_RECV)] {
        let posted = queue.posted.load(Ordering::Acquire);
        while found < wanted && posted != queue.completed.load(Ordering::Relaxed) {
            count(&queue.completed);
            // SAFETY: the caller has space for so many.
            let place = unsafe { wc.add(found as usize) };
            // SAFETY: as above.
            unsafe { place.write(Wc { opcode, qp_num: QPN, ..Wc::default() }) };
            found += 1;
        }
    }
    found
}
