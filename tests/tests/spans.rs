//! What a subscriber of `tracing` is told
//!
//! In a process of its own: an event that another thread meets first, without a subscriber, stays disabled.

use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rdma_async::Session;
use rdma_sim::{Sim, SimDevice, Time};
use rdma_tests::{Pair, options, value_of};
use tracing::field::{Field, Visit};
use tracing::{Level, Metadata, span};
use tracing_core::span::Current;

/// Keeps the texts of events, with the names and fields of the spans around them
#[derive(Clone)]
struct Log(Arc<Mutex<State>>, Level);

#[derive(Default)]
struct State {
    spans: Vec<Span>,
    entered: Vec<u64>,
    lines: Vec<String>,
}

struct Span {
    /// Its name and fields, behind those of the spans around it
    text: String,
    handles: usize,
    metadata: &'static Metadata<'static>,
}

impl State {
    fn text(&self, span: u64) -> &str {
        &self.spans[span as usize - 1].text
    }

    /// The spans of this name that are open
    fn open(&self, name: &str) -> Vec<&str> {
        let open = self.spans.iter().filter(|span| span.handles > 0).map(|span| &*span.text);
        open.filter(|text| text.rsplit(" > ").next().is_some_and(|text| text.starts_with(name))).collect()
    }
}

struct Text<'a>(&'a mut String);

impl Visit for Text<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        write!(self.0, " {}={value:?}", field.name()).unwrap();
    }
}

impl tracing::Subscriber for Log {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("rdma_async") && *metadata.level() <= self.1
    }

    fn new_span(&self, attributes: &span::Attributes<'_>) -> span::Id {
        let mut state = self.0.lock().unwrap();
        let mut text = String::new();
        if let Some(parent) = attributes.parent() {
            text = format!("{} > ", state.text(parent.into_u64()));
        }
        text.push_str(attributes.metadata().name());
        attributes.record(&mut Text(&mut text));
        state.spans.push(Span { text, handles: 1, metadata: attributes.metadata() });
        span::Id::from_u64(state.spans.len() as u64)
    }

    fn clone_span(&self, span: &span::Id) -> span::Id {
        self.0.lock().unwrap().spans[span.into_u64() as usize - 1].handles += 1;
        span.clone()
    }

    fn current_span(&self) -> Current {
        let state = self.0.lock().unwrap();
        state.entered.last().map_or_else(Current::none, |span| {
            Current::new(span::Id::from_u64(*span), state.spans[*span as usize - 1].metadata)
        })
    }

    fn try_close(&self, span: span::Id) -> bool {
        let handles = &mut self.0.lock().unwrap().spans[span.into_u64() as usize - 1].handles;
        *handles -= 1;
        *handles == 0
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut state = self.0.lock().unwrap();
        let mut text = String::new();
        if let Some(span) = state.entered.last() {
            text.push_str(state.text(*span));
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

fn with_log(level: Level, program: impl FnOnce(&Log)) {
    let log = Log(Arc::default(), level);
    tracing::subscriber::with_default(log.clone(), || program(&log));
}

/// Catches an event that does not say which peer, path and device it is about, a change of a path that no event tells, and the span of a path
/// that ends before its path, or stays when the path is gone.
#[test]
fn what_happens_to_paths_and_peers_is_told_in_their_spans() {
    with_log(Level::INFO, |log| {
        let faults = "at 1ms b:rdma_en2 unplug; at 5ms b:rdma_en2 replug; at 30ms b kill";
        value_of(Sim::new().faults(faults.parse().unwrap()), async |net| {
            let pair = rdma_tests::connected(&net, &options().peer_timeout(Duration::from_millis(50))).await;
            let peer = pair.ab.peer().to_string();
            let of_a =
                |text: &&str| text.starts_with("peer node=") && text.contains(&format!(" peer={peer}"));
            let open = |name: &str| {
                let state = log.0.lock().unwrap();
                state.open(name).into_iter().filter(of_a).map(str::to_owned).collect::<Vec<_>>()
            };
            let path = |epoch: u32| format!(" > path peer={peer} path=0 device=\"rdma_en2\" epoch={epoch}");
            for (at, epoch) in [(0, Some(1)), (3, None), (20, Some(2))] {
                net.sleep(Time::ZERO + Duration::from_millis(at) - net.now()).await;
                let found = open("path");
                assert_eq!(found.len(), usize::from(epoch.is_some()), "{at} ms: {found:?}");
                let expected = epoch.map_or_else(String::new, path);
                assert!(found.iter().all(|text| text.ends_with(&expected)), "{at} ms: {found:?}");
            }
            pair.ab.closed().await.unwrap_err();
            net.sleep(Duration::from_millis(1)).await;
            assert_eq!(open("path"), [""; 0]);
            let lines = log.0.lock().unwrap().lines.clone();
            let at_a = lines.iter().map(|line| &**line).filter(of_a);
            let (mut spans, mut texts) = (Vec::new(), Vec::new());
            for line in at_a.filter(|line| !line.contains(" > session ")) {
                let (span, text) = line.split_once(" message=").expect("each has one");
                spans.push(span);
                texts.push(text);
            }
            let expected =
                ["path up path=0", "path lost path=0", "path up path=0", "path lost path=0", "peer lost"];
            assert_eq!(texts.len(), expected.len(), "{texts:#?}");
            for (text, expected) in texts.iter().zip(expected) {
                assert!(text.starts_with(expected), "{text}, not {expected}");
            }
            for (span, epoch) in spans.iter().zip([1, 1, 2, 2]) {
                assert!(span.ends_with(&path(epoch)), "{span}");
            }
            assert!(spans[4].ends_with(&format!(" peer={peer}")), "{spans:#?}");
        });
    });
}

/// Catches a call that is told without its path, and the span of a path that ends while its device has not given the path up.
#[test]
fn a_device_that_does_not_return_is_told_in_the_span_of_the_path() {
    with_log(Level::INFO, |log| {
        let faults = "at 1ms a:rdma_en2 slow-verb destroy_qp=3s; at 2ms a:rdma_en2 flap 5ms";
        value_of(Sim::new().faults(faults.parse().unwrap()), async |net| {
            let limits =
                options().device_timeout(Duration::from_secs(1)).peer_timeout(Duration::from_mins(1));
            let pair = rdma_tests::connected(&net, &limits).await;
            net.sleep(Duration::from_secs(2)).await;
            let path = format!(" > path peer={} path=0 device=\"rdma_en2\" epoch=1", pair.ab.peer());
            let is_open = || log.0.lock().unwrap().open("path").iter().any(|text| text.ends_with(&path));
            assert!(is_open());
            // Two queue pairs.
            net.sleep(Duration::from_secs(6)).await;
            assert!(!is_open());
            let lines = log.0.lock().unwrap().lines.clone();
            for text in ["a device does not return from a call", "a device has returned from a call"] {
                let told = lines.iter().filter(|line| line.contains(text)).collect::<Vec<_>>();
                assert!(told.len() == 1 && told[0].contains(&format!("{path} message=")), "{told:#?}");
            }
        });
    });
}

/// Catches a session that no event tells of, or not in its own span, an end that is told twice, and a span that ends before its session, or
/// stays when the session is over and has no handle.
#[test]
fn what_happens_to_sessions_is_told_in_their_spans() {
    with_log(Level::DEBUG, |log| {
        value_of(Sim::new(), async |net| {
            let Pair { a, b, ab, ba } = rdma_tests::connected(&net, &options()).await;
            let (second, reset) = (ab.open().unwrap(), ab.open().unwrap());
            let (of_second, of_reset) = (b.accept().await.unwrap(), b.accept().await.unwrap());
            let open = || log.0.lock().unwrap().open("session").len();
            assert_eq!(open(), 6, "three sessions, on both sides");
            let session = |session: &Session<SimDevice>| {
                format!(" > session peer={} session={}", session.peer(), session.id())
            };
            let told = |name: &str| {
                let lines = log.0.lock().unwrap().lines.clone();
                let told = lines.into_iter().filter_map(|line| {
                    let (span, text) = line.split_once(" message=").expect("each has one");
                    span.ends_with(name).then(|| text.to_owned())
                });
                told.collect::<Vec<_>>()
            };
            second.close().await.unwrap();
            net.sleep(Duration::from_millis(1)).await;
            assert_eq!(told(&session(&second)), ["session open", "session closed"]);
            assert_eq!(told(&session(&of_second)), ["session open", "session closed"]);
            assert_eq!(open(), 6, "there are handles");
            drop((second, of_second));
            assert_eq!(open(), 4);

            // Without a handle, a session ends when its messages are there: until then, it has its span.
            of_reset.send_bytes(&[1; 1 << 20]).await.unwrap();
            let abandoned = session(&of_reset);
            drop(of_reset);
            assert_eq!(open(), 4);
            reset.reset(7);
            net.sleep(Duration::from_millis(1)).await;
            assert_eq!(
                told(&session(&reset)),
                ["session open", "session lost error=this side has aborted the session"]
            );
            let [opened, lost] = &told(&abandoned)[..] else { panic!("{:?}", told(&abandoned)) };
            assert_eq!(opened, "session open");
            assert!(lost.starts_with("session lost error=") && lost.contains('7'), "{lost}");
            drop(reset);
            assert_eq!(open(), 2);
            drop((ab, ba));
            a.wait_idle().await;
            b.wait_idle().await;
            let state = log.0.lock().unwrap();
            let open = state.spans.iter().filter(|span| span.handles > 0).map(|span| &span.text);
            assert_eq!(open.collect::<Vec<_>>(), [""; 0]);
        });
    });
}
