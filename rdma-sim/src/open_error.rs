use rdma_core::{Error, Invalid, Verb};

/// Why a device of a simulated Mac is not opened, or not there
///
/// ```
/// use rdma_sim::Sim;
///
/// Sim::new().run(async |net| {
///     let refused = net.open("a", "rdma_en9").unwrap_err();
///     let text = "host \"a\" has no device \"rdma_en9\"; its devices are rdma_en2, rdma_en3, rdma_en4";
///     assert_eq!(refused.to_string(), text);
/// });
/// ```
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// No cable leads from one host to the other, or it is unplugged
    #[error("no cable leads from host {host:?} to host {peer:?}")]
    NoCable {
        /// The host
        host: String,
        /// The host that it has no cable to
        peer: String,
    },
    /// The host has no such device
    #[error("host {host:?} has no device {device:?}; its devices are {}", devices.join(", "))]
    UnknownDevice {
        /// The host
        host: String,
        /// The device that it lacks
        device: String,
        /// The devices that it has
        devices: Vec<String>,
    },
    /// The topology has no such host
    #[error("no host is called {host:?}; there are: {}", hosts.join(", "))]
    UnknownHost {
        /// The name that was given
        host: String,
        /// The names that exist
        hosts: Vec<String>,
    },
    /// A verb failed
    #[error(transparent)]
    Verbs(#[from] Error),
}

impl From<OpenError> for Error {
    /// The error without the names: [`Invalid::NoSuchDevice`] if the host, the device or the cable does not exist
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::NoCable { .. } | OpenError::UnknownDevice { .. } | OpenError::UnknownHost { .. } => {
                Self::new(Verb::OpenDevice, Invalid::NoSuchDevice.into())
            }
            OpenError::Verbs(error) => error,
        }
    }
}
