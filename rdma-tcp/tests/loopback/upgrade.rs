//! A session that begins over TCP and moves to a faster device when that can be opened

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rdma_async::{AnyDevice, AnyNode, Node, PathStatus};
use rdma_tcp::{TcpDevice, TcpOptions};

use super::{Pair, open, run, transfer};

/// A node with a TCP port and a port of eight times its rate, which stands in for RDMA and cannot be opened before `is_there`
fn node(is_there: &Arc<AtomicBool>) -> AnyNode {
    let is_there = Arc::clone(is_there);
    let fast = move || {
        if !is_there.load(Ordering::Relaxed) {
            return Err(io::Error::from(io::ErrorKind::NotFound));
        }
        let options = TcpOptions::new().bits_per_second(80_000_000_000).name("fast0");
        let device = TcpDevice::bind((Ipv4Addr::LOCALHOST, 0).into(), options);
        device.map(AnyDevice::new).map_err(io::Error::other)
    };
    Node::builder(|| open().map(AnyDevice::new)).device(fast).build().unwrap()
}

/// Catches a port that is not tried again, and traffic that stays on the slower path.
#[test]
fn a_session_moves_to_the_faster_port_when_it_appears() {
    run(async {
        let is_there = Arc::new(AtomicBool::new(false));
        let pair = Pair::new(node(&is_there), node(&is_there)).await;
        // A path that was never made is not in the snapshot.
        let granted = || {
            let paths = pair.ba.snapshot().paths;
            [0, 1].map(|path| paths.get(path).map_or(0, |path| path.counts.bulk_bytes_granted))
        };
        let is_fast = || pair.ba.snapshot().paths.get(1).is_some_and(|path| path.status == PathStatus::Up);
        let lens = [2 << 20; 8];
        transfer(&pair.ab, &pair.ba, &lens).await;
        assert!(!is_fast());
        assert_eq!(granted(), [16 << 20, 0]);

        is_there.store(true, Ordering::Relaxed);
        // Traffic runs throughout.
        let mut waited = 0;
        while !is_fast() {
            transfer(&pair.ab, &pair.ba, &[64, 1 << 20]).await;
            tokio::time::sleep(Duration::from_millis(1)).await;
            waited += 1;
            assert!(waited < 10_000, "the faster port is tried again: {}", pair.ba.snapshot());
        }
        let before = granted();
        for _ in 0..4 {
            transfer(&pair.ab, &pair.ba, &lens).await;
        }
        let after = granted();
        let [slow, fast] = [after[0] - before[0], after[1] - before[1]];
        assert!(fast > slow, "{fast} bytes over the faster path, {slow} over the other");
        pair.end().await;
    });
}

/// Catches a session that waits for a faster path that is gone, or that does not go back to it.
#[cfg(target_os = "linux")]
#[test]
fn a_session_falls_back_and_moves_again() {
    run(async {
        let network = super::proxy::Network::default();
        let node = || {
            let network = network.clone();
            let fast = move || {
                let options = TcpOptions::new().bits_per_second(80_000_000_000).name("fast0");
                Ok::<_, io::Error>(AnyDevice::new(network.open_with(options)))
            };
            Node::builder(|| open().map(AnyDevice::new)).device(fast).build().unwrap()
        };
        let pair = Pair::new(node(), node()).await;
        let is_fast = || pair.ba.snapshot().paths.get(1).is_some_and(|path| path.status == PathStatus::Up);
        let lens = [64, 2 << 20, 30_000];
        for _ in 0..3 {
            let mut waited = 0;
            while !is_fast() {
                transfer(&pair.ab, &pair.ba, &lens).await;
                waited += 1;
                assert!(waited < 10_000, "the faster path is made again: {}", pair.ba.snapshot());
            }
            network.set_down(true);
            network.cut();
            for _ in 0..4 {
                transfer(&pair.ab, &pair.ba, &lens).await;
            }
            assert!(!is_fast(), "{}", pair.ba.snapshot());
            network.set_down(false);
        }
        pair.end().await;
    });
}
