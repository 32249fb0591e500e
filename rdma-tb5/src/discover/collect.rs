use super::HostReport;

/// Looks at the machine that this runs on
///
/// Takes seconds on a Mac, where it runs Apple's tools one after the other, each with a timeout. Needs no privileges and
/// changes nothing.
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
            platform: super::Platform::current(),
            devices: Some(Vec::new()),
            ..HostReport::default()
        }
    }
}

#[cfg(target_os = "macos")]
fn macos() -> HostReport {
    use std::time::Duration;

    use super::{Outcome, Outputs, Tool, ToolRun, iokit, tool};

    let mut outputs = Outputs::default();
    for tool in Tool::ALL {
        let [program, args @ ..] = tool.command() else { continue };
        outputs.tools.insert(tool, tool::run(program, args, tool.timeout()));
    }
    let registry = tool::start(iokit::registry).recv_timeout(Duration::from_secs(5)).ok();
    let outcome = if registry.is_some() { Outcome::Done } else { Outcome::Hung };
    let registry = registry.unwrap_or_default();
    outputs.live_links = registry.live_links;
    outputs.owners = registry.objects.owners;
    let mut report = outputs.report();
    // The registry counts what `ioclasscount` prints, if that tool is not there.
    let objects = &mut report.kernel_objects;
    objects.protection_domains = objects.protection_domains.or(registry.objects.protection_domains);
    objects.queue_pairs = objects.queue_pairs.or(registry.objects.queue_pairs);
    report.tools.push(ToolRun { tool: "I/O Registry".to_owned(), outcome, detail: String::new() });
    report
}
