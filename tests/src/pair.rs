use std::pin::Pin;

use futures::future::try_join;
use rdma_async::{ConnectError, Connection, Device, Endpoint, EndpointOptions, Lease};
use rdma_bare::BareQp;
use rdma_sim::{Net, Sim, SimDevice};

/// The device with the cable of [`rdma_sim::Topology::pair`], on both Macs
pub const DEVICE: &str = "rdma_en2";

/// Two Macs and the connection between them
#[derive(Debug)]
pub struct Pair {
    /// Endpoint of Mac `a`
    pub a: Endpoint<SimDevice>,
    /// Endpoint of Mac `b`
    pub b: Endpoint<SimDevice>,
    /// The connection, as `a` sees it
    pub ab: Connection<SimDevice>,
    /// The connection, as `b` sees it
    pub ba: Connection<SimDevice>,
}

/// What `program` returns in `sim`
pub fn value_of<T>(sim: Sim, program: impl AsyncFnOnce(Net) -> T) -> T {
    sim.run(|net| program(net)).value
}

/// The default options
pub fn options() -> EndpointOptions {
    EndpointOptions::new()
}

/// An endpoint on the cabled device of `host`
pub fn endpoint(net: &Net, host: &str, options: &EndpointOptions) -> Endpoint<SimDevice> {
    endpoint_on(net, net.open(host, DEVICE).expect("the device of the pair is there"), options)
}

/// An endpoint on `device`
pub fn endpoint_on<D: Device>(net: &Net, device: D, options: &EndpointOptions) -> Endpoint<D> {
    let builder = Endpoint::builder(device).runtime(net.runtime()).options(options.clone());
    builder.build().expect("the options are usable")
}

/// Endpoints on both Macs
pub fn endpoints(net: &Net, options: &EndpointOptions) -> (Endpoint<SimDevice>, Endpoint<SimDevice>) {
    (endpoint(net, "a", options), endpoint(net, "b", options))
}

/// Memory with a message of `len` zeros, to be sent on `connection`
pub async fn zeros<D: Device>(connection: &Connection<D>, len: usize) -> Lease {
    let mut lease = connection.alloc(len).await.expect("the memory holds such messages");
    lease.resize(len, 0);
    lease
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

/// A connection between two endpoints, as each of them sees it
///
/// # Errors
///
/// Those of [`Endpoint::connect`].
pub async fn connect<A: Device, B: Device>(
    a: &Endpoint<A>,
    b: &Endpoint<B>,
) -> Result<(Connection<A>, Connection<B>), ConnectError> {
    let (to_b, to_a) = tokio::io::duplex(256);
    try_join(a.connect(to_b), b.accept(to_a)).await
}

/// Two connected Macs
pub async fn connected(net: &Net, options: &EndpointOptions) -> Pair {
    let (a, b) = endpoints(net, options);
    let (ab, ba) = connect(&a, &b).await.expect("a fresh pair connects");
    Pair { a, b, ab, ba }
}

/// Runs `program` with two connected Macs in `sim`, and returns its value
pub fn on_connection<T>(sim: Sim, options: &EndpointOptions, program: impl AsyncFnOnce(Net, Pair) -> T) -> T {
    value_of(sim, async |net| {
        let pair = connected(&net, options).await;
        program(net, pair).await
    })
}
