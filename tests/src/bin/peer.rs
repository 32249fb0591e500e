//! A host of a fabric in a process of its own, controlled by lines on its standard input
//!
//! `open DEVICE FRAMES BYTES` creates a queue pair and prints its address, `connect N ADDRESS` connects it. Then one of: `ping N COUNT LEN`
//! and `pong N COUNT LEN`, `send N COUNT LEN` and `take N COUNT LEN`, which print how long they took; or `expect N COUNT LEN`, which takes
//! the messages that were expected before, prints how many came in all, and posts receives for others; or `talk N`, which exchanges
//! messages for ever beside other commands and checks each byte, `count N`, which prints how many arrived, and `drop N`; `poll N COUNT`
//! polls the queue of link N so many times; `fork N` has a child that tries the verbs of link N, expects the error of a device that is
//! gone, and ends; `split DEVICE`, before all others, has a child that creates a queue pair and ends. `fill DEVICE` creates queue pairs
//! until one is refused, and prints how many. Each line is answered by one.

#![allow(unsafe_code, reason = "tests name memory and call the verbs themselves")]

use std::error::Error;
use std::sync::Arc;
use std::sync::mpsc::TryRecvError;

use rdma_bare::BareQp;
use rdma_core::{Cause, Completion, Opcode, QpInit, QueuePair as _, Status, Transition};
use rdma_tb5::{OpenOptions, PollPolicy, Provider, VerbsDevice};
use rdma_tests::hosts::lines_of;
use rdma_tests::now;

type Link = BareQp<VerbsDevice>;
type Result<T> = std::result::Result<T, Box<dyn Error>>;

unsafe extern "C" {
    fn fork() -> i32;
    fn exit(status: i32) -> !;
    fn waitpid(child: i32, status: *mut i32, options: i32) -> i32;
}

/// Messages under way in each direction
const WINDOW: usize = 8;

#[expect(clippy::print_stdout, reason = "this is how it answers")]
fn main() -> Result<()> {
    let provider = Provider::load()?;
    let lines = lines_of(std::io::stdin());
    let mut links: Vec<Option<Talk>> = Vec::new();
    loop {
        let is_talking = links.iter().flatten().any(|link| link.is_on);
        let line = if is_talking { lines.try_recv() } else { lines.recv().map_err(TryRecvError::from) };
        let line = match line {
            Ok(line) => line,
            Err(TryRecvError::Disconnected) => return Ok(()),
            Err(TryRecvError::Empty) => {
                links.iter_mut().flatten().filter(|link| link.is_on).try_for_each(Talk::go_on)?;
                continue;
            }
        };
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<usize>().ok()).unwrap_or(0);
        let answer = match words[0] {
            "open" => {
                let link = open(&provider, words[1], number(2), number(3))?;
                let address = serde_json::to_string(&link.qp().address())?;
                links.push(Some(Talk::new(link)));
                format!("{} {address}", links.len() - 1)
            }
            "fill" => {
                let before = links.len();
                while let Ok(link) = open(&provider, words[1], 15, 16 << 10) {
                    links.push(Some(Talk::new(link)));
                }
                (links.len() - before).to_string()
            }
            "poll" => {
                let Some(talk) = &mut links[number(1)] else { return Err("there is no such link".into()) };
                (0..number(2)).try_for_each(|_| talk.link.poll().map(drop))?;
                "polled".to_owned()
            }
            "fork" => in_child(|| links[number(1)].as_mut().is_some_and(|talk| is_refused(&mut talk.link))),
            "split" => in_child(|| open(&provider, words[1], 15, 16 << 10).is_ok()),
            "drop" => {
                links[number(1)] = None;
                "dropped".to_owned()
            }
            command => {
                let Some(talk) = links.get_mut(number(1)).and_then(Option::as_mut) else {
                    return Err(format!("{line}: there is no such link").into());
                };
                let (count, len) = (number(2), number(3));
                match command {
                    "connect" => {
                        talk.link.qp().connect(&serde_json::from_str(words[2])?)?;
                        "connected".to_owned()
                    }
                    "ping" => timed(|| ping(&mut talk.link, count, len, true))?,
                    "pong" => timed(|| ping(&mut talk.link, count, len, false))?,
                    "send" => timed(|| stream(&mut talk.link, count, len, Opcode::Send))?,
                    "take" => timed(|| stream(&mut talk.link, count, len, Opcode::Recv))?,
                    "expect" => {
                        talk.expect(count, len)?;
                        talk.received.to_string()
                    }
                    "talk" => {
                        talk.is_on = true;
                        "talking".to_owned()
                    }
                    "count" => talk.received.to_string(),
                    _ => return Err(format!("{line}: unknown").into()),
                }
            }
        };
        println!("{answer}");
    }
}

/// Opens a device and creates a queue pair with so many frames and bytes of memory
fn open(provider: &Arc<Provider>, device: &str, frames: usize, bytes: usize) -> Result<Link> {
    let options = OpenOptions::new().poll(PollPolicy::SPIN).trust_destroy(true);
    let device = VerbsDevice::open(provider, device, options)?;
    Ok(Link::new(device, &QpInit::with_frames(frames as u32), bytes)?)
}

/// Runs `f` in a child, and returns the status of its end: 0 if it returned true
fn in_child(f: impl FnOnce() -> bool) -> String {
    // SAFETY: the child calls verbs and ends, as programs in C do.
    let child = unsafe { fork() };
    if child == 0 {
        let is_as_expected = f();
        // SAFETY: as above; the handlers that run are those of the provider.
        unsafe { exit(i32::from(!is_as_expected)) };
    }
    let mut status = -1;
    // SAFETY: the place is ours.
    unsafe { waitpid(child, &raw mut status, 0) };
    status.to_string()
}

/// Whether all verbs of a link fail because the device belongs to another process
fn is_refused(link: &mut Link) -> bool {
    let last = 1 << 20;
    let outcomes = [
        link.send(0, last - 9..last),
        link.recv(0, last - 19..last - 9),
        link.poll().map(drop),
        link.qp().modify(Transition::Error),
    ];
    outcomes.iter().all(|outcome| outcome.as_ref().is_err_and(|error| error.cause == Cause::DeviceGone))
}

fn timed(f: impl FnOnce() -> Result<()>) -> Result<String> {
    let start = now();
    f()?;
    Ok(start.elapsed().as_nanos().to_string())
}

/// What completes next
fn next(link: &mut Link) -> Result<Completion> {
    loop {
        if let Some(completion) = poll(link)? {
            return Ok(completion);
        }
    }
}

/// What has completed, if it succeeded
fn poll(link: &mut Link) -> Result<Option<Completion>> {
    match link.poll()? {
        Some(Completion { opcode, id, status, .. }) if status != Status::Success => {
            Err(format!("{opcode:?} {} ended with: {status}", id.0).into())
        }
        completion => Ok(completion),
    }
}

fn ping(link: &mut Link, count: usize, len: usize, begins: bool) -> Result<()> {
    let place = |number: usize| (number % 4) << 16;
    for number in 0..2 {
        link.recv(number as u64, place(number)..place(number) + len)?;
    }
    for number in 0..count {
        if begins {
            link.send(9, 1 << 19..(1 << 19) + len)?;
        }
        let mut is_sent = !begins;
        let mut is_received = false;
        while !is_received || !is_sent {
            match next(link)?.opcode {
                Opcode::Recv => is_received = true,
                _ => is_sent = true,
            }
        }
        if number + 2 < count {
            link.recv(number as u64, place(number)..place(number) + len)?;
        }
        if !begins {
            link.send(9, 1 << 19..(1 << 19) + len)?;
            if next(link)?.opcode == Opcode::Recv {
                return Err("a message came before the answer had left".into());
            }
        }
    }
    Ok(())
}

fn stream(link: &mut Link, count: usize, len: usize, way: Opcode) -> Result<()> {
    let post = |link: &mut Link, number: usize| {
        let start = (number % WINDOW) * len;
        match way {
            Opcode::Send => link.send(number as u64, start..start + len),
            _ => link.recv(number as u64, start..start + len),
        }
    };
    (0..count.min(WINDOW)).try_for_each(|number| post(link, number))?;
    for number in 0..count {
        let completion = next(link)?;
        if way == Opcode::Recv && completion.byte_len as usize != len {
            return Err(format!("message {number} has {} bytes", completion.byte_len).into());
        }
        if number + WINDOW < count {
            post(link, number + WINDOW)?;
        }
    }
    Ok(())
}

/// Messages both ways, for ever, each of another length and content
struct Talk {
    link: Link,
    is_on: bool,
    sent: u64,
    sending: usize,
    posted: u64,
    received: u64,
}

/// The places of messages: four for each direction
const PLACE: usize = 64 << 10;

impl Talk {
    fn new(link: Link) -> Self {
        Self { link, is_on: false, sent: 0, sending: 0, posted: 0, received: 0 }
    }

    /// Frames are equal on both sides; within the last one, lengths differ
    fn len(number: u64) -> usize {
        let frames = (number * 5 % 16) as usize + 1;
        frames * 4096 - (number * 31 % 4000) as usize
    }

    fn content(number: u64, len: usize) -> Vec<u8> {
        (0..len).map(|at| (at as u64).wrapping_mul(number | 1).to_le_bytes()[1] ^ number as u8).collect()
    }

    /// Takes all messages that were expected, and posts receives for `count` others
    fn expect(&mut self, count: usize, len: usize) -> Result<()> {
        while self.received < self.posted {
            self.received += u64::from(poll(&mut self.link)?.is_some());
        }
        for number in 0..count {
            self.link.recv(self.posted, number * len..(number + 1) * len)?;
            self.posted += 1;
        }
        Ok(())
    }

    fn go_on(&mut self) -> Result<()> {
        while self.posted < self.received + 4 {
            let start = (self.posted % 4) as usize * PLACE;
            let frames = Self::len(self.posted).div_ceil(4096);
            self.link.recv(self.posted, start..start + frames * 4096)?;
            self.posted += 1;
        }
        while self.sending < 4 {
            let start = (4 + self.sent % 4) as usize * PLACE;
            let len = Self::len(self.sent);
            self.link.write(start, &Self::content(self.sent, len));
            self.link.send(self.sent, start..start + len)?;
            self.sent += 1;
            self.sending += 1;
        }
        for _ in 0..16 {
            let Some(completion) = poll(&mut self.link)? else { break };
            if completion.opcode == Opcode::Send {
                self.sending -= 1;
                continue;
            }
            let number = self.received;
            let (len, start) = (completion.byte_len as usize, (number % 4) as usize * PLACE);
            if completion.id.0 != number || len != Self::len(number) {
                return Err(format!("message {number}: {len} bytes in receive {}", completion.id.0).into());
            }
            let found = self.link.read(start..start + len);
            if found != Self::content(number, len) {
                return Err(format!("message {number} is not what was sent").into());
            }
            self.received += 1;
        }
        Ok(())
    }
}
