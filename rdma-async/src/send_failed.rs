use std::fmt;

use crate::error::SendError;
use crate::pool::Lease;

/// A message that was not sent, with its lease where it can be had
#[derive(thiserror::Error)]
#[error("{error}")]
pub struct SendFailed {
    /// What went wrong
    #[source]
    pub error: SendError,
    /// The message; `None` if a device may still touch its memory
    pub lease: Option<Lease>,
}

impl fmt::Debug for SendFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SendFailed").field(&self.error).finish()
    }
}

impl From<SendFailed> for SendError {
    fn from(failed: SendFailed) -> Self {
        failed.error
    }
}
