//! Calibrations that do not come to an end

use std::net::IpAddr;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use futures::future::{Either, join, select};
use rdma_async::TokioRuntime;
use rdma_calibrate::{
    Behaviour, CalibrateError, Calls, Findings, Greeted, Machine, Options, PLAN, Path, VERSION, Verdict,
    calibrate, serve, serve_watched,
};
use rdma_core::{AnyDevice, Cause, Error, Runtime, Time, Verb};
use rdma_sim::profile::Decided;
use rdma_sim::{FaultPlan, Leaks, Model, Sim, Topology};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::deviant::try_conformed;
use crate::mac::{Mac, calibrated};

/// Runs both sides, of which the one with `vanishes` ends at `moment`; returns how the other one ended
fn with_vanishing(vanishes: usize, moment: Duration) -> Option<CalibrateError> {
    let run = Sim::new().sanitize(false).run(async |net| {
        let (asks, answers) = net.tcp();
        let [a, b] = ["a", "b"].map(|host| Mac(net.clone(), host));
        let options = Options::default();
        let (asking, serving) = (calibrate(&a, asks, &options), serve(&b, answers));
        let sleep = net.sleep(moment);
        let asking = async { asking.await.map(drop) };
        if vanishes == 0 {
            let vanishing = async { drop(select(std::pin::pin!(asking), std::pin::pin!(sleep)).await) };
            join(serving, vanishing).await.0.err()
        } else {
            let vanishing = async { drop(select(std::pin::pin!(serving), std::pin::pin!(sleep)).await) };
            join(asking, vanishing).await.0.err()
        }
    });
    assert!(run.leaks.is_empty(), "at {moment:?}: {}", run.leaks);
    run.value
}

/// Catches a side that blames the cable, which is silent because the peer is gone.
#[test]
fn a_peer_that_vanishes_in_the_middle_is_the_end_and_leaves_nothing() {
    let whole = calibrated(Model::tb5(), 0, Options::default()).time.as_nanos();
    for part in 0..40 {
        let moment = Duration::from_nanos(whole * part / 40);
        for vanishes in [0, 1] {
            let error = with_vanishing(vanishes, moment).expect("the peer has vanished");
            assert_eq!(error, CalibrateError::PeerGone, "{vanishes} at {moment:?}");
        }
    }
}

#[test]
fn a_mac_without_rdma_is_said_on_both_sides() {
    for host in ["a", "b"] {
        let plan: FaultPlan = format!("at 0s {host} rdma-off").parse().unwrap();
        let run = Sim::new().faults(plan).sanitize(false).run(async |net| {
            net.sleep(Duration::from_millis(1)).await;
            let (asks, answers) = net.tcp();
            let [a, b] = ["a", "b"].map(|host| Mac(net.clone(), host));
            join(calibrate(&a, asks, &Options::default()), serve(&b, answers)).await
        });
        let (asked, served) = run.value;
        let (asked, served) = (asked.unwrap_err().to_string(), served.unwrap_err().to_string());
        assert!(asked.contains("the port is down"), "{asked}");
        assert!(
            served.contains("the port is down") || served.contains("the other side has ended"),
            "{served}"
        );
        assert!(run.leaks.is_empty() && run.time < Time::from_nanos(60_000_000_000), "{}", run.leaks);
    }
}

/// The first line of a side of this version
fn our_hello() -> String {
    format!("{{\"tb5_calibrate\":{VERSION}}}\n")
}

/// Catches a side that takes an older one for a broken one.
#[test]
fn an_older_side_is_recognised_by_both() {
    for line in ["{\"tb5_calibrate\":0}\n", "hello\n", ""] {
        for asks in [true, false] {
            let run = Sim::new().run(async |net| {
                let (stream, mut old) = net.tcp();
                let mac = Mac(net.clone(), "a");
                let other = async {
                    old.write_all(line.as_bytes()).await.unwrap();
                    let mut hello = [0; 20];
                    old.read_exact(&mut hello).await.unwrap();
                    assert_eq!(hello, *our_hello().as_bytes());
                    drop(old);
                };
                let new = async {
                    match asks {
                        true => calibrate(&mac, stream, &Options::default()).await.map(drop),
                        false => serve(&mac, stream).await,
                    }
                };
                join(new, other).await.0.unwrap_err()
            });
            let expected = match line {
                // One that says nothing is a stranger: a server of another kind, or a port scanner.
                "" | "hello\n" if asks => CalibrateError::NotCalibrate,
                "" | "hello\n" => CalibrateError::NotAsking,
                _ => CalibrateError::Version(0),
            };
            assert_eq!(run.value, expected);
            assert!(run.leaks.is_empty());
        }
    }
    // Regression: the side that listens was told to start the command that listens on the other machine.
    let remedies = [CalibrateError::NotCalibrate, CalibrateError::NotAsking].map(|error| error.to_string());
    assert!(remedies[0].contains("start tb5 calibrate --listen there"), "{remedies:?}");
    assert!(remedies[1].contains("run tb5 calibrate HOST:"), "{remedies:?}");
    let text = CalibrateError::Version(0).to_string();
    assert!(text.contains("version 0") && text.contains("the same tb5 on both"), "{text}");
}

/// If neither end resolves the address of the other, nothing connects: the end says so.
#[test]
fn ports_that_do_not_connect_are_the_end() {
    let plan = "at 0s a:rdma_en2 unresolvable".parse().unwrap();
    let run = Sim::new().faults(plan).sanitize(false).run(async |net| {
        let (asks, answers) = net.tcp();
        let [a, b] = ["a", "b"].map(|host| Mac(net.clone(), host));
        join(calibrate(&a, asks, &Options::default()), serve(&b, answers)).await
    });
    let (asked, served) = run.value;
    let error = asked.unwrap_err().to_string();
    assert!(error.contains("the peer does not answer on this cable"), "{error}");
    assert!(run.leaks.is_empty(), "{}", run.leaks);
    match served.unwrap_err() {
        CalibrateError::PeerGone => (),
        other => panic!("{other}"),
    }
}

/// Regression: a calibration with verbs of three seconds ended, because the peer had given up its side.
///
/// Catches a stage that calls many verbs and says nothing to the peer meanwhile, and a request of which the verbs take longer than its reply
/// may.
#[test]
fn verbs_of_seconds_are_measured() {
    const TAKES: u64 = 3_000_000_000;
    for risks in [false, true] {
        let mut model = Model::tb5();
        let t = &mut model.timing;
        t.verbs_take_time = true;
        (t.open_ns, t.create_ns, t.modify_ns) = (TAKES, TAKES, TAKES);
        (t.register_ns, t.teardown_ns) = (TAKES, TAKES);
        let ended = calibrated(model, 1, Options::default().with_risk_reboot(risks));
        let found = ended.asked.unwrap();
        ended.served.unwrap();
        assert_eq!(found.stopped, []);
        let t = &found.profile.model.timing;
        let took = [t.open_ns, t.create_ns, t.modify_ns, t.register_ns, t.teardown_ns];
        assert_eq!(took, [TAKES; 5]);
        assert!(found.behaviours.iter().all(|one| !matches!(one.verdict, Verdict::Failed(_))));
    }
}

/// A verb that does not return is named, while the thread that called it hangs in it.
#[test]
fn a_verb_that_hangs_is_named() {
    struct Hanging(Arc<dyn Runtime>, mpsc::Sender<()>, Mutex<mpsc::Receiver<()>>);

    impl Machine for Hanging {
        fn open(&self, _: Path) -> Result<AnyDevice, Error> {
            self.1.send(()).unwrap();
            // Until the test has seen it.
            let _ = self.2.lock().unwrap().recv();
            Err(Error::new(Verb::AllocPd, Cause::PortDown))
        }

        fn runtime(&self) -> Arc<dyn Runtime> {
            Arc::clone(&self.0)
        }
    }

    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let runtime: Arc<dyn Runtime> = tokio.block_on(async { Arc::new(TokioRuntime::current()) });
    let ((calls_open, is_open), (end, ends)) = (mpsc::channel(), mpsc::channel());
    let calls = Arc::new(Calls::new(Arc::clone(&runtime)));
    let (stream, mut peer) = tokio::io::duplex(1024);
    let hanging = tokio.spawn({
        let (calls, machine) = (Arc::clone(&calls), Hanging(runtime, calls_open, Mutex::new(ends)));
        async move {
            let greeted = Greeted::greet(stream, &*machine.0).await?;
            serve_watched(&machine, greeted, &calls).await
        }
    });
    let (verb, time) = tokio.block_on(async {
        peer.write_all(format!("{}{{\"number\":1,\"body\":\"bye\"}}\n", our_hello()).as_bytes())
            .await
            .unwrap();
        calls.hangs(Duration::from_millis(20), Duration::from_millis(1)).await
    });
    is_open.recv().unwrap();
    assert!(
        verb == "open_device, query_device or alloc_pd" && time >= Duration::from_millis(20),
        "{verb}: {time:?}"
    );
    end.send(()).unwrap();
    let error = tokio.block_on(hanging).unwrap().unwrap_err();
    assert!(matches!(error, CalibrateError::Device(_)), "{error}");
}

/// Regression: a body that too many failed transitions had ended said nothing of it, and counted as one that had tried everything.
#[test]
fn a_body_that_failed_transitions_end_says_so() {
    let found = try_conformed("long queues connect to nothing", &Options::default());
    assert_eq!(found.ended, Some(CalibrateError::FailedTransitions(3)));
    let is_failed = |found: &&Behaviour| matches!(found.verdict, Verdict::Failed(_));
    assert_eq!(found.behaviours.iter().filter(is_failed).count(), 3, "{:?}", found.behaviours);
}

/// Regression: the serving side waited for two hours, with its objects.
#[test]
fn a_side_that_falls_silent_is_given_up_after_minutes() {
    let run = Sim::new().sanitize(false).run(async |net| {
        let (mut asks, answers) = net.tcp();
        let mac = Mac(net.clone(), "b");
        let silent = async {
            let make = r#"{"number":1,"body":{"make":{"cable":0,"frames":64,"len":4096}}}"#;
            asks.write_all(format!("{}{make}\n", our_hello()).as_bytes()).await.unwrap();
            // The stream stays open, as that of a Mac does that has lost its power.
            std::future::pending::<()>().await;
        };
        match select(std::pin::pin!(serve(&mac, answers)), std::pin::pin!(silent)).await {
            Either::Left((served, _)) => served.unwrap_err(),
            Either::Right(((), _)) => unreachable!("it stays silent"),
        }
    });
    assert_eq!(run.value, CalibrateError::PeerSilent(Duration::from_mins(2)));
    assert!(run.leaks.is_empty() && run.time < Time::from_nanos(200_000_000_000), "{:?}", run.time);
}

/// Regression: an unexpected end of one experiment lost the findings of all others.
///
/// Catches a late reply that is taken for that to the next request.
#[test]
fn a_lost_message_stops_some_experiments_and_no_others() {
    let whole = calibrated(Model::tb5(), 0, Options::default()).time.as_nanos();
    let mut stopped = 0;
    for part in 1..40 {
        let moment = Duration::from_nanos(whole * part / 40);
        for host in ["a", "b"] {
            let run = Sim::new().sanitize(false).run(async |net| {
                let (asks, answers) = net.tcp();
                let [a, b] = ["a", "b"].map(|host| Mac(net.clone(), host));
                net.inject(format!("at {}ns {host}:rdma_en2 lose 1", moment.as_nanos()).parse().unwrap());
                join(calibrate(&a, asks, &Options::default()), serve(&b, answers)).await
            });
            let (asked, served) = run.value;
            let found = asked.unwrap_or_else(|error| panic!("{host} at {moment:?}: {error}"));
            served.unwrap();
            assert!(run.leaks.is_empty(), "{host} at {moment:?}: {}", run.leaks);
            stopped += found.stopped.len();
            let page = found.page();
            assert_eq!(page.contains("## Experiments that stopped"), !found.stopped.is_empty(), "{page}");
            // Of two stages at most: one may wait for the message of the other.
            assert!(found.stopped.len() <= 2, "{host} at {moment:?}: {:?}", found.stopped);
            assert!(found.behaviours.len() > 60, "{host} at {moment:?}");
        }
    }
    assert!(stopped > 10, "only {stopped} experiments have stopped");
}

/// A machine that keeps what was found so far
struct Keeping(Mac, Mutex<Option<Findings>>);

impl Machine for Keeping {
    fn open(&self, path: Path) -> Result<AnyDevice, Error> {
        self.0.open(path)
    }

    fn runtime(&self) -> Arc<dyn Runtime> {
        self.0.runtime()
    }

    fn found(&self, findings: &Findings) {
        *self.1.lock().unwrap() = Some(findings.clone());
    }
}

/// How a calibration ends that `fault` disturbs, with what was found before, and the objects that are left
fn disturbed(fault: &str) -> (CalibrateError, Findings, Leaks) {
    let run = Sim::new().sanitize(false).run(async |net| {
        let (asks, answers) = net.tcp();
        let [a, b] = ["a", "b"].map(|host| Mac(net.clone(), host));
        let a = Keeping(a, Mutex::default());
        net.inject(fault.parse().unwrap());
        let options = Options::default();
        let asking = async {
            let asked = calibrate(&a, asks, &options).await.map(drop).unwrap_err();
            (asked, a.1.lock().unwrap().take())
        };
        join(asking, serve(&b, answers)).await.0
    });
    let (error, found) = run.value;
    (error, found.unwrap_or_else(|| panic!("nothing was found before: {fault}")), run.leaks)
}

/// Regression: each behaviour after the moment counted as lacking, limits were those of a wedged port, and the calibration succeeded.
#[test]
fn a_port_that_is_wedged_meanwhile_is_the_end_and_no_limit_of_the_device() {
    let whole = calibrated(Model::tb5(), 0, Options::default());
    let (time, truth) = (whole.time.as_nanos(), whole.asked.unwrap());
    for part in 1..20 {
        let fault = format!("at {}ns {}:rdma_en2 wedge", time * part / 20, ["a", "b"][part as usize % 2]);
        let (error, found, _) = disturbed(&fault);
        assert!(found.rules.iter().all(|rule| rule.instead.is_none()), "{fault}: {error}: {:?}", found.rules);
        let lacking = |behaviour: &&Behaviour| matches!(behaviour.verdict, Verdict::Failed(_));
        assert_eq!(found.behaviours.iter().find(lacking), None, "{fault}: {error}");
        for plan in PLAN.iter().filter(|plan| !plan.field.starts_with("timing.")) {
            if found.profile.decided(plan.field) == Some(Decided::Measured) {
                let (found, truth) = (found.profile.value(plan.field), truth.profile.value(plan.field));
                assert_eq!(found, truth, "{fault}: {error}: {}", plan.field);
            }
        }
    }
}

/// A Mac, and the time after the begin of its stage "failures" at which the port of its peer is wedged
struct FailingPeer(Keeping, Duration);

impl Machine for FailingPeer {
    fn open(&self, path: Path) -> Result<AnyDevice, Error> {
        self.0.open(path)
    }

    fn runtime(&self) -> Arc<dyn Runtime> {
        self.0.runtime()
    }

    fn begins(&self, name: &'static str, _: usize, _: usize) {
        if name == "failures" {
            let Mac(net, _) = &self.0.0;
            let moment = net.now().as_nanos() + self.1.as_nanos() as u64;
            net.inject(format!("at {moment}ns b:rdma_en2 wedge").parse().unwrap());
        }
    }

    fn found(&self, findings: &Findings) {
        self.0.found(findings);
    }
}

/// Regression: the port of the peer was wedged, and the user was told to reboot the other Mac.
#[test]
fn the_port_of_the_peer_that_is_wedged_is_not_that_of_this_side() {
    let mut model = Model::tb5();
    model.rules.large_mtu = false;
    let mut blamed = 0;
    for tenth in 0..100 {
        let after = Duration::from_micros(10 * tenth);
        let run = Sim::new().model(model.clone()).sanitize(false).run(async |net| {
            let (asks, answers) = net.tcp();
            let [a, b] = ["a", "b"].map(|host| Mac(net.clone(), host));
            let a = FailingPeer(Keeping(a, Mutex::default()), after);
            let options = Options::default().with_risk_reboot(true);
            let asked = join(calibrate(&a, asks, &options), serve(&b, answers)).await.0;
            (asked, a.0.1.lock().unwrap().take())
        });
        let (asked, found) = run.value;
        let found = asked.as_ref().ok().cloned().or(found).unwrap();
        assert_eq!(found.wedged, None, "{after:?}: {asked:?}");
        assert_ne!(found.profile.decided("rules.failed_rtr_wedges"), Some(Decided::Measured), "{after:?}");
        let is_blamed = asked.err().is_some_and(|error| error.to_string().contains("the other side failed"));
        blamed += u32::from(is_blamed);
    }
    assert!(blamed > 0, "no connection of the peer has failed");
}

/// Catches an error that blames the peer although the device refuses the source address of this side.
#[test]
fn a_link_local_source_that_is_refused_is_named() {
    let mut model = Model::tb5();
    model.rules.link_local_source = false;
    let mut pair = Topology::pair();
    for (host, last) in [("a", 1), ("b", 2)] {
        let usual = pair.hosts()[usize::from(host == "b")].port("rdma_en2").unwrap().addresses()[0];
        let address = IpAddr::from([169, 254, 7, last]);
        pair.set_addresses((host, "rdma_en2"), [usual, address]).unwrap();
    }
    for is_refused in [true, false] {
        model.rules.link_local_source = !is_refused;
        let run = Sim::new().model(model.clone()).topology(pair.clone()).sanitize(false).run(async |net| {
            let (asks, answers) = net.tcp();
            let [a, b] = ["a", "b"].map(|host| Mac(net.clone(), host));
            join(calibrate(&a, asks, &Options::default()), serve(&b, answers)).await.0
        });
        let Err(error) = run.value else {
            assert!(!is_refused);
            continue;
        };
        let text = error.to_string();
        assert!(is_refused && text.contains("its source is 169.254.7.2, and some Macs"), "{text}");
        assert!(text.contains("an address such as 192.168.30.1"), "{text}");
    }
}

/// Catches a cable that is pulled and taken for behaviours that the device lacks, and findings that are lost with it.
#[test]
fn a_pulled_cable_is_the_end_and_what_was_found_stays() {
    let whole = calibrated(Model::tb5(), 0, Options::default()).time.as_nanos();
    for part in 1..20 {
        let fault = format!("at {}ns a:rdma_en2 unplug", whole * part / 20);
        let (error, found, leaks) = disturbed(&fault);
        let text = error.to_string();
        let is_cable = ["the port is down", "the device is gone"].iter().any(|what| text.contains(what));
        assert!(is_cable, "{fault}: {error}");
        assert!(leaks.is_empty(), "{fault}: {leaks}");
        assert!(found.profile.decided("rules.alignment").is_some());
        assert!(found.page().contains("not reached"), "{}", found.page());
    }
}
