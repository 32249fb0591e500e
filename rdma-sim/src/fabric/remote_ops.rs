//! One-sided operations on memory that another process has
//!
//! An operation is asked for in pieces, one at a time, and each is answered; so neither end has to keep more than a piece.

use rdma_core::{QpType, Qpn, SendOp, Status};

use super::one_sided::exchange;
use super::queue_pair::Memory;
use super::{DeviceIndex, Fabric, QpKey};
use crate::remote::{LinkMessage, QpName};

/// Bytes of a piece
const PIECE: usize = 32 * 1024;

impl Fabric {
    /// Asks `to` for the next piece of the oldest one-sided operation of `key`, unless a piece is under way
    pub(super) fn ask(&mut self, key: QpKey, host: u32, to: QpName) {
        let qp = &mut self.qps[key];
        if qp.asking.is_some() {
            return;
        }
        qp.asking = Some(0);
        if qp.qp_type == QpType::Rc {
            self.be_patient(key);
        }
        self.ask_piece(key, host, to);
    }

    fn ask_piece(&mut self, key: QpKey, host: u32, to: QpName) {
        let qp = &self.qps[key];
        let (Some(position), Some(done)) = (qp.oldest_one_sided(), qp.asking) else { return };
        let (op, memory, from) = (qp.sends[position].op, qp.sends[position].memory, qp.qpn);
        let len = (memory.len - done).min(PIECE);
        let op = further(op, done as u64);
        let (Some(far), Some(region)) = (&mut self.remotes, self.regions.get(memory.region)) else { return };
        let mut tell = |bytes: &[u8]| {
            far.transport.send(host, &LinkMessage::Request { to, from, op, len: len as u32, bytes });
        };
        match op {
            SendOp::Write { .. } => drop(region.show(memory.offset + done, len, false, tell)),
            _ => tell(&[]),
        }
    }

    /// Another host asks for something in the memory of this one
    pub(super) fn asked(&mut self, host: u32, to: QpName, asker: Qpn, op: SendOp, len: u32, bytes: &[u8]) {
        let Some(key) = self.find_here(to, asker) else { return };
        let device = self.qps[key].device;
        let Some(back) = self.neighbour(device) else { return };
        let answer = self.answer_to(device, op, len as usize, bytes);
        let (is_ok, bytes) = (answer.is_some(), answer.unwrap_or_default());
        let name = QpName { device: back.0, qpn: asker };
        self.send(host, &LinkMessage::Response { to: name, from: to.qpn, is_ok, bytes: &bytes });
    }

    /// Does what is asked; `None` if the memory is not there or not for this
    fn answer_to(&mut self, device: DeviceIndex, op: SendOp, len: usize, bytes: &[u8]) -> Option<Vec<u8>> {
        let (region, offset) = self.target(device, op, len)?;
        let region = self.regions.get(region)?;
        match op {
            SendOp::Write { .. } => {
                region.write(offset, bytes);
                Some(Vec::new())
            }
            SendOp::Read { .. } => Some(region.bytes(offset, len.min(PIECE))),
            _ => Some(exchange(op, region, offset)),
        }
    }

    /// The oldest piece that `key` has asked for is answered
    pub(super) fn answered(&mut self, key: QpKey, is_ok: bool, bytes: &[u8]) {
        let qp = &mut self.qps[key];
        let (Some(position), Some(done)) = (qp.oldest_one_sided(), qp.asking.take()) else { return };
        let (op, memory) = (qp.sends[position].op, qp.sends[position].memory);
        let is_reliable = qp.qp_type == QpType::Rc;
        let piece = (memory.len - done).min(PIECE);
        if is_ok && !matches!(op, SendOp::Write { .. }) {
            let Memory { region, offset, .. } = memory;
            if let Some(region) = self.regions.get(region) {
                region.write(offset + done, &bytes[..bytes.len().min(piece)]);
            }
        }
        let is_over = !is_ok || is_atomic(op) || done + piece == memory.len;
        let qp = &mut self.qps[key];
        if is_over {
            qp.sends[position].is_applied = true;
        } else {
            qp.asking = Some(done + piece);
        }
        match is_over {
            true if !is_ok && is_reliable => {
                let qp = self.qp_ref(key);
                return self.fail_send(qp, position, Status::RemoteAccess);
            }
            true => self.complete_send_at(key, position, self.now),
            false => (),
        }
        let Some((host, to)) = self.connected_peer(key).and_then(|peer| self.far_name(peer)) else { return };
        if !is_over {
            self.ask_piece(key, host, to);
        } else if self.qps[key].oldest_one_sided().is_some() {
            self.ask(key, host, to);
        }
    }
}

/// The same operation, so many bytes further on
fn further(op: SendOp, by: u64) -> SendOp {
    match op {
        SendOp::Write { remote_addr, rkey } => {
            SendOp::Write { remote_addr: remote_addr.wrapping_add(by), rkey }
        }
        SendOp::Read { remote_addr, rkey } => {
            SendOp::Read { remote_addr: remote_addr.wrapping_add(by), rkey }
        }
        op => op,
    }
}

fn is_atomic(op: SendOp) -> bool {
    matches!(op, SendOp::FetchAdd { .. } | SendOp::CompareSwap { .. })
}
