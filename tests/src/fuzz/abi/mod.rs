//! Programs that misuse the functions of the C ABI
//!
//! Bytes become calls in any order, with handles that are valid, NULL, stale or of another kind. Misuse that no library can detect
//! is left out: endless lists, counts beyond the memory of the caller, lists freed twice.

#![allow(unsafe_code, reason = "tests name memory and call the verbs themselves")]

mod handles;
mod memory;
mod posts;

use std::ffi::{CStr, CString, c_int};
use std::io;
use std::ptr::null_mut;
use std::sync::{Mutex, Once, PoisonError};

use rdma_sim_verbs::*;
use rdma_verbs_abi::{
    CompChannel, Context, Cq, Device, DeviceAttr, Mr, Pd, PortAttr, Qp, QpAttr, QpInitAttr, RawGid,
};

use self::handles::Handles;
use self::memory::{Arena, Pages};
use super::input::Input;
use super::transcript::{Transcript, log_answer, log_argument, log_call};

/// Calls a function of the ABI and logs it, or evaluates an expression with pointers of the library
macro_rules! call {
    ($function:ident($($argument:expr),* $(,)?)) => {{
        log_call(stringify!($function));
        // SAFETY: pointers are NULL, stale or valid handles of the library, or addresses of this program's structures.
        log_answer(unsafe { $function($(log_argument($argument)),*) })
    }};
    ($expression:expr) => {{
        // SAFETY: the pointers came from the library, or lead to this program's structures.
        unsafe { $expression }
    }};
}
use call;

const EINVAL: c_int = 22;
const EBUSY: c_int = 16;
/// Values of `errno` after a failed creation; some failures leave it 0
const REFUSALS: [c_int; 7] = [0, 6, 12, EBUSY, EINVAL, 95, 102];
/// Faults that undo the faults of a run
const RESTORED: [&str; 4] = ["rdma-on", "wake", "reboot 1ns", "restart"];
const FAULTS_AT_PORTS: [&str; 22] = [
    "unplug",
    "replug",
    "flap 1us",
    "corrupt 1",
    "lose 1",
    "slow 50%",
    "storm 1%",
    "idle-death",
    "unresolvable",
    "resolvable",
    "busy",
    "delay 5us",
    "leak-cqs 4294967295",
    "leak-pds 3",
    "leak-mrs 4294967295",
    "leak-qps 4294967295",
    "no-pds",
    "overflow",
    "slow-receive",
    "wedge",
    "boundary",
    "interface-down",
];
const FAULTS_AT_HOSTS: [&str; 10] =
    ["kill", "restart", "pause", "resume", "sleep", "wake", "reboot 1us", "rdma-off", "rdma-on", "reboot 1s"];

/// A registered region as its program knows it
struct Region {
    addr: usize,
    len: usize,
    lkey: u32,
    rkey: u32,
    /// Freed when it is deregistered; `None` for a part of the arena
    _pages: Option<Pages>,
}

/// The program and its objects
struct Program<'a> {
    input: Input<'a>,
    arena: Arena,
    /// Devices by their position, with their names in faults
    devices: Vec<(*mut Device, String, [RawGid; 2])>,
    list: *mut *mut Device,
    contexts: Handles<Context, usize>,
    pds: Handles<Pd, usize>,
    mrs: Handles<Mr, Region>,
    cqs: Handles<Cq>,
    qps: Handles<Qp, usize>,
    channels: Handles<CompChannel>,
    ops: Option<rdma_verbs_abi::ContextOps>,
}

/// Makes calls as decoded from the bytes, and destroys all objects in the end
///
/// No call may crash or return an undocumented value, only memory of posted requests may change, and no object may be leaked.
pub fn abi(data: &[u8]) {
    static CONFIGURED: Once = Once::new();
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    CONFIGURED.call_once(|| {
        let text = c"RDMA_SIM_CLOCK=virtual,RDMA_SIM_TOPOLOGY=pair";
        assert_eq!(call!(rdma_sim_configure(text.as_ptr())), 0);
    });
    let _transcript = Transcript::begin();
    let mut program = Program::new(data);
    for _ in 0..400 {
        let Some(number) = program.input.next() else { break };
        program.step(number);
    }
    program.end();
}

fn errno() -> c_int {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// The created object, or `None`; a failure sets `errno`
fn made<T>(created: *mut T) -> Option<*mut T> {
    assert!(!created.is_null() || REFUSALS.contains(&errno()), "errno {}", errno());
    (!created.is_null()).then_some(created)
}

impl<'a> Program<'a> {
    fn new(data: &'a [u8]) -> Self {
        let mut count = 0;
        let list = call!(ibv_get_device_list(&raw mut count));
        let device = |number: usize| {
            let entry = list.wrapping_add(number);
            let device = call!(*entry);
            let name = call!(CStr::from_ptr(ibv_get_device_name(device)));
            let name = name.to_str().expect("a name is text").to_owned();
            let (device_name, host) = name.split_once('@').expect("both hosts are here");
            let context = call!(ibv_open_device(device));
            let gids = [0, 1].map(|index| {
                let mut gid = RawGid::default();
                assert_eq!(call!(ibv_query_gid(context, 1, index, &raw mut gid)), 0);
                gid
            });
            assert_eq!(call!(ibv_close_device(context)), 0);
            (device, format!("{host}:{device_name}"), gids)
        };
        let devices = (0..count as usize).map(device).collect();
        Self {
            input: Input(data),
            arena: Arena::new(),
            devices,
            list,
            contexts: Handles::new(),
            pds: Handles::new(),
            mrs: Handles::new(),
            cqs: Handles::new(),
            qps: Handles::new(),
            channels: Handles::new(),
            ops: None,
        }
    }

    /// The address of an object of any kind
    fn stranger(&mut self) -> usize {
        let (kind, number) = (self.input.byte() % 7, self.input.byte());
        match kind {
            0 => self.contexts.any(number),
            1 => self.pds.any(number),
            2 => self.mrs.any(number),
            3 => self.cqs.any(number),
            4 => self.qps.any(number),
            5 => self.channels.any(number),
            _ => self.devices[usize::from(number) % self.devices.len()].0.expose_provenance(),
        }
    }

    fn step(&mut self, number: u8) {
        macro_rules! destroy {
            ($handles:ident, $verb:ident) => {{
                let handle = self.pick(|all| &all.$handles);
                self.$handles.destroy(handle, |handle| call!($verb(handle)))
            }};
        }
        match number % 27 {
            0 => self.open(),
            1 => destroy!(contexts, ibv_close_device),
            2 => {
                let context = self.context();
                let made = made(call!(ibv_alloc_pd(context)));
                if let Some(pd) = made {
                    self.pds.add(pd, self.contexts.about(context).copied().unwrap_or(0));
                }
            }
            3 => destroy!(pds, ibv_dealloc_pd),
            4 | 5 => self.register(),
            6 => destroy!(mrs, ibv_dereg_mr),
            7 => {
                let context = self.context();
                if let Some(channel) = made(call!(ibv_create_comp_channel(context))) {
                    let fd = call!((*channel).fd);
                    assert_eq!(call!(libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK)), 0);
                    self.channels.add(channel, ());
                }
            }
            8 => destroy!(channels, ibv_destroy_comp_channel),
            9 | 10 => self.create_cq(),
            11 => destroy!(cqs, ibv_destroy_cq),
            12 | 13 => self.create_qp(),
            14 => destroy!(qps, ibv_destroy_qp),
            15 => self.modify(),
            16 | 17 => self.connect(),
            18 => self.query(),
            19 => self.send(),
            20 | 21 => self.receive(),
            22 => self.poll(),
            23 => self.notify(),
            24 => self.fault(),
            25 => rdma_sim_rest(1 << (self.input.byte() % 34)),
            _ => self.unsupported(),
        }
    }

    fn open(&mut self) {
        let choice = self.input.byte();
        let number = usize::from(choice) % self.devices.len();
        let device = match choice {
            240.. => std::ptr::with_exposed_provenance_mut(self.stranger()),
            230..240 => null_mut(),
            _ => self.devices[number].0,
        };
        if let Some(context) = made(call!(ibv_open_device(device))) {
            let known = self.devices.iter().position(|(known, ..)| *known == device);
            self.contexts.add(context, known.expect("other addresses are refused"));
            self.ops.get_or_insert_with(|| call!((&raw const (*context).ops).read()));
        }
    }

    fn register(&mut self) {
        let pd = self.pd();
        let (kind, access) = (self.input.byte(), c_int::from(self.input.byte()));
        let (start, len) = (usize::from(self.input.byte()), self.input.length(5 * 4096));
        let pages = (kind < 100).then(|| Pages::new(len.max(1)));
        let room = self.arena.len();
        let (addr, len) = match (&pages, kind) {
            (Some(pages), _) => (pages.start(), len),
            (None, 240..) => {
                (self.arena.start(), [0, usize::MAX, 1 << 63, usize::MAX - 4095][usize::from(kind) % 4])
            }
            (None, 230..) => (null_mut(), len),
            // Mostly at the start of a page, seldom inside of one.
            _ => {
                let offset = if kind < 220 { start * 4096 } else { start * 100 } % room;
                (self.arena.start().wrapping_add(offset), len.min(room - offset))
            }
        };
        let Some(mr) = made(call!(ibv_reg_mr(pd, addr.cast(), len, access))) else { return };
        assert!(len > 0 && len <= isize::MAX as usize, "{len} bytes are no memory");
        let (lkey, rkey) = (call!((*mr).lkey), call!((*mr).rkey));
        self.mrs.add(mr, Region { addr: addr.addr(), len, lkey, rkey, _pages: pages });
    }

    fn create_cq(&mut self) {
        let context = self.context();
        let channel = if self.input.byte() < 128 { null_mut() } else { self.channel() };
        let depth = match self.input.byte() {
            250.. => c_int::MIN,
            240..250 => c_int::MAX,
            small => c_int::from(small),
        };
        let made = made(call!(ibv_create_cq(context, depth, null_mut(), channel, 0)));
        if let Some(cq) = made {
            self.cqs.add(cq, ());
        }
    }

    fn create_qp(&mut self) {
        let (pd, send_cq, recv_cq) = (self.pd(), self.cq(), self.cq());
        // SAFETY: zeros are what the structure may hold.
        let mut attr: QpInitAttr = unsafe { std::mem::zeroed() };
        (attr.send_cq, attr.recv_cq) = (send_cq, recv_cq);
        attr.qp_type = [2, 3, 3, 2, 4, 3, 2, 255][usize::from(self.input.byte() % 8)];
        attr.sq_sig_all = c_int::from(self.input.byte() & 1);
        let capacity = u32::from(self.input.byte());
        (attr.cap.max_send_wr, attr.cap.max_recv_wr) = (capacity, capacity / 2 + 1);
        (attr.cap.max_send_sge, attr.cap.max_recv_sge) = (1, 1);
        match self.input.byte() {
            250.. => attr.cap.max_send_wr = u32::MAX,
            245..250 => attr.cap.max_recv_sge = u32::MAX,
            240..245 => attr.srq = pd.cast(),
            _ => (),
        }
        let place = if self.input.byte() == 255 { null_mut() } else { &raw mut attr };
        let made = made(call!(ibv_create_qp(pd, place)));
        if let Some(qp) = made {
            self.qps.add(qp, self.pds.about(pd).copied().unwrap_or(0));
        }
    }

    fn modify(&mut self) {
        let qp = self.qp();
        let mut attr = QpAttr { qp_state: u32::from(self.input.byte() % 9), ..QpAttr::default() };
        (attr.port_num, attr.pkey_index) = (self.input.byte() % 3, u16::from(self.input.byte() % 3));
        attr.path_mtu = u32::from(self.input.byte()) << (self.input.byte() % 25);
        attr.dest_qp_num = u32::from(self.input.byte()) << 8;
        attr.ah_attr.is_global = self.input.byte() & 1;
        attr.ah_attr.grh.sgid_index = self.input.byte();
        let to = usize::from(self.input.byte());
        attr.ah_attr.grh.dgid = self.devices[to % self.devices.len()].2[to / 128];
        let mask = match self.input.byte() {
            128.. => c_int::MAX,
            _ => c_int::from_le_bytes([
                self.input.byte(),
                self.input.byte(),
                self.input.byte(),
                self.input.byte(),
            ]),
        };
        let place = if self.input.byte() == 255 { null_mut() } else { &raw mut attr };
        self.modified(qp, place, mask);
    }

    fn modified(&self, qp: *mut Qp, attr: *mut QpAttr, mask: c_int) -> bool {
        let answer = call!(ibv_modify_qp(qp, attr, mask));
        assert!([0, 6, EBUSY, EINVAL, 60, 96, 102].contains(&answer), "{answer}");
        assert!(answer != 0 || self.qps.about(qp).is_some());
        answer == 0
    }

    /// Connects two queue pairs as a correct program does
    fn connect(&mut self) {
        let pair = [self.qp(), self.qp()];
        for (here, there) in [(0, 1), (1, 0)] {
            let Some(device) = self.qps.about(pair[there]).copied() else { return };
            let mut attr = QpAttr { port_num: 1, path_mtu: 3, ..QpAttr::default() };
            attr.dest_qp_num = call!((*pair[there]).qp_num);
            (attr.ah_attr.is_global, attr.ah_attr.port_num) = (1, 1);
            (attr.ah_attr.grh.sgid_index, attr.ah_attr.grh.dgid) = (1, self.devices[device].2[1]);
            for state in 1..=3 {
                attr.qp_state = state;
                if !self.modified(pair[here], &raw mut attr, c_int::MAX) {
                    break;
                }
            }
        }
    }

    fn query(&mut self) {
        let (context, qp) = (self.context(), self.qp());
        let is_open = self.contexts.about(context).is_some();
        let (port, index) = (self.input.byte() % 3, c_int::from(self.input.byte().cast_signed()));
        let (mut gid, mut pkey, mut gid_type) = (RawGid::default(), 0, 0);
        let mut port_attr = PortAttr { port_cap_flags2: 0xabcd, ..PortAttr::default() };
        let answers = [
            call!(ibv_query_gid(context, port, index, &raw mut gid)),
            call!(ibv_query_gid(context, port, index, null_mut())),
            call!(ibv_query_gid_type(context, port, index as u32, &raw mut gid_type)),
            call!(ibv_query_pkey(context, port, index, &raw mut pkey)),
        ];
        assert!(answers.iter().all(|answer| *answer == -1 || *answer == 0 && is_open));
        // SAFETY: zeros are what the structures may hold.
        let mut device: DeviceAttr = unsafe { std::mem::zeroed() };
        // SAFETY: as above.
        let mut init: QpInitAttr = unsafe { std::mem::zeroed() };
        let mut attr = QpAttr::default();
        let answers = [
            call!(ibv_query_device(context, &raw mut device)),
            call!(ibv_query_port(context, port, &raw mut port_attr)),
            call!(ibv_query_qp(qp, &raw mut attr, -1, &raw mut init)),
        ];
        assert!(answers.iter().all(|answer| [0, EINVAL].contains(answer)));
        assert_eq!((answers[0] == 0, answers[2] == 0), (is_open, self.qps.about(qp).is_some()));
        assert_eq!(port_attr.port_cap_flags2, 0xabcd, "beyond the compatible part");
        assert_eq!(call!(ibv_query_device(context, null_mut())), EINVAL);
        assert_eq!(call!(ibv_query_qp(qp, null_mut(), 0, null_mut())), EINVAL);
    }

    fn fault(&mut self) {
        let (choice, place) = (usize::from(self.input.byte()), usize::from(self.input.byte()));
        let port = &self.devices[place % self.devices.len()].1;
        let host = port.split(':').next().unwrap_or_default();
        let text = match choice {
            0..160 => format!("at 0s {port} {}", FAULTS_AT_PORTS[choice % FAULTS_AT_PORTS.len()]),
            160..230 => format!("at 0s {host} {}", FAULTS_AT_HOSTS[choice % FAULTS_AT_HOSTS.len()]),
            230..240 => format!("at 0s {host}x pause; at 0s {port}x unplug"),
            _ => {
                let bytes: Vec<u8> = (0..place % 32).map(|_| self.input.byte().max(1)).collect();
                // No faults that cannot be undone, and no times close to the maximum.
                String::from_utf8_lossy(&bytes).replace("gid", "").replace(|c: char| c.is_ascii_digit(), "1")
            }
        };
        let text = CString::new(text).expect("the text contains no zero byte");
        let answer = call!(rdma_sim_inject(text.as_ptr()));
        assert!(if choice < 230 { answer == 0 } else { [0, EINVAL].contains(&answer) }, "{text:?} {answer}");
        assert_eq!(call!(rdma_sim_inject(std::ptr::null())), EINVAL);
        assert_eq!(call!(rdma_sim_configure(text.as_ptr())), EBUSY);
    }

    /// Calls verbs that devices do not support
    fn unsupported(&mut self) {
        let (pd, qp) = (self.pd(), self.qp());
        assert!(call!(ibv_create_ah(pd, null_mut())).is_null());
        assert!(call!(ibv_create_srq(pd, null_mut())).is_null());
        assert!(call!(ibv_qp_to_qp_ex(qp)).is_null());
        let answers = [
            call!(ibv_destroy_ah(pd.cast())),
            call!(ibv_destroy_srq(pd.cast())),
            call!(ibv_attach_mcast(qp, null_mut(), 0)),
            call!(ibv_detach_mcast(qp, null_mut(), 0)),
        ];
        assert_eq!(answers, [102; 4]);
    }

    // ─── Handles ───

    fn pick<T, A>(&mut self, of: impl FnOnce(&Self) -> &Handles<T, A>) -> *mut T {
        let (stranger, choice) = (self.stranger(), self.input.byte());
        of(self).pick(choice, stranger)
    }

    fn context(&mut self) -> *mut Context {
        self.pick(|all| &all.contexts)
    }

    fn pd(&mut self) -> *mut Pd {
        self.pick(|all| &all.pds)
    }

    fn channel(&mut self) -> *mut CompChannel {
        self.pick(|all| &all.channels)
    }

    fn cq(&mut self) -> *mut Cq {
        self.pick(|all| &all.cqs)
    }

    fn qp(&mut self) -> *mut Qp {
        self.pick(|all| &all.qps)
    }

    /// Destroys all objects, and undoes the faults
    fn end(mut self) {
        self.qps.destroy_all(|qp| call!(ibv_destroy_qp(qp)));
        self.mrs.destroy_all(|mr| call!(ibv_dereg_mr(mr)));
        self.cqs.destroy_all(|cq| call!(ibv_destroy_cq(cq)));
        self.channels.destroy_all(|channel| call!(ibv_destroy_comp_channel(channel)));
        self.pds.destroy_all(|pd| call!(ibv_dealloc_pd(pd)));
        self.contexts.destroy_all(|context| call!(ibv_close_device(context)));
        for (_, port, _) in &self.devices {
            let host = port.split(':').next().unwrap_or_default();
            let restored = RESTORED.map(|fault| format!("at 0s {host} {fault};"));
            let repaired =
                ["resolvable", "replug", "slow 100%"].map(|fault| format!("at 0s {port} {fault};"));
            // A reboot may be in progress.
            for (plan, rest_ns) in [
                (restored.concat() + &repaired.concat(), 2_000_000_000),
                (format!("at 0s {host} reboot 1ns"), 1_000_000),
            ] {
                let plan = CString::new(plan).expect("the text contains no zero byte");
                assert_eq!(call!(rdma_sim_inject(plan.as_ptr())), 0);
                rdma_sim_rest(rest_ns);
            }
        }
        call!(ibv_free_device_list(self.list));
        self.arena.check();
        assert_eq!(rdma_sim_objects(), 0, "objects were leaked");
    }
}
