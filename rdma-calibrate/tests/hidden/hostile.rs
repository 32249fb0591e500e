//! Requests and replies of a peer that no calibration makes

use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::future::{Either, join, select};
use rdma_bare::BareQp;
use rdma_calibrate::{CalibrateError, Machine as _, Options, Path, VERSION, calibrate, serve};
use rdma_core::{Opcode, QpAddress, QpInit, QueuePair as _, Status};
use rdma_sim::profile::{Decided, Profile};
use rdma_sim::{FaultPlan, Model, Sim, SimStream};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};

use crate::deviant::{NO_KINDS, macs};
use crate::mac::{MOST, Mac, on_host};

const MAKE: &str = r#"{"make":{"cable":0,"frames":64,"len":65536}}"#;
const HUGE: u64 = u64::MAX;

/// Requests after which the serving side answers `"bye"`
fn requests() -> Vec<Vec<String>> {
    let own = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
    let after_make = |line: String| vec![MAKE.to_owned(), line];
    let mut all = vec![
        // Without a queue pair.
        own(&[r#"{"recv":{"first":0,"count":1,"len":8}}"#]),
        own(&[r#"{"relay":{"len":8}}"#, r#"{"received":{"count":1}}"#, r#""take""#, r#""keep""#]),
        // More memory, cables and frames than there are.
        own(&[
            &format!(r#"{{"make":{{"cable":0,"frames":{},"len":{HUGE}}}}}"#, u32::MAX),
            r#"{"relay":{"len":70000000}}"#,
        ]),
        own(&[&format!(r#"{{"make":{{"cable":{HUGE},"frames":1,"len":1}}}}"#)]),
        own(&[r#"{"make":{"cable":0,"frames":1,"len":1}}"#, r#"{"relay":{"len":2}}"#]),
    ];
    // Lengths, counts and slots beyond the memory.
    for (first, count, len) in
        [(HUGE, 1, 8), (0, 1, HUGE), (0, HUGE, 8), (HUGE, HUGE, HUGE), (1 << 40, 1, 1 << 40)]
    {
        all.push(after_make(format!(r#"{{"recv":{{"first":{first},"count":{count},"len":{len}}}}}"#)));
    }
    for len in [HUGE, 65537, 1 << 32, 1 << 33] {
        all.push(after_make(format!(r#"{{"recv_late":{{"len":{}}}}}"#, len.saturating_mul(32))));
        all.push(after_make(format!(r#"{{"echo":{{"rounds":2,"len":{len}}}}}"#)));
        all.push(after_make(format!(r#"{{"relay":{{"len":{len}}}}}"#)));
        all.push(after_make(format!(r#"{{"credits":{{"rounds":1,"len":{len}}}}}"#)));
    }
    for (there, back, depth, window) in
        [(0, 1, 1, 1), (1, 1, 0, 1), (1, 1, 1, 0), (1, HUGE, 1, HUGE), (HUGE, HUGE, HUGE, HUGE)]
    {
        let flow = format!(
            r#"{{"flow":{{"there":{there},"back":{back},"len":8,"depth":{depth},"window":{window}}}}}"#
        );
        all.push(vec![MAKE.to_owned(), r#""keep""#.to_owned(), flow]);
    }
    // Memory that is registered again and again: a device has a hundred regions.
    for len in [8, 1_000_000] {
        let late = format!(r#"{{"recv_late":{{"len":{len}}}}}"#);
        all.push(std::iter::once(MAKE.to_owned()).chain(std::iter::repeat_n(late, 200)).collect());
    }
    all
}

/// Sends `requests` and `"bye"`; how the serving side ended, and its replies
fn serve_these(requests: &[String]) -> (Result<(), CalibrateError>, Vec<String>) {
    serve_these_on(Model::tb5(), requests)
}

/// As [`serve_these`], on a device of `model`
fn serve_these_on(model: Model, requests: &[String]) -> (Result<(), CalibrateError>, Vec<String>) {
    let run = Sim::new().model(model).sanitize(false).run(async |net| {
        let (asks, answers) = net.tcp();
        let mac = Mac(net.clone(), "b");
        let asking = async {
            let mut stream = BufReader::new(asks);
            let (mut replies, mut line) = (Vec::new(), String::new());
            stream.write_all(format!("{{\"tb5_calibrate\":{VERSION}}}\n").as_bytes()).await.unwrap();
            stream.read_line(&mut line).await.unwrap();
            for (number, body) in requests.iter().map(String::as_str).chain(["\"bye\""]).enumerate() {
                let request = format!("{{\"number\":{number},\"body\":{body}}}\n");
                if stream.write_all(request.as_bytes()).await.is_err() {
                    break;
                }
            }
            loop {
                line.clear();
                match stream.read_line(&mut line).await {
                    Ok(0) | Err(_) => break replies,
                    Ok(_) => replies.push(line.clone()),
                }
            }
        };
        join(serve(&mac, answers), asking).await
    });
    assert!(run.leaks.is_empty(), "{requests:?}: {}", run.leaks);
    assert!(run.time.as_nanos() < Duration::from_mins(1).as_nanos() as u64, "{requests:?}: {:?}", run.time);
    run.value
}

/// Regression: lengths of the peer panicked, divided by zero, and registered memory without a bound.
#[test]
fn no_request_of_a_peer_panics_or_keeps_memory() {
    for requests in requests() {
        let (served, replies) = serve_these(&requests);
        assert_eq!(served, Ok(()), "{requests:?}");
        let last = replies.last().map_or("", String::as_str);
        assert_eq!(
            last,
            format!("{{\"number\":{},\"body\":\"done\"}}\n", requests.len()),
            "{requests:?}: {replies:?}"
        );
        assert!(replies.iter().any(|reply| reply.contains("failed")), "{requests:?}: {replies:?}");
    }
}

/// The JSON of what the serving side answers to `body`
async fn ask(stream: &mut BufReader<SimStream>, number: u64, body: Value) -> Value {
    let request = format!("{}\n", json!({ "number": number, "body": body }));
    stream.write_all(request.as_bytes()).await.unwrap();
    read(stream).await
}

async fn read(stream: &mut BufReader<SimStream>) -> Value {
    let mut line = String::new();
    stream.read_line(&mut line).await.unwrap();
    let reply: Value = serde_json::from_str(&line).unwrap();
    reply.get("body").cloned().unwrap_or(reply)
}

/// Asks the serving side for a stream of so many messages each way, of which it may post `at_once`, and returns its reply to that
///
/// The process of the serving side is stopped while all that it has posted completes: its completion queue has to hold all completions.
fn streamed(broken: &'static str, [there, back]: [u64; 2], at_once: u64) -> Value {
    let run = Sim::new().run(async |net| {
        let (asks, answers) = net.tcp();
        let [_, serving] = macs(&net, broken);
        // A task of its host stops with it.
        let served = on_host(&net, "b", async move { serve(&serving, answers).await });
        let asking = async {
            let mut stream = BufReader::new(asks);
            stream.write_all(format!("{{\"tb5_calibrate\":{VERSION}}}\n").as_bytes()).await.unwrap();
            read(&mut stream).await;
            let frames = 4095;
            let made = json!({ "make": { "cable": 0, "frames": frames, "len": 20 << 20 } });
            let made = ask(&mut stream, 1, made).await;
            let peer: QpAddress = serde_json::from_value(made["made"]["address"].clone()).unwrap();
            let device = net.open("a", "rdma_en2").unwrap();
            let mut qp = BareQp::new(device, &QpInit::with_frames(frames), 9 * frames as usize).unwrap();
            let address = qp.qp().address();
            assert_eq!(
                ask(&mut stream, 2, json!({ "connect": { "address": address } })).await,
                json!("done")
            );
            qp.qp().connect(&peer).unwrap();
            ask(&mut stream, 3, json!("keep")).await;
            let flow = json!({ "there": there, "back": back, "len": 8, "depth": at_once, "window": at_once });
            assert_eq!(ask(&mut stream, 4, json!({ "flow": flow })).await, json!("done"));
            // The serving side posts all that it may once a message has arrived, and is stopped then.
            qp.send(0, 0..8).unwrap();
            net.sleep(Duration::from_millis(1)).await;
            let now = net.now().as_nanos();
            let stopped = format!("at {now}ns b pause; at {}ns b resume", now + 100_000_000);
            stopped.parse::<FaultPlan>().unwrap().0.into_iter().for_each(|fault| net.inject(fault));
            net.sleep(Duration::from_nanos(1)).await;
            let received = if there > 1 { back.min(frames.into()) } else { 0 };
            for number in 0..received {
                let start = 8 + 8 * number as usize;
                qp.recv(number, start..start + 8).unwrap();
            }
            for number in 1..there {
                qp.send(number, 0..8).unwrap();
            }
            for _ in 1..there + received {
                qp.completion().await.unwrap();
            }
            let reply = read(&mut stream).await;
            drop(qp);
            ask(&mut stream, 5, json!("bye")).await;
            reply
        };
        join(served, asking).await
    });
    let (served, reply) = run.value;
    assert_eq!(served, Ok(()));
    assert!(run.leaks.is_empty() && run.findings.is_empty(), "{} {:?}", run.leaks, run.findings);
    reply
}

/// Catches a client that has more requests posted than the completion queue of the serving side holds: both directions of a queue pair complete to it.
#[test]
fn a_client_that_streams_overruns_no_completion_queue() {
    let reply = streamed("", [4095, 4095], 4095);
    assert!(reply["took"].is_object(), "{reply}");
}

/// Catches a loop of posts that never ends on a device which accepts them when its queue is full.
#[test]
fn a_device_that_refuses_nothing_keeps_no_side_in_its_posts() {
    let reply = streamed("peer: full send queues accept", [1, HUGE], HUGE);
    assert_eq!(reply["failed"], json!("silent"), "{reply}");
}

/// Regression: a receive that failed without a kind freed the range of the send of the same name, which the device was still to read.
#[test]
fn a_failed_receive_whose_name_was_posted_both_ways_frees_no_send() {
    let run = Sim::new().sanitize(false).run(async |net| {
        let [_, no_kinds] = macs(&net, NO_KINDS);
        let device = no_kinds.open(Path::default()).unwrap();
        let mut qp = BareQp::new(device, &QpInit::with_frames(64), 1 << 14).unwrap();
        let mut peer =
            BareQp::new(net.open("a", "rdma_en2").unwrap(), &QpInit::with_frames(64), 1 << 14).unwrap();
        qp.qp().connect(&peer.qp().address()).unwrap();
        peer.qp().connect(&qp.qp().address()).unwrap();
        // The send waits for a receive of the peer, and the message is too long for the receive.
        qp.send(1, 4096..4104).unwrap();
        qp.recv(1, 0..8).unwrap();
        peer.send(7, 0..16).unwrap();
        let completion = qp.completion().await.unwrap();
        assert_ne!(completion.status, Status::Success);
        assert_eq!((completion.id.0, completion.opcode), (1, Opcode::Recv));
        assert_eq!(qp.posted().collect::<Vec<_>>(), [(Opcode::Send, 4096..4104)]);
    });
    assert!(run.leaks.is_empty(), "{}", run.leaks);
}

/// Catches memory for stations beside as much for the queue pairs of the conformance body.
#[test]
fn all_queue_pairs_of_a_peer_share_one_budget_of_memory() {
    let station = format!(r#"{{"make":{{"cable":0,"frames":64,"len":{}}}}}"#, 40 << 20);
    let act = |qp: u32, mebibytes: usize| {
        let len = mebibytes << 20;
        format!(r#"{{"act":{{"qp":{qp},"act":{{"make":{{"frames":8,"len":{len}}}}}}}}}"#)
    };
    let (served, replies) = serve_these(&[station, act(1, 20), act(2, 20)]);
    assert_eq!(served, Ok(()));
    let is_refused: Vec<_> = replies.iter().map(|reply| reply.contains("too many")).collect();
    assert_eq!(is_refused, [false, false, true, false], "{replies:?}");
    // What the queue pairs of the body have is missing to a station.
    let relay = format!(r#"{{"relay":{{"len":{}}}}}"#, 8 << 20);
    let small = format!(r#"{{"make":{{"cable":0,"frames":4095,"len":{}}}}}"#, 8 << 20);
    let (served, replies) = serve_these(&[act(1, 60), small, relay]);
    assert_eq!(served, Ok(()));
    assert!(replies[2].contains("failed"), "{replies:?}");
}

/// Regression: late receives of the stations were beside that budget.
#[test]
fn late_receives_count_to_the_memory_of_a_peer() {
    let station = |bytes: usize| format!(r#"{{"make":{{"cable":0,"frames":64,"len":{bytes}}}}}"#);
    let late = format!(r#"{{"recv_late":{{"len":{}}}}}"#, 1 << 20);
    let act = |bytes: usize| format!(r#"{{"act":{{"qp":1,"act":{{"make":{{"frames":8,"len":{bytes}}}}}}}}}"#);
    for (requests, is_refused) in [
        (vec![station(63 << 20), late.clone(), act(0)], [false, false, false]),
        (vec![station(63 << 20), late.clone(), act(1 << 14)], [false, false, true]),
        (vec![act(1 << 14), station(63 << 20), late], [false, false, true]),
    ] {
        let (served, replies) = serve_these(&requests);
        assert_eq!(served, Ok(()));
        let refused = replies.iter().map(|reply| reply.contains("failed") || reply.contains("too many"));
        assert_eq!(refused.take(3).collect::<Vec<_>>(), is_refused, "{replies:?}");
    }
}

/// A device of which queue pairs and queues are limited by this program
fn adapter() -> Model {
    let mut model = Model::tb5();
    let caps = &mut model.caps;
    (caps.max_qp, caps.max_cq, caps.max_mr) = (1_000, 1_000, 1_000);
    (caps.max_cqe, caps.max_queue_frames) = (1 << 20, 1 << 16);
    model
}

/// Regression: a peer made as many queue pairs as the device has.
#[test]
fn a_sixty_fifth_queue_pair_of_a_peer_is_refused() {
    let make = |qp| format!(r#"{{"act":{{"qp":{qp},"act":{{"make":{{"frames":8,"len":4096}}}}}}}}"#);
    let requests: Vec<_> = (0..65).map(make).collect();
    let (served, replies) = serve_these_on(adapter(), &requests);
    assert_eq!(served, Ok(()));
    assert!(replies[..64].iter().all(|reply| reply.contains("made")), "{replies:?}");
    assert!(replies[64].contains("at most 64 queue pairs"), "{}", replies[64]);
}

/// Regression: a queue pair of the body took as many requests as the longest completion queue of an adapter holds.
#[test]
fn a_queue_pair_of_the_body_takes_no_more_requests_than_a_station() {
    let make = r#"{"act":{"qp":1,"act":{"make":{"frames":8192,"len":4096}}}}"#.to_owned();
    let recv =
        |id| format!(r#"{{"act":{{"qp":1,"act":{{"recv":{{"id":{id},"part":{{"start":0,"end":0}}}}}}}}}}"#);
    let requests: Vec<_> = std::iter::once(make).chain((0..4097).map(recv)).collect();
    let (served, replies) = serve_these_on(adapter(), &requests);
    assert_eq!(served, Ok(()));
    let is_done = |reply: &String| reply.contains(r#""acted":{"Ok":"done"}"#);
    assert_eq!(replies.iter().filter(|reply| is_done(reply)).count(), 4096, "{}", replies[1]);
    assert!(replies[4097].contains("QueueFull"), "{}", replies[4097]);
}

/// Carries lines from one side to the other, each changed by `change`
async fn carry(
    from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    change: impl Fn(Value) -> Value,
) -> io::Result<()> {
    let mut lines = BufReader::new(from).lines();
    while let Some(line) = lines.next_line().await? {
        let line = format!("{}\n", change(serde_json::from_str(&line)?));
        to.write_all(line.as_bytes()).await?;
    }
    to.shutdown().await
}

/// Catches times and statuses of the side that answers that panic or overflow, become infinite rates, or ask for streams without end; words
/// of it that make rows of the page; and two streams without a time, which count as turns.
#[test]
fn no_reply_of_a_peer_panics_or_keeps_the_side_that_asks() {
    let times = |times: Value| ("/took", json!({ "took": { "nanoseconds": times } }));
    let words = "| a |\n| behaviour `b` | ".repeat(1_000);
    let failed = |words: &str| json!({ "failed": { "other": words } });
    let replies = [
        times(json!([])),
        times(json!([7, 7])),
        ("/took/nanoseconds/0", json!(0)),
        ("/took/nanoseconds/0", json!(u64::MAX)),
        // Both streams took no time: their turns and the next streams have no rate.
        ("/took/nanoseconds/1", json!(0)),
        ("/received", json!({ "received": { "statuses": [] } })),
        ("/made", json!({ "made": { "address": { "qpn": 7, "psn": 0, "lid": 0, "gid": vec![0; 16] } } })),
        ("/received", failed(&words)),
        ("/acted", failed(&words)),
        // Too long for a line.
        ("/made", failed(&"x".repeat(70_000))),
    ];
    for (kind, instead) in replies {
        let changed = AtomicU32::new(0);
        let options = Options::default().with_stream_time(Duration::from_micros(100));
        let run = Sim::new().sanitize(false).run(async |net| {
            let ((asks, near), (far, answers)) = (net.tcp(), net.tcp());
            let [a, b] = ["a", "b"].map(|host| Mac(net.clone(), host));
            let change = |mut reply: Value| {
                let is_whole = kind.matches('/').count() == 1;
                let is_there = reply.pointer(&format!("/body{kind}")).is_some();
                if is_there {
                    changed.fetch_add(1, Ordering::Relaxed);
                }
                match reply.pointer_mut(&format!("/body{kind}")) {
                    Some(_) if is_whole => reply["body"] = instead.clone(),
                    Some(time) if kind.ends_with("/1") => {
                        *time = instead.clone();
                        reply["body"]["took"]["nanoseconds"][0] = instead.clone();
                    }
                    Some(part) => *part = instead.clone(),
                    None => (),
                }
                reply
            };
            let ((from_asking, to_asking), (from_serving, to_serving)) =
                (tokio::io::split(near), tokio::io::split(far));
            let between = join(
                carry(from_asking, to_serving, |request| request),
                carry(from_serving, to_asking, change),
            );
            // The other side and what is between end with the one that asks.
            let others = join(serve(&b, answers), between);
            match select(pin!(calibrate(&a, asks, &options)), pin!(others)).await {
                Either::Left((asked, _)) => asked,
                Either::Right(((served, _), asking)) => {
                    drop(served);
                    asking.await
                }
            }
        });
        assert!(run.time.as_nanos() < MOST.as_nanos() as u64, "{kind} {instead}: {:?}", run.time);
        assert!(changed.load(Ordering::Relaxed) > 0, "{kind} {instead}: nothing was changed");
        if kind == "/took/nanoseconds/1" {
            let found = run.value.as_ref().unwrap();
            assert_eq!(found.profile.decided("timing.turns"), Some(Decided::Undecided));
        }
        if let Ok(found) = run.value {
            let page = found.page();
            let rows =
                page.lines().filter(|line| line.starts_with("| a") || line.starts_with("| behaviour `b`"));
            assert_eq!(rows.count(), 0, "{kind}: {page}");
            if instead["failed"].is_object() {
                assert!(page.contains(" a     behaviour `b` "), "{kind}: {page}");
            }
            let read = Profile::parse("found.toml", &found.profile.to_toml()).unwrap();
            assert_eq!(read.model, found.profile.model, "{kind} {instead}");
            let is_possible = |rate: f64| rate.is_finite() && rate >= 0.0;
            assert!(
                found.goodput.iter().all(|row| is_possible(row.one_way)),
                "{kind} {instead}: {:?}",
                found.goodput
            );
        }
    }
}

/// Catches a peer that wedges the port of a Mac, or makes it need a reboot, over the connection.
#[test]
fn a_peer_makes_no_more_than_three_transitions_fail() {
    let nowhere = r#"{"qpn":7,"psn":0,"lid":0,"gid":[0,0,0,0,0,0,0,0,0,0,255,255,203,0,113,77]}"#;
    let mut requests = vec![r#"{"act":{"qp":1,"act":{"make":{"frames":8,"len":4096}}}}"#.to_owned()];
    requests.push(r#"{"act":{"qp":1,"act":{"modify":{"to":"Error"}}}}"#.to_owned());
    for number in 2..8 {
        requests.push(format!(r#"{{"act":{{"qp":{number},"act":{{"make":{{"frames":8,"len":4096}}}}}}}}"#));
        requests.push(format!(r#"{{"act":{{"qp":{number},"act":{{"connect":{{"peer":{nowhere}}}}}}}}}"#));
    }
    let (served, replies) = serve_these(&requests);
    assert_eq!(served, Ok(()), "{replies:?}");
    let count = |text: &str| replies.iter().filter(|reply| reply.contains(text)).count();
    assert_eq!(count("sets no queue pair to the error state"), 1, "{replies:?}");
    assert_eq!((count("ModifyQp"), count("3 transitions to RTR have failed here")), (3, 3), "{replies:?}");
}
