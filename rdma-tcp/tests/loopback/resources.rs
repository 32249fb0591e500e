//! Threads, processor time and sockets of a device

use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use rdma_bare::BareQp;
use rdma_core::{Completion, CompletionQueue as _, Device as _, FRAME, Opcode};
use rdma_tcp::{TcpDevice, TcpOptions};

use super::{completion, run};

fn named(name: &str) -> TcpDevice {
    TcpDevice::bind((Ipv4Addr::LOCALHOST, 0).into(), TcpOptions::new().name(name)).unwrap()
}

/// How often the threads of that name have slept; empty if there are none
fn sleeps(name: &str) -> Vec<u64> {
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    let sleeps = tasks.filter_map(|task| {
        // The thread may end meanwhile.
        let found = fs::read_to_string(task.path().join("comm")).ok()?;
        let status =
            (found.trim() == name).then(|| fs::read_to_string(task.path().join("status")).ok())??;
        let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches"))?.to_owned();
        line.split_whitespace().nth(1)?.parse().ok()
    });
    sleeps.collect()
}

/// Catches a thread that spins, or that wakes up by itself, once two queue pairs are connected and at rest.
#[test]
fn an_idle_device_sleeps() {
    run(async {
        let [mut a, mut b] = BareQp::pair(named("idle-a"), named("idle-b"), 64 * FRAME).unwrap();
        b.recv(1, 0..64).unwrap();
        a.send(1, 0..64).unwrap();
        completion(&mut a).await;
        completion(&mut b).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        let before = [sleeps("idle-a"), sleeps("idle-b")];
        assert!(before.iter().all(|threads| threads.len() == 1), "one thread each: {before:?}");
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!([sleeps("idle-a"), sleeps("idle-b")], before);
    });
}

/// Catches a thread or a listener that outlives its device, and a device that ends while objects of it exist.
#[test]
fn nothing_is_left_of_a_device() {
    let device = named("gone");
    let address = device.local_addr();
    let cq = device.create_cq(16).unwrap();
    // A thread takes its name when it begins.
    while sleeps("gone").is_empty() {
        std::thread::yield_now();
    }
    drop(device);
    assert_eq!(sleeps("gone").len(), 1, "the completion queue keeps it");
    drop(TcpStream::connect(address).unwrap());
    assert_eq!(cq.poll(&mut [Completion::default()]), Ok(0));
    drop(cq);
    // The system lists a thread for a moment after it was joined.
    let is_gone = (0..5_000).any(|_| {
        std::thread::sleep(Duration::from_millis(1));
        sleeps("gone").is_empty()
    });
    assert!(is_gone, "its thread is still there");
    assert!(TcpStream::connect(address).is_err());
}

/// Catches sockets that stay open after their queue pairs are gone.
#[test]
fn a_thousand_queue_pairs_leave_no_socket() {
    run(async {
        // Sockets of other tests come and go: only a leak of all is seen.
        let count = || fs::read_dir("/proc/self/fd").unwrap().count();
        let (before, [device, peer]) = (count(), [named("fds-a"), named("fds-b")]);
        let [device, peer] = [device, peer].map(rdma_core::AnyDevice::new);
        for _ in 0..500 {
            let [mut a, mut b] = BareQp::pair(device.clone(), peer.clone(), FRAME).unwrap();
            b.recv(1, 0..64).unwrap();
            a.send(1, 0..64).unwrap();
            while b.completion().await.unwrap().opcode != Opcode::Recv {}
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(count() < before + 250, "{} after {before}", count());
    });
}
