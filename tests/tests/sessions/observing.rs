//! What sessions tell about themselves in snapshots and metrics

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::join;
use metrics::{Counter, CounterFn, Gauge, GaugeFn, Key, KeyName, Metadata, SharedString, Unit};
use rdma_sim::Sim;
use rdma_tests::{message, on_session, options};

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
    assert!(at_least("rdma_path_packets_sent path=0") >= 20.0);
    assert_eq!(at_least("rdma_path_packets_lost path=0"), 0.0);
    // One way is 6 µs, a report waits for 25 µs, and comes back.
    for name in
        ["rdma_session_delivery_seconds quantile=0.5", "rdma_path_round_trip_seconds path=0 quantile=0.5"]
    {
        assert!((36e-6..45e-6).contains(&at_least(name)), "{name}: {}", at_least(name));
    }
}
