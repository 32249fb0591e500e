//! Two hosts, two messages on each lane, and each fault at each event: all of them, not a sample

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use futures::future::join;
use rdma_async::NodeOptions;
use rdma_async::time::timeout;
use rdma_core::Time;
use rdma_sim::fault::{FAULTS, Fault, FaultInfo, Target, TargetKind};
use rdma_sim::{FaultPlan, LineRate, Model, Net, Run, RunError, Sim};
use rdma_tests::{DEVICE, message, options, try_connected};

use super::figures::cables;

/// Two messages of each lane, of one packet and of several, of one part and of two
const LENS: [usize; 4] = [100, 5_000, 70_000, 300_000];
const PEER_TIMEOUT: Duration = Duration::from_millis(40);

/// The other cable, where there are two
const OTHER: &str = "rdma_en3";
/// Faults that need another cable: one moves it, and a device that looks once a second is no way to a peer that gives up after 40 ms
const NEEDS_OTHER: [&str; 2] = ["cross", "slow-receive"];

/// Two hosts with so many cables, on such devices
#[derive(Clone, Debug)]
struct Scope {
    model: Model,
    cables: usize,
}

/// How a run ended for the sender and for the receiver: everything, or an error
type Outcome = Option<(bool, bool)>;

fn small() -> NodeOptions {
    options().peer_timeout(PEER_TIMEOUT).connect_timeout(Duration::from_millis(100))
}

/// Sends the messages and closes, while the peer receives them; `None` if no session was made
async fn program(net: Net, ports: &[&str]) -> Outcome {
    // A session that is lost before the peer has heard of it is never accepted.
    let (runtime, options) = (net.runtime(), small());
    let connected = timeout(&*runtime, Duration::from_secs(1), try_connected(&net, ports, &options));
    let pair = connected.await?.ok()?;
    let send = async {
        for (number, len) in LENS.into_iter().enumerate() {
            if pair.ab.send_bytes(&message(number, len)).await.is_err() {
                return false;
            }
        }
        pair.ab.close().await.is_ok()
    };
    let receive = async {
        for (number, len) in LENS.into_iter().enumerate() {
            match pair.ba.recv().await {
                Ok(Some(got)) => assert!(*got == message(number, len), "message {number} is another one"),
                Ok(None) => panic!("message {number} is missing, and the session was closed"),
                Err(_) => return false,
            }
        }
        matches!(pair.ba.recv().await, Ok(None))
    };
    Some(join(send, receive).await)
}

impl Scope {
    /// One cable for the faults that a session survives on it, two for the others
    fn all(model: &Model) -> [Self; 2] {
        [1, 2].map(|cables| Self { model: model.clone(), cables })
    }

    fn sim(&self) -> Sim {
        let limit = Time::ZERO + Duration::from_secs(3);
        let rates = [LineRate::TB5; 2];
        Sim::new().topology(cables(&rates[..self.cables])).model(self.model.clone()).time_limit(limit)
    }

    fn ports(&self) -> &'static [&'static str] {
        &[DEVICE, OTHER][..self.cables]
    }

    fn run(&self, faults: FaultPlan) -> Result<Run<Outcome>, RunError> {
        self.sim().faults(faults).try_run(|net| program(net, self.ports()))
    }

    /// The moments of all events of a run without a fault
    fn events(&self) -> BTreeSet<Time> {
        let whole = self.sim().keep_records().run(|net| program(net, self.ports()));
        assert_eq!(whole.value, Some((true, true)));
        whole.history.records.iter().map(|record| record.time).collect()
    }
}

/// The faults of the catalogue that belong to so many cables, with their arguments
fn faults(cables: usize) -> Vec<String> {
    let with = |name: &str, argument: &str| match argument {
        "–" => vec![name.to_owned()],
        "PERCENT" => vec![format!("{name} 10%")],
        "TIME" => vec![format!("{name} 100us"), format!("{name} 3ms")],
        "N" => vec![format!("{name} 1"), format!("{name} 3")],
        // A verb of connecting that hangs makes no session: `blocked.rs` has those.
        "VERB" => vec![format!("{name} destroy_qp"), format!("{name} dereg_mr")],
        "VERB=TIME" => vec![format!("{name} modify_qp=3ms"), format!("{name} create_qp=100us")],
        "DEVICE" => vec![format!("{name} {OTHER}")],
        other => panic!("{name} {other}: which argument?"),
    };
    let targets = |kind: TargetKind| match kind {
        TargetKind::Host => ["a", "b"].map(str::to_owned),
        TargetKind::Port => ["a", "b"].map(|host| format!("{host}:{DEVICE}")),
        other => panic!("{other:?}: which targets?"),
    };
    let belongs = |info: &&FaultInfo| NEEDS_OTHER.contains(&info.name) == (cables == 2);
    let all = FAULTS.iter().filter(belongs).flat_map(|info| {
        let texts = with(info.name, info.argument);
        targets(info.target)
            .into_iter()
            .flat_map(move |target| texts.clone().into_iter().map(move |text| format!("{target} {text}")))
    });
    all.collect()
}

/// Faults that end processes; a session survives all others
const ENDS: [&str; 3] = ["kill", "reboot", "restart"];

/// Tries each fault at every `step`th event, from one that is another for each fault; how they ended by fault
fn each_fault(model: &Model, step: usize) -> BTreeMap<String, [u32; 3]> {
    let mut outcomes = BTreeMap::<String, [u32; 3]>::new();
    for scope in Scope::all(model) {
        let times = scope.events();
        for (number, fault) in faults(scope.cables).iter().enumerate() {
            for at in times.iter().skip(number % step).step_by(step) {
                let first = format!("at {}ns {fault}", at.as_nanos()).parse::<Fault>().unwrap();
                let name = first.kind.name();
                outcomes.entry(name.to_owned()).or_default()[outcome(&scope, *at, &first)] += 1;
            }
        }
    }
    let all = FAULTS.iter().map(|info| info.name);
    assert!(outcomes.keys().eq(all), "each kind of fault is tried: {:?}", outcomes.keys());
    outcomes
}

/// Runs with one fault, checks the outcome, and returns which one it is
fn outcome(scope: &Scope, at: Time, first: &Fault) -> usize {
    let end = first.kind.end().map(|end| {
        let target: &Target = &first.target;
        format!("; at {}ns {target} {end}", at.as_nanos() + 3_000_000)
    });
    let plan = format!("{first}{}", end.unwrap_or_default());
    let run = scope.run(plan.parse().unwrap()).unwrap_or_else(|error| panic!("{scope:?} {plan}: {error}"));
    assert_eq!(run.findings, [], "{scope:?} {plan}");
    let outcome = match run.value {
        Some((true, true)) => 0,
        Some((sent, _)) => {
            assert!(!sent, "{scope:?} {plan}: closed in good order, and not received");
            1
        }
        None => 2,
    };
    assert!(outcome == 0 || ENDS.contains(&first.kind.name()), "{scope:?} {plan}: {:?}", run.value);
    outcome
}

/// How many runs there were, which must be within `bounds`
fn count(outcomes: &BTreeMap<String, [u32; 3]>, bounds: Range<u32>) -> u32 {
    let runs = outcomes.values().flatten().sum();
    assert!(bounds.contains(&runs), "{runs} runs, expected {bounds:?}: {outcomes:?}");
    runs
}

/// Catches a message that is lost, repeated or another one, a task that never ends, and a session that ends without need, at
/// whichever event the fault comes.
#[test]
fn each_fault_at_some_events() {
    count(&each_fault(&Model::tb5(), 8), 1800..2200);
}

/// As [`each_fault_at_some_events`], on the other kind of device: its queue pairs, addresses and completions follow other rules.
#[test]
fn each_fault_at_some_events_on_roce() {
    count(&each_fault(&Model::roce(), 8), 1800..2200);
}

/// As [`each_fault_at_some_events`], all of them, on both kinds of devices.
#[test]
#[ignore = "takes minutes"]
#[expect(clippy::print_stdout, reason = "the counts are the result")]
fn each_fault_at_each_event() {
    for (device, model) in [("tb5", Model::tb5()), ("roce", Model::roce())] {
        let outcomes = each_fault(&model, 1);
        println!("{device}: {} runs", count(&outcomes, 14_000..18_000));
        for (fault, [complete, lost, unmade]) in &outcomes {
            println!("  {fault}: {complete} complete, {lost} lost, {unmade} without a session");
        }
    }
}
