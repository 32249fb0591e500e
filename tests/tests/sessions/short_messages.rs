//! Long messages of a session over devices whose own messages have one frame, as under macOS 26.2

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rdma_async::{ConnectError, InvalidOptions, Node, PathStatus};
use rdma_core::{Caps, FRAME};
use rdma_sim::{LineRate, Model, Net, Sim};
use rdma_tests::{DEVICE, Hooked, Hooks, connect, connected_over, hooked_node, on_session, options};

use super::figures::{cables, goodput};
use super::pairing::exchange_of;
use super::{LENS, exchange};

#[test]
fn messages_of_all_lengths_arrive() {
    let mut slow = Model::tb5_cpu();
    slow.caps.max_message = FRAME as u32;
    for model in [Model::tb5_macos_26_2(), slow] {
        on_session(Sim::new().model(model), &options(), async |_, pair| exchange(&pair, &LENS).await);
    }
}

/// An all_reduce of JACCL, which has two frames in flight, takes six times as long there (`tb5 bench --profile tb5-macos-26.2`).
#[test]
fn long_messages_reach_three_quarters_of_the_ceiling() {
    let one = [LineRate::TB5];
    let ceiling = LineRate::TB5.ceiling_bytes_per_second();
    for len in [100_000, 1 << 20, 4 << 20] {
        let found = goodput(Model::tb5_macos_26_2(), &one, 64 << 20, len);
        assert!(found >= 0.75 * ceiling, "{len} bytes: {found:.3e} of {ceiling:.3e}");
    }
    let two = goodput(Model::tb5_macos_26_2(), &[LineRate::TB5; 2], 64 << 20, 4 << 20);
    assert!(two >= 1.4 * ceiling, "{two:.3e}");
}

/// States that some devices carry messages of one frame
#[derive(Default)]
struct Short {
    devices: &'static [&'static str],
    /// How many entries a completion queue of each device has; 0 stands for as many as it has otherwise
    entries: u32,
    /// Whether the devices that come late can be opened
    has_late: AtomicBool,
}

impl Hooks for Short {
    fn caps(&self, device: &str, caps: &mut Caps) {
        if self.devices.contains(&device) {
            caps.max_message = FRAME as u32;
        }
        if self.entries > 0 {
            caps.max_cqe = self.entries;
        }
    }
}

const BOTH_LANES: [usize; 4] = [100, 68_545, 300_001, 3 << 20];

/// Catches fragments whose length one side chooses alone.
#[test]
fn a_mac_with_short_messages_works_with_one_without() {
    for short in [0, 1] {
        Sim::new().run(async |net| {
            let hooks = |number| {
                Arc::new(Short { devices: if number == short { &[DEVICE] } else { &[] }, ..Short::default() })
            };
            let (a, b) = (
                hooked_node(&net, "a", &hooks(0), &options()),
                hooked_node(&net, "b", &hooks(1), &options()),
            );
            let (ab, ba) = connect(&a, &b).await.unwrap();
            exchange_of(&BOTH_LANES, &ab, &ba).await;
        });
    }
}

/// A node with `devices`; one with the flag can be opened once the hooks say so
fn node_of(
    net: &Net,
    host: &str,
    hooks: &Arc<Short>,
    devices: &[(&'static str, bool)],
) -> Node<Hooked<Short>> {
    let open = |(device, is_late): (&'static str, bool)| {
        let (open, hooks) = (net.opener(host, device), Arc::clone(hooks));
        move || {
            if is_late && !hooks.has_late.load(Ordering::Relaxed) {
                return Err(std::io::Error::other("the device is not there"));
            }
            open().map(|device| Hooked::new(device, &hooks)).map_err(std::io::Error::other)
        }
    };
    let [first, rest @ ..] = devices else { unreachable!("a node has a device") };
    let first = Node::builder(open(*first));
    let builder = rest.iter().fold(first, |builder, device| builder.device(open(*device)));
    builder.runtime(net.host(host).runtime()).options(options()).build().unwrap()
}

/// The number of paths of a session between two Macs with two devices; the second one may appear after the session has begun
fn paths(devices: &'static [&'static str], is_late: bool) -> usize {
    let sim = Sim::new().topology(cables(&[LineRate::TB5; 2]));
    let run = sim.run(async |net| {
        let hooks = Arc::new(Short { devices, has_late: AtomicBool::new(!is_late), ..Short::default() });
        let devices = [(DEVICE, false), ("rdma_en3", true)];
        let [a, b] = ["a", "b"].map(|host| node_of(&net, host, &hooks, &devices));
        let (ab, ba) = connect(&a, &b).await.unwrap();
        net.sleep(Duration::from_secs(1)).await;
        hooks.has_late.store(true, Ordering::Relaxed);
        net.sleep(Duration::from_secs(5)).await;
        exchange_of(&BOTH_LANES, &ab, &ba).await;
        ab.snapshot().paths.iter().filter(|path| path.status == PathStatus::Up).count()
    });
    run.value
}

/// Catches fragments that suit the first device alone, and a path that fails with each message.
#[test]
fn all_devices_of_a_node_carry_its_fragments() {
    assert_eq!(paths(&[DEVICE, "rdma_en3"], false), 2);
    assert_eq!(paths(&["rdma_en3"], false), 2);
    assert_eq!(paths(&[DEVICE], true), 2, "the length of fragments suits both");
    assert_eq!(paths(&["rdma_en3"], true), 1, "a device that came later and carries less is not used");
}

/// Regression: the fragments of a node with no device at first suited no device of macOS 26.2, and no path came up.
#[test]
fn a_node_whose_only_device_comes_late_has_fragments_for_it() {
    Sim::new().run(async |net| {
        let hooks = Arc::new(Short { devices: &[DEVICE], ..Short::default() });
        let [a, b] = ["a", "b"].map(|host| node_of(&net, host, &hooks, &[(DEVICE, true)]));
        hooks.has_late.store(true, Ordering::Relaxed);
        let (ab, ba) = connect(&a, &b).await.unwrap();
        exchange_of(&BOTH_LANES, &ab, &ba).await;
    });
}

/// Catches a device that is left out for good because it came late and carries less.
#[test]
fn a_device_that_came_late_and_carries_less_is_used_by_the_next_connection() {
    Sim::new().topology(cables(&[LineRate::TB5; 2])).run(async |net| {
        let hooks = Arc::new(Short { devices: &["rdma_en3"], ..Short::default() });
        let devices = [(DEVICE, false), ("rdma_en3", true)];
        let [a, b] = ["a", "b"].map(|host| node_of(&net, host, &hooks, &devices));
        for expected in [1, 2] {
            let (ab, ba) = connect(&a, &b).await.unwrap();
            net.sleep(Duration::from_secs(1)).await;
            hooks.has_late.store(true, Ordering::Relaxed);
            net.sleep(Duration::from_secs(5)).await;
            exchange_of(&BOTH_LANES, &ab, &ba).await;
            let paths = ab.snapshot().paths;
            assert_eq!(paths.iter().filter(|path| path.status == PathStatus::Up).count(), expected);
            ab.close().await.unwrap();
        }
    });
}

/// Catches a device that is never checked against the options because it came late.
#[test]
fn options_that_contradict_a_late_device_are_an_error() {
    Sim::new().run(async |net| {
        let hooks = Arc::new(Short { entries: 10, ..Short::default() });
        let [a, b] = ["a", "b"].map(|host| node_of(&net, host, &hooks, &[(DEVICE, true)]));
        hooks.has_late.store(true, Ordering::Relaxed);
        let error = connect(&a, &b).await.unwrap_err();
        let expected = |error: &_| {
            matches!(error, ConnectError::Options(InvalidOptions::CompletionQueue { max: 10, .. }))
        };
        assert!(expected(&error), "{error}");
    });
}

#[test]
fn an_outage_costs_no_message() {
    let sim = Sim::new().model(Model::tb5_macos_26_2()).faults(
        "at 2ms a:rdma_en2 unplug; at 40ms a:rdma_en2 replug; at 50ms a:rdma_en2 corrupt 30".parse().unwrap(),
    );
    sim.run(async |net| {
        let pair = connected_over(&net, &[DEVICE], &options()).await;
        exchange(&pair, &[1 << 20; 40]).await;
    });
}
