//! A device that reports what cannot be: only the connection that it concerns ends
#![allow(unsafe_code, reason = "a device is an unsafe trait")]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures::future::{join, try_join};
use rdma_async::{Connection, ConnectionError, Endpoint, RecvError};
use rdma_core::{
    Access, Caps, Completion, CompletionQueue, Device, Error, FRAME, Gid, Opcode, PortStatus, QpInit, WrId,
};
use rdma_sim::{Net, Sim, SimCompletionQueue, SimDevice, SimMemoryRegion, SimQueuePair};
use rdma_tests::DEVICE;

/// Changes a completion, once
type Lie = fn(&mut Completion) -> bool;

/// A simulated device whose next matching completion is changed when it is told to lie
struct BrokenDevice {
    device: SimDevice,
    lies: Arc<Lies>,
}

struct Lies {
    lie: Lie,
    is_due: AtomicBool,
}

struct BrokenQueue {
    cq: SimCompletionQueue,
    lies: Arc<Lies>,
}

// SAFETY: the simulated device keeps every promise about memory; only reports are changed.
unsafe impl Device for BrokenDevice {
    type Mr = SimMemoryRegion;
    type Cq = BrokenQueue;

    fn name(&self) -> &str {
        self.device.name()
    }

    fn caps(&self) -> &Caps {
        self.device.caps()
    }

    fn port(&self) -> Result<PortStatus, Error> {
        self.device.port()
    }

    fn gids(&self) -> Result<Vec<Gid>, Error> {
        self.device.gids()
    }

    fn create_cq(&self, depth: u32) -> Result<BrokenQueue, Error> {
        Ok(BrokenQueue { cq: self.device.create_cq(depth)?, lies: Arc::clone(&self.lies) })
    }

    unsafe fn register(&self, mem: NonNull<[u8]>, access: Access) -> Result<SimMemoryRegion, Error> {
        // SAFETY: the caller keeps the same contract.
        unsafe { self.device.register(mem, access) }
    }
}

impl BrokenQueue {
    fn lie(&self, completions: &mut [Completion]) {
        for completion in completions {
            if self.lies.is_due.load(Ordering::Relaxed) && (self.lies.lie)(completion) {
                self.lies.is_due.store(false, Ordering::Relaxed);
            }
        }
    }
}

impl CompletionQueue for BrokenQueue {
    type Qp = SimQueuePair;

    fn create_qp(&self, init: &QpInit) -> Result<SimQueuePair, Error> {
        self.cq.create_qp(init)
    }

    fn poll(&self, out: &mut [Completion]) -> Result<usize, Error> {
        let n = self.cq.poll(out)?;
        self.lie(&mut out[..n]);
        Ok(n)
    }

    fn poll_completions(&self, cx: &mut Context<'_>, out: &mut [Completion]) -> Poll<Result<usize, Error>> {
        let polled = self.cq.poll_completions(cx, out);
        if let Poll::Ready(Ok(n)) = polled {
            self.lie(&mut out[..n]);
        }
        polled
    }
}

/// Two connections of one endpoint whose device lies once to the first: it ends for `reason`, the second does not notice
fn only_one_connection_ends(lie: Lie, reason: fn(&ConnectionError) -> bool) {
    Sim::new().run(async |net: Net| {
        let lies = Arc::new(Lies { lie, is_due: AtomicBool::new(false) });
        let broken = BrokenDevice { device: net.open("b", DEVICE).unwrap(), lies: Arc::clone(&lies) };
        let a = Endpoint::builder(net.open("a", DEVICE).unwrap()).runtime(net.runtime()).build().unwrap();
        let b = Endpoint::builder(broken).runtime(net.runtime()).build().unwrap();
        let connect = async || {
            let (to_b, to_a) = tokio::io::duplex(256);
            try_join(a.connect(to_b), b.accept(to_a)).await.unwrap()
        };
        let (first, second) = (connect().await, connect().await);
        let works = async |(ab, ba): &(Connection<_>, Connection<_>), len| {
            ab.send_bytes(&vec![7; len]).await.unwrap();
            assert_eq!(*ba.recv().await.unwrap().unwrap(), *vec![7; len]);
            ba.send_bytes(b"answer").await.unwrap();
            assert_eq!(*ab.recv().await.unwrap().unwrap(), *b"answer");
        };
        works(&first, 10_000).await;
        lies.is_due.store(true, Ordering::Relaxed);
        // The sender learns of it by silence, if at all.
        let (_, received) = join(first.0.send_bytes(&[7; 10_000]), first.1.recv()).await;
        let RecvError::Lost(error) = received.unwrap_err() else { panic!("the connection is lost") };
        assert!(reason(&error), "{error:?}");
        assert!(!lies.is_due.load(Ordering::Relaxed));
        works(&second, 10_000).await;
    });
}

fn lengthen(completion: &mut Completion, by: u32) -> bool {
    completion.byte_len += by;
    true
}

/// Catches a length that is taken from the completion unchecked: it panicked in the reactor.
#[test]
fn an_eager_receive_longer_than_a_frame_ends_one_connection() {
    let lie: Lie = |completion| {
        completion.opcode == Opcode::Recv
            && completion.byte_len < FRAME as u32
            && lengthen(completion, FRAME as u32)
    };
    only_one_connection_ends(
        lie,
        |error| matches!(error, ConnectionError::Overlong { found, max } if *found > *max && *max == FRAME as u32),
    );
}

/// Catches a bulk length that is not compared with the announced one.
#[test]
fn a_bulk_receive_longer_than_announced_ends_one_connection() {
    let lie: Lie = |completion| {
        completion.opcode == Opcode::Recv && completion.byte_len == 10_000 && lengthen(completion, 1)
    };
    only_one_connection_ends(lie, |error| matches!(error, ConnectionError::Protocol(_)));
}

/// Catches a slot or a place that is looked up unchecked, or counted twice.
#[test]
fn a_completion_of_no_request_ends_one_connection() {
    let no_slot: Lie = |completion| {
        let is_send = completion.opcode == Opcode::Send;
        if is_send {
            // The kind stays; no queue is that long.
            completion.id = WrId(completion.id.0 | 0x00ff_fff0);
        }
        is_send
    };
    only_one_connection_ends(no_slot, |error| matches!(error, ConnectionError::UnknownCompletion(_)));
    let no_kind: Lie = |completion| {
        completion.id = WrId(completion.id.0 | 0xff00_0000);
        true
    };
    only_one_connection_ends(no_kind, |error| matches!(error, ConnectionError::UnknownCompletion(_)));
}
