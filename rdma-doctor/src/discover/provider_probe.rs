//! The verbs provider: its devices, their limits, ports and GID tables
//!
//! Loading a provider runs its code, and opening a device may hang or crash (F53). So another process does that: one that calls
//! [`ProviderProbe::run`] and prints the result as JSON, and that [`run_in_process`] starts with a bound on its time.

use std::ffi::{OsStr, c_int};
use std::time::Duration;

use rdma_tb5::{DeviceInfo, ListError, LoadError, Provider};
use rdma_verbs_abi::{PortAttr, lanes, megabits_per_lane};
use serde::{Deserialize, Serialize};

use super::{Captured, run};
use crate::parse::MAX_ITEMS;
use crate::report::{DeviceSummary, GidEntry, HostReport, Outcome, Port, ProviderStatus, ToolRun};

/// The name of the probe among the tools of a report
pub const NAME: &str = "verbs_provider";

/// What a probe of the provider found
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
#[serde(default)]
pub struct ProviderProbe {
    /// How far the probe came
    pub provider: ProviderStatus,
    /// The path of the provider, or what is wrong with it
    pub detail: String,
    /// Its devices
    pub devices: Vec<DeviceSummary>,
}

impl ProviderProbe {
    /// Loads the provider of the system, or the one that `RDMA_PROVIDER` names, and opens each of its devices
    ///
    /// May never return, and may crash the process: run it in a process of its own.
    ///
    /// ```no_run
    /// use rdma_doctor::discover::provider_probe::ProviderProbe;
    ///
    /// println!("{}", serde_json::to_string(&ProviderProbe::run())?);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn run() -> Self {
        let failed = |provider, detail: String| Self { provider, detail, devices: Vec::new() };
        let provider = match Provider::load() {
            Ok(provider) => provider,
            // The choice of the user is wrong, even if the system has a provider.
            Err(LoadError::Absent { path, reason }) if std::env::var_os("RDMA_PROVIDER").is_some() => {
                let why = format!("RDMA_PROVIDER names {path}, which cannot be loaded: {reason}");
                return failed(ProviderStatus::Unusable, why);
            }
            Err(error @ LoadError::Absent { .. }) => {
                return failed(ProviderStatus::Absent, error.to_string());
            }
            Err(error) => return failed(ProviderStatus::Unusable, error.to_string()),
        };
        let devices = match provider.inspect(MAX_ITEMS) {
            Ok(devices) => devices.iter().map(summary).collect(),
            // The kernel of this host has no verbs: there is nothing to list.
            Err(ListError { errno: libc::ENOSYS, .. }) => Vec::new(),
            Err(error) => return failed(ProviderStatus::ListFailed, error.to_string()),
        };
        let detail = provider.path().display().to_string();
        Self { provider: ProviderStatus::Listed, detail, devices }
    }
}

fn summary(info: &DeviceInfo) -> DeviceSummary {
    let mut found = DeviceSummary::named(&info.name);
    let number = |limit: c_int| u64::try_from(limit).ok();
    if let Some(attr) = &info.attributes {
        let [a, b, c, d] = [48, 32, 16, 0].map(|shift| u64::from_be(attr.node_guid) >> shift & 0xffff);
        found.node_guid = (attr.node_guid != 0).then(|| format!("{a:04x}:{b:04x}:{c:04x}:{d:04x}"));
        found.max_qp = number(attr.max_qp);
        found.max_cq = number(attr.max_cq);
        found.max_pd = number(attr.max_pd);
        found.max_mr = number(attr.max_mr);
        found.max_mr_size = Some(attr.max_mr_size);
        found.max_sge = number(attr.max_sge);
    }
    if let Some(attr) = &info.port {
        let entries = info.gids.iter().enumerate().filter(|(_, gid)| !gid.is_zero());
        let gids = entries.map(|(index, gid)| GidEntry { index: index as u32, gid: gid.0.into() }).collect();
        found.ports.push(Port { gids: Some(gids), ..port(attr) });
    }
    found
}

/// Port 1, in the words of `ibv_devinfo`
fn port(attr: &PortAttr) -> Port {
    let state = match attr.state {
        1 => "PORT_DOWN",
        2 => "PORT_INIT",
        3 => "PORT_ARMED",
        4 => "PORT_ACTIVE",
        5 => "PORT_ACTIVE_DEFER",
        _ => "PORT_NOP",
    };
    let width =
        lanes(attr.active_width).map_or_else(|| "invalid width".to_owned(), |lanes| format!("{lanes}X"));
    let speed = megabits_per_lane(attr.active_speed)
        .map_or_else(|| "unknown".to_owned(), |megabits| format!("{:.1}", f64::from(megabits) / 1000.0));
    let link_layer = match attr.link_layer {
        0 => "Unspecified".to_owned(),
        1 => "InfiniBand".to_owned(),
        2 => "Ethernet".to_owned(),
        100 => "Thunderbolt".to_owned(),
        other => format!("Unknown ({other})"),
    };
    let mtu = |code: u32| (1..=5).contains(&code).then(|| 128 << code);
    Port {
        number: 1,
        state: Some(state.to_owned()),
        max_mtu: mtu(attr.max_mtu),
        active_mtu: mtu(attr.active_mtu),
        max_msg_sz: Some(attr.max_msg_sz.into()),
        active_width: Some(format!("{width} ({})", attr.active_width)),
        active_speed: Some(format!("{speed} Gbps ({})", attr.active_speed)),
        link_layer: Some(link_layer),
        gids: None,
    }
}

/// Runs `program`, for at most `timeout`, and adds what it prints to `report`
///
/// The program prints a [`ProviderProbe`] as JSON. Its knowledge of a device is added to what the report has, and replaces none of
/// it. A program that hangs or crashes is a [`ToolRun`] of the report, not an error.
pub fn run_in_process(report: &mut HostReport, program: impl AsRef<OsStr>, args: &[&str], timeout: Duration) {
    add(report, run::run(program, args, timeout));
}

fn add(report: &mut HostReport, captured: Captured) {
    let probe = match captured.outcome {
        Outcome::Done => serde_json::from_slice::<ProviderProbe>(captured.stdout.as_bytes())
            .map_err(|error| error.to_string()),
        Outcome::Hung => Err(captured.stderr),
        _ => Err(format!("the process that probes the provider failed {}", captured.stderr.trim())
            .trim()
            .to_owned()),
    };
    let (outcome, detail) = match probe {
        Ok(probe) => {
            report.provider = probe.provider;
            if probe.provider == ProviderStatus::Listed {
                merge(report.devices.get_or_insert_default(), probe.devices);
            }
            (Outcome::Done, probe.detail)
        }
        Err(why) => {
            // An empty list was not confirmed by the provider: it becomes unknown.
            report.devices = report.devices.take().filter(|devices| !devices.is_empty());
            let is_hung = captured.outcome == Outcome::Hung;
            (if is_hung { Outcome::Hung } else { Outcome::Failed }, why)
        }
    };
    report.tools.push(ToolRun { tool: NAME.to_owned(), outcome, detail });
}

fn merge(devices: &mut Vec<DeviceSummary>, found: Vec<DeviceSummary>) {
    for found in found {
        let Some(known) = devices.iter_mut().find(|known| known.name == found.name) else {
            devices.push(found);
            continue;
        };
        if known.ports.is_empty() {
            known.ports = found.ports;
        } else if let ([port], [other]) = (&mut known.ports[..], &found.ports[..]) {
            port.gids = port.gids.take().or_else(|| other.gids.clone());
            port.state = port.state.take().or_else(|| other.state.clone());
        }
        known.node_guid = known.node_guid.take().or(found.node_guid);
        known.transport = known.transport.take().or(found.transport);
        known.max_qp = known.max_qp.or(found.max_qp);
        known.max_cq = known.max_cq.or(found.max_cq);
        known.max_pd = known.max_pd.or(found.max_pd);
        known.max_mr = known.max_mr.or(found.max_mr);
        known.max_mr_size = known.max_mr_size.or(found.max_mr_size);
        known.max_sge = known.max_sge.or(found.max_sge);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn probed(script: &str, timeout: Duration) -> HostReport {
        let known = DeviceSummary { max_qp: Some(3), ..DeviceSummary::named("mlx5_0") };
        let mut report = HostReport { devices: Some(vec![known]), ..HostReport::default() };
        run_in_process(&mut report, "sh", &["-c", script], timeout);
        report
    }

    #[test]
    fn a_probe_completes_the_devices_that_are_known() {
        let said = r#"echo '{"provider": "listed", "detail": "lib", "devices": [
            {"name": "mlx5_0", "max_qp": 9, "max_cq": 5, "ports": [{"number": 1, "state": "PORT_DOWN"}]}, {"name": "new"}]}'"#;
        let report = probed(said, LONG);
        let devices = report.devices.unwrap();
        assert_eq!((devices[0].max_qp, devices[0].max_cq), (Some(3), Some(5)));
        assert_eq!(devices[0].ports[0].state.as_deref(), Some("PORT_DOWN"));
        assert_eq!((devices.len(), devices[1].name.as_str()), (2, "new"));
        assert_eq!((report.provider, report.tools[0].outcome), (ProviderStatus::Listed, Outcome::Done));
    }

    #[test]
    fn a_probe_that_hangs_crashes_or_prints_garbage_changes_no_device() {
        for (script, timeout, outcome) in [
            ("exec sleep 1000", Duration::from_millis(50), Outcome::Hung),
            ("kill -SEGV $$", LONG, Outcome::Failed),
            ("echo '{\"devices\": 7}'", LONG, Outcome::Failed),
            ("true", LONG, Outcome::Failed),
        ] {
            let report = probed(script, timeout);
            assert_eq!(report.devices.unwrap().len(), 1, "{script}");
            assert_eq!(
                (report.provider, report.tools[0].outcome),
                (ProviderStatus::Unknown, outcome),
                "{script}"
            );
            assert!(!report.tools[0].detail.is_empty(), "{script}");
        }
    }

    #[test]
    fn without_a_probe_an_empty_list_of_devices_becomes_unknown() {
        let mut report = HostReport { devices: Some(Vec::new()), ..HostReport::default() };
        run_in_process(&mut report, "sh", &["-c", "exit 1"], LONG);
        assert_eq!(report.devices, None);
        let mut report = HostReport { devices: Some(Vec::new()), ..HostReport::default() };
        run_in_process(&mut report, "sh", &["-c", r#"echo '{"provider": "absent"}'"#], LONG);
        assert_eq!((report.devices, report.provider), (Some(Vec::new()), ProviderStatus::Absent));
    }
}
