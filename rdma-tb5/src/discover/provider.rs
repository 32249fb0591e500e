//! What the verbs provider itself says: its devices, their limits, ports and GID tables
//!
//! Loading it runs its code, and opening a device may hang or crash (F53). Let another process do that: one that calls
//! [`Answer::of_this_process`] and prints it as JSON, and is run by [`ask`], with a bound on its time.

#![allow(unsafe_code, reason = "calls the provider")]

use std::ffi::{OsStr, c_int};
use std::ptr::NonNull;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::parse::MAX_ITEMS;
use super::{Captured, Gid, HostReport, Outcome, Port, Provider, ToolRun, VerbsDevice, tool};
use crate::device::{Closed, query_device, query_gids, query_port};
use crate::verbs::{self, LoadError};
use rdma_verbs_abi::PortAttr;

/// What it is called among the tools of a report
pub const NAME: &str = "verbs_provider";

/// What a provider said
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
#[serde(default)]
pub struct Answer {
    /// How far it went
    pub provider: Provider,
    /// Where the provider is, or what is wrong with it
    pub detail: String,
    /// Its devices
    pub devices: Vec<VerbsDevice>,
}

impl Answer {
    /// Loads the provider of the system, or the one that `RDMA_PROVIDER` names, and asks it for everything
    ///
    /// May never return, and may take the process with it.
    pub fn of_this_process() -> Self {
        let loaded = match verbs::Provider::load() {
            Ok(loaded) => loaded,
            Err(error) => {
                let is_absent = matches!(error, LoadError::Absent { .. });
                let provider = if is_absent { Provider::Absent } else { Provider::Unusable };
                return Self { provider, detail: error.to_string(), devices: Vec::new() };
            }
        };
        let mut devices = Vec::new();
        let listed = loaded.each_device(|device, name| {
            devices.push(look(&loaded, device, name));
            devices.len() < MAX_ITEMS
        });
        let path = loaded.path().display().to_string();
        match listed {
            Ok(()) => Self { provider: Provider::Listed, detail: path, devices },
            // The kernel of this host has no verbs: there is nothing to list.
            Err(libc::ENOSYS) => Self { provider: Provider::Listed, detail: path, devices },
            Err(errno) => {
                let detail = format!("{path}: ibv_get_device_list returned NULL, error number {errno}");
                Self { provider: Provider::ListFailed, detail, devices }
            }
        }
    }
}

fn look(provider: &verbs::Provider, device: *mut rdma_verbs_abi::Device, name: &str) -> VerbsDevice {
    let mut found = VerbsDevice::named(name);
    // SAFETY: the device is of the provider's list, which is not freed yet.
    let Some(context) = NonNull::new(unsafe { (provider.ibv_open_device)(device) }) else { return found };
    let _closed = Closed { provider, context };
    let number = |said: c_int| u64::try_from(said).ok();
    if let Some(attr) = query_device(provider, context) {
        let [a, b, c, d] = [48, 32, 16, 0].map(|shift| u64::from_be(attr.node_guid) >> shift & 0xffff);
        found.node_guid = (attr.node_guid != 0).then(|| format!("{a:04x}:{b:04x}:{c:04x}:{d:04x}"));
        found.max_qp = number(attr.max_qp);
        found.max_cq = number(attr.max_cq);
        found.max_pd = number(attr.max_pd);
        found.max_mr = number(attr.max_mr);
        found.max_mr_size = Some(attr.max_mr_size);
        found.max_sge = number(attr.max_sge);
    }
    if let Ok(attr) = query_port(provider, context) {
        let mut port = port(&attr);
        let gids = query_gids(provider, context).into_iter().enumerate();
        let set = gids.filter(|(_, gid)| !gid.is_zero());
        port.gids = Some(set.map(|(index, gid)| Gid { index: index as u32, gid: gid.0.into() }).collect());
        found.ports.push(port);
    }
    found
}

/// The first port, in the words of `ibv_devinfo`
fn port(attr: &PortAttr) -> Port {
    let state = match attr.state {
        1 => "PORT_DOWN",
        2 => "PORT_INIT",
        3 => "PORT_ARMED",
        4 => "PORT_ACTIVE",
        5 => "PORT_ACTIVE_DEFER",
        _ => "PORT_NOP",
    };
    let width = match attr.active_width {
        1 => "1X",
        2 => "4X",
        4 => "8X",
        8 => "12X",
        16 => "2X",
        _ => "invalid width",
    };
    let speed = match attr.active_speed {
        1 => "2.5",
        2 => "5.0",
        4 | 8 => "10.0",
        16 => "14.0",
        32 => "25.0",
        64 => "50.0",
        128 => "100.0",
        _ => "unknown",
    };
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

/// Has `program` ask the provider, for at most `timeout`, and adds what it says to `report`
///
/// The program prints an [`Answer`] as JSON. What it says of a device completes what is known already, and replaces none of it.
pub fn ask(report: &mut HostReport, program: impl AsRef<OsStr>, args: &[&str], timeout: Duration) {
    add(report, tool::run(program, args, timeout));
}

fn add(report: &mut HostReport, captured: Captured) {
    let answer = match captured.outcome {
        Outcome::Done => serde_json::from_str::<Answer>(&captured.stdout).map_err(|error| error.to_string()),
        Outcome::Hung => Err(captured.stderr),
        _ => {
            Err(format!("the process that asked it ended badly {}", captured.stderr.trim()).trim().to_owned())
        }
    };
    let (outcome, detail) = match answer {
        Ok(answer) => {
            report.provider = answer.provider;
            if answer.provider == Provider::Listed {
                merge(report.devices.get_or_insert_default(), answer.devices);
            }
            (Outcome::Done, answer.detail)
        }
        Err(why) => {
            // Nobody knows whether there are devices while the provider does not say.
            report.devices = report.devices.take().filter(|devices| !devices.is_empty());
            let is_hung = captured.outcome == Outcome::Hung;
            (if is_hung { Outcome::Hung } else { Outcome::Failed }, why)
        }
    };
    report.tools.push(ToolRun { tool: NAME.to_owned(), outcome, detail });
}

fn merge(devices: &mut Vec<VerbsDevice>, found: Vec<VerbsDevice>) {
    for found in found {
        let Some(known) = devices.iter_mut().find(|known| known.name == found.name) else {
            devices.push(found);
            continue;
        };
        let mut ports = std::mem::take(&mut known.ports);
        if ports.is_empty() {
            ports = found.ports;
        } else if let ([port], [said]) = (&mut ports[..], &found.ports[..]) {
            port.gids = port.gids.take().or_else(|| said.gids.clone());
            port.state = port.state.take().or_else(|| said.state.clone());
        }
        *known = VerbsDevice {
            name: found.name,
            node_guid: known.node_guid.take().or(found.node_guid),
            transport: known.transport.take().or(found.transport),
            max_qp: known.max_qp.or(found.max_qp),
            max_cq: known.max_cq.or(found.max_cq),
            max_pd: known.max_pd.or(found.max_pd),
            max_mr: known.max_mr.or(found.max_mr),
            max_mr_size: known.max_mr_size.or(found.max_mr_size),
            max_sge: known.max_sge.or(found.max_sge),
            ports,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn asked(script: &str, timeout: Duration) -> HostReport {
        let known = VerbsDevice { max_qp: Some(3), ..VerbsDevice::named("mlx5_0") };
        let mut report = HostReport { devices: Some(vec![known]), ..HostReport::default() };
        ask(&mut report, "sh", &["-c", script], timeout);
        report
    }

    #[test]
    fn what_the_provider_says_completes_what_is_known() {
        let said = r#"echo '{"provider": "listed", "detail": "lib", "devices": [
            {"name": "mlx5_0", "max_qp": 9, "max_cq": 5, "ports": [{"number": 1, "state": "PORT_DOWN"}]}, {"name": "new"}]}'"#;
        let report = asked(said, LONG);
        let devices = report.devices.unwrap();
        assert_eq!((devices[0].max_qp, devices[0].max_cq), (Some(3), Some(5)));
        assert_eq!(devices[0].ports[0].state.as_deref(), Some("PORT_DOWN"));
        assert_eq!((devices.len(), devices[1].name.as_str()), (2, "new"));
        assert_eq!((report.provider, report.tools[0].outcome), (Provider::Listed, Outcome::Done));
    }

    #[test]
    fn a_provider_that_hangs_crashes_or_babbles_leaves_what_is_known() {
        for (script, timeout, outcome) in [
            ("exec sleep 1000", Duration::from_millis(50), Outcome::Hung),
            ("kill -SEGV $$", LONG, Outcome::Failed),
            ("echo '{\"devices\": 7}'", LONG, Outcome::Failed),
            ("true", LONG, Outcome::Failed),
        ] {
            let report = asked(script, timeout);
            assert_eq!(report.devices.unwrap().len(), 1, "{script}");
            assert_eq!((report.provider, report.tools[0].outcome), (Provider::Unknown, outcome), "{script}");
            assert!(!report.tools[0].detail.is_empty(), "{script}");
        }
    }

    #[test]
    fn without_an_answer_nobody_knows_that_there_are_no_devices() {
        let mut report = HostReport { devices: Some(Vec::new()), ..HostReport::default() };
        ask(&mut report, "sh", &["-c", "exit 1"], LONG);
        assert_eq!(report.devices, None);
        let mut report = HostReport { devices: Some(Vec::new()), ..HostReport::default() };
        ask(&mut report, "sh", &["-c", r#"echo '{"provider": "absent"}'"#], LONG);
        assert_eq!((report.devices, report.provider), (Some(Vec::new()), Provider::Absent));
    }
}
