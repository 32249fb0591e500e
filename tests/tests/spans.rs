//! What a subscriber of `tracing` is told
//!
//! In a process of its own: an event that another thread meets first, without a subscriber, stays disabled.

use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rdma_sim::Sim;
use rdma_tests::{options, value_of};
use tracing::field::{Field, Visit};
use tracing::span;

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
