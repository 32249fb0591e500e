//! A cable is pulled: posts stay out of the provider, which may crash then
#![cfg(unix)]
#![allow(unsafe_code, reason = "tests name memory and call the verbs themselves")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use libloading::Library;
use rdma_bare::BareQp;
use rdma_core::{Cause, Opcode, QpInit, Status};
use rdma_tb5::{OpenOptions, Provider, VerbsDevice};
use rdma_tests::hosts::library;
use rdma_verbs_abi::{Context, Device, PortAttr, PostRecv, PostSend, Qp, RecvWr, SendWr};

/// The simulated provider, beside this test.
static LIBRARY: OnceLock<Library> = OnceLock::new();
/// How often it was entered.
static POSTS: AtomicU32 = AtomicU32::new(0);
static QUERIES: AtomicU32 = AtomicU32::new(0);
/// Its own posts.
static SEND: OnceLock<PostSend> = OnceLock::new();
static RECV: OnceLock<PostRecv> = OnceLock::new();

fn simulated<T: Copy>(name: &str) -> T {
    let library = LIBRARY.get_or_init(|| {
        // SAFETY: loading the simulated provider has no preconditions.
        unsafe { Library::new(library()) }.unwrap_or_else(|error| panic!("{error}"))
    });
    // SAFETY: the caller names the type of the symbol.
    *unsafe { library.get::<T>(name.as_bytes()) }.unwrap_or_else(|error| panic!("{error}"))
}

unsafe extern "C" fn open_device(device: *mut Device) -> *mut Context {
    let open = simulated::<unsafe extern "C" fn(*mut Device) -> *mut Context>("ibv_open_device");
    // SAFETY: the caller's device.
    let context = unsafe { open(device) };
    // SAFETY: the context was just opened, or is NULL.
    if let Some(context) = unsafe { context.as_mut() } {
        SEND.get_or_init(|| context.ops.post_send.expect("the provider sends"));
        RECV.get_or_init(|| context.ops.post_recv.expect("the provider receives"));
        context.ops.post_send = Some(post_send);
        context.ops.post_recv = Some(post_recv);
    }
    context
}

unsafe extern "C" fn query_port(context: *mut Context, port: u8, attr: *mut PortAttr) -> c_int {
    QUERIES.fetch_add(1, Ordering::Relaxed);
    let query = simulated::<unsafe extern "C" fn(*mut Context, u8, *mut PortAttr) -> c_int>("ibv_query_port");
    // SAFETY: the caller's.
    unsafe { query(context, port, attr) }
}

unsafe extern "C" fn post_send(qp: *mut Qp, wr: *mut SendWr, bad: *mut *mut SendWr) -> c_int {
    POSTS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the caller's.
    unsafe { SEND.get().expect("a device is open")(qp, wr, bad) }
}

unsafe extern "C" fn post_recv(qp: *mut Qp, wr: *mut RecvWr, bad: *mut *mut RecvWr) -> c_int {
    POSTS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the caller's.
    unsafe { RECV.get().expect("a device is open")(qp, wr, bad) }
}

fn inject(plan: &CStr) {
    let inject = simulated::<unsafe extern "C" fn(*const c_char) -> c_int>("rdma_sim_inject");
    // SAFETY: the text ends with a zero.
    assert_eq!(unsafe { inject(plan.as_ptr()) }, 0);
}

fn entered(counter: &AtomicU32, f: impl FnOnce()) -> u32 {
    let before = counter.load(Ordering::Relaxed);
    f();
    counter.load(Ordering::Relaxed) - before
}

fn silence(qp: &mut BareQp<VerbsDevice>) {
    for _ in 0..1024 {
        assert_eq!(qp.poll().unwrap(), None);
    }
}

/// Mutants: `PortWatch::check` that always passes, `SILENCE` of a million polls.
#[test]
fn posts_on_a_port_that_is_down_do_not_enter_the_provider() {
    let configure = simulated::<unsafe extern "C" fn(*const c_char) -> c_int>("rdma_sim_configure");
    // SAFETY: the text ends with a zero.
    assert_eq!(unsafe { configure(c"RDMA_SIM_CLOCK=virtual,RDMA_SIM_SEED=5".as_ptr()) }, 0);
    let symbol = |name: &str| match name {
        "ibv_open_device" => open_device as *const c_void,
        "ibv_query_port" => query_port as *const c_void,
        "ibv_query_device" | "ibv_query_qp" => null(),
        name => simulated::<*const c_void>(name),
    };
    // SAFETY: the functions above and those of the simulated provider, which stays loaded.
    let provider = unsafe { Provider::from_symbols("watched", symbol) }.unwrap();
    let init = QpInit::with_frames(16);
    let open = |name| VerbsDevice::open(&provider, name, OpenOptions::new().trust_destroy(true)).unwrap();
    let connect = || BareQp::pair_of(open("rdma_en2@a"), open("rdma_en2@b"), &init, 64 << 10).unwrap();
    let [mut a, mut b] = connect();
    let next = |qp: &mut BareQp<VerbsDevice>| {
        (0..1000).find_map(|_| qp.poll().unwrap()).expect("something completes")
    };
    let exchange = |a: &mut BareQp<VerbsDevice>, b: &mut BareQp<VerbsDevice>| {
        b.recv(1, 0..64).unwrap();
        a.send(1, 0..64).unwrap();
        assert_eq!((next(b).opcode, next(a).opcode), (Opcode::Recv, Opcode::Send));
    };

    // Each device is asked once, and a conversation that goes on is not.
    assert_eq!(entered(&QUERIES, || exchange(&mut a, &mut b)), 2);
    assert_eq!(entered(&QUERIES, || (0..100).for_each(|_| exchange(&mut a, &mut b))), 0);
    assert_eq!(entered(&QUERIES, || silence(&mut a)), 0);
    assert_eq!(entered(&QUERIES, || exchange(&mut a, &mut b)), 1, "after silence it is asked again");

    // Nothing shows that the cable was pulled until nothing has completed for a while.
    inject(c"at 0s a:rdma_en2 unplug");
    silence(&mut a);
    let posts = entered(&POSTS, || {
        assert_eq!(a.send(2, 0..64).unwrap_err().cause, Cause::DeviceGone);
        assert_eq!(a.recv(2, 4096..4160).unwrap_err().cause, Cause::DeviceGone);
    });
    assert_eq!(posts, 0, "the provider is not entered");

    // A device that was open stays dead when the cable is back, and its port is not queried again; one that is opened then works.
    inject(c"at 0s a:rdma_en2 replug");
    let sim_rest = simulated::<unsafe extern "C" fn(u64)>("rdma_sim_rest");
    // SAFETY: the function has no preconditions.
    unsafe { sim_rest(10_000_000_000) };
    let queries = entered(&QUERIES, || {
        assert_eq!(a.send(3, 0..64).unwrap_err().cause, Cause::DeviceGone);
    });
    assert_eq!(queries, 0);
    drop((a, b));
    let [mut a, mut b] = connect();
    exchange(&mut a, &mut b);
    b.recv(4, 0..64).unwrap();
    a.send(4, 0..64).unwrap();
    assert_eq!(next(&mut b).status, Status::Success);
}
