//! From the outputs of a Mac's tools to a report

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use super::{Captured, Tool};
use crate::parse::{self, short};
use crate::report::{
    DeviceSummary, HostReport, Incident, LaunchDaemon, LiveLinks, Outcome, Platform, PortOwners, RdmaCtl,
    Route, ToolRun, Uptime,
};

/// The outputs of the tools of a Mac
///
/// The step between running the tools, which only a Mac can do, and parsing their outputs, which every machine can.
///
/// ```
/// use rdma_doctor::discover::{Outputs, Tool};
/// use rdma_doctor::report::RdmaCtl;
///
/// let outputs = Outputs::default().with(Tool::SwVers, "26.3\n").with(Tool::RdmaCtl, "enabled\n");
/// let report = outputs.report();
/// assert_eq!(report.macos_version.as_deref(), Some("26.3"));
/// assert_eq!(report.rdma_ctl, RdmaCtl::Enabled);
/// ```
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Outputs {
    /// The run of each tool; a tool that was not run is missing
    pub tools: BTreeMap<Tool, Captured>,
    /// Links by the I/O Registry
    pub live_links: Option<LiveLinks>,
    /// Processes that have the driver open
    pub owners: Option<Vec<String>>,
    /// The run of `route -n get` for each address of a peer
    pub routes: BTreeMap<Ipv4Addr, Captured>,
    /// Panics and crashes, from the reports of macOS
    pub incidents: Option<Vec<Incident>>,
    /// How many reports of panics and crashes were read
    pub incident_reports: Option<u32>,
}

impl Outputs {
    /// Adds the output of a tool that succeeded
    #[must_use]
    pub fn with(mut self, tool: Tool, stdout: impl Into<String>) -> Self {
        let captured = Captured { outcome: Outcome::Done, stdout: stdout.into(), stderr: String::new() };
        self.tools.insert(tool, captured);
        self
    }

    /// Adds a tool that did not succeed
    #[must_use]
    pub fn with_outcome(mut self, tool: Tool, outcome: Outcome) -> Self {
        self.tools.insert(tool, Captured { outcome, ..Captured::default() });
        self
    }

    /// Parses all outputs into a report
    pub fn report(&self) -> HostReport {
        let mut report = HostReport { platform: Platform::Macos, ..HostReport::default() };
        if let Some(text) = self.read(Tool::SwVers) {
            let found = parse::sw_vers(text);
            (report.macos_version, report.macos_build) = (found.version, found.build);
        }
        report.hardware_model = self.read(Tool::Sysctl).map(short).filter(|model| !model.is_empty());
        report.rdma_ctl = match self.tools.get(&Tool::RdmaCtl).map(|captured| captured.outcome) {
            Some(Outcome::Absent) => RdmaCtl::Absent,
            Some(Outcome::Hung) => RdmaCtl::Hung,
            _ => self.read(Tool::RdmaCtl).map_or(RdmaCtl::Unknown, parse::rdma_ctl),
        };
        let mut unreadable = Vec::new();
        match self.read(Tool::SystemProfiler).map(parse::system_profiler) {
            Some(Ok(buses)) => report.thunderbolt = Some(buses),
            Some(Err(error)) => unreadable.push((Tool::SystemProfiler, error)),
            None => {}
        }
        match self.ended(Tool::NetworkSettings).map(parse::network_settings) {
            Some(Ok(settings)) => report.network_settings = Some(settings),
            Some(Err(error)) => unreadable.push((Tool::NetworkSettings, error)),
            None => {}
        }
        self.add_services(&mut report);
        report.hardware_ports = self.ended(Tool::Networksetup).map(parse::networksetup);
        report.interfaces = self.ended(Tool::Ifconfig).map(parse::ifconfig);
        report.devices = self.devices();
        report.kernel_objects = self.read(Tool::Ioclasscount).map(parse::ioclasscount).unwrap_or_default();
        report.kernel_objects.owners.clone_from(&self.owners);
        report.live_links.clone_from(&self.live_links);
        report.idle_sleep_minutes = self.read(Tool::Pmset).and_then(parse::pmset);
        report.ipv4_neighbours = self.ended(Tool::Arp).map(parse::arp);
        report.ipv6_neighbours = self.ended(Tool::Ndp).map(parse::ndp);
        report.routes = self.known_routes();
        report.exo_daemon = self.exo_daemon();
        report.firewall = self.read(Tool::Firewall).and_then(parse::firewall);
        report.waiting_processes = self.ended(Tool::Ps).map(parse::ps);
        // An output that was cut off lacks ports and owners.
        let ports = self.ended(Tool::IoregPorts).filter(|text| text.len() < parse::MAX_INPUT);
        report.port_owners = ports.map(parse::port_owners);
        if report.kernel_objects.owners.is_none() {
            let owners = report.port_owners.as_deref().map(all_owners);
            // Clients of another class, or elsewhere in the registry, are not listed: an empty list shows nothing.
            report.kernel_objects.owners = owners.filter(|owners| !owners.is_empty());
        }
        report.incidents.clone_from(&self.incidents);
        report.incident_reports = self.incident_reports;
        report.uptime = Uptime {
            uptime_seconds: self.read(Tool::Uptime).and_then(parse::uptime),
            memory_bytes: self.read(Tool::Memory).and_then(|text| text.trim().parse().ok()),
            wired_bytes: self.read(Tool::VmStat).and_then(parse::vm_stat),
        };
        report.kernel_log = self.ended(Tool::KernelLog).map(parse::kernel_log);
        report.tools = self.tools.iter().map(|(&tool, captured)| tool_run(tool, captured)).collect();
        for (tool, error) in unreadable {
            let name = tool.to_string();
            for run in report.tools.iter_mut().filter(|run| run.tool == name) {
                run.detail = error.to_string();
            }
        }
        report
    }

    /// The complete output of a tool, whether it succeeded or failed
    fn read(&self, tool: Tool) -> Option<&str> {
        let captured = self.tools.get(&tool)?;
        matches!(captured.outcome, Outcome::Done | Outcome::Failed).then_some(captured.stdout.as_str())
    }

    /// The output of a tool that prints a list, if it succeeded: only then an empty list means that there is nothing
    fn ended(&self, tool: Tool) -> Option<&str> {
        let captured = self.tools.get(&tool)?;
        let said = captured.outcome == Outcome::Done && !captured.stdout.trim().is_empty();
        said.then_some(captured.stdout.as_str())
    }

    /// The routes that `route` found, or said that there are none
    fn known_routes(&self) -> Option<Vec<Route>> {
        if self.routes.is_empty() {
            return None;
        }
        Some(self.routes.iter().filter_map(|(&destination, captured)| route(destination, captured)).collect())
    }

    fn exo_daemon(&self) -> Option<LaunchDaemon> {
        let captured = self.tools.get(&Tool::Launchctl)?;
        match captured.outcome {
            Outcome::Done => parse::launchctl(&captured.stdout),
            Outcome::Failed if captured.says("could not find service") => Some(LaunchDaemon::default()),
            _ => None,
        }
    }

    fn add_services(&self, report: &mut HostReport) {
        let services = self.read(Tool::SystemProfilerText).map(parse::services).unwrap_or_default();
        for peer in report.thunderbolt.iter_mut().flatten().flat_map(|bus| &mut bus.peers) {
            let same = |domain: &str| {
                peer.domain_uuid.as_deref().is_some_and(|other| other.eq_ignore_ascii_case(domain))
            };
            if let Some(found) = services.iter().find(|found| same(&found.domain_uuid)) {
                peer.rdma_service = Some(found.rdma || peer.rdma_service == Some(true));
            }
        }
    }

    /// The devices of `ibv_devinfo`, and those that only `ibv_devices` lists
    fn devices(&self) -> Option<Vec<DeviceSummary>> {
        let mut devices = self.read(Tool::IbvDevinfo).map(parse::ibv_devinfo).unwrap_or_default();
        for name in self.read(Tool::IbvDevices).map(parse::ibv_devices).unwrap_or_default() {
            if devices.iter().all(|device| device.name != name) {
                devices.push(DeviceSummary::named(name));
            }
        }
        if devices.is_empty() && !self.says_no_devices() {
            return None;
        }
        devices.sort_by(|a, b| (a.name.len(), &a.name).cmp(&(b.name.len(), &b.name)));
        Some(devices)
    }

    /// Whether `ibv_devices` succeeded with an empty list, or `ibv_devinfo` said that there are no devices
    fn says_no_devices(&self) -> bool {
        let listed = self.tools.get(&Tool::IbvDevices).is_some_and(|listed| listed.outcome == Outcome::Done);
        listed
            || self.tools.get(&Tool::IbvDevinfo).is_some_and(|captured| captured.says("no ib devices found"))
    }
}

/// The way to an address by a run of `route -n get`, if it found one or said that there is none
pub(super) fn route(destination: Ipv4Addr, captured: &Captured) -> Option<Route> {
    match captured.outcome {
        Outcome::Done => Some(Route::new(destination, Some(parse::route_get(&captured.stdout)?))),
        Outcome::Failed if captured.says("not in table") => Some(Route::new(destination, None)),
        _ => None,
    }
}

/// The processes that have the driver open at any port
fn all_owners(ports: &[PortOwners]) -> Vec<String> {
    let mut owners: Vec<_> = ports.iter().flat_map(|port| port.owners.iter().cloned()).collect();
    owners.sort();
    owners.dedup();
    owners
}

fn tool_run(tool: Tool, captured: &Captured) -> ToolRun {
    let detail = captured.stderr.lines().find(|line| !line.trim().is_empty()).map(short).unwrap_or_default();
    ToolRun { tool: tool.to_string(), outcome: captured.outcome, detail }
}
