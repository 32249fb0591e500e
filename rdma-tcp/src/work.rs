//! The posted requests of a queue pair

use std::collections::VecDeque;
use std::sync::Arc;

use rdma_core::{Completion, Invalid, Opcode, QpAddress, QpState, Qpn, Sge, Status, Transition, WrId};

use crate::completions::Finished;
use crate::frame_counts::{FrameCounts, Queue};

/// A posted request
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) id: WrId,
    pub(crate) sge: Sge,
    pub(crate) frames: u32,
    pub(crate) is_signaled: bool,
}

/// The state of a queue pair, and the requests that the I/O thread has not begun
#[derive(Debug, Default)]
pub(crate) struct Work {
    pub(crate) state: QpState,
    pub(crate) peer: Option<QpAddress>,
    /// Number of the current connection or attempt; changes whenever the one before is over.
    pub(crate) attempt: u64,
    pub(crate) is_destroyed: bool,
    pub(crate) recvs: VecDeque<Request>,
    pub(crate) sends: VecDeque<Request>,
}

impl Work {
    /// Checks that the state machine has a transition, and makes it
    pub(crate) fn change(&mut self, to: Transition) -> Result<(), Invalid> {
        if self.is_destroyed {
            return Err(Invalid::Destroyed);
        }
        let from = self.state;
        self.state = match (to, from) {
            (Transition::Reset, _) => QpState::Reset,
            (Transition::Init, QpState::Reset) => QpState::Init,
            (Transition::ReadyToReceive { .. }, QpState::Init) => QpState::ReadyToReceive,
            (Transition::ReadyToSend, QpState::ReadyToReceive) => QpState::ReadyToSend,
            (Transition::Error, _) => QpState::Error,
            _ => return Err(Invalid::Transition { from, to: target(to) }),
        };
        match to {
            Transition::ReadyToReceive { peer } => {
                self.attempt += 1;
                self.peer = Some(peer);
            }
            Transition::ReadyToSend => (),
            _ => {
                self.attempt += 1;
                self.peer = None;
            }
        }
        Ok(())
    }

    /// Whether a request may be queued (`true`) or is flushed at once
    pub(crate) fn admit(&self, queue: Queue) -> Result<bool, Invalid> {
        match (self.state, queue) {
            _ if self.is_destroyed => Err(Invalid::Destroyed),
            (QpState::ReadyToSend, _) | (QpState::Init | QpState::ReadyToReceive, Queue::Recv) => Ok(true),
            (QpState::Error, _) => Ok(false),
            (state, _) => Err(Invalid::State { state }),
        }
    }

    pub(crate) fn queue(&mut self, queue: Queue) -> &mut VecDeque<Request> {
        match queue {
            Queue::Recv => &mut self.recvs,
            Queue::Send => &mut self.sends,
        }
    }
}

fn target(to: Transition) -> QpState {
    match to {
        Transition::Reset => QpState::Reset,
        Transition::Init => QpState::Init,
        Transition::ReadyToReceive { .. } => QpState::ReadyToReceive,
        Transition::ReadyToSend => QpState::ReadyToSend,
        _ => QpState::Error,
    }
}

/// Turns requests of a queue pair into completions
pub(crate) struct Finisher<'a> {
    pub(crate) counts: &'a Arc<FrameCounts>,
    pub(crate) qpn: Qpn,
    pub(crate) out: &'a mut Vec<Finished>,
}

impl Finisher<'_> {
    /// Completes a request; a successful send that is not signaled has no completion
    pub(crate) fn finish(&mut self, queue: Queue, request: &Request, status: Status, byte_len: u32) {
        let mut frames = request.frames;
        if queue == Queue::Send {
            if status == Status::Success && !request.is_signaled {
                self.counts.defer(frames);
                return;
            }
            frames += self.counts.take_deferred();
        }
        let opcode = if queue == Queue::Send { Opcode::Send } else { Opcode::Recv };
        let completion = Completion { id: request.id, status, opcode, byte_len, qpn: self.qpn };
        self.out.push(Finished { completion, queue, frames, counts: Arc::clone(self.counts) });
    }
}
