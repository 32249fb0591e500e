//! The result of a copy between machines, as both sides report it

use serde::Serialize;

use crate::copy::words::size;
use crate::machines::Carried;
use crate::report::rate;

#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    /// Carrier of the copy at its end: `rdma` or `tcp`
    pub(crate) backend: &'static str,
    pub(super) role: &'static str,
    pub(super) peer: String,
    pub(super) path: String,
    pub(crate) bytes: u64,
    pub(super) files: u64,
    pub(super) directories: u64,
    pub(super) links: u64,
    pub(crate) resumed_bytes: u64,
    /// `None` at the sender, which does not know what the receiver had of another source
    pub(super) discarded_bytes: Option<u64>,
    pub(super) blake3: String,
    pub(crate) wall_seconds: f64,
    pub(crate) goodput_bytes_per_second: f64,
    #[serde(flatten)]
    pub(crate) carried: Carried,
}

impl Outcome {
    /// The amount that was copied
    pub(super) fn size(&self) -> String {
        size(self.bytes, [self.files, self.directories, self.links])
    }

    /// The rows of text output that both sides have
    pub(super) fn rows(&self) -> [(&'static str, String); 4] {
        let Self { blake3, wall_seconds, carried, .. } = self;
        [
            ("blake3", format!("{blake3} (verified at both ends)")),
            ("wall", format!("{wall_seconds:.3} s, {}", rate(self.goodput_bytes_per_second))),
            ("paths at the end", carried.devices.join(", ")),
            ("repairs", carried.describe()),
        ]
    }
}
