//! What sessions tell about themselves in snapshots and metrics

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::join;
use metrics::{Counter, CounterFn, Gauge, GaugeFn, Key, KeyName, Metadata, SharedString, Unit};
use rdma_async::{Lease, PathStatus, Session, Snapshot};
use rdma_sim::{Sim, SimDevice};
use rdma_tests::{Pair, connect, message, node, on_session, options};

/// Figures by name and labels
type Figures = Arc<Mutex<BTreeMap<String, f64>>>;

struct Recorder(Figures);

struct Figure(Figures, String);

impl Figure {
    fn set(&self, value: f64) {
        self.0.lock().unwrap().insert(self.1.clone(), value);
    }
}

impl CounterFn for Figure {
    fn increment(&self, _: u64) {
        unreachable!("totals are absolute");
    }

    fn absolute(&self, value: u64) {
        self.set(value as f64);
    }
}

impl GaugeFn for Figure {
    fn increment(&self, _: f64) {
        unreachable!("gauges are set");
    }

    fn decrement(&self, _: f64) {
        unreachable!("gauges are set");
    }

    fn set(&self, value: f64) {
        Self::set(self, value);
    }
}

impl Recorder {
    fn figure(&self, key: &Key) -> Arc<Figure> {
        let mut name = key.name().to_owned();
        for label in key.labels().filter(|label| !["peer", "session"].contains(&label.key())) {
            write!(name, " {}={}", label.key(), label.value()).unwrap();
        }
        Arc::new(Figure(Arc::clone(&self.0), name))
    }
}

impl metrics::Recorder for Recorder {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.figure(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.figure(key))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> metrics::Histogram {
        unreachable!("times are published as quantiles");
    }
}

/// Catches figures that are not published, or stand under another name.
#[test]
fn a_snapshot_gives_its_figures_to_the_recorder() {
    let figures = Figures::default();
    let recorder = Recorder(Arc::clone(&figures));
    on_session(Sim::new(), &options(), async |net, pair| {
        for number in 0..20 {
            join(pair.ab.send_bytes(&message(number, 100)), pair.ba.recv()).await.0.unwrap();
            net.sleep(Duration::from_millis(1)).await;
        }
        metrics::with_local_recorder(&recorder, || pair.ab.snapshot().publish());
    });
    let figures = figures.lock().unwrap();
    let at_least =
        |name: &str| *figures.get(name).unwrap_or_else(|| panic!("{name} is not among {figures:?}"));
    assert_eq!(at_least("rdma_session_messages_delivered"), 20.0);
    assert_eq!(at_least("rdma_session_messages_in_flight"), 0.0);
    assert_eq!(at_least("rdma_session_streams"), 1.0);
    assert_eq!(at_least("rdma_path_up path=0"), 1.0);
    assert_eq!(at_least("rdma_path_made path=0"), 1.0);
    assert!(at_least("rdma_lane_sent path=0 lane=eager") >= 20.0);
    assert_eq!(at_least("rdma_lane_lost path=0 lane=eager"), 0.0);
    for (name, value) in [("bytes_sent", 2000.0), ("bytes_received", 0.0), ("damaged", 0.0), ("refused", 0.0)]
    {
        assert_eq!(at_least(&format!("rdma_lane_{name} path=0 lane=eager")), value, "{name}");
        assert_eq!(at_least(&format!("rdma_lane_{name} path=0 lane=bulk")), 0.0, "{name}");
    }
    assert!(at_least("rdma_lane_received path=0 lane=eager") >= 20.0, "reports");
    for name in ["sent", "received", "lost", "retransmitted", "retransmitted_bytes", "in_flight", "credits"] {
        assert_eq!(at_least(&format!("rdma_lane_{name} path=0 lane=bulk")), 0.0, "{name}");
    }
    for name in ["retransmitted", "retransmitted_bytes", "in_flight"] {
        assert_eq!(at_least(&format!("rdma_lane_{name} path=0 lane=eager")), 0.0, "{name}");
    }
    assert!(at_least("rdma_lane_credits path=0 lane=eager") > 0.0);
    assert_eq!(at_least("rdma_session_bytes_queued"), 2000.0);
    assert_eq!(at_least("rdma_session_bytes_received"), 0.0);
    // One way is 6 µs, a report waits for 25 µs, and comes back.
    for name in
        ["rdma_session_delivery_seconds quantile=0.5", "rdma_path_round_trip_seconds path=0 quantile=0.5"]
    {
        assert!((36e-6..45e-6).contains(&at_least(name)), "{name}: {}", at_least(name));
    }
}

/// Catches bytes of another lane, session or direction, and a text of the snapshot that does not have them.
#[test]
fn a_snapshot_tells_what_each_lane_and_each_session_has_carried() {
    on_session(Sim::new(), &options(), async |_, pair| {
        let other = pair.ab.open().unwrap();
        for (session, len) in [(&pair.ab, 5000), (&pair.ab, 1 << 20), (&other, 7)] {
            session.send(message_in(session, len).await).delivered().await.unwrap();
        }
        let [ab, of_other, ba] = [&pair.ab, &other, &pair.ba].map(Session::snapshot);
        assert_eq!([ab.bytes_queued, of_other.bytes_queued, ba.bytes_queued], [(1 << 20) + 5000, 7, 0]);
        assert_eq!([ab.bytes_received, of_other.bytes_received, ba.bytes_received], [0, 0, (1 << 20) + 5000]);
        let lanes = |snapshot: &Snapshot| {
            let counts = snapshot.paths[0].counts;
            [counts.eager, counts.bulk]
        };
        for (lane, bytes) in [5007, 1 << 20].into_iter().enumerate() {
            let [sent, received] = [lanes(&ab)[lane], lanes(&ba)[lane]];
            assert_eq!((sent.bytes_sent, sent.bytes_received), (bytes, 0), "{ab}");
            assert_eq!((received.bytes_sent, received.bytes_received), (0, bytes), "{ba}");
        }
        let part = usize::try_from(lanes(&ab)[1].sent).unwrap();
        assert!(part > 1, "the message has several parts: {ab}");
        assert_eq!((lanes(&ba)[1].received, ba.paths[0].part_times.count()), (part as u64, part as u64));
        assert_eq!((ab.paths[0].part_times.count(), lanes(&ba)[1].sent), (0, 0));
        let (ab, ba) = (ab.to_string(), ba.to_string());
        assert!(ab.contains("  sent: 2 queued (1053576 B), 2 delivered, 0 in flight\n"), "{ab}");
        assert!(ab.contains(" sent (5007 B), "), "{ab}");
        let sent = format!(
            "    bulk lane, parts: {part} sent (1048576 B), 0 received (0 B), 0 in flight, 0 may go\n"
        );
        assert!(ab.contains(&sent), "{ab}");
        assert!(ba.contains("  received: 2 (1053576 B), of which 2 unread\n"), "{ba}");
        assert!(ba.contains(&format!(", {part} received (1048576 B), ")), "{ba}");
    });
}

async fn message_in(session: &Session<SimDevice>, len: usize) -> Lease {
    let mut lease = session.alloc(len).await.unwrap();
    lease.extend_from_slice(&message(1, len));
    lease
}

/// Catches losses and repetitions that the text of the snapshot does not have, or has although there were none.
#[test]
fn a_snapshot_tells_what_was_lost_and_sent_again() {
    on_session(Sim::new(), &options(), async |net, pair| {
        let exchange = async || {
            let send = async { pair.ab.send_bytes(&message(1, 1 << 20)).await.unwrap() };
            drop(join(send, pair.ba.recv()).await.1.unwrap().unwrap());
        };
        exchange().await;
        let before = pair.ba.snapshot().to_string();
        assert!(!before.contains(" lost, ") && !before.contains(" again "), "{before}");
        let drill = async {
            net.sleep(Duration::from_micros(60)).await;
            pair.ba.break_paths();
        };
        join(exchange(), drill).await;
        let snapshot = pair.ba.snapshot();
        let bulk = snapshot.paths[0].counts.bulk;
        assert!(bulk.lost > 0 && bulk.retransmitted == bulk.lost, "{snapshot}");
        assert_eq!(bulk.bytes_received, 2 << 20, "{snapshot}");
        let text = format!("; {0} lost, {0} again ({1} B)\n", bulk.lost, bulk.retransmitted_bytes);
        assert!(snapshot.to_string().contains(&text), "{snapshot}");
    });
}

/// Catches a session that waits for a path, and does not say why its device makes none: each replug of these devices costs one of eleven
/// protection domains.
#[test]
fn a_path_that_cannot_be_made_again_says_why() {
    for has_other_peer in [false, true] {
        refused(has_other_peer);
    }
}

/// Replugs a cable until the device of a node refuses a domain, also beside another peer
fn refused(has_other_peer: bool) {
    on_session(Sim::new(), &options(), async |net, Pair { a, ab, ba, .. }| {
        let second = node(&net, "b", &options());
        let _other = if has_other_peer { Some(connect(&a, &second).await.unwrap()) } else { None };
        let mut replugs = 0;
        let snapshot = loop {
            net.inject("at 0s b:rdma_en2 flap 5ms".parse().unwrap());
            net.sleep(Duration::from_millis(500)).await;
            let snapshot = ab.snapshot();
            if snapshot.paths[0].status == PathStatus::Down {
                break snapshot;
            }
            assert_eq!(snapshot.paths[0].failure.as_ref().map(ToString::to_string), None);
            replugs += 1;
            assert!(replugs < 20, "domains are left");
        };
        let failure = snapshot.paths[0].failure.as_ref().expect("the device refuses a domain").to_string();
        assert!(failure.contains("protection domain"), "{failure}");
        assert!(snapshot.waits_for()[0].contains(&failure), "{snapshot}");
        assert!(snapshot.to_string().contains(&format!("could not be made again: {failure}")), "{snapshot}");
        drop(ba);
    });
}
