//! One thread posts, two poll: what the thread sanitizer looks at
#![cfg(unix)]
#![allow(unsafe_code, reason = "tests name memory and call the verbs themselves")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use rdma_core::{
    Cause, Completion, CompletionQueue, Device, Lkey, QpCapacity, QpInit, QueuePair, RecvRequest, Sge, WrId,
};
use rdma_tb5::{OpenOptions, VerbsDevice};
use rdma_tests::stub;

const COUNT: u32 = 20_000;

/// Mutant: the lock of a completion queue taken with `Relaxed` is a race that the thread sanitizer reports.
#[test]
fn posts_and_polls_of_three_threads_lose_nothing() {
    let provider = stub::provider();
    let device = VerbsDevice::open(&provider, stub::DEVICE, OpenOptions::new()).unwrap();
    let cq = device.create_cq(64).unwrap();
    let capacity = QpCapacity { recv_frames: 40, send_frames: 1 };
    let qp = cq.create_qp(&QpInit { capacity, ..QpInit::default() }).unwrap();
    let polled = AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut out = [Completion::default(); 8];
                while polled.load(Ordering::Relaxed) < COUNT {
                    let n = cq.poll(&mut out).unwrap();
                    polled.fetch_add(n as u32, Ordering::Relaxed);
                    if n == 0 {
                        thread::yield_now();
                    }
                }
            });
        }
        let sgl = [Sge { addr: 4096, len: 3 * 4096, lkey: Lkey(0x101) }];
        let mut posted = 0;
        while posted < COUNT {
            // SAFETY: the stub does not look at the memory.
            match unsafe { qp.post_recv(&RecvRequest { id: WrId(1), sgl: &sgl }) } {
                Ok(()) => posted += 1,
                Err(error) => {
                    assert_eq!(error.cause, Cause::QueueFull);
                    thread::yield_now();
                }
            }
        }
    });
    assert_eq!(polled.into_inner(), COUNT);
}
