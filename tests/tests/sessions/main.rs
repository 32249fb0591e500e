//! Sessions over simulated cables: everything arrives once and in order, whatever happens to the cables

mod abandoned;
mod adopted;
mod blocked;
mod blocked_threads;
mod broken_device;
mod byte_streams;
mod cancel;
mod chaos;
mod day;
mod endings;
mod expected;
mod expected_wrongly;
mod figures;
mod front_door;
mod given_up;
mod goodbyes;
mod half_open;
mod hostile;
mod introduction;
mod lifetimes;
mod memory;
mod messages;
mod observing;
mod outages;
mod pairing;
mod regressions;
mod remote_memory;
mod requests;
mod saturated;
mod send_memory;
mod shared_key;
mod short_messages;
mod short_queues;
mod silence;
mod slow_cable;
mod small_scope;
mod states;
mod strangers;
mod streams;
mod teardown;
mod two_sides;
mod upgrade;
mod upkeep;
mod waiting;
mod wedging;
mod without_stream;

use std::time::Duration;

use futures::future::join;
use rdma_async::{RecvError, Session, SessionError};
use rdma_sim::{Sim, SimDevice};
use rdma_tests::{Pair, connected, message, options};

/// Sends messages of these lengths both ways, closes, and checks what arrives
pub(crate) async fn exchange(pair: &Pair, lens: &[usize]) {
    let one_way = |from: &Session<SimDevice>, to: &Session<SimDevice>| {
        let (from, to) = (from.clone(), to.clone());
        async move {
            let send = async {
                for (number, &len) in lens.iter().enumerate() {
                    from.send_bytes(&message(number, len)).await.unwrap();
                }
                from.close().await.unwrap();
            };
            let receive = async {
                for (number, &len) in lens.iter().enumerate() {
                    let got = to.recv().await.unwrap().expect("every message comes before the end");
                    assert_eq!(got.len(), len, "message {number}");
                    assert!(*got == message(number, len), "message {number} of {len} bytes");
                }
            };
            join(send, receive).await;
        }
    };
    one_way(&pair.ab, &pair.ba).await;
    assert!(pair.ba.recv().await.unwrap().is_none());
}

const LENS: [usize; 20] = [
    0,
    1,
    8,
    64,
    4031,
    4032,
    4033,
    4095,
    4096,
    4097,
    8064,
    8065,
    65_536,
    68_544,
    68_545,
    300_000,
    (1 << 20) - 1,
    1 << 20,
    (1 << 20) + 1,
    4 << 20,
];

#[test]
fn messages_of_every_length_arrive() {
    let run = Sim::new().run(async |net| {
        let pair = connected(&net, &options()).await;
        exchange(&pair, &LENS).await;
    });
    assert_eq!(run.findings, []);
}

/// Regression: a lost long message was replaced by the next one of equal length.
#[test]
fn lost_messages_are_sent_again() {
    for (frame, lens) in [(40, [100_000; 12]), (200, [100_000; 12]), (10, [64; 12]), (10, [20_000; 12])] {
        for count in [1, 3, 40] {
            let fault = format!("after {frame} frames b:rdma_en2 lose {count}");
            let run = Sim::new().faults(fault.parse().unwrap()).run(async |net| {
                let pair = connected(&net, &options()).await;
                exchange(&pair, &lens).await;
            });
            assert_eq!(run.findings, [], "{fault}");
        }
    }
}

/// Regression: after 24 idle minutes a message longer than a frame hung for ever.
#[test]
fn an_idle_session_works_after_half_an_hour() {
    Sim::new().run(async |net| {
        let pair = connected(&net, &options()).await;
        net.sleep(Duration::from_mins(31)).await;
        exchange(&pair, &LENS).await;
    });
}

#[test]
fn a_session_goes_on_when_its_only_cable_is_back() {
    for at in ["100us", "400us", "1ms", "2ms"] {
        let faults = format!("at {at} b:rdma_en2 unplug; at 8ms b:rdma_en2 replug");
        let run = Sim::new().faults(faults.parse().unwrap()).run(async |net| {
            let pair = connected(&net, &options()).await;
            exchange(&pair, &[1 << 20; 20]).await;
            assert!(net.now().as_nanos() > 8_000_000, "the cable was out in between");
        });
        assert_eq!(run.findings, [], "{faults}");
    }
}

/// Regression: 81 messages that the application kept stalled the direction for ever, and other sessions with it.
#[test]
fn messages_that_are_kept_take_the_share_of_their_session() {
    Sim::new().run(async |net| {
        let pair = connected(&net, &options()).await;
        let mut kept = Vec::new();
        for number in 0..128 {
            pair.ab.send_bytes(&message(number, 64)).await.unwrap();
            kept.push(pair.ba.recv().await.unwrap().unwrap());
        }
        pair.ba.send_bytes(b"still there").await.unwrap();
        assert_eq!(*pair.ab.recv().await.unwrap().unwrap(), *b"still there");
        drop(kept);
        pair.ab.send_bytes(b"and on").await.unwrap();
        assert_eq!(*pair.ba.recv().await.unwrap().unwrap(), *b"and on");
    });
}

#[test]
fn a_reset_tells_the_peer_why() {
    Sim::new().run(async |net| {
        let pair = connected(&net, &options()).await;
        pair.ab.reset(77);
        let error = pair.ba.recv().await.unwrap_err();
        assert_eq!(error, RecvError::Lost(SessionError::Reset(77)));
        assert_eq!(pair.ab.recv().await.unwrap_err(), RecvError::Lost(SessionError::Aborted));
    });
}

/// Everything is given back when nodes and sessions are gone.
#[test]
fn nothing_is_left_behind() {
    let run = Sim::new().run(async |net| {
        let pair = connected(&net, &options()).await;
        exchange(&pair, &LENS).await;
        let Pair { a, b, ab, ba } = pair;
        drop((ab, ba));
        net.sleep(Duration::from_millis(100)).await;
        assert!(a.pool_stats().is_whole(), "{:?}", a.pool_stats());
        assert!(b.pool_stats().is_whole(), "{:?}", b.pool_stats());
    });
    assert_eq!(run.findings, []);
}
