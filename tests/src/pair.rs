use std::pin::Pin;
use std::sync::Arc;

use futures::future::{join, try_join};
use rdma_async::{ConnectError, Device, Lease, Node, NodeOptions, Priority, Session, Stream};
use rdma_bare::BareQp;
use rdma_sim::{Net, Sim, SimDevice};

use crate::hooked::{Hooked, Hooks};

/// The device with the cable of [`rdma_sim::Topology::pair`], on both Macs
pub const DEVICE: &str = "rdma_en2";

/// Two Macs and a session between them
#[derive(Debug)]
pub struct Pair {
    /// Node of Mac `a`, which has opened the session
    pub a: Node<SimDevice>,
    /// Node of Mac `b`
    pub b: Node<SimDevice>,
    /// The session, as `a` sees it
    pub ab: Session<SimDevice>,
    /// The session, as `b` sees it
    pub ba: Session<SimDevice>,
}

/// What `program` returns in `sim`
pub fn value_of<T>(sim: Sim, program: impl AsyncFnOnce(Net) -> T) -> T {
    sim.run(|net| program(net)).value
}

/// The default options
pub fn options() -> NodeOptions {
    NodeOptions::new()
}

/// A node on the cabled device of `host`
pub fn node(net: &Net, host: &str, options: &NodeOptions) -> Node<SimDevice> {
    node_over(net, host, &[DEVICE], options)
}

/// A node on these devices of `host`
pub fn node_over(net: &Net, host: &str, devices: &[&str], options: &NodeOptions) -> Node<SimDevice> {
    let (first, others) = devices.split_first().expect("a node has a device");
    let builder = Node::builder(net.opener(host, first));
    let builder = others.iter().fold(builder, |builder, device| builder.device(net.opener(host, device)));
    let builder = builder.runtime(net.host(host).runtime()).options(options.clone());
    builder.build().expect("the options are usable")
}

/// A node on the cabled device of `host`, under `hooks`
pub fn hooked_node<H: Hooks>(
    net: &Net,
    host: &str,
    hooks: &Arc<H>,
    options: &NodeOptions,
) -> Node<Hooked<H>> {
    hooked_node_over(net, host, &[DEVICE], hooks, options)
}

/// A node on these devices of `host`, under `hooks`
pub fn hooked_node_over<H: Hooks>(
    net: &Net,
    host: &str,
    devices: &[&str],
    hooks: &Arc<H>,
    options: &NodeOptions,
) -> Node<Hooked<H>> {
    let open = |device: &str| {
        let (open, hooks) = (net.opener(host, device), Arc::clone(hooks));
        move || open().map(|device| Hooked::new(device, &hooks))
    };
    let (first, others) = devices.split_first().expect("a node has a device");
    let builder =
        others.iter().fold(Node::builder(open(first)), |builder, device| builder.device(open(device)));
    let builder = builder.runtime(net.host(host).runtime()).options(options.clone());
    builder.build().expect("the options are usable")
}

/// Nodes on both Macs
pub fn nodes(net: &Net, options: &NodeOptions) -> (Node<SimDevice>, Node<SimDevice>) {
    (node(net, "a", options), node(net, "b", options))
}

/// Memory with a message of `len` zeros, to be sent on `session`
pub async fn zeros<D: Device>(session: &Session<D>, len: usize) -> Lease {
    let mut lease = session.alloc(len).await.expect("the memory holds such messages");
    lease.resize(len, 0);
    lease
}

/// A stream that `from` opens, as both sides see it
pub async fn stream_of<D: Device>(from: &Session<D>, to: &Session<D>) -> (Stream<D>, Stream<D>) {
    let (opened, accepted) = join(from.open_stream(Priority::Normal), to.accept_stream()).await;
    (opened.expect("the session is open"), accepted.expect("it is").expect("it is"))
}

/// The content of message `number`: each of its words of eight bytes differs from all others, also from those of other messages
pub fn message(number: usize, len: usize) -> Vec<u8> {
    let word = |at: u64| ((number as u64 + 1) << 32 | at).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    let mut content: Vec<_> = (0..len.div_ceil(8) as u64).flat_map(word).collect();
    content.truncate(len);
    content
}

/// Two connected queue pairs, on the cabled devices of both Macs, with `len` bytes of memory each
pub fn bare_pair(net: &Net, len: usize) -> [BareQp<SimDevice>; 2] {
    let open = |host| net.open(host, DEVICE).expect("the device of the pair is there");
    BareQp::pair(open("a"), open("b"), len).expect("a fresh pair connects")
}

/// `future`, which has to wait, after its first poll
pub async fn begun<F: Future>(future: F) -> Pin<Box<F>> {
    let mut future = Box::pin(future);
    assert!(futures::poll!(future.as_mut()).is_pending());
    future
}

/// Makes two nodes peers, and a session between them, as each of them sees it
///
/// # Errors
///
/// Those of [`Node::connect`] and [`Node::serve`].
pub async fn connect<A: Device, B: Device>(
    a: &Node<A>,
    b: &Node<B>,
) -> Result<(Session<A>, Session<B>), ConnectError> {
    let (to_b, to_a) = tokio::io::duplex(1024);
    let (ab, ()) = try_join(a.connect(to_b), b.serve(to_a)).await?;
    Ok((ab, b.accept().await.ok_or(ConnectError::Closed)?))
}

/// Two Macs with a session between these devices
///
/// # Errors
///
/// As [`connect`].
pub async fn try_connected(net: &Net, devices: &[&str], options: &NodeOptions) -> Result<Pair, ConnectError> {
    let [a, b] = ["a", "b"].map(|host| node_over(net, host, devices, options));
    let (ab, ba) = connect(&a, &b).await?;
    Ok(Pair { a, b, ab, ba })
}

/// Two Macs with a session between them
pub async fn connected(net: &Net, options: &NodeOptions) -> Pair {
    connected_over(net, &[DEVICE], options).await
}

/// Two Macs with a session between these devices
pub async fn connected_over(net: &Net, devices: &[&str], options: &NodeOptions) -> Pair {
    try_connected(net, devices, options).await.expect("a fresh pair connects")
}

/// Runs `program` with two Macs and a session between them in `sim`, and returns its value
pub fn on_session<T>(sim: Sim, options: &NodeOptions, program: impl AsyncFnOnce(Net, Pair) -> T) -> T {
    value_of(sim, async |net| {
        let pair = connected(&net, options).await;
        program(net, pair).await
    })
}
