//! The options of a calibration

use std::time::Duration;

/// The experiments of a calibration beside those that are safe and short
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Options {
    /// Waits until queue pairs die of idleness, which takes up to two hours
    pub idle_death: bool,
    /// Tries what some Macs were reported to need a reboot after: up to three transitions to RTR that fail, protection domains until there
    /// are no more, more regions than the device states, and a queue pair in the error state; without it, one transition may fail: that with
    /// a path MTU of 4096, which most sources expect to succeed
    pub risk_reboot: bool,
    /// The least time of each stream by which a rate is measured; zero: as long as 2 to 8 MiB take, which is enough for a simulated device
    pub stream_time: Duration,
}

impl Options {
    /// True if the option of the tool with this name is set
    pub(crate) fn has(&self, option: &str) -> bool {
        match option {
            "--idle-death" => self.idle_death,
            _ => self.risk_reboot,
        }
    }

    /// With [`idle_death`](Self::idle_death), if `idle_death` is true
    pub fn with_idle_death(mut self, idle_death: bool) -> Self {
        self.idle_death = idle_death;
        self
    }

    /// With [`risk_reboot`](Self::risk_reboot), if `risk_reboot` is true
    pub fn with_risk_reboot(mut self, risk_reboot: bool) -> Self {
        self.risk_reboot = risk_reboot;
        self
    }

    /// With streams that last about as long
    pub fn with_stream_time(mut self, stream_time: Duration) -> Self {
        self.stream_time = stream_time;
        self
    }
}
