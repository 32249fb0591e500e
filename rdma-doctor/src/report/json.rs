//! Reports as JSON: compiled here, once, and not again in each program that has reports

use super::HostReport;

impl HostReport {
    /// Reads a report
    ///
    /// # Errors
    ///
    /// A [`serde_json::Error`] with line and column, if this is not JSON, or a value does not fit its key.
    pub fn from_json(json: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(json)
    }

    /// The report as indented JSON
    ///
    /// ```
    /// use rdma_doctor::HostReport;
    ///
    /// let report = HostReport::default();
    /// assert_eq!(HostReport::from_json(report.to_json()?.as_bytes())?, report);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// A [`serde_json::Error`], of which none is known: all keys are strings.
    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self)
    }
}
