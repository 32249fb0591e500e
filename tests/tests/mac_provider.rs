//! What programs in C meet in the provider of a Mac beside its verbs: crashes, silence, time that passes, and its exports
//!
//! A process has one simulation, and a crash ends it: each case runs in a process of its own, which is this test once more.
#![cfg(target_os = "linux")]
#![allow(unsafe_code, reason = "calls the verbs as a program in C does")]

use std::ffi::{CStr, CString, c_char, c_int};
use std::process::{Command, Output};
use std::ptr::null_mut;
use std::time::Duration;

use rdma_bare::BareQp;
use rdma_core::{Device as _, FRAME, QpInit};
use rdma_sim::{Model, Sim};
use rdma_tb5::{OpenOptions, Provider, VerbsDevice};
use rdma_tests::DEVICE;
use rdma_tests::hosts::library;
use rdma_verbs_abi::{
    CompChannel, Context, Cq, Device, Mr, Pd, Qp, QpAttr, QpInitAttr, RawGid, RecvWr, SendWr, Sge, Wc,
    constants,
};

/// The environment variable that names the case for the process of its own
const CASE: &str = "RDMA_TESTS_CASE";

/// Calls a function of the ABI
macro_rules! call {
    ($call:expr) => {{
        // SAFETY: pointers are NULL, or came from the library, or lead to structures of the test's.
        unsafe { $call }
    }};
}

/// An empty variable is left out
fn run(case: &str, variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "a_case_in_a_process_of_its_own", "--ignored", "--nocapture"]);
    command.env(CASE, case).env("RDMA_SIM_CLOCK", "virtual");
    for (name, value) in variables {
        if value.is_empty() {
            command.env_remove(name)
        } else {
            command.env(name, value)
        };
    }
    command.output().unwrap()
}

#[track_caller]
fn assert_passes(case: &str, variables: &[(&str, &str)]) {
    let output = run(case, variables);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{case}: {} {text}", String::from_utf8_lossy(&output.stdout));
}

/// Sources: mlx#3777, mlx#4485 and exo#2186 for the protection domain, mlx#4192 for the post.
#[test]
fn a_crashing_provider_names_the_call() {
    for (case, call) in
        [("null-pd", "ibv_reg_mr"), ("post-recv", "ibv_post_recv"), ("post-send", "ibv_post_send")]
    {
        assert_passes(case, &[]);
        for crashing in [("RDMA_SIM_CRASHES", "1"), ("RDMA_SIM_PROFILE", "tb5-strict")] {
            let output = run(case, &[crashing]);
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success() && output.status.code().is_none(), "{case}: {}", output.status);
            assert!(text.contains(&format!("librdma: {call}: ")), "{case}: {text}");
        }
    }
    let output = run("null-pd", &[("RDMA_SIM_CRASHES", "yes")]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("RDMA_SIM_CRASHES=\"yes\" is neither 0 nor 1"), "{text}");
}

#[test]
fn completion_channels_fire_or_never_do() {
    assert_passes("event", &[]);
    assert_passes("no-event", &[("RDMA_SIM_PROFILE", "tb5-strict")]);
}

#[test]
fn a_failed_transition_sets_errno_and_takes_a_second() {
    assert_passes("unresolved", &[]);
}

#[test]
fn functions_of_the_provider_of_a_mac_are_exported() {
    assert_passes("exports", &[]);
}

/// Catches limits of an operating system in place of those of the device: the message left, and the peer seemed lost.
#[test]
fn the_longest_message_over_the_verbs_is_that_of_the_device() {
    for profile in ["tb5", "tb5-macos-26.2"] {
        assert_passes("long-message", &[("RDMA_SIM_PROFILE", profile)]);
    }
}

/// Catches an index of the source GID that is remembered: the transition failed with 22 after the entry had moved.
#[test]
fn a_queue_pair_connects_after_the_entries_of_the_gid_table_have_moved() {
    assert_passes("moved-gid", &[]);
}

/// Catches a post or poll that returns although it hangs, one that keeps the lock of the simulation, and a process that does not exit
/// beside a thread in a verb.
#[test]
fn a_post_or_poll_that_hangs_keeps_its_thread_alone() {
    for case in ["hang post_send", "hang post_recv", "hang poll_cq"] {
        // The last one is that of the wall.
        for clock in ["virtual", "stepped", ""] {
            assert_passes(case, &[("RDMA_SIM_CLOCK", clock)]);
        }
    }
}

/// Catches a time that passes for none of the calls of traffic, or for each request of a list.
#[test]
fn a_slow_post_or_poll_takes_its_virtual_time_once_for_each_call() {
    for case in ["slow post_send", "slow post_recv", "slow poll_cq"] {
        assert_passes(case, &[("RDMA_SIM_CLOCK", "stepped")]);
    }
}

#[test]
#[ignore = "run by the other tests, in a process of its own"]
fn a_case_in_a_process_of_its_own() {
    match std::env::var(CASE).expect("the other tests name the case").as_str() {
        "null-pd" => register_without_a_domain(),
        "post-recv" => post_after_the_cable_was_pulled(true),
        "post-send" => post_after_the_cable_was_pulled(false),
        "event" => wait_for_an_event(true),
        "no-event" => wait_for_an_event(false),
        "unresolved" => connect_to_no_neighbour(),
        "long-message" => send_a_message_that_is_too_long(),
        "moved-gid" => connect_after_the_gid_has_moved(),
        "exports" => call_exports(),
        other => match other.split_once(' ') {
            Some(("hang", verb)) => hang_in_a_post_or_poll(verb.to_owned().leak()),
            Some(("slow", verb)) => call_slow_posts_or_polls(verb),
            _ => panic!("there is no case {other:?}"),
        },
    }
}

fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap()
}

fn clear_errno() {
    call!(*libc::__errno_location() = 0);
}

/// The first device of either host
fn devices() -> [*mut Device; 2] {
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
struct End {
    context: *mut Context,
    channel: *mut CompChannel,
    cq: *mut Cq,
    mr: *mut Mr,
    qp: *mut Qp,
    gid_index: u8,
    gid: RawGid,
    page: *mut u8,
}

impl End {
    fn new(device: *mut Device) -> Self {
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
    fn step(&self, to: &Self, state: u32) -> c_int {
        let mut attr = QpAttr { port_num: 1, path_mtu: constants::MTU_1024, ..QpAttr::default() };
        attr.dest_qp_num = call!((*to.qp).qp_num);
        attr.ah_attr.is_global = 1;
        (attr.ah_attr.grh.sgid_index, attr.ah_attr.grh.dgid) = (self.gid_index, to.gid);
        attr.qp_state = state;
        call!(rdma_sim_verbs::ibv_modify_qp(self.qp, &raw mut attr, i32::MAX))
    }

    fn connect(&self, to: &Self) {
        for state in 1..=3 {
            assert_eq!(self.step(to, state), 0);
        }
    }

    fn sge(&self) -> Sge {
        Sge { addr: self.page.addr() as u64, length: 8, lkey: call!((*self.mr).lkey) }
    }

    fn post_recv(&self) -> c_int {
        self.post_recvs(1)
    }

    /// Posts a list of so many receives
    fn post_recvs(&self, count: usize) -> c_int {
        let mut sge = self.sge();
        let request = || RecvWr { wr_id: 1, next: null_mut(), sg_list: &raw mut sge, num_sge: 1 };
        let mut list: Vec<_> = std::iter::repeat_with(request).take(count).collect();
        for at in 1..count {
            list[at - 1].next = &raw mut list[at];
        }
        call!((*self.context).ops.post_recv.unwrap()(self.qp, list.as_mut_ptr(), null_mut()))
    }

    fn post_send(&self) -> c_int {
        self.post_sends(1)
    }

    /// Posts a list of so many sends
    fn post_sends(&self, count: usize) -> c_int {
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

    fn poll(&self) -> c_int {
        let mut wc = Wc::default();
        call!((*self.context).ops.poll_cq.unwrap()(self.cq, 1, &raw mut wc))
    }

    /// Calls a verb of traffic, for two requests where it takes a list
    fn post_or_poll(&self, verb: &str) -> c_int {
        match verb {
            "post_send" => self.post_sends(2),
            "post_recv" => self.post_recvs(2),
            _ => self.poll(),
        }
    }
}

// SAFETY: verbs may be called on any thread.
unsafe impl Send for End {}

fn ends() -> [End; 2] {
    devices().map(End::new)
}

fn register_without_a_domain() {
    devices();
    let mut page = [0_u8; 64];
    clear_errno();
    assert!(call!(rdma_sim_verbs::ibv_reg_mr(null_mut(), page.as_mut_ptr().cast(), 64, 7)).is_null());
    assert_eq!(errno(), 22);
}

fn post_after_the_cable_was_pulled(receives: bool) {
    let [a, b] = ends();
    a.connect(&b);
    b.connect(&a);
    assert_eq!(call!(rdma_sim_verbs::rdma_sim_inject(c"at 0ns a:rdma_en2 unplug".as_ptr())), 0);
    assert_eq!(if receives { a.post_recv() } else { a.post_send() }, 6);
}

fn wait_for_an_event(fires: bool) {
    let [a, b] = ends();
    a.connect(&b);
    b.connect(&a);
    assert_eq!(b.post_recv(), 0);
    assert_eq!(call!((*b.context).ops.req_notify_cq.unwrap()(b.cq, 0)), 0);
    assert_eq!(a.post_send(), 0);
    let mut cq = null_mut();
    let failed = call!(rdma_sim_verbs::ibv_get_cq_event(b.channel, &raw mut cq, null_mut()));
    assert_eq!(failed, if fires { 0 } else { -1 });
    let mut wc = Wc::default();
    assert_eq!(
        call!((*b.context).ops.poll_cq.unwrap()(b.cq, 1, &raw mut wc)),
        1,
        "polling finds it either way"
    );
    assert_eq!((wc.status, wc.byte_len), (0, 8));
}

fn inject(fault: &str) {
    let fault = CString::new(fault).unwrap();
    assert_eq!(call!(rdma_sim_verbs::rdma_sim_inject(fault.as_ptr())), 0);
}

/// Two ends that are connected, each with a receive
fn connected() -> [End; 2] {
    let [a, b] = ends();
    a.connect(&b);
    b.connect(&a);
    assert_eq!((a.post_recv(), b.post_recv()), (0, 0));
    [a, b]
}

#[expect(clippy::disallowed_methods, reason = "the thread never ends, as that of a program in C")]
fn hang_in_a_post_or_poll(verb: &'static str) {
    let [a, b] = connected();
    inject(&format!("at 0ns a:rdma_en2 hang {verb}"));
    let (calls, called) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        calls.send("calls").unwrap();
        a.post_or_poll(verb);
        calls.send("has returned").unwrap();
    });
    assert_eq!(called.recv(), Ok("calls"));
    assert!(called.recv_timeout(Duration::from_millis(100)).is_err(), "{verb} returns");
    // The device of `a` is as ever: the message finds its receive.
    assert_eq!(b.post_send(), 0);
    let start = rdma_tests::now();
    while b.poll() == 0 {
        rdma_sim_verbs::rdma_sim_rest(1_000);
        assert!(start.elapsed() < Duration::from_secs(20), "{verb}: the other host stands still");
    }
    inject("at 0ns a:rdma_en2 unplug");
    assert!(called.recv_timeout(Duration::from_millis(10)).is_err(), "{verb} returns later");
}

fn call_slow_posts_or_polls(verb: &str) {
    let [a, b] = connected();
    inject(&format!("at 0ns a:rdma_en2 slow-verb {verb}=1s"));
    inject("at 1500ms a:rdma_en2 unplug");
    assert_eq!((b.poll(), b.post_recv()), (0, 0), "{verb}: of another port");
    assert_eq!(a.post_or_poll(verb), 0);
    assert_eq!(b.post_recv(), 0, "{verb} takes less than 1.5 s");
    assert_eq!(a.post_or_poll(verb), 0, "{verb} begins before the cable is pulled");
    assert_eq!(b.post_recv(), 6, "{verb} takes more than 0.75 s");
}

fn connect_to_no_neighbour() {
    let [a, b] = ends();
    assert_eq!(a.step(&b, 1), 0);
    b.connect(&a);
    assert_eq!(call!(rdma_sim_verbs::rdma_sim_inject(c"at 0ns a:rdma_en2 unresolvable".as_ptr())), 0);
    // Half a second from now, which is before the transition returns.
    assert_eq!(call!(rdma_sim_verbs::rdma_sim_inject(c"at 500ms a:rdma_en2 unplug".as_ptr())), 0);
    clear_errno();
    assert_eq!(a.step(&b, 2), 60);
    assert_eq!(errno(), 60, "the error number is returned, and in errno");
    assert_eq!(b.post_recv(), 6, "time has passed: the cable was pulled meanwhile");
}

/// Apple's header declares them as functions of the library.
fn call_exports() {
    let [a, _] = ends();
    let text = |text| call!(CStr::from_ptr(text)).to_str().unwrap().to_owned();
    assert_eq!(text(call!(rdma_sim_verbs::ibv_port_state_str(4))), "PORT_ACTIVE");
    assert_eq!(text(call!(rdma_sim_verbs::ibv_port_state_str(1))), "PORT_DOWN");
    assert_eq!(text(call!(rdma_sim_verbs::ibv_port_state_str(77))), "invalid state");
    assert_eq!(text(call!(rdma_sim_verbs::ibv_node_type_str(100))), "Thunderbolt");
    assert_eq!(text(call!(rdma_sim_verbs::ibv_node_type_str(-1))), "unknown");
    // The entry begins with the GID and its index.
    let mut entry = [0_u64; 4];
    let place = entry.as_mut_ptr().cast();
    assert_eq!(call!(rdma_sim_verbs::ibv_query_gid_ex(a.context, 1, 1, place, 0)), 0);
    assert_eq!(entry[..2].iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<_>>(), a.gid.raw);
    assert_eq!(entry[2].to_ne_bytes(), *[[1, 0, 0, 0], [1, 0, 0, 0]].as_flattened());
    assert_ne!(call!(rdma_sim_verbs::ibv_query_gid_ex(a.context, 1, 99, place, 0)), 0);
}

/// The devices of both hosts, as a Rust program opens them over the C ABI
fn verbs_devices() -> [VerbsDevice; 2] {
    // SAFETY: this is the simulated provider, which exports verbs.
    let provider = unsafe { Provider::load_from(&library()) }.unwrap();
    // Destroying a queue pair of the simulator ends all access.
    let options = || OpenOptions::new().trust_destroy(true);
    ["rdma_en2@a", "rdma_en2@b"].map(|name| VerbsDevice::open(&provider, name, options()).unwrap())
}

fn connect_after_the_gid_has_moved() {
    let devices = verbs_devices();
    let [a, b] = devices.map(|device| BareQp::new(device, &QpInit::with_frames(7), FRAME).unwrap());
    // The provider that was loaded is not the one that this test is linked with.
    let symbols = call!(libloading::Library::new(library())).unwrap();
    type Inject = unsafe extern "C" fn(*const c_char) -> c_int;
    let inject = call!(symbols.get::<Inject>(b"rdma_sim_inject")).unwrap();
    assert_eq!(call!(inject(c"at 0ns a:rdma_en2 gid-at 4".as_ptr())), 0);
    a.connect(&b).unwrap();
    assert_eq!(a.device().gids().unwrap().iter().position(|gid| gid.ipv4().is_some()), Some(4));
}

/// Over the verbs and in the simulator, with the same words.
fn send_a_message_that_is_too_long() {
    let profile = std::env::var("RDMA_SIM_PROFILE").unwrap();
    let model = Model::profile(&profile).unwrap();
    let max = model.caps.max_message as usize;
    let arena = max + FRAME;
    let [a, b] = verbs_devices();
    assert_eq!(a.caps().max_message as usize, max, "{profile}");
    let [mut a, mut b] = BareQp::pair(a, b, arena).unwrap();
    let refused = [a.send(1, 0..max + 1).unwrap_err(), b.recv(1, 0..max + 1).unwrap_err()];
    b.recv(1, 0..max).unwrap();
    a.send(1, 0..max).unwrap();
    let simulated = Sim::new().model(model).run(async |net| {
        let [a, b] = ["a", "b"].map(|host| net.open(host, DEVICE).unwrap());
        let [mut a, mut b] = BareQp::pair(a, b, arena).unwrap();
        [a.send(1, 0..max + 1).unwrap_err(), b.recv(1, 0..max + 1).unwrap_err()]
    });
    assert_eq!(refused.map(|error| error.to_string()), simulated.value.map(|error| error.to_string()));
}
