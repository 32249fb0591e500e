//! Two hosts with two cables and messages both ways, so that a side comes into a state

use std::rc::Rc;
use std::time::Duration;

use futures::future::{join, join3, try_join};
use rdma_async::time::timeout;
use rdma_async::{ConnectError, NodeOptions, RecvError, Session};
use rdma_core::Time;
use rdma_core::probe::{PeeringState, observe};
use rdma_sim::{FaultPlan, LineRate, Model, Net, Run, Scheduler, Sim, SimDevice};
use rdma_tests::{DEVICE, Pair, message, node_over, options};

use super::super::figures::cables;
use super::watch::{HOSTS, Side, State, Watch};

/// The cable that no fault of the table hits
pub(super) const OTHER: &str = "rdma_en3";
/// What a side sends: more packets than the room of a stream, and more long messages than its peer has memory for
const LENS: [usize; 7] = [68_544, 16_000, 100, 100_000, 80_000, 100_000, 64];
/// More packets than a peer that has stopped has receives for, on both cables
const MANY: [usize; 14] = [68_544; 14];
const MAX_MESSAGE: usize = 100_000;
const PEER_TIMEOUT: Duration = Duration::from_millis(40);

/// What is under way when a fault fires
#[derive(Clone, Copy, Debug)]
pub(super) struct Scenario {
    /// The state in which the fault fires
    pub(super) state: State,
    /// The side that is in the state, and that the fault hits
    pub(super) side: Side,
    pub(super) seed: u32,
}

impl Scenario {
    fn is(self, state: PeeringState) -> bool {
        self.state == Some(state)
    }

    /// Runs with these faults; whether everything has arrived, or `None` if no session was made, and what the watch has seen
    pub(super) fn run(self, faults: FaultPlan) -> Run<(Option<bool>, Rc<Watch>)> {
        // Both kinds of devices, in plain and in explored orders.
        let (model, scheduler) = match self.seed % 2 {
            0 => (Model::tb5(), Scheduler::Fifo),
            _ => (Model::roce(), Scheduler::Random),
        };
        let sim = Sim::new().topology(cables(&[LineRate::TB5; 2])).model(model).scheduler(scheduler);
        let sim = sim.seed(self.seed.into()).time_limit(Time::ZERO + Duration::from_mins(1));
        let text = faults.to_string();
        let ran = sim.faults(faults).try_run(async |net: Net| {
            let watch = Rc::new(Watch::new(&net));
            let _observation = observe(watch.clone());
            (program(&net, self).await, watch)
        });
        ran.unwrap_or_else(|error| panic!("{self:?} {text}: {error}"))
    }

    /// The messages that a side sends
    fn lens(self, side: Side) -> &'static [usize] {
        if self.is(PeeringState::WaitsForCredits) && side == self.side { &MANY } else { &LENS }
    }

    fn options(self) -> NodeOptions {
        let share = if self.is(PeeringState::WaitsForCredits) { 256 } else { 20 };
        let options = options().max_peers(1).max_sessions(1).max_streams(1).stream_share(share);
        let options = options.send_memory(2 << 20).max_message(MAX_MESSAGE).receive_memory(160 << 10);
        options.peer_timeout(PEER_TIMEOUT).device_timeout(PEER_TIMEOUT / 2)
    }

    /// Lets calls of the devices of the side take time: in the model, they take none
    fn slow_down(self, net: &Net) {
        let verb = match self.state {
            Some(PeeringState::NoPathYet) => "create_qp",
            Some(PeeringState::Stopping) => "destroy_qp",
            _ => return,
        };
        for device in [DEVICE, OTHER] {
            inject(net, &format!("{}:{device} slow-verb {verb}=100us", HOSTS[self.side]));
        }
    }

    /// What happens to cables and hosts while the messages are under way
    async fn disturb(self, net: &Net) {
        let rest = |micros| net.sleep(Duration::from_micros(micros));
        match self.state {
            Some(
                PeeringState::NoPath
                | PeeringState::PathMissing
                | PeeringState::RemadeUnproven
                | PeeringState::Stopping,
            ) => {
                rest(50).await;
                inject(net, "a:rdma_en3 unplug");
                rest(200).await;
                inject(net, "a:rdma_en2 unplug");
                rest(5_000).await;
                inject(net, "a:rdma_en3 replug");
                inject(net, "a:rdma_en2 replug");
            }
            Some(PeeringState::WaitsForCredits) => {
                let peer = HOSTS[1 - self.side];
                rest(20).await;
                inject(net, &format!("{peer} pause"));
                rest(1_000).await;
                inject(net, &format!("{peer} resume"));
            }
            _ => (),
        }
    }
}

fn inject(net: &Net, fault: &str) {
    net.inject(format!("at 0s {fault}").parse().expect("it is a fault"));
}

/// Sends all messages; whether they were taken
async fn send(session: &Session<SimDevice>, lens: &[usize]) -> bool {
    for (number, len) in lens.iter().enumerate() {
        if session.send_bytes(&message(number, *len)).await.is_err() {
            return false;
        }
    }
    true
}

/// Expects all messages, in order and once; whether all came
async fn receive(net: &Net, session: &Session<SimDevice>, lens: &[usize]) -> bool {
    for (number, len) in lens.iter().enumerate() {
        if number % 2 == 0 {
            net.sleep(Duration::from_micros(100)).await;
        }
        match session.recv().await {
            Ok(Some(got)) => assert!(*got == message(number, *len), "message {number} is another one"),
            Ok(None) => panic!("message {number} is missing, and the session was closed as if it were not"),
            Err(_) => return false,
        }
    }
    true
}

/// Sends and receives all messages, rests, and closes; whether everything has arrived at both sides
async fn exchange(net: &Net, session: &Session<SimDevice>, scenario: Scenario, side: Side) -> bool {
    let [own, peer] = [side, 1 - side].map(|side| scenario.lens(side));
    if join(send(session, own), receive(net, session, peer)).await != (true, true) {
        return false;
    }
    if scenario.is(PeeringState::NoSession) {
        // It is reset when both sides have everything.
        return true;
    }
    if scenario.is(PeeringState::AtRest) {
        net.sleep(Duration::from_micros(500)).await;
    }
    session.close().await.is_ok() && matches!(session.recv().await, Ok(None))
}

/// Two nodes and a session between them; the hosts know each other only after a moment
async fn connect(net: &Net, scenario: Scenario) -> Result<Pair, ConnectError> {
    let [a, b] = HOSTS.map(|host| node_over(net, host, &[DEVICE, OTHER], &scenario.options()));
    let (to_b, to_a) = tokio::io::duplex(1024);
    let serve = async {
        net.sleep(Duration::from_micros(50)).await;
        b.serve(to_a).await
    };
    let (ab, ()) = try_join(a.connect(to_b), serve).await?;
    let ba = b.accept().await.ok_or(ConnectError::Closed)?;
    Ok(Pair { a, b, ab, ba })
}

/// Messages both ways; whether all arrived, or `None` if no session was made
async fn program(net: &Net, scenario: Scenario) -> Option<bool> {
    scenario.slow_down(net);
    // A session that is lost before the peer has heard of it is never accepted.
    let pair = timeout(&*net.runtime(), Duration::from_secs(20), connect(net, scenario)).await?.ok()?;
    let (one, other, ()) = join3(
        exchange(net, &pair.ab, scenario, 0),
        exchange(net, &pair.ba, scenario, 1),
        scenario.disturb(net),
    )
    .await;
    if scenario.is(PeeringState::NoSession) {
        let sessions = [&pair.ab, &pair.ba];
        sessions[scenario.side].reset(7);
        let end = sessions[1 - scenario.side].recv().await;
        assert!(matches!(end, Err(RecvError::Lost(_))), "the peer learns of it: {end:?}");
    }
    net.sleep(Duration::from_micros(200)).await;
    Some(one && other)
}
