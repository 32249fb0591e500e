use super::bounds::{lines, number};
use crate::report::LaunchDaemon;

/// Reads `launchctl print system/NAME` of a job that launchd knows
///
/// `None` if the output does not describe a job.
pub fn launchctl(text: &str) -> Option<LaunchDaemon> {
    let is_job = |line: &str| line.trim_start().starts_with("system/") && line.trim_end().ends_with("= {");
    lines(text).find(|line| !line.trim().is_empty()).filter(|line| is_job(line))?;
    let mut job = LaunchDaemon { is_loaded: true, ..LaunchDaemon::default() };
    for line in lines(text) {
        match line.split_once('=').map(|(key, value)| (key.trim(), value)) {
            Some(("run interval", value)) => job.interval_seconds = number(value),
            Some(("runs", value)) => job.runs = number(value),
            _ => {}
        }
    }
    Some(job)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_has_an_interval_and_a_number_of_runs() {
        let text = "system/io.exo.networksetup = {\n\tstate = not running\n\truns = 31\n\trun interval = 1786 seconds\n}\n";
        let job = launchctl(text).unwrap();
        assert_eq!((job.is_loaded, job.interval_seconds, job.runs), (true, Some(1786), Some(31)));
        for text in ["", "Bad request.", "runs = 3"] {
            assert_eq!(launchctl(text), None, "{text:?}");
        }
    }
}
