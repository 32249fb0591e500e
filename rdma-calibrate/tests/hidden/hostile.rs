//! Requests and replies of a peer that no calibration makes

use std::io;
use std::pin::pin;
use std::time::Duration;

use futures::future::{Either, join, select};
use rdma_calibrate::{CalibrateError, Options, VERSION, calibrate, serve};
use rdma_sim::Sim;
use rdma_sim::profile::Profile;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};

use crate::mac::{MOST, Mac};

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
    let run = Sim::new().sanitize(false).run(async |net| {
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

/// Catches times and statuses of the side that answers that panic or overflow, become infinite rates, or ask for streams without end.
#[test]
fn no_reply_of_a_peer_panics_or_keeps_the_side_that_asks() {
    let times = |times: Value| ("took", json!({ "nanoseconds": times }));
    let replies = [
        times(json!([])),
        times(json!([7, 7])),
        ("took/nanoseconds/0", json!(0)),
        ("took/nanoseconds/0", json!(u64::MAX)),
        ("received", json!({ "statuses": [] })),
        ("made", json!({ "address": { "qpn": 7, "psn": 0, "lid": 0, "gid": vec![0; 16] } })),
        ("failed", json!({ "other": "| a |\n".repeat(10_000) })),
    ];
    for (kind, instead) in replies {
        let options = Options::default().with_stream_time(Duration::from_micros(100));
        let run = Sim::new().sanitize(false).run(async |net| {
            let ((asks, near), (far, answers)) = (net.tcp(), net.tcp());
            let [a, b] = ["a", "b"].map(|host| Mac(net.clone(), host));
            let change = |mut reply: Value| {
                if let Some(body) = reply.pointer_mut(&format!("/body/{kind}")) {
                    *body = instead.clone();
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
        if let Ok(found) = run.value {
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
