//! Results of an active probe of a peer

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

/// A probe of the host at the other end of a cable: a socket of this program, `ping`, and a queue pair
///
/// Only `tb5 doctor --probe` makes one; an ordinary report has none.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PeerProbe {
    /// The device, such as `rdma_en3`
    pub device: String,
    /// The address of the other host on this cable
    pub address: Ipv4Addr,
    /// How a socket of this program reached the address
    #[serde(default)]
    pub socket: Reach,
    /// How `ping`, a program of the system, reached it
    #[serde(default)]
    pub ping: Reach,
    /// How far a queue pair came
    #[serde(default)]
    pub queue_pair: QueuePairProbe,
}

impl PeerProbe {
    /// The interface that the device is named after, such as `en3`
    pub fn interface(&self) -> Option<&str> {
        self.device.strip_prefix("rdma_")
    }

    pub(crate) fn new(device: impl Into<String>, address: Ipv4Addr) -> Self {
        Self {
            device: device.into(),
            address,
            socket: Reach::Unknown,
            ping: Reach::Unknown,
            queue_pair: QueuePairProbe::default(),
        }
    }
}

/// Whether an address was reached
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
#[serde(rename_all = "snake_case")]
pub enum Reach {
    /// The host answered, be it with a refusal
    Answered,
    /// The system refused to send: `EHOSTUNREACH`
    Unreachable,
    /// No answer in time
    Silent,
    /// Not tried, or failed in another way
    #[default]
    #[serde(other)]
    Unknown,
}

/// How far a throw-away queue pair came
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
#[serde(default)]
pub struct QueuePairProbe {
    /// The last step that was tried
    pub step: ProbeStep,
    /// Its error number; `None` if it succeeded
    pub errno: Option<i32>,
    /// The message of the step
    pub detail: String,
}

/// A step of a throw-away queue pair
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
#[serde(rename_all = "snake_case")]
pub enum ProbeStep {
    /// Opening the device
    Open,
    /// The objects of a queue pair, up to INIT
    Create,
    /// Ready to receive: the kernel looks the peer's address up
    ReadyToReceive,
    /// No answer in time: a verb did not return
    Hung,
    /// Nothing was tried
    #[default]
    #[serde(other)]
    Unknown,
}
