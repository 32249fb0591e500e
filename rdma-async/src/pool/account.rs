//! How many frames the messages of a session hold, or would if they were not on the heap

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Counts the frames of leases that are charged to it, until they are dropped
///
/// Clones count together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Account(Arc<AtomicU32>);

impl Account {
    /// How many frames its leases have
    pub(crate) fn frames(&self) -> u32 {
        // Memory that comes free is counted first: the lock of the pool orders both.
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn add(&self, frames: u32) {
        self.0.fetch_add(frames, Ordering::Relaxed);
    }

    pub(super) fn subtract(&self, frames: u32) {
        self.0.fetch_sub(frames, Ordering::Relaxed);
    }
}

/// Frames that count towards an account, until this is dropped
#[derive(Debug)]
pub(crate) struct Charge {
    account: Account,
    frames: u32,
}

impl Charge {
    pub(super) fn new(account: &Account, frames: u32) -> Self {
        account.add(frames);
        Self { account: account.clone(), frames }
    }

    /// Lets them count towards `account` instead
    pub(crate) fn recharge_to(&mut self, account: &Account) {
        *self = Self::new(account, self.frames);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.subtract(self.frames);
    }
}
