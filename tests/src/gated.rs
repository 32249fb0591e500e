//! The simulated provider behind a gate, which keeps the calls of one verb of one device until it opens
//!
//! One process has one simulation, and so one gate.
#![allow(unsafe_code, reason = "this is a C library")]

use std::ffi::{CStr, c_int, c_void};
use std::ptr::null;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

use rdma_tb5::Provider;
use rdma_verbs_abi::{
    CompChannel, Context, Cq, Device, DeviceAttr, Mr, Pd, PollCq, PortAttr, PostRecv, PostSend, Qp, QpAttr,
    QpInitAttr, RawGid, RecvWr, SendWr, Wc,
};

/// Longer than anything takes unless it waits for ever
const FOR_EVER: Duration = Duration::from_secs(60);

/// The gate of this process
pub static GATE: Gate = Gate {
    state: Mutex::new(State {
        device: String::new(),
        closed: None,
        waiting: 0,
        calls: Vec::new(),
        threads: Vec::new(),
    }),
    opened: Condvar::new(),
};

/// The verbs that are functions of a context, of which calls are kept and not counted
pub const TRAFFIC: [&str; 3] = ["post_send", "post_recv", "poll_cq"];

/// Keeps the threads that call a verb of a device while it is closed
pub struct Gate {
    state: Mutex<State>,
    opened: Condvar,
}

struct State {
    /// The device of which the gate counts the calls, and may keep them
    device: String,
    closed: Option<&'static str>,
    waiting: usize,
    /// The verbs that were called on the device since it was chosen, without posts and polls, in order, and the addresses of the objects that
    /// they were given
    calls: Vec<(&'static str, usize)>,
    /// The thread of each of them.
    threads: Vec<ThreadId>,
}

impl Gate {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets all calls, and counts those of `device` from now on
    pub fn watch(&self, device: &str) {
        let state = &mut *self.state();
        (state.device, state.closed) = (device.to_owned(), None);
        state.calls.clear();
        state.threads.clear();
    }

    /// Keeps the calls of `verb` from now on
    pub fn close(&self, verb: &'static str) {
        self.state().closed = Some(verb);
    }

    /// Lets the calls go on that are kept
    pub fn open(&self) {
        self.state().closed = None;
        self.opened.notify_all();
    }

    /// How many calls are kept
    pub fn waiting(&self) -> usize {
        self.state().waiting
    }

    /// The verbs that were called on the device, without posts and polls, in order, and the addresses of the objects that they were given
    pub fn calls(&self) -> Vec<(&'static str, usize)> {
        self.state().calls.clone()
    }

    /// The verbs among [`calls`](Self::calls), without the first `skipped`, that a thread has called
    pub fn calls_by(&self, thread: ThreadId, skipped: usize) -> Vec<&'static str> {
        let state = self.state();
        let calls = state.calls.iter().zip(&state.threads).skip(skipped);
        calls.filter(|(_, by)| **by == thread).map(|((verb, _), _)| *verb).collect()
    }

    /// The state, if the gate stands before `device`
    fn before(&self, device: *mut Device) -> Option<MutexGuard<'_, State>> {
        // SAFETY: the caller's device exists.
        let name = unsafe { rdma_sim_verbs::ibv_get_device_name(device) };
        // SAFETY: the name of a device ends with a zero.
        let name = unsafe { CStr::from_ptr(name) };
        Some(self.state()).filter(|state| name.to_bytes() == state.device.as_bytes())
    }

    fn pass(&self, verb: &'static str, object: usize, device: *mut Device) {
        let Some(mut state) = self.before(device) else { return };
        // There are millions of posts and polls.
        if !TRAFFIC.contains(&verb) {
            state.calls.push((verb, object));
            state.threads.push(std::thread::current().id());
        }
        state.waiting += 1;
        let is_kept = |state: &mut State| state.closed == Some(verb);
        let (mut state, waited) =
            self.opened.wait_timeout_while(state, FOR_EVER, is_kept).unwrap_or_else(PoisonError::into_inner);
        state.waiting -= 1;
        drop(state);
        assert!(!waited.timed_out(), "{verb} keeps the thread that would open the gate");
    }
}

/// Functions of the ABI that call those of the simulated provider when the gate lets them
macro_rules! gated {
    ($($verb:literal: fn $name:ident($first:ident: $type:ty $(, $arg:ident: $arg_type:ty)*) -> $ret:ty, of $device:expr;)+) => {
        mod functions {
            use super::*;

            $(pub(super) unsafe extern "C" fn $name($first: $type $(, $arg: $arg_type)*) -> $ret {
                // SAFETY: the caller's object exists, and leads to its context.
                GATE.pass($verb, $first.addr(), unsafe { $device($first) });
                // SAFETY: the caller's.
                unsafe { rdma_sim_verbs::$name($first $(, $arg)*) }
            })+
        }

        fn symbol(name: &str) -> *const c_void {
            match name {
                $(stringify!($name) => functions::$name as *const c_void,)+
                "ibv_open_device" => ibv_open_device as *const c_void,
                "ibv_get_device_list" => rdma_sim_verbs::ibv_get_device_list as *const c_void,
                "ibv_free_device_list" => rdma_sim_verbs::ibv_free_device_list as *const c_void,
                "ibv_get_device_name" => rdma_sim_verbs::ibv_get_device_name as *const c_void,
                _ => null(),
            }
        }
    };
}

unsafe fn of_context(context: *mut Context) -> *mut Device {
    // SAFETY: the caller's object exists.
    unsafe { (*context).device }
}

/// The device of an object that begins with the pointer to its context, as all of them do
unsafe fn of_object<T>(object: *mut T) -> *mut Device {
    // SAFETY: as above; it begins with this pointer.
    let context = unsafe { *object.cast::<*mut Context>() };
    // SAFETY: the context of an object exists.
    unsafe { of_context(context) }
}

gated! {
    "close_device": fn ibv_close_device(context: *mut Context) -> c_int, of of_context;
    "query_device": fn ibv_query_device(context: *mut Context, attr: *mut DeviceAttr) -> c_int, of of_context;
    "query_port": fn ibv_query_port(context: *mut Context, port: u8, attr: *mut PortAttr) -> c_int, of of_context;
    "query_gid": fn ibv_query_gid(context: *mut Context, port: u8, index: c_int, gid: *mut RawGid) -> c_int, of of_context;
    "alloc_pd": fn ibv_alloc_pd(context: *mut Context) -> *mut Pd, of of_context;
    "dealloc_pd": fn ibv_dealloc_pd(pd: *mut Pd) -> c_int, of of_object;
    "reg_mr": fn ibv_reg_mr(pd: *mut Pd, addr: *mut c_void, length: usize, access: c_int) -> *mut Mr, of of_object;
    "dereg_mr": fn ibv_dereg_mr(mr: *mut Mr) -> c_int, of of_object;
    "create_cq": fn ibv_create_cq(context: *mut Context, cqe: c_int, user: *mut c_void, channel: *mut CompChannel, vector: c_int) -> *mut Cq, of of_context;
    "destroy_cq": fn ibv_destroy_cq(cq: *mut Cq) -> c_int, of of_object;
    "create_qp": fn ibv_create_qp(pd: *mut Pd, init: *mut QpInitAttr) -> *mut Qp, of of_object;
    "modify_qp": fn ibv_modify_qp(qp: *mut Qp, attr: *mut QpAttr, mask: c_int) -> c_int, of of_object;
    "destroy_qp": fn ibv_destroy_qp(qp: *mut Qp) -> c_int, of of_object;
}

/// The functions of the contexts of the simulated provider, which are the same for all
static BEHIND: OnceLock<(PostSend, PostRecv, PollCq)> = OnceLock::new();

fn behind() -> (PostSend, PostRecv, PollCq) {
    *BEHIND.get().expect("a context is open")
}

/// Opens a device, and puts the gate before the functions of its context if it stands before the device: others poll without it
unsafe extern "C" fn ibv_open_device(device: *mut Device) -> *mut Context {
    GATE.pass("open_device", device.addr(), device);
    // SAFETY: the caller's.
    let context = unsafe { rdma_sim_verbs::ibv_open_device(device) };
    let is_gated = GATE.before(device).is_some();
    // SAFETY: the provider has just returned the context to this function, so nothing else refers to it.
    if let Some(open) = unsafe { context.as_mut() }
        && is_gated
    {
        let ops = &mut open.ops;
        let all = "the simulated provider has all functions";
        BEHIND
            .get_or_init(|| (ops.post_send.expect(all), ops.post_recv.expect(all), ops.poll_cq.expect(all)));
        ops.post_send = Some(post_send);
        ops.post_recv = Some(post_recv);
        ops.poll_cq = Some(poll_cq);
    }
    context
}

unsafe extern "C" fn post_send(qp: *mut Qp, list: *mut SendWr, bad: *mut *mut SendWr) -> c_int {
    // SAFETY: the caller's object exists, and begins with its context.
    GATE.pass("post_send", qp.addr(), unsafe { of_object(qp) });
    // SAFETY: the caller's.
    unsafe { behind().0(qp, list, bad) }
}

unsafe extern "C" fn post_recv(qp: *mut Qp, list: *mut RecvWr, bad: *mut *mut RecvWr) -> c_int {
    // SAFETY: as above.
    GATE.pass("post_recv", qp.addr(), unsafe { of_object(qp) });
    // SAFETY: the caller's.
    unsafe { behind().1(qp, list, bad) }
}

unsafe extern "C" fn poll_cq(cq: *mut Cq, count: c_int, wcs: *mut Wc) -> c_int {
    // SAFETY: as above.
    GATE.pass("poll_cq", cq.addr(), unsafe { of_object(cq) });
    // SAFETY: the caller's.
    unsafe { behind().2(cq, count, wcs) }
}

/// The provider
///
/// # Panics
///
/// Never: the simulated provider has all verbs.
pub fn provider() -> Arc<Provider> {
    // SAFETY: the functions above have the types of the verbs and are there as long as the program.
    unsafe { Provider::from_symbols("the gated provider", symbol) }.expect("all verbs are there")
}
