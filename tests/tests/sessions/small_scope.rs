//! Two hosts, two messages on each lane, and each fault at each event: all of them, not a sample

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::future::join;
use rdma_async::NodeOptions;
use rdma_async::time::timeout;
use rdma_core::Time;
use rdma_sim::fault::{FAULTS, Fault, Target, TargetKind};
use rdma_sim::{FaultPlan, Net, Run, RunError, Sim};
use rdma_tests::{DEVICE, message, options, try_connected};

/// Two messages of each lane, of one packet and of several, of one part and of two
const LENS: [usize; 4] = [100, 5_000, 70_000, 300_000];
const PEER_TIMEOUT: Duration = Duration::from_millis(40);

/// How a run ended for the sender and for the receiver: everything, or an error
type Outcome = Option<(bool, bool)>;

fn small() -> NodeOptions {
    options().peer_timeout(PEER_TIMEOUT).connect_timeout(Duration::from_millis(100))
}

/// Sends the messages and closes, while the peer receives them; `None` if no session was made
async fn program(net: Net) -> Outcome {
    // A session that is lost before the peer has heard of it is never accepted.
    let (runtime, options) = (net.runtime(), small());
    let connected = timeout(&*runtime, Duration::from_secs(1), try_connected(&net, &[DEVICE], &options));
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

fn run(faults: FaultPlan) -> Result<Run<Outcome>, RunError> {
    let limit = Time::ZERO + Duration::from_secs(3);
    Sim::new().faults(faults).time_limit(limit).try_run(program)
}

/// The faults of the catalogue with their arguments, and after what they end
fn faults() -> Vec<String> {
    let with = |name: &str, argument: &str| match argument {
        "–" => vec![name.to_owned()],
        "PERCENT" => vec![format!("{name} 10%")],
        "TIME" => vec![format!("{name} 100us"), format!("{name} 3ms")],
        "INDEX" => vec![format!("{name} 3")],
        "N" => vec![format!("{name} 1"), format!("{name} 3")],
        // A verb of connecting that hangs makes no session: `blocked.rs` has those.
        "VERB" => vec![format!("{name} destroy_qp"), format!("{name} dereg_mr")],
        "VERB=TIME" => vec![format!("{name} modify_qp=3ms"), format!("{name} create_qp=100us")],
        // It takes two cables at one host.
        "DEVICE" => Vec::new(),
        other => panic!("{name} {other}: which argument?"),
    };
    let targets = |kind: TargetKind| match kind {
        TargetKind::Host => ["a", "b"].map(str::to_owned),
        TargetKind::Port => ["a", "b"].map(|host| format!("{host}:{DEVICE}")),
        other => panic!("{other:?}: which targets?"),
    };
    // A device that looks once a second is no way to a peer that gives up after 40 ms: the session waits for another.
    let all = FAULTS.iter().filter(|info| info.name != "slow-receive").flat_map(|info| {
        let texts = with(info.name, info.argument);
        targets(info.target)
            .into_iter()
            .flat_map(move |target| texts.clone().into_iter().map(move |text| format!("{target} {text}")))
    });
    all.collect()
}

/// Faults that end processes; a session survives all others
const ENDS: [&str; 3] = ["kill", "reboot", "restart"];

/// Tries each fault at every `step`th event, from one that is another for each fault; how many runs, and how they ended by fault
fn each_fault(step: usize) -> (u32, BTreeMap<String, [u32; 3]>) {
    let whole = Sim::new().keep_records().run(program);
    assert_eq!(whole.value, Some((true, true)));
    let times = whole.history.records.iter().map(|record| record.time).collect::<BTreeSet<_>>();
    let (mut runs, mut outcomes) = (0, BTreeMap::<String, [u32; 3]>::new());
    for (number, fault) in faults().iter().enumerate() {
        for at in times.iter().skip(number % step).step_by(step) {
            let first = format!("at {}ns {fault}", at.as_nanos()).parse::<Fault>().unwrap();
            let name = first.kind.name();
            let end = first.kind.end().map(|end| {
                let target: &Target = &first.target;
                format!("; at {}ns {target} {end}", at.as_nanos() + 3_000_000)
            });
            let plan = format!("{first}{}", end.unwrap_or_default());
            let run = run(plan.parse().unwrap()).unwrap_or_else(|error| panic!("{plan}: {error}"));
            assert_eq!(run.findings, [], "{plan}");
            let place = match run.value {
                Some((true, true)) => 0,
                Some((sent, _)) => {
                    assert!(!sent, "{plan}: closed in good order, and not received");
                    1
                }
                None => 2,
            };
            assert!(place == 0 || ENDS.contains(&name), "{plan}: {:?}", run.value);
            outcomes.entry(name.to_owned()).or_default()[place] += 1;
            runs += 1;
        }
    }
    (runs, outcomes)
}

/// Catches a message that is lost, repeated or another one, a task that never ends, and a session that ends without need, at
/// whichever event the fault comes.
#[test]
fn each_fault_at_some_events() {
    let (runs, outcomes) = each_fault(8);
    assert!(runs > 1500, "{runs} runs: {outcomes:?}");
}

/// As [`each_fault_at_some_events`], all of them.
#[test]
#[ignore = "takes a minute"]
#[expect(clippy::print_stdout, reason = "the counts are the result")]
fn each_fault_at_each_event() {
    let (runs, outcomes) = each_fault(1);
    println!("{runs} runs");
    for (fault, [complete, lost, unmade]) in outcomes {
        println!("{fault}: {complete} complete, {lost} lost, {unmade} without a session");
    }
}
