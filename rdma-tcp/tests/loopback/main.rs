//! The device on the loopback interface: by itself, under sessions, and beside strangers

#[cfg(target_os = "linux")]
mod killed;
#[cfg(target_os = "linux")]
mod outages;
#[cfg(target_os = "linux")]
mod proxy;
mod queue_pairs;
#[cfg(target_os = "linux")]
mod resources;
mod sessions;
mod strangers;
mod upgrade;

use std::net::Ipv4Addr;
use std::time::Duration;

use futures::future::{join, try_join};
use rdma_async::{Device, Node, NodeOptions, Session};
use rdma_bare::BareQp;
use rdma_core::Completion;
use rdma_tcp::{BindError, TcpDevice, TcpOptions};

/// How long anything may take that has to happen.
const TIMEOUT: Duration = Duration::from_secs(60);

fn open() -> Result<TcpDevice, BindError> {
    TcpDevice::bind((Ipv4Addr::LOCALHOST, 0).into(), TcpOptions::new())
}

/// Two nodes with a session between them
struct Pair<D: Device> {
    a: Node<D>,
    b: Node<D>,
    ab: Session<D>,
    ba: Session<D>,
}

impl<D: Device> Pair<D> {
    /// Connects two nodes over a pipe
    async fn new(a: Node<D>, b: Node<D>) -> Self {
        let (to_b, to_a) = tokio::io::duplex(64 << 10);
        let (ab, ()) = try_join(a.connect(to_b), b.serve(to_a)).await.unwrap();
        let ba = b.accept().await.unwrap();
        Self { a, b, ab, ba }
    }

    /// Closes the session, and checks that all memory of the nodes is free again
    async fn end(self) {
        let Self { a, b, ab, ba } = self;
        let (closed, end) = join(ab.close(), ba.recv()).await;
        closed.unwrap();
        assert!(end.unwrap().is_none());
        drop((ab, ba));
        join(a.wait_idle(), b.wait_idle()).await;
        assert!(a.pool_stats().is_whole() && b.pool_stats().is_whole());
    }
}

async fn connected() -> Pair<TcpDevice> {
    let node = || Node::builder(open).options(NodeOptions::new()).build().unwrap();
    Pair::new(node(), node()).await
}

/// The content of a message: no two numbers have the same
fn content(number: usize, len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..len).map(|at| (number * 31 + at * 7 + at / 251) as u8).collect();
    let number = (number as u64).to_le_bytes();
    let n = len.min(number.len());
    bytes[..n].copy_from_slice(&number[..n]);
    bytes
}

/// Sends messages of these lengths and checks that each arrives once and in order
async fn transfer<D: Device>(from: &Session<D>, to: &Session<D>, lens: &[usize]) {
    let send = async {
        for (number, &len) in lens.iter().enumerate() {
            let mut lease = from.alloc(len).await.unwrap();
            lease.extend_from_slice(&content(number, len));
            drop(from.send(lease).await.unwrap());
        }
    };
    let receive = async {
        for (number, &len) in lens.iter().enumerate() {
            let message = to.recv().await.unwrap().expect("a message, not the end");
            assert!(*message == content(number, len), "message {number} of {len} bytes");
        }
    };
    join(send, receive).await;
}

/// Runs `test` on two threads, with a bound on its time
fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(TIMEOUT, test).await.expect("the test ends in time") });
}

/// The next completion, within a bound
async fn completion(qp: &mut BareQp<TcpDevice>) -> Completion {
    tokio::time::timeout(TIMEOUT, qp.completion()).await.expect("a completion in time").unwrap()
}
