//! A host that receives arbitrary link messages from another process

use std::time::Duration;

use rdma_bare::BareQp;
use rdma_core::{FRAME, QpAddress, QpInit, QpType, Qpn, QueuePair as _, Rkey, SendOp, Status, Time};
use rdma_sim::remote::{LinkMessage, ProcessName, QpName, Transport};
use rdma_sim::{Driver, Model, Sim};

use super::input::Input;
use super::transcript::{Transcript, log};
use crate::DEVICE;

/// The first process of the other host
const THERE: ProcessName = ProcessName { host: 1, number: 0 };

/// A transport that drops all messages
struct Discard;

impl Transport for Discard {
    fn room(&mut self, _to: ProcessName) -> usize {
        2 * FRAME
    }

    fn send(&mut self, _to: ProcessName, _message: &LinkMessage<'_>) {}

    fn flush(&mut self) {}
}

impl<'a> Input<'a> {
    /// A number: small, close to a limit, or arbitrary
    fn number(&mut self) -> u64 {
        match self.byte() {
            small @ 0..160 => small.into(),
            steps @ 160..200 => u64::from(steps - 160) << (self.byte() % 64),
            end @ 200..230 => u64::from(end) << 8 | u64::MAX << 32,
            end @ 230..250 => u64::MAX - u64::from(end - 230),
            _ => u64::from_le_bytes(std::array::from_fn(|_| self.byte())),
        }
    }

    /// A queue pair number: one that the host assigns, or arbitrary
    fn qpn(&mut self) -> Qpn {
        match self.byte() {
            hop @ 0..200 => Qpn((9 + u32::from(hop % 4)) << 8),
            _ => Qpn(self.number() as u32),
        }
    }

    fn name(&mut self) -> QpName {
        QpName { device: self.number() as u32, qpn: self.qpn() }
    }

    fn op(&mut self) -> SendOp {
        let (remote_addr, rkey) = (self.number(), Rkey(self.number() as u32));
        match self.byte() % 5 {
            0 => SendOp::Send,
            1 => SendOp::Write { remote_addr, rkey },
            2 => SendOp::Read { remote_addr, rkey },
            3 => SendOp::FetchAdd { remote_addr, rkey, add: self.number() },
            _ => SendOp::CompareSwap { remote_addr, rkey, compare: self.number(), swap: self.number() },
        }
    }

    fn message(&mut self) -> LinkMessage<'a> {
        let (kind, name, from) = (self.byte(), self.name(), self.qpn());
        let qp_type = if kind & 64 == 0 { QpType::Uc } else { QpType::Rc };
        match kind % 7 {
            0 => LinkMessage::Ready { qp: name, peer: from, qp_type, at: Time::from_nanos(self.number()) },
            1 => LinkMessage::Closed { qp: name },
            2 => {
                let (len, at) = (self.number() as u32, Time::from_nanos(self.number()));
                LinkMessage::ReceivePosted { qp: name, len, at }
            }
            3 => LinkMessage::Data { to: name, from, bytes: self.bytes() },
            4 => {
                let (len, status) = (self.number() as u32, Status::from_code(u32::from(self.byte() % 24)));
                LinkMessage::Filled { to: name, from, len, status, at: Time::from_nanos(self.number()) }
            }
            5 => {
                let (op, len) = (self.op(), self.number() as u32);
                LinkMessage::Request { to: name, from, op, len, bytes: self.bytes() }
            }
            _ => LinkMessage::Response { to: name, from, is_ok: kind & 64 != 0, bytes: self.bytes() },
        }
    }
}

/// Applies arbitrary link messages to a host, while it sends and receives
///
/// Nothing may panic, no completion may report more bytes than its receive has, and messages must not change objects of the host.
pub fn link_messages(data: &[u8]) {
    let _transcript = Transcript::begin();
    let mut input = Input(data);
    let flags = input.byte();
    let model = if flags & 1 == 0 { Model::tb5() } else { Model::roce() };
    let driver = Driver::new(Sim::new().model(model), drop).expect("there are no faults");
    driver.simulate_only("a", Box::new(Discard));
    let net = driver.net().clone();
    let qp_type = if flags & 3 == 3 { QpType::Rc } else { QpType::Uc };
    let init = QpInit { qp_type, ..QpInit::with_frames(31) };
    let device = net.open("a", DEVICE).expect("there is a device");
    let mut bare = BareQp::new(device, &init, 16 * FRAME).expect("the device is fresh");
    let here = bare.qp().address();
    let gid = *net.gids("b", DEVICE).expect("there is a device").get(1).expect("it has addresses");
    bare.qp().connect(&QpAddress { gid, ..here }).expect("the peer is known");
    let mut slots = 0..16;
    while !input.0.is_empty() {
        let choice = input.byte();
        match choice % 8 {
            // Each slot is used once: this side keeps to the contract of the traits.
            0 | 1 if !slots.is_empty() => {
                let start = slots.next().unwrap_or_default() * FRAME;
                let len = usize::from(input.byte()) * 8;
                let (range, receives) = (start..start + len, choice % 8 == 0);
                log(&(if receives { "recv" } else { "send" }, &range));
                let _ = if receives { bare.recv(1, range) } else { bare.send(2, range) };
            }
            2 => {
                let time = Duration::from_micros(u64::from(input.byte()) << (choice / 16));
                log(&("advance", time));
                driver.advance_to(driver.now() + time);
            }
            3 => {
                log(&"resume");
                driver.remote_input().resume();
            }
            4 if choice > 240 => {
                log(&"announce all");
                driver.remote_input().announce_all_to(THERE);
            }
            _ => {
                let host = if choice < 224 { 1 } else { input.number() as u32 };
                let message = input.message();
                log(&(host, &message));
                let process = match message {
                    LinkMessage::Ready { qp, .. }
                    | LinkMessage::Closed { qp }
                    | LinkMessage::ReceivePosted { qp, .. }
                        if choice & 8 == 0 =>
                    {
                        ProcessName::of(host, qp.qpn)
                    }
                    // A process may name a queue pair of another one.
                    _ => ProcessName { host, ..THERE },
                };
                driver.remote_input().apply(process, &message);
            }
        }
        while let Ok(Some(completion)) = bare.poll() {
            assert!(completion.status != Status::Success || completion.byte_len <= 255 * 8);
        }
    }
    drop(bare);
    (0..4).for_each(|number| driver.remote_input().forget(ProcessName { number, ..THERE }));
    let objects = net.objects();
    assert!(objects.is_empty(), "{objects:?}");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes for [`link_messages`]: a message from a host, about the first queue pair of a device
    fn message(kind: u8, device: u8, rest: &[u8]) -> Vec<u8> {
        [&[kind, device, 0, 0], rest].concat()
    }

    /// Regression: a message that claimed to come from this host closed its queue pairs.
    #[test]
    fn messages_in_the_name_of_this_host_change_nothing() {
        for kind in [0, 1] {
            let gone = message(kind, 0, &[]);
            link_messages(&[&[0, 0, 0, 100, 255, 0], &*gone, &[0, 0, 100, 1, 0, 100]].concat());
        }
    }

    /// Regression: a completion could report more bytes than its receive had.
    #[test]
    fn a_completion_reports_no_more_bytes_than_its_receive_has() {
        let ready = message(0, 1, &[]);
        let filled = message(4, 0, &[225, 0, 0, 0]);
        link_messages(&[&[0, 0, 0, 100, 5], &*ready, &[5], &*filled, &[2, 255, 242, 255]].concat());
    }
}
