//! Posting

use std::ffi::c_int;

use rdma_core::{Lkey, RecvRequest, Rkey, SendOp, SendRequest, Sge as Element, WrId};
use rdma_sim::driver::Session;
use rdma_verbs_abi::{Qp, RecvWr, SendWr, Sge, constants};

use crate::engine::Engine;
use crate::errno::{EINVAL, ENOTSUP, ENXIO, Errno, guarded, same};
use crate::objects::QpObject;
use crate::slots::object;

/// A work request of the ABI, which leads to the next one of its list
trait Request {
    /// The next request, and the list of elements
    fn links(&self) -> (*mut Self, *mut Sge, c_int);

    /// Whether it asks for an RDMA WRITE
    fn is_write(&self) -> bool {
        false
    }
}

impl Request for SendWr {
    fn links(&self) -> (*mut Self, *mut Sge, c_int) {
        (self.next, self.sg_list, self.num_sge)
    }

    fn is_write(&self) -> bool {
        self.opcode == constants::WR_RDMA_WRITE
    }
}

impl Request for RecvWr {
    fn links(&self) -> (*mut Self, *mut Sge, c_int) {
        (self.next, self.sg_list, self.num_sge)
    }
}

/// Posts the requests of a list with `post`, up to the first that is refused
unsafe fn post_list<T: Request>(
    call: &str,
    qp: *mut Qp,
    first: *mut T,
    bad: *mut *mut T,
    post: impl Fn(&mut Session<'_>, &QpObject, &T, &[Element]) -> Result<(), Errno>,
) -> c_int {
    guarded(same, || {
        // SAFETY: the contract of all functions.
        let found = unsafe { object::<QpObject>(qp) }?;
        let engine = Engine::get()?;
        let mut has_write = false;
        let posted = engine.post(|session| {
            let mut next = first;
            // SAFETY: the list is the caller's and ends with NULL.
            while let Some(request) = unsafe { next.as_ref() } {
                has_write |= request.is_write();
                let (following, list, count) = request.links();
                // SAFETY: the caller's list has so many elements.
                let posted = unsafe { with_elements(list, count, |sgl| post(session, found, request, sgl)) };
                if let Err(errno) = posted {
                    // Apple's provider leaves `bad_wr` alone when it says −12.
                    if errno == Errno(12) && !engine.is_roce {
                        return Err(Errno(-12));
                    }
                    if !bad.is_null() {
                        // SAFETY: the caller's place for a pointer.
                        unsafe { *bad = next };
                    }
                    return Err(errno);
                }
                next = following;
            }
            Ok(0)
        });
        if has_write {
            engine.silent_outcomes.log_write(call);
        }
        if posted == Err(ENXIO) {
            engine.crash(call, "the cable of the device was pulled");
        }
        posted
    })
}

/// Runs `f` with the elements of a request
unsafe fn with_elements(
    list: *mut Sge,
    count: c_int,
    f: impl FnOnce(&[Element]) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let count = usize::try_from(count).ok().filter(|count| *count <= 64).ok_or(EINVAL)?;
    if count > 0 && list.is_null() {
        return Err(EINVAL);
    }
    let element = |index| {
        // SAFETY: the caller's list has so many elements.
        let place = unsafe { list.add(index) };
        // SAFETY: as above.
        let sge = unsafe { *place };
        Element { addr: sge.addr, len: sge.length, lkey: Lkey(sge.lkey) }
    };
    match count {
        // The common case allocates nothing.
        1 => f(&[element(0)]),
        _ => f(&(0..count).map(element).collect::<Vec<_>>()),
    }
}

/// The operation of a request; `None` for one that the device does not have
fn operation(request: &SendWr) -> Option<SendOp> {
    let wr = request.wr;
    let rkey = |at: usize| Rkey(wr[at] as u32);
    Some(match request.opcode {
        constants::WR_SEND => SendOp::Send,
        constants::WR_RDMA_WRITE => SendOp::Write { remote_addr: wr[0], rkey: rkey(1) },
        constants::WR_RDMA_READ => SendOp::Read { remote_addr: wr[0], rkey: rkey(1) },
        constants::WR_ATOMIC_FETCH_AND_ADD => {
            SendOp::FetchAdd { remote_addr: wr[0], add: wr[1], rkey: rkey(3) }
        }
        constants::WR_ATOMIC_CMP_AND_SWP => {
            SendOp::CompareSwap { remote_addr: wr[0], compare: wr[1], swap: wr[2], rkey: rkey(3) }
        }
        _ => return None,
    })
}

pub(super) unsafe extern "C" fn post_send(qp: *mut Qp, wr: *mut SendWr, bad: *mut *mut SendWr) -> c_int {
    let post = |session: &mut Session<'_>, found: &QpObject, request: &SendWr, sgl: &[Element]| {
        let op = operation(request).ok_or(ENOTSUP)?;
        let signaled = found.signals_all || request.send_flags & constants::SEND_SIGNALED != 0;
        let request = SendRequest { id: WrId(request.wr_id), op, sgl, signaled };
        // SAFETY: the program leaves the memory alone until the completion, as the manual page says.
        Ok(unsafe { session.post_send(&found.pair, &request) }?)
    };
    // SAFETY: the contract of all functions.
    unsafe { post_list("ibv_post_send", qp, wr, bad, post) }
}

pub(super) unsafe extern "C" fn post_recv(qp: *mut Qp, wr: *mut RecvWr, bad: *mut *mut RecvWr) -> c_int {
    let post = |session: &mut Session<'_>, found: &QpObject, request: &RecvWr, sgl: &[Element]| {
        let request = RecvRequest { id: WrId(request.wr_id), sgl };
        // SAFETY: the program leaves the memory alone until the completion, as the manual page says.
        Ok(unsafe { session.post_recv(&found.pair, &request) }?)
    };
    // SAFETY: the contract of all functions.
    unsafe { post_list("ibv_post_recv", qp, wr, bad, post) }
}
