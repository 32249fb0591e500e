//! The ports at which processes listen

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard};
use std::task::Waker;

use super::pipe::Pipes;
use crate::sync::lock;

/// The ports at which processes listen
#[derive(Debug, Default)]
pub(crate) struct Listening(Mutex<BTreeMap<(u32, u16), Backlog>>);

/// Connections that were not accepted yet
#[derive(Debug, Default)]
pub(super) struct Backlog {
    /// Each with the name of the host that has dialed
    pub(super) streams: VecDeque<(Pipes, String)>,
    pub(super) waker: Option<Waker>,
}

impl Listening {
    pub(super) fn lock(&self) -> MutexGuard<'_, BTreeMap<(u32, u16), Backlog>> {
        lock(&self.0)
    }
}
