//! A day of programs that know nothing of faults: an echo server and a file server, whose user notices nothing but time

use std::time::Duration;

use futures::future::join3;
use rdma_async::{ByteStream, Message, Session};
use rdma_core::Time;
use rdma_sim::{Check, LineRate, Net, SimDevice, check};
use rdma_tests::{DEVICE, message, options, try_connected};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy, split};

use super::chaos::{scale, survived};
use super::figures::cables;
use super::requests::{lease, serve};

const DAY: Duration = Duration::from_hours(24);
/// The longest rest of the user
const MAX_REST: Duration = Duration::from_mins(18);
/// The shortest rest is the longest one divided by two to this power: 16 ms
const REST_BITS: u32 = 16;

/// Sends back what comes, until the end
async fn echo(session: Session<SimDevice>) {
    let (mut from, mut to) = split(ByteStream::from(session));
    copy(&mut from, &mut to).await.unwrap();
    to.shutdown().await.unwrap();
}

/// Answers the number and the length of a file with the file, until the peer closes; how many times
async fn serve_files(session: Session<SimDevice>) -> usize {
    let file = async |request: Message| {
        let [number, len] = [0, 8].map(|at| u64::from_le_bytes(request[at..at + 8].try_into().unwrap()));
        lease(&session, &message(number as usize, len as usize)).await
    };
    serve(&session, file).await.unwrap()
}

/// Asks both servers until `end`, after rests of any length; returns how many times
async fn ask(net: &Net, bytes: Session<SimDevice>, files: Session<SimDevice>, end: Time) -> usize {
    let (mut bytes, mut number) = (ByteStream::from(bytes), 0);
    while net.now() < end {
        // In the plain run, where the first of all choices is taken, it rests for long.
        net.sleep(MAX_REST / (1 + scale(net, REST_BITS))).await;
        let len = scale(net, 20) as usize;
        let sent = message(number, len.min(1 << 16));
        bytes.write_all(&sent).await.unwrap();
        bytes.flush().await.unwrap();
        let mut returned = vec![0; sent.len()];
        bytes.read_exact(&mut returned).await.unwrap();
        assert_eq!(returned, sent);
        let request = [number as u64, len as u64].map(u64::to_le_bytes).concat();
        let file = files.request(lease(&files, &request).await).await.unwrap();
        assert_eq!(*file, message(number, len));
        number += 1;
    }
    bytes.shutdown().await.unwrap();
    assert_eq!(bytes.read(&mut [0]).await.unwrap(), 0);
    files.close().await.unwrap();
    number
}

async fn program(net: Net) {
    let end = Time::ZERO + DAY;
    let Ok(pair) = try_connected(&net, &[DEVICE, "rdma_en3"], &options()).await else {
        assert!(!net.faults().is_empty(), "without a fault, no session was made");
        return;
    };
    let (files, files_at_server) = (pair.ab.open().unwrap(), pair.b.accept().await.unwrap());
    let (asked, (), answered) =
        join3(ask(&net, pair.ab, files, end), echo(pair.ba), serve_files(files_at_server)).await;
    assert!(asked > 50, "asked {asked} times in a day");
    assert_eq!(answered, asked);
}

fn days(runs: u64) {
    let settings = Check::new().topology(cables(&[LineRate::TB5; 2])).random_faults(survived(40).within(DAY));
    check(settings.runs(runs).time_limit(Time::ZERO + 2 * DAY), program);
}

/// Catches a fault that the user of a server notices otherwise than by time.
#[test]
fn the_user_of_an_echo_and_a_file_server_notices_nothing_for_a_day() {
    days(2);
}

#[test]
#[ignore = "takes minutes"]
fn ten_days() {
    days(10);
}
