/// What a connection has done so far
///
/// ```
/// # use rdma_async::*;
/// # use rdma_sim::Sim;
/// # Sim::new().run(async |net| {
/// # let open = |host| Endpoint::builder(net.open(host, "rdma_en2").unwrap()).runtime(net.runtime()).build();
/// # let (endpoint, other) = (open("a").unwrap(), open("b").unwrap());
/// # let (to_b, to_a) = tokio::io::duplex(256);
/// # let pair = futures::future::try_join(endpoint.connect(to_b), other.accept(to_a)).await.unwrap();
/// # let (connection, peer) = pair;
/// connection.send_bytes(b"hello").await?;
/// assert_eq!(connection.stats().messages_sent, 1);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).value.unwrap();
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct ConnectionStats {
    /// Messages that are queued or under way, or whose outcome is still to be collected
    pub messages_in_flight: usize,
    /// Messages that the application has queued
    pub messages_queued: u64,
    /// Messages that have left this side
    pub messages_sent: u64,
    /// Messages that have arrived, read or not
    pub messages_received: u64,
}
