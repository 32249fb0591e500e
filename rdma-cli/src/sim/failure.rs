//! Maps errors of the layers below to outcomes

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::ensure;
use rdma_async::{
    AllocError, CloseError, ConnectError, NodeError, PoolError, RecvError, SendError, SendFailed,
    SessionError,
};
use rdma_core::{Error, Status};
use rdma_sim::OpenError;

use super::outcome::Outcome;

/// Failure of a program, and its cause
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) outcome: Outcome,
    pub(crate) why: String,
}

/// Whether this machine lacked memory: what programs did then says nothing
static LACKED_MEMORY: AtomicBool = AtomicBool::new(false);

/// Fails if a run was disturbed because this machine lacks memory
pub(super) fn require_memory() -> anyhow::Result<()> {
    let why = "this machine lacks memory for the simulation: memory cannot be mapped; there is no result";
    ensure!(!LACKED_MEMORY.load(Ordering::Relaxed), why);
    Ok(())
}

/// The error of the device among the errors of memory
fn device_of(error: &PoolError) -> Option<&Error> {
    match error {
        PoolError::Register(error) => Some(error),
        PoolError::Memory(_) => {
            LACKED_MEMORY.store(true, Ordering::Relaxed);
            None
        }
        _ => None,
    }
}

impl Failure {
    /// A failure without an error of a layer below
    pub(crate) fn new(outcome: Outcome, why: impl Into<String>) -> Self {
        Self { outcome, why: why.into() }
    }

    fn from_device(outcome: Outcome, text: &impl fmt::Display, device: Option<&Error>) -> Self {
        let why = match device {
            Some(error) => format!("{text} (errno {}: {})", error.errno(), error.remedy()),
            None => text.to_string(),
        };
        Self { outcome, why }
    }

    /// A verb failed on a connected queue pair
    pub(crate) fn verb(error: Error) -> Self {
        Self::from_device(Outcome::Fails, &error, Some(&error))
    }

    pub(crate) fn completion(what: &str, status: Status) -> Self {
        Self::new(Outcome::Fails, format!("{what} ended with {status} (status {})", status.code()))
    }
}

impl From<Error> for Failure {
    /// A verb failed before there was a session
    fn from(error: Error) -> Self {
        Self::from_device(Outcome::ConnectFails, &error, Some(&error))
    }
}

impl From<NodeError> for Failure {
    fn from(error: NodeError) -> Self {
        let device = match &error {
            NodeError::Pool(error) => device_of(error),
            _ => None,
        };
        Self::from_device(Outcome::ConnectFails, &error, device)
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        let device = match &error {
            ConnectError::Device(error) | ConnectError::PortBusy { error, .. } => Some(error),
            ConnectError::Pool(error) => device_of(error),
            ConnectError::Open(error) => match error.downcast_ref() {
                Some(OpenError::Verbs(error)) => Some(error),
                _ => None,
            },
            _ => None,
        };
        Self::from_device(Outcome::ConnectFails, &error, device)
    }
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Self {
        let outcome = match &error {
            SessionError::PeerLost(_) => Outcome::PeerLost,
            _ => Outcome::SessionLost,
        };
        Self::from_device(outcome, &error, None)
    }
}

impl From<AllocError> for Failure {
    fn from(error: AllocError) -> Self {
        Self::from_device(Outcome::Fails, &error, None)
    }
}

impl From<SendFailed> for Failure {
    fn from(unsent: SendFailed) -> Self {
        unsent.error.into()
    }
}

/// The errors of operations on a session, which may be lost
macro_rules! from_operations {
    ($($error:ident),*) => {$(
        impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                match error {
                    $error::Lost(lost) => lost.into(),
                    error => Self::from_device(Outcome::Fails, &error, None),
                }
            }
        }
    )*};
}

from_operations!(CloseError, RecvError, SendError);
