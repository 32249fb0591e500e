//! The conformance body of `rdma-calibrate` on the simulator, on TCP, and on a genuine provider
//!
//! Over the C ABI of the simulated provider it runs with each hidden device of that crate, and between processes in the tests of the
//! tool.

use std::env;
use std::net::Ipv4Addr;
use std::sync::Arc;

use futures::future::join;
use rdma_async::TokioRuntime;
use rdma_calibrate::{
    BEHAVIOURS, Behaviour, Calls, Expectations, Machine, Options, Path, Verdict, conform, serve,
};
use rdma_core::{AnyDevice, Error, Runtime};
use rdma_sim::rules::{QueueGrant, QueueReadBack};
use rdma_sim::{Choices as _, Model, Net, Seeded, Sim};
use rdma_tb5::{OpenError, OpenOptions, Provider, VerbsDevice};
use rdma_tcp::{TcpDevice, TcpOptions};
use rdma_tests::DEVICE;
use tokio::io::{AsyncRead, AsyncWrite};

/// Tries every behaviour, that of the error state too
async fn conformed<S: AsyncRead + AsyncWrite + Send + Unpin>(
    [here, there]: [&dyn Machine; 2],
    [asks, answers]: [S; 2],
) -> Vec<Behaviour> {
    let calls = Arc::new(Calls::new(here.runtime()));
    let options = Options::default().with_risk_reboot(true);
    let (found, served) = join(conform(here, asks, &options, &calls), serve(there, answers)).await;
    served.unwrap_or_else(|error| panic!("{error}"));
    let found = found.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(found.ended, None);
    found.behaviours
}

#[track_caller]
fn assert_conforms(found: &[Behaviour], skipped: &[&str]) {
    let names: Vec<_> = found.iter().map(|behaviour| behaviour.name).collect();
    assert_eq!(names, BEHAVIOURS);
    let failed: Vec<_> =
        found.iter().filter(|behaviour| matches!(behaviour.verdict, Verdict::Failed(_))).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    let left: Vec<_> = found.iter().filter(|behaviour| behaviour.verdict != Verdict::Passed).collect();
    assert_eq!(left.iter().map(|behaviour| behaviour.name).collect::<Vec<_>>(), skipped, "{left:#?}");
}

/// What the verbs of Linux do not have, beside what depends on the device
const NOT_OF_LINUX: &[&str] = &[
    "a_device_is_named_after_its_interface",
    "the_first_of_three_gids_is_an_eui_64",
    "queue_pair_numbers_are_hops",
    "queue_pairs_are_limited",
    "completion_queues_are_limited",
    "regions_are_limited",
    "protection_domains_are_limited",
    "datagram_queue_pairs_are_refused",
    "a_refused_post_takes_no_space",
    "an_unknown_peer_is_not_found",
    "a_message_waits_until_its_peer_is_connected",
    "messages_pass_only_between_queue_pairs_that_name_each_other",
    "a_waiting_send_does_not_delay_other_queue_pairs",
    "a_send_queue_fills_up",
    "space_returns_before_its_completion_is_polled",
    "the_excess_of_a_message_spoils_the_next_receive",
];

struct Simulated(Net, &'static str);

impl Machine for Simulated {
    fn open(&self, path: Path) -> Result<AnyDevice, Error> {
        let device = self.0.open(self.1, DEVICE).map_err(Error::from)?;
        Ok(AnyDevice::new(device.with_path(path.source_index, path.mtu)))
    }

    fn runtime(&self) -> Arc<dyn Runtime> {
        self.0.host(self.1).runtime()
    }
}

fn simulated(model: Model) -> Vec<Behaviour> {
    let run = Sim::new().seed(1).model(model).run(async |net| {
        let (asks, answers) = net.tcp();
        let [a, b] = ["a", "b"].map(|host| Simulated(net.clone(), host));
        conformed([&a, &b], [asks, answers]).await
    });
    assert!(run.leaks.is_empty(), "{}", run.leaks);
    run.value
}

#[test]
fn the_simulator_conforms() {
    assert_conforms(&simulated(Model::tb5()), &[]);
    // Nor does an adapter count frames, and it has READs.
    let found = simulated(Model::roce());
    let skipped = found.iter().filter(|behaviour| matches!(behaviour.verdict, Verdict::Skipped(_))).count();
    let passed = found.iter().filter(|behaviour| behaviour.verdict == Verdict::Passed).count();
    assert_eq!((skipped, passed), (NOT_OF_LINUX.len() + 4, BEHAVIOURS.len() - skipped), "{found:#?}");
}

/// Twenty-four random grants, which give more, less or exactly what was asked for, and report that, or something else.
///
/// Catches a body that takes the reported depth for the accepted one: the body before failed on every grant but the old default.
#[test]
fn the_simulator_conforms_whatever_depth_it_grants() {
    let mut choices = Seeded::new(14);
    for _ in 0..24 {
        let mut model = Model::tb5();
        model.rules.queue_grant = match choices.pick(3) {
            0 => QueueGrant::AtLeast(choices.pick(4096)),
            1 => QueueGrant::Exact,
            _ => QueueGrant::Fixed(64 + choices.pick(4032)),
        };
        // A device that accepts less than what was asked for and reported cannot be used.
        model.rules.queue_read_back = match (model.rules.queue_grant, choices.pick(3)) {
            (QueueGrant::Fixed(_), _) | (_, 0) => QueueReadBack::Accepted,
            (_, 1) => QueueReadBack::Asked,
            _ => QueueReadBack::Limit,
        };
        assert_conforms(&simulated(model), &[]);
    }
}

/// A device that takes less than was asked for and says otherwise is found, by name.
#[test]
fn a_device_that_takes_less_than_it_says_does_not_conform() {
    let mut model = Model::tb5();
    (model.rules.queue_grant, model.rules.queue_read_back) = (QueueGrant::Fixed(64), QueueReadBack::Limit);
    let found = simulated(model);
    let verdict = found.iter().find(|behaviour| behaviour.name == "what_was_asked_for_or_reported_fits");
    let Verdict::Failed(why) = &verdict.unwrap().verdict else { panic!("{found:#?}") };
    assert!(why.contains("asked for 200, reported 4095"), "{why}");
}

/// TCP on the loopback interface; each device that is opened is one of its own
struct OverTcp(Arc<TokioRuntime>);

impl Machine for OverTcp {
    fn open(&self, _: Path) -> Result<AnyDevice, Error> {
        let address = (Ipv4Addr::LOCALHOST, 0).into();
        let device = TcpDevice::bind(address, TcpOptions::new()).unwrap_or_else(|error| panic!("{error}"));
        Ok(AnyDevice::new(device))
    }

    fn runtime(&self) -> Arc<dyn Runtime> {
        Arc::clone(&self.0) as Arc<dyn Runtime>
    }

    fn expectations(&self) -> Option<Expectations> {
        Some(Expectations::TCP)
    }
}

/// Its limits are tested by `rdma-tcp`.
#[tokio::test]
async fn the_tcp_device_conforms() {
    let device = OverTcp(Arc::new(TokioRuntime::current()));
    let (asks, answers) = tokio::io::duplex(1 << 16);
    let has_no_datagrams = |name: &&str| *name != "datagram_queue_pairs_are_refused";
    let mut skipped: Vec<_> = NOT_OF_LINUX.iter().copied().filter(has_no_datagrams).collect();
    // The post of such a receive is refused already.
    insert_after(&mut skipped, "a_refused_post_takes_no_space", "a_receive_without_the_right_to_write_fails");
    assert_conforms(&conformed([&device, &device], [asks, answers]).await, &skipped);
}

fn insert_after(names: &mut Vec<&'static str>, before: &str, name: &'static str) {
    let at = names.iter().position(|name| *name == before).unwrap();
    names.insert(at + 1, name);
}

/// A device of the provider that this machine has
struct Genuine {
    provider: Arc<Provider>,
    name: String,
    runtime: Arc<TokioRuntime>,
}

impl Machine for Genuine {
    fn open(&self, path: Path) -> Result<AnyDevice, Error> {
        let options = OpenOptions::new().path_mtu(path.mtu);
        match VerbsDevice::open(&self.provider, &self.name, options) {
            Ok(device) => Ok(AnyDevice::new(device)),
            Err(OpenError::Verbs(error)) => Err(error),
            Err(error) => panic!("{error}"),
        }
    }

    fn runtime(&self) -> Arc<dyn Runtime> {
        Arc::clone(&self.runtime) as Arc<dyn Runtime>
    }

    fn expectations(&self) -> Option<Expectations> {
        Some(Expectations::LINUX)
    }
}

/// Needs the environment variable `RDMA_CONFORMANCE_DEVICES`, two names with a comma between: CI runs it over Soft-RoCE in a
/// virtual machine. On Macs, `tb5 calibrate` has the body.
#[tokio::test]
#[ignore = "needs two devices of a genuine provider, named by RDMA_CONFORMANCE_DEVICES"]
async fn a_genuine_provider_conforms() {
    let devices = env::var("RDMA_CONFORMANCE_DEVICES").expect("RDMA_CONFORMANCE_DEVICES names two devices");
    let (a, b) = devices.split_once(',').expect("two names with a comma between");
    let (provider, runtime) = (Provider::load().unwrap(), Arc::new(TokioRuntime::current()));
    let [a, b] = [a, b].map(|name| Genuine {
        provider: Arc::clone(&provider),
        name: name.to_owned(),
        runtime: Arc::clone(&runtime),
    });
    let (asks, answers) = tokio::io::duplex(1 << 16);
    let mut skipped = NOT_OF_LINUX.to_vec();
    // Soft-RoCE has one-sided operations.
    insert_after(&mut skipped, "a_refused_post_takes_no_space", "reads_are_for_others");
    assert_conforms(&conformed([&a, &b], [asks, answers]).await, &skipped);
}
