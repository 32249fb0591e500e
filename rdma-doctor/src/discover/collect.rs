//! The report of the machine that this runs on

use crate::report::HostReport;

/// Collects the report of the machine that this runs on
///
/// Takes seconds on a Mac, where it runs Apple's tools one after the other, each with a timeout: a tool that hangs costs its
/// timeout, and no other tool. Needs no privileges and changes nothing. What could not be found out is `None` in the report: collecting never fails.
///
/// ```
/// use rdma_doctor::report::Platform;
///
/// let report = rdma_doctor::collect();
/// assert_eq!(report.platform, Platform::current());
/// ```
pub fn collect() -> HostReport {
    #[cfg(target_os = "macos")]
    {
        macos()
    }
    #[cfg(target_os = "linux")]
    {
        super::linux::report(std::path::Path::new("/sys/class/infiniband"))
    }
    #[cfg(not(any(target_os = "macos", target_os = "linux")))]
    {
        HostReport {
            platform: crate::report::Platform::current(),
            devices: Some(Vec::new()),
            ..HostReport::default()
        }
    }
}

#[cfg(target_os = "macos")]
fn macos() -> HostReport {
    use std::time::Duration;

    use super::{incidents, iokit, run};
    use crate::report::{Outcome, ToolRun};

    let mut outputs = super::gather(|program, args, timeout| run::run(program, args, timeout));
    let registry = run::spawn(iokit::registry).recv_timeout(Duration::from_secs(5)).ok();
    let outcome = if registry.is_some() { Outcome::Done } else { Outcome::Hung };
    let registry = registry.unwrap_or_default();
    outputs.live_links = registry.live_links;
    outputs.owners = registry.objects.owners;
    let reading = run::spawn(|| incidents::read(&incidents::folders()));
    if let Ok(found) = reading.recv_timeout(Duration::from_secs(5)) {
        (outputs.incidents, outputs.incident_reports) = (found.incidents, Some(found.reports));
    }
    let mut report = outputs.report();
    // The registry has the counts that `ioclasscount` prints, on a Mac without that tool.
    let objects = &mut report.kernel_objects;
    objects.protection_domains = objects.protection_domains.or(registry.objects.protection_domains);
    objects.queue_pairs = objects.queue_pairs.or(registry.objects.queue_pairs);
    report.tools.push(ToolRun { tool: "I/O Registry".to_owned(), outcome, detail: String::new() });
    report
}
