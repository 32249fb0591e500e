//! One side of a connection as a program in C has it: its objects, and a page of registered memory

use std::ffi::{CStr, CString, c_int};
use std::ptr::null_mut;

use rdma_verbs_abi::{
    CompChannel, Context, Cq, Device, Mr, Pd, Qp, QpAttr, QpInitAttr, RawGid, RecvWr, SendWr, Sge, Wc,
    constants,
};

/// The first device of either host
pub(crate) fn devices() -> [*mut Device; 2] {
    let mut count = 0;
    let list = call!(rdma_sim_verbs::ibv_get_device_list(&raw mut count));
    let all: Vec<_> = (0..count as usize).map(|at| call!(*list.wrapping_add(at))).collect();
    let find = |name: &CStr| {
        let is_called = |device: &*mut Device| {
            call!(CStr::from_ptr(rdma_sim_verbs::ibv_get_device_name(*device))) == name
        };
        all.iter().copied().find(is_called).unwrap_or_else(|| panic!("there is no {name:?}"))
    };
    [find(c"rdma_en2@a"), find(c"rdma_en2@b")]
}

/// One side: its objects, and a page of registered memory
pub(crate) struct End {
    pub(crate) context: *mut Context,
    pub(crate) channel: *mut CompChannel,
    pub(crate) cq: *mut Cq,
    pub(crate) mr: *mut Mr,
    pub(crate) qp: *mut Qp,
    pub(crate) gid_index: u8,
    pub(crate) gid: RawGid,
    pub(crate) page: *mut u8,
}

impl End {
    pub(crate) fn new(device: *mut Device) -> Self {
        let context = call!(rdma_sim_verbs::ibv_open_device(device));
        let pd: *mut Pd = call!(rdma_sim_verbs::ibv_alloc_pd(context));
        let channel = call!(rdma_sim_verbs::ibv_create_comp_channel(context));
        assert_eq!(call!(libc::fcntl((*channel).fd, libc::F_SETFL, libc::O_NONBLOCK)), 0);
        let cq = call!(rdma_sim_verbs::ibv_create_cq(context, 16, null_mut(), channel, 0));
        let page = Box::leak(vec![0_u8; 1 << 15].into_boxed_slice()).as_mut_ptr();
        let page = page.wrapping_add(page.align_offset(1 << 14));
        let mr = call!(rdma_sim_verbs::ibv_reg_mr(pd, page.cast(), 1 << 14, 7));
        assert!(!mr.is_null());
        // SAFETY: zeros are what the structure may hold.
        let mut init: QpInitAttr = unsafe { std::mem::zeroed() };
        (init.send_cq, init.recv_cq, init.qp_type) = (cq, cq, constants::QPT_UC);
        (init.cap.max_send_wr, init.cap.max_recv_wr) = (32, 32);
        let qp = call!(rdma_sim_verbs::ibv_create_qp(pd, &raw mut init));
        assert!(!qp.is_null());
        let gid_at = |index: u8| {
            let mut gid = RawGid::default();
            let queried = call!(rdma_sim_verbs::ibv_query_gid(context, 1, index.into(), &raw mut gid));
            (queried == 0 && gid.raw[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]).then_some(gid)
        };
        // It stands at index 2 under the strict profile.
        let found = (0..4).find_map(|index| Some((index, gid_at(index)?)));
        let (gid_index, gid) = found.expect("one entry maps an IPv4 address");
        Self { context, channel, cq, mr, qp, gid_index, gid, page }
    }

    /// The transition to a state, with the attributes of all of them
    pub(crate) fn step(&self, to: &Self, state: u32) -> c_int {
        let mut attr = QpAttr { port_num: 1, path_mtu: constants::MTU_1024, ..QpAttr::default() };
        attr.dest_qp_num = call!((*to.qp).qp_num);
        attr.ah_attr.is_global = 1;
        (attr.ah_attr.grh.sgid_index, attr.ah_attr.grh.dgid) = (self.gid_index, to.gid);
        attr.qp_state = state;
        call!(rdma_sim_verbs::ibv_modify_qp(self.qp, &raw mut attr, i32::MAX))
    }

    pub(crate) fn connect(&self, to: &Self) {
        for state in 1..=3 {
            assert_eq!(self.step(to, state), 0);
        }
    }

    pub(crate) fn sge(&self) -> Sge {
        Sge { addr: self.page.addr() as u64, length: 8, lkey: call!((*self.mr).lkey) }
    }

    pub(crate) fn post_recv(&self) -> c_int {
        self.post_recvs(1)
    }

    /// Posts a list of so many receives
    pub(crate) fn post_recvs(&self, count: usize) -> c_int {
        let mut sge = self.sge();
        let request = || RecvWr { wr_id: 1, next: null_mut(), sg_list: &raw mut sge, num_sge: 1 };
        let mut list: Vec<_> = std::iter::repeat_with(request).take(count).collect();
        for at in 1..count {
            list[at - 1].next = &raw mut list[at];
        }
        call!((*self.context).ops.post_recv.unwrap()(self.qp, list.as_mut_ptr(), null_mut()))
    }

    pub(crate) fn post_send(&self) -> c_int {
        self.post_sends(1)
    }

    /// Posts a list of so many sends
    pub(crate) fn post_sends(&self, count: usize) -> c_int {
        let mut sge = self.sge();
        let request = || {
            // SAFETY: zeros are what the structure may hold.
            let mut request: SendWr = unsafe { std::mem::zeroed() };
            (request.sg_list, request.num_sge, request.opcode) = (&raw mut sge, 1, constants::WR_SEND);
            request.send_flags = constants::SEND_SIGNALED;
            request
        };
        let mut list: Vec<_> = std::iter::repeat_with(request).take(count).collect();
        for at in 1..count {
            list[at - 1].next = &raw mut list[at];
        }
        call!((*self.context).ops.post_send.unwrap()(self.qp, list.as_mut_ptr(), null_mut()))
    }

    pub(crate) fn poll(&self) -> c_int {
        let mut wc = Wc::default();
        call!((*self.context).ops.poll_cq.unwrap()(self.cq, 1, &raw mut wc))
    }

    /// Calls a verb of traffic, for two requests where it takes a list
    pub(crate) fn post_or_poll(&self, verb: &str) -> c_int {
        match verb {
            "post_send" => self.post_sends(2),
            "post_recv" => self.post_recvs(2),
            _ => self.poll(),
        }
    }
}

// SAFETY: verbs may be called on any thread.
unsafe impl Send for End {}

pub(crate) fn ends() -> [End; 2] {
    devices().map(End::new)
}

pub(crate) fn inject(fault: &str) {
    let fault = CString::new(fault).unwrap();
    assert_eq!(call!(rdma_sim_verbs::rdma_sim_inject(fault.as_ptr())), 0);
}

/// Two ends that are connected, each with a receive
pub(crate) fn connected() -> [End; 2] {
    let [a, b] = ends();
    a.connect(&b);
    b.connect(&a);
    assert_eq!((a.post_recv(), b.post_recv()), (0, 0));
    [a, b]
}
