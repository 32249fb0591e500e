//! Helpers of both sides of a session

use std::convert::Infallible;
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result};
use rdma_async::{AnyDevice, Node, NodeOptions, PathStatus, Session, SharedKey};
use tokio::time::{Instant, sleep};

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
        done = work => done,
        interrupted = interrupted(interrupt) => Err(interrupted.into()),
    }
}

/// Runs `work` over `session` to its end, unless the user asks to stop before; says when no path to `peer` works for some time
pub(crate) async fn in_session<T>(
    session: &Session<AnyDevice>,
    peer: impl fmt::Display,
    interrupt: &Interrupt,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    let is_outage_noted = AtomicBool::new(false);
    let done = tokio::select! {
        done = unless_interrupted(interrupt, work) => done,
        never = note_outages(session, &peer, &is_outage_noted) => match never {},
    };
    // The rest of the work took less time than passes between two looks.
    if done.is_ok() && is_outage_noted.into_inner() {
        note_end(&peer);
    }
    done
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
