//! A long stream of bytes, as messages that are written and read in place
//!
//! `cargo run --example stream_copy`, or on two machines `-- --device NAME --listen ADDRESS` and `-- --device NAME --connect ADDRESS`.
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "a program")]

mod backend;

use std::error::Error;
use std::io::{self, Read as _, Write as _};
use std::process::ExitCode;

use futures::{TryFutureExt as _, TryStreamExt as _, stream};
use rdma_async::Node;

use self::backend::{End, Result};

/// Bytes in the stream, and in a message.
const LEN: u64 = 64 << 20;
const CHUNK: usize = 1 << 20;

fn main() -> ExitCode {
    backend::run("", write, read)
}

/// Writes the messages to a sink: a file, a pipe; here, to none
async fn write(end: End) -> Result {
    let node = Node::builder(end.opener()).runtime(end.runtime()).build()?;
    node.serve(end.stream().await?).await?;
    let session = node.accept().await.ok_or("the node is closed")?;
    let (mut sink, mut bytes, mut messages) = (io::sink(), 0, 0);
    let mut incoming = session.messages();
    while let Some(message) = incoming.try_next().await? {
        // The bytes are where the device put them; dropping the message frees them for the next one.
        sink.write_all(&message)?;
        bytes += message.len();
        messages += 1;
    }
    // The peer has closed; wait until it knows that everything arrived.
    drop(incoming);
    drop(session);
    node.wait_idle().await;
    println!("received {bytes} bytes in {messages} messages");
    Ok(())
}

/// Reads a source into leases: a file, a pipe; here, a repeated byte
async fn read(end: End) -> Result {
    let runtime = end.runtime();
    let node = Node::builder(end.opener()).runtime(end.runtime()).build()?;
    let session = node.connect(end.stream().await?).await?;
    let source = io::repeat(7).take(LEN);
    let start = runtime.now();
    // ANCHOR: in_flight
    let sends = stream::try_unfold(source, async |mut source| {
        let mut lease = session.alloc(CHUNK).await?;
        io::copy(&mut source.by_ref().take(CHUNK as u64), &mut lease)?;
        let is_end = lease.is_empty();
        Ok::<_, Box<dyn Error>>((!is_end).then(|| (session.send(lease).err_into(), source)))
    });
    // Eight chunks are on their way while the next one is read.
    sends.try_buffered(8).try_for_each(async |_lease| Ok(())).await?;
    // A send that resolves frees its lease, and does not say that the message arrived: closing waits for that.
    session.close().await?;
    // ANCHOR_END: in_flight
    let seconds = (runtime.now() - start).as_secs_f64();
    drop(session);
    node.wait_idle().await;
    println!("sent {LEN} bytes, {:.1} GB/s", LEN as f64 / seconds / 1e9);
    Ok(())
}
