//! What a calibration may do

use std::time::Duration;

/// What a calibration may do beside what is safe and short
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Options {
    /// Waits until queue pairs die of idleness, which takes up to an hour
    pub idle_death: bool,
    /// Sets a queue pair to the error state, after which a region may stay counted until the process ends, or longer
    pub error_state: bool,
    /// How long each stream lasts by which a rate is measured; zero: as long as 2 MiB take, which is enough for a simulated device
    pub stream_time: Duration,
}

impl Options {
    /// With these experiments, too
    pub fn with(mut self, idle_death: bool, error_state: bool) -> Self {
        (self.idle_death, self.error_state) = (idle_death, error_state);
        self
    }

    /// With streams that last about as long
    pub fn with_stream_time(mut self, stream_time: Duration) -> Self {
        self.stream_time = stream_time;
        self
    }
}
