//! Why a device cannot be opened

use rdma_core::Error;

use crate::provider::{ListError, LoadError};

/// A device that cannot be opened
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The provider returned no list of devices
    #[error(transparent)]
    List(#[from] ListError),
    /// The provider cannot be used
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The provider has no device of that name
    #[error("there is no device {name:?}; there are: {}", known.join(", "))]
    NoSuchDevice {
        /// The name that was given
        name: String,
        /// The names of the devices that there are
        known: Vec<String>,
    },
    /// A verb failed
    #[error(transparent)]
    Verbs(#[from] Error),
}
