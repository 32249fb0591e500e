//! Helpers of both sides of a session

use std::convert::Infallible;
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result};
use rdma_async::{AnyDevice, Node, NodeOptions, PathStatus, Session, SharedKey};
use tokio::time::{Instant, sleep};

use super::carriers::Carried;
use super::limits::{CHECK_INTERVAL, CLOSE_TIMEOUT, LONG_OUTAGE};
use super::reset_code::reset_code;
use crate::failure::at;
use crate::input::read_file;
use crate::report::note;
use crate::signals::{Interrupt, Interrupted};

/// Longer than a file with a key, in bytes.
const MAX_KEY: u64 = 4096;

/// A runtime with a thread for sessions and for watchers, which go on while this one reads, writes, hashes, or calls a verb
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().build().context("the runtime cannot be started")
}

/// The options of a node, with the key in the file `key`
pub(crate) fn key_options(key: Option<&Path>) -> Result<NodeOptions> {
    let options = NodeOptions::new();
    let Some(path) = key else { return Ok(options) };
    let key = read_file(path, MAX_KEY)?.parse::<SharedKey>();
    let why = || at(path, "holds no key: make one with `openssl rand -hex 32`");
    Ok(options.shared_key(key.with_context(why)?))
}

/// Waits until the user asks to stop
pub(crate) async fn interrupted(interrupt: &Interrupt) -> Interrupted {
    loop {
        if let Err(interrupted) = interrupt.check() {
            return interrupted;
        }
        sleep(CHECK_INTERVAL).await;
    }
}

/// Runs `work` to its end, unless the user asks to stop before
pub(crate) async fn unless_interrupted<T>(
    interrupt: &Interrupt,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    tokio::select! {
        // What is done when the user asks is not given up.
        biased;
        done = work => done,
        interrupted = interrupted(interrupt) => Err(interrupted.into()),
    }
}

/// Runs `work` over `session` to its end, unless the user asks to stop before, and returns what has carried it; says when no path to `peer`
/// works for some time
pub(crate) async fn in_session<T>(
    session: &Session<AnyDevice>,
    peer: impl fmt::Display,
    interrupt: &Interrupt,
    work: impl Future<Output = Result<T>>,
) -> (Result<T>, Carried) {
    let is_outage_noted = AtomicBool::new(false);
    let begun = Carried::over(session);
    let done = tokio::select! {
        done = unless_interrupted(interrupt, work) => done,
        never = note_outages(session, &peer, &is_outage_noted) => match never {},
    };
    // The rest of the work took less time than passes between two looks.
    if done.is_ok() && is_outage_noted.into_inner() {
        note_end(&peer);
    }
    let ended = Carried::over(session);
    let devices = if ended.devices.is_empty() { begun.devices } else { ended.devices };
    (done, Carried { devices, ..ended })
}

async fn note_outages(
    session: &Session<AnyDevice>,
    peer: &impl fmt::Display,
    is_outage_noted: &AtomicBool,
) -> Infallible {
    let has_path = || session.snapshot().paths.iter().any(|path| path.status == PathStatus::Up);
    let mut last_path = Instant::now();
    loop {
        sleep(CHECK_INTERVAL).await;
        if has_path() {
            last_path = Instant::now();
        } else if last_path.elapsed() >= LONG_OUTAGE {
            note(&format!("no path to {peer} works: waiting until a cable is back; see `tb5 devices`"));
            is_outage_noted.store(true, Ordering::Relaxed);
            while !has_path() {
                sleep(CHECK_INTERVAL).await;
            }
            note_end(peer);
            is_outage_noted.store(false, Ordering::Relaxed);
        }
    }
}

fn note_end(peer: &impl fmt::Display) {
    note(&format!("a path to {peer} works again"));
}

/// Ends a session, and gives the peer time to learn of it
pub(crate) async fn end_session<T>(node: Node<AnyDevice>, session: Session<AnyDevice>, done: &Result<T>) {
    let over = async {
        match done {
            // Both sides know the outcome already.
            Ok(_) => drop(session.close().await),
            Err(error) => session.reset(reset_code(error)),
        }
        drop(session);
        node.close();
        node.wait_idle().await;
    };
    // A peer that is gone learns nothing.
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, over).await;
}

/// A node for one peer, with memory for `count` messages of `longest` bytes, and twice as much to receive
pub(crate) fn with_memory_for(options: NodeOptions, longest: usize, count: usize) -> NodeOptions {
    let memory = longest * count;
    options.max_peers(1).max_message(longest).send_memory(memory).receive_memory(2 * memory)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use futures::future::try_join;
    use rdma_tcp::{TcpDevice, TcpOptions};

    use super::*;

    /// Regression: a copy named no device if the path was given up, because the receiver had ended, before the sender looked.
    #[test]
    fn a_session_that_the_peer_has_ended_names_what_has_carried_it() {
        let node = || {
            let tcp = TcpOptions::new().name(Carried::TCP);
            let open =
                move || TcpDevice::bind((Ipv4Addr::LOCALHOST, 0).into(), tcp.clone()).map(AnyDevice::new);
            Node::builder(open).build().unwrap()
        };
        let interrupt = Interrupt::listen().unwrap();
        runtime().unwrap().block_on(async {
            let (a, b) = (node(), node());
            let (to_b, to_a) = tokio::io::duplex(1024);
            let (session, ()) = try_join(a.connect(to_b), b.serve(to_a)).await.unwrap();
            let theirs = b.accept().await.unwrap();
            let work = async {
                theirs.close().await?;
                drop(theirs);
                b.close();
                while session.snapshot().paths.iter().any(|path| path.status == PathStatus::Up) {
                    sleep(CHECK_INTERVAL).await;
                }
                Ok(())
            };
            let (done, carried) = in_session(&session, "b", &interrupt, work).await;
            done.unwrap();
            assert_eq!(carried.devices, [Carried::TCP]);
        });
    }
}
