//! What sessions tell about themselves: snapshots, metrics, and spans

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::join;
use metrics::{Counter, CounterFn, Gauge, GaugeFn, Key, KeyName, Metadata, SharedString, Unit};
use rdma_sim::Sim;
use rdma_tests::{message, on_session, options, value_of};
use tracing::field::{Field, Visit};
use tracing::span;

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

/// Keeps the texts of events, with the names and fields of the spans around them
#[derive(Clone, Default)]
struct Log(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    spans: Vec<String>,
    entered: Vec<u64>,
    lines: Vec<String>,
}

struct Text<'a>(&'a mut String);

impl Visit for Text<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        write!(self.0, " {}={value:?}", field.name()).unwrap();
    }
}

impl tracing::Subscriber for Log {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("rdma_async") && *metadata.level() <= tracing::Level::INFO
    }

    fn new_span(&self, attributes: &span::Attributes<'_>) -> span::Id {
        let mut text = attributes.metadata().name().to_owned();
        attributes.record(&mut Text(&mut text));
        let mut state = self.0.lock().unwrap();
        state.spans.push(text);
        span::Id::from_u64(state.spans.len() as u64)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut state = self.0.lock().unwrap();
        let mut text = String::new();
        if let Some(span) = state.entered.last() {
            text.push_str(&state.spans[*span as usize - 1]);
        }
        event.record(&mut Text(&mut text));
        state.lines.push(text);
    }

    fn enter(&self, span: &span::Id) {
        self.0.lock().unwrap().entered.push(span.into_u64());
    }

    fn exit(&self, _: &span::Id) {
        self.0.lock().unwrap().entered.pop();
    }
}

/// Catches an event that does not say which peer it is about, and a change of a path that nobody reads of.
#[test]
fn what_happens_to_paths_and_peers_is_told_in_the_span_of_the_peer() {
    let log = Log::default();
    tracing::subscriber::with_default(log.clone(), || {
        let faults = "at 1ms b:rdma_en2 unplug; at 5ms b:rdma_en2 replug; at 30ms b kill";
        value_of(Sim::new().faults(faults.parse().unwrap()), async |net| {
            let pair = rdma_tests::connected(&net, &options().peer_timeout(Duration::from_millis(50))).await;
            pair.ab.closed().await.unwrap_err();
            net.sleep(Duration::from_millis(1)).await;
            let peer = pair.ab.peer().to_string();
            let lines = log.0.lock().unwrap().lines.clone();
            let at_a = lines
                .iter()
                .filter(|line| line.starts_with("peer node=") && line.contains(&format!(" peer={peer} ")));
            let texts = at_a
                .map(|line| line.split_once(" message=").expect("each has one").1.to_owned())
                .collect::<Vec<_>>();
            let expected =
                ["path up path=0", "path lost path=0", "path up path=0", "path lost path=0", "peer lost"];
            assert_eq!(texts.len(), expected.len(), "{texts:#?}");
            for (text, expected) in texts.iter().zip(expected) {
                assert!(text.starts_with(expected), "{text}, not {expected}");
            }
        });
    });
}
