//! `tb5 copy` between two machines: one listens, the other one sends

mod address;
mod carriers;
mod listen;
mod request;
mod send;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use rdma_async::{AnyDevice, Node, NodeOptions, RecvError, SendError, Session, SessionError, SharedKey};
use serde::Serialize;

pub(super) use self::address::Place;
use self::carriers::Carried;
pub(super) use self::listen::listen;
pub(super) use self::send::send;
use super::agreed::Stopped;
use crate::failure::at;
use crate::signals::Interrupt;

/// The time for a step of the introduction.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time for a word to the peer before the program ends.
const FAREWELL: Duration = Duration::from_secs(2);
/// How often it is checked whether the user has asked to stop.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// The code with which a side that fails resets the session.
const FAILED: u64 = 1;

#[derive(Debug, Serialize)]
struct Outcome<'a> {
    /// `machines`: a copy between two of them
    backend: &'static str,
    role: &'static str,
    peer: String,
    path: &'a Path,
    bytes: u64,
    resumed_bytes: u64,
    blake3: String,
    wall_seconds: f64,
    goodput_bytes_per_second: f64,
    #[serde(flatten)]
    carried: Carried,
}

/// A runtime on this thread
fn runtime() -> Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().context("the runtime cannot be started")
}

/// The options of a node, with the key in the file `key`
fn options(key: Option<&Path>) -> Result<NodeOptions> {
    let options = NodeOptions::new();
    let Some(path) = key else { return Ok(options) };
    let text = std::fs::read_to_string(path).with_context(|| at(path, "cannot be read"))?;
    let key = text.parse::<SharedKey>();
    let why = || at(path, "holds no key: make one with `openssl rand -hex 32`");
    Ok(options.shared_key(key.with_context(why)?))
}

/// Waits until the user asks to stop
async fn interrupted(interrupt: &Interrupt) {
    while !interrupt.is_requested() {
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
}

/// What `work` returns, unless the user asks to stop before
async fn unless_interrupted<T>(interrupt: &Interrupt, work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::select! {
        done = work => done,
        () = interrupted(interrupt) => bail!(Stopped::Interrupted),
    }
}

/// Ends a session, and gives the peer time to learn of it
async fn part<T>(node: Node<AnyDevice>, session: Session<AnyDevice>, done: &Result<T>) {
    let over = async {
        match done {
            // Both sides know the outcome already.
            Ok(_) => drop(session.close().await),
            Err(_) => session.reset(FAILED),
        }
        drop(session);
        node.close();
        node.wait_idle().await;
    };
    // A peer that is gone learns nothing.
    let _ = tokio::time::timeout(FAREWELL, over).await;
}

/// Says whose failure it was
fn explain(error: anyhow::Error) -> anyhow::Error {
    let lost = |error: &(dyn std::error::Error + 'static)| match (error.downcast_ref(), error.downcast_ref())
    {
        (Some(RecvError::Lost(lost)), _) | (_, Some(SendError::Lost(lost))) => Some(lost.clone()),
        _ => None,
    };
    match error.chain().find_map(lost) {
        Some(SessionError::Reset(_)) => anyhow!("the other side has given up, and says why"),
        Some(SessionError::PeerGone) => anyhow!("the program at the other side has ended"),
        _ => error,
    }
}
