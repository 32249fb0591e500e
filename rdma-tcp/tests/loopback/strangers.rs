//! Connections to the listener that are no peers

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use futures::future::{join, join_all};
use rdma_async::Node;
use rdma_bare::BareQp;
use rdma_core::{
    CompletionQueue as _, Device as _, FRAME, Lid, Opcode, QpAddress, QpInit, QueuePair as _, Status,
};
use rdma_tcp::{TcpDevice, TcpOptions};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{Pair, TIMEOUT, completion, open, run, transfer};

/// A hello as this version of the protocol writes it
fn hello(from: QpAddress, to: QpAddress) -> Vec<u8> {
    [b"rdmatc\x01\x01".as_slice(), &from.to_bytes(), &to.to_bytes()].concat()
}

/// Writes `bytes` and returns the answer, up to the end of the connection
async fn call(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // The device may have closed it already.
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    let read = tokio::time::timeout(TIMEOUT, stream.read_to_end(&mut answer)).await;
    let _ = read.expect("the device closes the connection of a stranger in time");
    answer
}

/// Catches a stranger that gets an answer: garbage, silence, and hellos that name queue pairs almost right.
#[test]
fn strangers_are_closed_without_an_answer() {
    run(async {
        let device = open().unwrap();
        let cq = device.create_cq(16).unwrap();
        let qp = cq.create_qp(&QpInit::with_frames(8)).unwrap();
        let (own, address) = (qp.address(), device.local_addr());
        let peer = QpAddress { lid: Lid(1), ..own };
        qp.connect(&peer).unwrap();
        let garbage = [vec![], b"GET / HTTP/1.1\r\n\r\n".to_vec(), vec![0; 1 << 16], b"rdma".to_vec()];
        let wrong = [
            hello(peer, QpAddress { lid: Lid(own.lid.0 ^ 1), ..own }),
            hello(peer, QpAddress { qpn: rdma_core::Qpn(own.qpn.0 ^ 1), ..own }),
            hello(QpAddress { lid: Lid(2), ..peer }, own),
            hello(QpAddress { psn: rdma_core::Psn(peer.psn.0 ^ 0x1_0000), ..peer }, own),
        ];
        let calls = garbage.iter().chain(&wrong).map(|bytes| call(address, bytes));
        for answer in join_all(calls).await {
            assert_eq!(answer, b"");
        }
    });
}

/// Catches a device that takes the connection of a stranger for its peer's, once the true peer is known.
#[test]
fn a_stranger_before_the_peer_changes_nothing() {
    run(async {
        let init = QpInit::with_frames(64);
        let [mut a, mut b] = [(); 2].map(|()| BareQp::new(open().unwrap(), &init, 64 * FRAME).unwrap());
        let mut strangers = Vec::new();
        for (target, other) in [(&a, &b), (&b, &a)] {
            let from = QpAddress { lid: Lid(other.qp().address().lid.0 ^ 1), ..other.qp().address() };
            let mut stream = TcpStream::connect(target.device().local_addr()).await.unwrap();
            stream.write_all(&hello(from, target.qp().address())).await.unwrap();
            strangers.push(stream);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        a.connect(&b).unwrap();
        b.recv(1, 0..64).unwrap();
        a.send(1, 0..64).unwrap();
        assert_eq!(completion(&mut b).await.status, Status::Success);
        a.recv(2, FRAME..FRAME + 64).unwrap();
        b.send(2, FRAME..FRAME + 64).unwrap();
        while completion(&mut a).await.opcode != Opcode::Recv {}
    });
}

/// Catches a listener that strangers fill up: a thousand connections, silent or with garbage, stay open beside a session that is
/// made and used meanwhile.
#[test]
fn a_session_works_beside_a_port_scanner() {
    run(async {
        let addresses: [std::sync::Arc<std::sync::Mutex<Vec<SocketAddr>>>; 2] = Default::default();
        let node = |end: usize| {
            let addresses = std::sync::Arc::clone(&addresses[end]);
            let open = move || {
                let device: TcpDevice = open()?;
                addresses.lock().unwrap().push(device.local_addr());
                Ok::<_, rdma_tcp::BindError>(device)
            };
            Node::builder(open).build().unwrap()
        };
        let (a, b) = (node(0), node(1));
        let scan = async {
            let mut open = Vec::new();
            for number in 0..500 {
                for end in [0, 1] {
                    let address = addresses[end].lock().unwrap()[0];
                    let mut stream = TcpStream::connect(address).await.unwrap();
                    if number % 2 == 0 {
                        let _ = stream.write_all(&[number as u8; 100]).await;
                    }
                    open.push(stream);
                }
            }
            open
        };
        let talk = async {
            let pair = Pair::new(a, b).await;
            transfer(&pair.ab, &pair.ba, &[100, 1 << 20, 4096].repeat(10)).await;
            pair
        };
        let (open, pair) = join(scan, talk).await;
        transfer(&pair.ba, &pair.ab, &[100, 1 << 20, 4096]).await;
        assert_eq!(pair.ab.snapshot().paths[0].counts.made, 1);
        drop(open);
        pair.end().await;
    });
}

/// Catches a limit on half-open connections that refuses a peer: the strangers stay for longer than the peer may take.
#[test]
fn silent_strangers_do_not_keep_a_peer_out() {
    run(async {
        let open = || {
            let options = TcpOptions::new().connect_timeout(Duration::from_secs(2));
            TcpDevice::bind((Ipv4Addr::LOCALHOST, 0).into(), options).unwrap()
        };
        let devices = [open(), open()];
        let mut strangers = Vec::new();
        for address in devices.iter().map(TcpDevice::local_addr) {
            for _ in 0..200 {
                strangers.push(TcpStream::connect(address).await.unwrap());
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        let [a, b] = devices;
        let [mut a, mut b] = BareQp::pair(a, b, 64 * FRAME).unwrap();
        b.recv(1, 0..64).unwrap();
        a.send(1, 0..64).unwrap();
        assert_eq!(completion(&mut b).await.status, Status::Success);
        drop(strangers);
    });
}
