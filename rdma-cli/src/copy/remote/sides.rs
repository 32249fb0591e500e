//! What both sides of a copy between machines do alike

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use rdma_async::{AnyDevice, Node, NodeOptions, RecvError, SendError, Session, SessionError, SharedKey};
use serde::Serialize;

use super::carriers::Carried;
use crate::copy::agreed::Stopped;
use crate::copy::words::rate;
use crate::failure::at;
use crate::signals::Interrupt;

/// The time for a step of the introduction.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// The time for a word to the peer before the program ends.
const FAREWELL: Duration = Duration::from_secs(2);
/// How often it is checked whether the user has asked to stop.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// The code with which a side that fails resets the session.
pub(super) const FAILED: u64 = 1;

#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    /// What carried the copy at its end: `rdma` or `tcp`
    pub(super) backend: &'static str,
    pub(super) role: &'static str,
    pub(super) peer: String,
    pub(super) path: String,
    pub(super) bytes: u64,
    pub(super) resumed_bytes: u64,
    pub(super) blake3: String,
    pub(super) wall_seconds: f64,
    pub(super) goodput_bytes_per_second: f64,
    #[serde(flatten)]
    pub(super) carried: Carried,
}

impl Outcome {
    /// The rows of text output that both sides have
    pub(super) fn rows(&self) -> [(&'static str, String); 4] {
        let Self { blake3, wall_seconds, carried, .. } = self;
        [
            ("blake3", format!("{blake3} (verified at both ends)")),
            ("wall", format!("{wall_seconds:.3} s, {}", rate(self.goodput_bytes_per_second))),
            ("carried by", carried.devices.join(", ")),
            ("repairs", carried.describe()),
        ]
    }
}

/// A runtime with a thread for sessions, which go on while this one reads, writes and hashes
pub(super) fn runtime() -> Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().build().context("the runtime cannot be started")
}

/// The options of a node, with the key in the file `key`
pub(super) fn options(key: Option<&Path>) -> Result<NodeOptions> {
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
pub(super) async fn unless_interrupted<T>(
    interrupt: &Interrupt,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    tokio::select! {
        done = work => done,
        () = interrupted(interrupt) => bail!(Stopped::Interrupted),
    }
}

/// Ends a session, and gives the peer time to learn of it
pub(super) async fn part<T>(node: Node<AnyDevice>, session: Session<AnyDevice>, done: &Result<T>) {
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

/// The error, or which side has failed
pub(super) fn explain(error: anyhow::Error) -> anyhow::Error {
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
