//! The device of this host, selected by environment variables

use std::env;
use std::sync::Arc;

use rdma_core::Error;
use rdma_tb5::{OpenError, OpenOptions, Provider, VerbsDevice};

use crate::conformance::Expectations;

/// The device of this host, for the server and for the client
pub const DEVICE_VARIABLE: &str = "RDMA_CONFORMANCE_DEVICE";
/// Where a server listens, as `address:port`
pub const LISTEN_VARIABLE: &str = "RDMA_CONFORMANCE_LISTEN";
/// Where the server of the other host listens
pub const PEER_VARIABLE: &str = "RDMA_CONFORMANCE_PEER";
/// Which end of the conformance body this host is, 0 or 1; 0 by default
pub const END_VARIABLE: &str = "RDMA_CONFORMANCE_END";
/// The kind of both devices, `tb5`, `soft-roce` or `adapter`; by default derived from their name
pub const KIND_VARIABLE: &str = "RDMA_CONFORMANCE_KIND";
/// If it is 1, destroying a queue pair is trusted to end all access to its memory, on Macs, too
pub const TRUST_VARIABLE: &str = "RDMA_CONFORMANCE_TRUST_DESTROY";

/// A device of this host that can be opened repeatedly
#[derive(Clone, Debug)]
pub struct LocalDevice {
    provider: Arc<Provider>,
    name: String,
    options: OpenOptions,
}

impl LocalDevice {
    /// The device called `name`
    pub fn new(provider: Arc<Provider>, name: impl Into<String>) -> Self {
        let is_trusted = env::var(TRUST_VARIABLE).is_ok_and(|value| value == "1");
        let options = OpenOptions::new();
        let options = if is_trusted { options.trust_destroy(true) } else { options };
        Self { provider, name: name.into(), options }
    }

    /// The device that the environment names
    ///
    /// # Errors
    ///
    /// A text: no variable names a device, or the provider cannot be loaded.
    pub fn from_environment() -> Result<Self, String> {
        let provider = Provider::load().map_err(|error| error.to_string())?;
        let names = provider.devices().map_err(|error| error.to_string())?;
        let name = env::var(DEVICE_VARIABLE).map_err(|_| {
            format!("set {DEVICE_VARIABLE} to the device of this host, one of: {}", names.join(", "))
        })?;
        Ok(Self::new(provider, name))
    }

    /// Its name
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The behaviour that is expected of the device
    ///
    /// # Panics
    ///
    /// If the variable holds no known kind.
    pub fn expectations(&self) -> Expectations {
        let by_name = if self.name.starts_with("rdma_en") { "tb5" } else { "soft-roce" };
        match env::var(KIND_VARIABLE).as_deref().unwrap_or(by_name) {
            "tb5" => Expectations::TB5,
            "soft-roce" => Expectations::RXE,
            "adapter" => Expectations::ADAPTER,
            other => panic!("{KIND_VARIABLE}={other:?} is not tb5, soft-roce or adapter"),
        }
    }

    /// Opens the device
    ///
    /// # Errors
    ///
    /// The error of the provider.
    ///
    /// # Panics
    ///
    /// If the provider has no such device.
    pub fn open(&self) -> Result<VerbsDevice, Error> {
        match VerbsDevice::open(&self.provider, &self.name, self.options.clone()) {
            Ok(device) => Ok(device),
            Err(OpenError::Verbs(error)) => Err(error),
            Err(error) => panic!("{error}"),
        }
    }
}
