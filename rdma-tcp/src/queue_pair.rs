//! Queue pairs behind the traits
#![allow(unsafe_code, reason = "implements unsafe methods")]

use std::fmt;
use std::sync::Arc;

use rdma_core::{
    Cause, Error, Invalid, QpAddress, QpCapacity, QpInit, QpState, QpType, QueuePair, RecvRequest, SendOp,
    SendRequest, Sge, Teardown, Transition, Verb, WrId, frames,
};

use crate::completions::Completions;
use crate::endpoint::Endpoint;
use crate::frame_counts::{FrameCounts, Queue};
use crate::handle::Handle;
use crate::sync::wake;
use crate::work::Request;

/// A queue pair of a [`TcpDevice`](crate::TcpDevice)
///
/// Unreliable connected, over one TCP connection. Transitions return at once: the connection is made in the background, and sends
/// wait for it. If it is not made within [`TcpOptions::connect_timeout`](crate::TcpOptions::connect_timeout), or is cut later, the
/// queue pair enters the error state and flushes its requests. A peer that destroys its queue pair is silence.
///
/// A send completes when the system has taken its bytes. A message that finds no receive is lost, as on a network adapter.
pub struct TcpQueuePair {
    device: Arc<Handle>,
    endpoint: Arc<Endpoint>,
}

impl TcpQueuePair {
    pub(crate) fn new(
        device: &Arc<Handle>,
        completions: &Arc<Completions>,
        init: &QpInit,
    ) -> Result<Self, Error> {
        let shared = &device.shared;
        let fail = |cause| Error::new(Verb::CreateQp, cause);
        shared.check().map_err(fail)?;
        if init.qp_type != QpType::Uc {
            return Err(fail(Cause::Unsupported));
        }
        let QpCapacity { recv_frames, send_frames } = init.capacity;
        let (frames, max) = (recv_frames.max(send_frames), shared.caps.max_queue_frames);
        if frames > max {
            return Err(fail(Invalid::QueueFrames { frames, max }.into()));
        }
        let capacity = QpCapacity { recv_frames: recv_frames.max(1), send_frames: send_frames.max(1) };
        let make = |address| {
            let (completions, regions) = (Arc::clone(completions), Arc::clone(&shared.regions));
            Endpoint::new(address, FrameCounts::new(capacity), completions, regions, shared.caps.max_message)
        };
        let endpoint = shared.add_endpoint(make).map_err(fail)?;
        Ok(Self { device: Arc::clone(device), endpoint })
    }

    fn post(&self, queue: Queue, id: WrId, sgl: &[Sge], is_signaled: bool) -> Result<(), Cause> {
        let shared = &self.device.shared;
        shared.check()?;
        self.endpoint.check()?;
        let [sge] = sgl else { return Err(Invalid::SgeCount { count: sgl.len(), max: 1 }.into()) };
        shared.regions.map().range(sge, queue == Queue::Recv)?;
        let frames = frames(sge.len as usize) as u32;
        let waker = self.endpoint.post(queue, Request { id, sge: *sge, frames, is_signaled })?;
        waker.into_iter().for_each(wake);
        Ok(())
    }
}

impl QueuePair for TcpQueuePair {
    fn address(&self) -> QpAddress {
        self.endpoint.address
    }

    fn capacity(&self) -> QpCapacity {
        self.endpoint.counts.capacity()
    }

    fn state(&self) -> QpState {
        self.endpoint.state()
    }

    fn modify(&self, to: Transition) -> Result<(), Error> {
        let fail = |cause| Error::new(Verb::ModifyQp, cause);
        self.device.shared.check().map_err(fail)?;
        let waker = self.endpoint.modify(to).map_err(fail)?;
        if to != Transition::ReadyToSend {
            self.device.shared.mailbox.changed(&self.endpoint);
        }
        waker.into_iter().for_each(wake);
        Ok(())
    }

    unsafe fn post_send(&self, request: &SendRequest<'_>) -> Result<(), Error> {
        let fail = |cause| Error::new(Verb::PostSend, cause);
        if request.op != SendOp::Send {
            return Err(fail(Cause::Unsupported));
        }
        self.post(Queue::Send, request.id, request.sgl, request.signaled).map_err(fail)?;
        self.device.shared.mailbox.posted(&self.endpoint);
        Ok(())
    }

    unsafe fn post_recv(&self, request: &RecvRequest<'_>) -> Result<(), Error> {
        self.post(Queue::Recv, request.id, request.sgl, true)
            .map_err(|cause| Error::new(Verb::PostRecv, cause))
    }

    fn destroy(&mut self) -> Teardown {
        if self.endpoint.check().is_ok() {
            // Waits for a system call that moves bytes of this queue pair; none follows.
            self.endpoint.destroy();
            self.device.shared.remove_endpoint(self.endpoint.address.qpn);
            self.device.shared.mailbox.changed(&self.endpoint);
        }
        Teardown::Quiesced
    }
}

impl Drop for TcpQueuePair {
    fn drop(&mut self) {
        let _ = self.destroy();
    }
}

impl fmt::Debug for TcpQueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpQueuePair").field("qpn", &self.endpoint.address.qpn).finish_non_exhaustive()
    }
}
