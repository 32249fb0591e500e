//! How commands fail

/// How a command failed
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// Invalid arguments
    #[error("{0}")]
    Usage(String),
    /// An error of the command
    #[error(transparent)]
    Failed(Box<dyn std::error::Error + Send + Sync>),
    /// A program that the command had started failed with this exit code
    #[cfg(unix)]
    #[error("a program failed")]
    Ended(u8),
    /// The command was carried out, and its output reports a failed check
    #[error("a check failed")]
    Reported,
}

impl Failure {
    pub(crate) fn failed(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Failed(error.into())
    }
}
