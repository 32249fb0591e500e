//! A peer process that is killed

use std::env;
use std::process::{Command, Stdio};
use std::time::Duration;

use rdma_async::{Node, NodeOptions, RecvError, SessionError};
use tokio::net::{TcpListener, TcpStream};

use super::{TIMEOUT, open, run};

const PEER: &str = "RDMA_TCP_PEER";
const PEER_TIMEOUT: Duration = Duration::from_secs(1);

/// The process that is killed
#[test]
#[ignore = "a process of the test below"]
fn the_peer() {
    let address = env::var(PEER).expect("the address of the other process");
    run(async {
        let node =
            Node::builder(open).options(NodeOptions::new().peer_timeout(PEER_TIMEOUT)).build().unwrap();
        let session = node.connect(TcpStream::connect(address).await.unwrap()).await.unwrap();
        // Until it is killed.
        loop {
            session.send_bytes(&[1; 100_000]).await.unwrap();
        }
    });
}

/// Catches a session that does not notice the death of its peer, by the sockets or by their silence.
#[test]
fn a_peer_process_that_is_killed_is_lost_within_the_timeout() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut peer = Command::new(env::current_exe().unwrap())
            .args(["--exact", "killed::the_peer", "--ignored"])
            .env(PEER, listener.local_addr().unwrap().to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let node =
            Node::builder(open).options(NodeOptions::new().peer_timeout(PEER_TIMEOUT)).build().unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        node.serve(stream).await.unwrap();
        let session = node.accept().await.unwrap();
        for _ in 0..20 {
            assert_eq!(session.recv().await.unwrap().unwrap().len(), 100_000);
        }
        peer.kill().unwrap();
        peer.wait().unwrap();
        let killed = tokio::time::Instant::now();
        let lost = loop {
            match session.recv().await {
                Ok(Some(message)) => assert_eq!(message.len(), 100_000),
                Ok(None) => panic!("the peer did not close the session"),
                Err(lost) => break lost,
            }
        };
        assert_eq!(lost, RecvError::Lost(SessionError::PeerLost(PEER_TIMEOUT)));
        assert!(killed.elapsed() < TIMEOUT / 2, "{:?}", killed.elapsed());
        drop(session);
        node.wait_idle().await;
        assert!(node.pool_stats().is_whole());
    });
}
