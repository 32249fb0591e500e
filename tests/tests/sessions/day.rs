//! A day of programs that know nothing of faults: an echo server and a file server, whose user notices nothing but time

use std::time::Duration;

use futures::future::join3;
use futures::stream::{FuturesUnordered, StreamExt as _};
use rdma_async::{ByteStream, Lease, Message, RequestError, Session};
use rdma_core::Time;
use rdma_sim::{Check, FaultKind, LineRate, Net, RandomFaults, SimDevice, check};
use rdma_tests::{DEVICE, message, options, try_connected};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy, split};

use super::chaos::SURVIVED;
use super::figures::cables;

const DAY: Duration = Duration::from_hours(24);
/// The longest rest of the user
const MAX_REST: Duration = Duration::from_mins(18);
/// The shortest rest is the longest one divided by two to this power: 16 ms
const REST_BITS: u32 = 16;

/// Two to a random power below `bits`, and more up to the next
fn scale(net: &Net, bits: u32) -> usize {
    let scale = 1 << net.pick(bits);
    (scale + net.pick(scale)) as usize
}

/// Sends back what comes, until the end
async fn echo(session: Session<SimDevice>) {
    let (mut from, mut to) = split(ByteStream::from(session));
    copy(&mut from, &mut to).await.unwrap();
    to.shutdown().await.unwrap();
}

async fn leased(session: &Session<SimDevice>, content: &[u8]) -> Lease {
    let mut lease = session.alloc(content.len()).await.unwrap();
    lease.extend_from_slice(content);
    lease
}

/// Answers the number and the length of a file with the file, until the peer closes
async fn serve_files(session: Session<SimDevice>) {
    let answer = async |request: Message| {
        let [number, len] = [0, 8].map(|at| u64::from_le_bytes(request[at..at + 8].try_into().unwrap()));
        leased(&session, &message(number as usize, len as usize)).await
    };
    let mut running = FuturesUnordered::new();
    loop {
        futures::select_biased! {
            done = running.select_next_some() => {
                let is_answered: Result<bool, RequestError> = done;
                assert!(is_answered.unwrap());
            }
            stream = futures::FutureExt::fuse(session.accept_stream()) => match stream.unwrap() {
                Some(stream) => running.push(stream.answer(&answer)),
                None => return,
            },
        }
    }
}

/// Asks both servers until `end`, after rests of any length; returns how many times
async fn ask(net: &Net, bytes: Session<SimDevice>, files: Session<SimDevice>, end: Time) -> usize {
    let (mut bytes, mut number) = (ByteStream::from(bytes), 0);
    while net.now() < end {
        // In the plain run, where the first of all choices is taken, it rests for long.
        net.sleep(MAX_REST / (1 + scale(net, REST_BITS) as u32)).await;
        let len = scale(net, 20);
        let sent = message(number, len.min(1 << 16));
        bytes.write_all(&sent).await.unwrap();
        bytes.flush().await.unwrap();
        let mut returned = vec![0; sent.len()];
        bytes.read_exact(&mut returned).await.unwrap();
        assert_eq!(returned, sent);
        let request = [number as u64, len as u64].map(u64::to_le_bytes).concat();
        let file = files.request(leased(&files, &request).await).await.unwrap();
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
    let (asked, (), ()) =
        join3(ask(&net, pair.ab, files, end), echo(pair.ba), serve_files(files_at_server)).await;
    assert!(asked > 50, "asked {asked} times in a day");
}

fn days(runs: u64) {
    let kinds = SURVIVED.into_iter().chain([FaultKind::Unplug]);
    let faults = RandomFaults::up_to(40).kinds(kinds).within(DAY);
    let settings = Check::new().topology(cables(&[LineRate::TB5; 2])).random_faults(faults);
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
