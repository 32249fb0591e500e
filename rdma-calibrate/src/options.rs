//! What a calibration may do

/// What a calibration may do beside what is safe and short
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Options {
    /// Waits until queue pairs die of idleness, which takes up to an hour
    pub idle_death: bool,
    /// Sets a queue pair to the error state, after which a region may stay counted until the process ends, or longer
    pub error_state: bool,
}

impl Options {
    /// With these experiments, too
    pub fn with(mut self, idle_death: bool, error_state: bool) -> Self {
        (self.idle_death, self.error_state) = (idle_death, error_state);
        self
    }
}
