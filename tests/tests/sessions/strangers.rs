//! Strangers on the bootstrap streams of a node whose session is in full transfer: the session keeps its goodput, each attempt ends

use std::cell::Cell;
use std::time::Duration;

use futures::future::{join, join_all};
use rdma_async::{ConnectError, ConnectStage, HelloError, Node, NodeOptions};
use rdma_core::session::{ControlMessage, Hello, Limits};
use rdma_sim::{Net, Sim, SimDevice};
use rdma_tests::{Pair, connect, hello, node, on_session, options};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

use super::hostile::transfer;
use super::shared_key::keyed;

/// Strangers at once
const COUNT: usize = 200;
/// How long an attempt may take.
const LIMIT: Duration = Duration::from_secs(10);
/// How long a slow stranger takes for a byte.
const BYTE: Duration = Duration::from_millis(100);
/// How long all others wait between two attempts.
const PAUSE: Duration = Duration::from_micros(500);

/// What a stranger does
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stranger {
    /// Introduces itself one byte at a time
    Slow,
    /// Connects, and closes, stays silent for a moment, or sends what is no introduction
    Scanner,
    /// Has another key, or none
    WrongKey,
    /// Introduces itself correctly, and sends nothing more
    Introduced,
}

/// What a peer says first
fn introduction(has_key: bool) -> Vec<u8> {
    if has_key {
        return [Hello::sealed_head().as_slice(), &[9; Hello::PROOF_LEN]].concat();
    }
    let limits = Limits { max_message: 4 << 20, max_sessions: 16, max_streams: 16, stream_share: 128 };
    hello(limits).to_bytes().to_vec()
}

/// Waits for the node to end the stream
async fn wait_for_the_end(mut stream: DuplexStream) {
    while stream.read_u8().await.is_ok() {}
}

impl Stranger {
    /// What the stranger does with the stream of attempt `number`
    async fn speak(self, net: &Net, mut stream: DuplexStream, number: usize, has_key: bool) {
        match self {
            Self::Slow => {
                let first = introduction(has_key);
                for byte in first.into_iter().chain([0; 2 * ControlMessage::LEN]) {
                    if stream.write_u8(byte).await.is_err() {
                        break;
                    }
                    net.sleep(BYTE).await;
                }
                wait_for_the_end(stream).await;
            }
            Self::Scanner => {
                let first = introduction(has_key);
                let bytes: &[u8] = match number % 6 {
                    0 => b"",
                    1 => b"GET / HTTP/1.1\r\n\r\n",
                    2 => &first[..Hello::HEAD_LEN],
                    3 => &first[..first.len() - 1],
                    4 => &[0xff; 1000],
                    _ => b"\x16\x03\x01",
                };
                // The node may have ended the stream before.
                let _ = stream.write_all(bytes).await;
                if number.is_multiple_of(2) {
                    net.sleep(Duration::from_micros(100)).await;
                }
            }
            Self::WrongKey => {
                stream.write_all(&introduction(number.is_multiple_of(2))).await.unwrap();
                wait_for_the_end(stream).await;
            }
            Self::Introduced => {
                stream.write_all(&introduction(false)).await.unwrap();
                let mut theirs = [0; Hello::LEN];
                stream.read_exact(&mut theirs).await.unwrap();
                let theirs = Hello::from_bytes(&theirs).unwrap();
                stream.write_all(&ControlMessage::Confirm(theirs.nonce).to_bytes()).await.unwrap();
                wait_for_the_end(stream).await;
            }
        }
    }

    /// Whether an attempt may end so, after this time
    fn may_end(self, error: &ConnectError, took: Duration, has_key: bool) -> bool {
        use ConnectError::{Peer, Stream, Timeout};
        match self {
            Self::Slow if has_key => {
                // The last byte of its proof.
                let last = BYTE * (Hello::HEAD_LEN + Hello::PROOF_LEN - 1) as u32;
                matches!(error, Peer(HelloError::WrongKey)) && took == last
            }
            Self::Slow => {
                matches!(error, Timeout { stage: ConnectStage::Answer, waited } if *waited == LIMIT)
                    && took == LIMIT
            }
            Self::Scanner => {
                let is_typed = matches!(error, Stream(_) | Peer(HelloError::ForeignProtocol));
                is_typed && took <= Duration::from_micros(100)
            }
            Self::WrongKey => {
                matches!(error, Peer(HelloError::WrongKey | HelloError::KeyMissing)) && took.is_zero()
            }
            Self::Introduced => {
                matches!(error, Timeout { stage: ConnectStage::Path, waited } if *waited == LIMIT)
                    && took == LIMIT
            }
        }
    }

    /// Attempts until `is_over`; how many ended
    async fn attempt(
        self,
        net: &Net,
        node: &Node<SimDevice>,
        first: usize,
        has_key: bool,
        is_over: &Cell<bool>,
    ) -> usize {
        let period = if self == Self::Slow { BYTE } else { PAUSE };
        net.sleep(period * first as u32 / COUNT as u32).await;
        let mut count = 0;
        while !is_over.get() {
            let number = first + count;
            let (ours, theirs) = tokio::io::duplex(1024);
            let start = net.now();
            let serve = async { (node.serve(theirs).await, net.now() - start) };
            let ((served, took), ()) = join(serve, self.speak(net, ours, number, has_key)).await;
            let error = served.unwrap_err();
            assert!(self.may_end(&error, took, has_key), "{self:?} {number}: {error} after {took:?}");
            count += 1;
            net.sleep(PAUSE).await;
        }
        count
    }
}

/// How long the honest transfer takes alone
fn alone(options: &NodeOptions) -> Duration {
    let honest = async |net: Net, pair: Pair| transfer(&net, &pair.ab, &pair.ba).await;
    on_session(Sim::new().sanitize(false), options, honest)
}

/// How long it takes beside strangers
fn beside(stranger: Stranger, has_key: bool, options: &NodeOptions) -> Duration {
    on_session(Sim::new().sanitize(false), options, async |net, Pair { a, b, ab, ba }| {
        let other = node(&net, "a", options);
        let is_over = Cell::new(false);
        let strangers =
            join_all((0..COUNT).map(|first| stranger.attempt(&net, &b, first, has_key, &is_over)));
        let honest = async {
            let before = (b.pool_stats(), net.objects());
            net.sleep(if stranger == Stranger::Slow { LIMIT / 2 } else { 4 * PAUSE }).await;
            let took = transfer(&net, &ab, &ba).await;
            net.sleep(Duration::from_millis(1)).await;
            assert_eq!((b.pool_stats(), net.objects()), before, "{stranger:?}");
            drop(connect(&other, &b).await.expect("strangers are in the way of no peer"));
            is_over.set(true);
            took
        };
        let (took, counts) = join(honest, strangers).await;
        // Some attempts last as long as one may.
        let least = if matches!(stranger, Stranger::Slow | Stranger::Introduced) { 1 } else { 10 };
        let count = counts.iter().sum::<usize>();
        assert!(count >= least * COUNT, "{stranger:?}: {count} attempts");
        drop(connect(&other, &b).await.expect("nothing is left of the strangers"));
        b.close();
        drop((ab, ba));
        net.sleep(Duration::from_secs(5)).await;
        assert!(b.pool_stats().is_whole(), "{stranger:?}: {:?}", b.pool_stats());
        drop(a);
        took
    })
}

/// Catches an introduction that takes memory of a peer, or that has no bound in time, and one that ends without its reason.
#[test]
fn a_session_keeps_its_goodput_beside_strangers_on_the_bootstrap() {
    use Stranger::{Introduced, Scanner, Slow, WrongKey};
    for (has_key, strangers) in [(false, [Slow, Scanner, Introduced]), (true, [Slow, Scanner, WrongKey])] {
        let options = if has_key { keyed(1) } else { options() };
        let options = options.connect_timeout(LIMIT);
        let alone = alone(&options);
        for stranger in strangers {
            let beside = beside(stranger, has_key, &options);
            let part = alone.as_secs_f64() / beside.as_secs_f64();
            assert!(part >= 0.9, "{stranger:?}, {has_key}: {part:.3} of the goodput");
        }
    }
}
