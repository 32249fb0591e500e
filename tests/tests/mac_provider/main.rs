//! What programs in C meet in the provider of a Mac beside its verbs: crashes, silence, time that passes, and its exports
//!
//! A process has one simulation, and a crash ends it: each case runs in a process of its own, which is this test once more.
#![cfg(target_os = "linux")]
#![allow(unsafe_code, reason = "calls the verbs as a program in C does")]

use std::ffi::{CStr, c_char, c_int};
use std::process::{Command, Output};
use std::ptr::null_mut;
use std::time::Duration;

use rdma_bare::BareQp;
use rdma_core::{Device as _, FRAME, QpInit};
use rdma_sim::{Model, Sim};
use rdma_tb5::{OpenOptions, Provider, VerbsDevice};
use rdma_tests::DEVICE;
use rdma_tests::hosts::library;
use rdma_verbs_abi::{PortAttr, QpCap, QpInitAttr, RawGid, SendWr, Wc, constants};

/// The environment variable that names the case for the process of its own
const CASE: &str = "RDMA_TESTS_CASE";

/// Calls a function of the ABI
macro_rules! call {
    ($call:expr) => {{
        // SAFETY: pointers are NULL, or came from the library, or lead to structures of the test's.
        unsafe { $call }
    }};
}

// Behind the macro, which it uses.
mod end;

use end::{connected, devices, ends, inject};

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

#[track_caller]
fn assert_crashes(case: &str, call: &str, variables: &[(&str, &str)]) {
    let output = run(case, variables);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && output.status.code().is_none(), "{case}: {}", output.status);
    assert!(text.contains(&format!("librdma: {call}: ")), "{case}: {text}");
}

/// Sources: mlx#3777, mlx#4485 and exo#2186 for the protection domain, mlx#4192 for the post, mlx#3162 for the region.
#[test]
fn a_crashing_provider_names_the_call() {
    let (crashes, strict) = (("RDMA_SIM_CRASHES", "1"), ("RDMA_SIM_PROFILE", "tb5-strict"));
    for (case, call) in
        [("null-pd", "ibv_reg_mr"), ("post-recv", "ibv_post_recv"), ("post-send", "ibv_post_send")]
    {
        assert_passes(case, &[]);
        assert_crashes(case, call, &[crashes]);
        assert_crashes(case, call, &[strict]);
    }
    let old = ("RDMA_SIM_PROFILE", "tb5-macos-26.2");
    for refusing in [old, crashes] {
        assert_passes("surplus-region", &[refusing]);
    }
    for crashing in [&[old, crashes][..], &[strict]] {
        assert_crashes("surplus-region", "ibv_reg_mr", crashing);
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
    for profile in ["tb5", "tb5-macos-26.2", "tb5-strict"] {
        assert_passes("long-message", &[("RDMA_SIM_PROFILE", profile)]);
    }
}

/// Catches an index of the source GID that is remembered: the transition failed with 22 after the entry had moved.
#[test]
fn a_queue_pair_connects_after_the_entries_of_the_gid_table_have_moved() {
    assert_passes("moved-gid", &[]);
    assert_passes("moved-gid", &[("RDMA_SIM_PROFILE", "tb5-strict")]);
}

/// Catches a program that takes entries for set that are not, or that gives up at the first one.
#[test]
fn unset_entries_of_the_gid_table_are_zeros_or_cannot_be_read() {
    assert_passes("gid-table", &[]);
    assert_passes("large-gid-table", &[("RDMA_SIM_PROFILE", "tb5-strict")]);
}

/// Source: MLX, which sends with the fields that a SEND does not need as the stack has them.
#[test]
fn fields_that_a_send_does_not_need_may_hold_anything() {
    assert_passes("garbage", &[]);
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
        "gid-table" => read_the_gid_table(16, 0),
        "large-gid-table" => read_the_gid_table(1024, -1),
        "surplus-region" => register_a_region_too_many(),
        "garbage" => send_with_garbage(),
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

fn register_without_a_domain() {
    devices();
    let mut page = [0_u8; 64];
    clear_errno();
    assert!(call!(rdma_sim_verbs::ibv_reg_mr(null_mut(), page.as_mut_ptr().cast(), 64, 7)).is_null());
    assert_eq!(errno(), 22);
}

fn register_a_region_too_many() {
    let [a, _] = ends();
    let register = || call!(rdma_sim_verbs::ibv_reg_mr((*a.mr).pd, a.page.cast(), 1 << 14, 7));
    assert!((1..100).all(|_| !register().is_null()));
    clear_errno();
    assert!(register().is_null());
    assert_eq!(errno(), 12);
}

/// A table of `len` entries, of which unset ones are zeros if reading them returns `unset` = 0
fn read_the_gid_table(len: c_int, unset: c_int) {
    let context = call!(rdma_sim_verbs::ibv_open_device(devices()[0]));
    let mut port = PortAttr { port_cap_flags2: 0xa5a5, ..PortAttr::default() };
    assert_eq!(call!(rdma_sim_verbs::ibv_query_port(context, 1, &raw mut port)), 0);
    assert_eq!(
        (port.gid_tbl_len, port.port_cap_flags2),
        (len, 0xa5a5),
        "the last field is not of the exported function"
    );
    let read = |index| {
        let mut gid = RawGid { raw: [7; 16] };
        (call!(rdma_sim_verbs::ibv_query_gid(context, 1, index, &raw mut gid)), gid.raw)
    };
    for index in 0..3 {
        let (failed, gid) = read(index);
        assert!(failed == 0 && gid != [7; 16] && gid != [0; 16], "{index}: {failed}, {gid:?}");
    }
    let expected = (unset, [if unset == 0 { 0 } else { 7 }; 16]);
    assert_eq!([read(3), read(len - 1)], [expected; 2]);
    assert_eq!(read(len), (-1, [7; 16]));
    // A program over the traits sees no difference.
    assert_eq!(verbs_devices()[0].gids().unwrap().len(), 3);
}

fn send_with_garbage() {
    let [mut a, b] = ends();
    let mut init = QpInitAttr {
        qp_context: null_mut::<u8>().wrapping_add(0xa5).cast(),
        send_cq: a.cq,
        recv_cq: a.cq,
        srq: null_mut(),
        cap: QpCap { max_send_wr: 32, max_recv_wr: 32, max_send_sge: 1, max_recv_sge: 1, ..QpCap::default() },
        qp_type: constants::QPT_UC,
        sq_sig_all: -1,
    };
    a.qp = call!(rdma_sim_verbs::ibv_create_qp((*a.mr).pd, &raw mut init));
    assert!(!a.qp.is_null());
    a.connect(&b);
    b.connect(&a);
    let mut sge = a.sge();
    let mut request = SendWr {
        wr_id: 1,
        next: null_mut(),
        sg_list: &raw mut sge,
        num_sge: 1,
        opcode: constants::WR_SEND,
        send_flags: constants::SEND_SIGNALED,
        imm_data: u32::MAX,
        wr: [u64::MAX; 4],
        qp_type: u64::MAX,
        rest: [u64::MAX; 6],
    };
    assert_eq!(b.post_recv(), 0);
    assert_eq!(call!((*a.context).ops.post_send.unwrap()(a.qp, &raw mut request, null_mut())), 0);
    assert_eq!([b.poll(), a.poll()], [1, 1]);
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
    let gids = a.device().gids().unwrap();
    assert_eq!(gids.iter().position(|gid| gid.ipv4().is_some()), Some(4));
    assert!(gids[3].is_zero(), "an unset entry is one of the table");
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
