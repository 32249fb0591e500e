//! The driver, the provider, devices and their ports

use rdma_core::Caps;

use super::check::Note;
use crate::report::{DeviceSummary, HostReport, Outcome, Port, ProviderStatus, RdmaCtl};

/// F53: a wedged driver hangs every process that opens a device
pub(super) fn driver(host: &HostReport) -> Vec<Note> {
    const REMEDY: &str = "replug the cables, and restart the host if that does not help";
    for tool in ["ibv_devinfo", "ibv_devices"] {
        if host.hung(tool) {
            return vec![Note::fail(format!("{tool} did not answer in time"), REMEDY)];
        }
    }
    match host.tool("ibv_devinfo").map(|run| run.outcome) {
        Some(Outcome::Done) => vec![Note::ok("ibv_devinfo -v ended")],
        Some(Outcome::Absent) => vec![Note::unknown("there is no ibv_devinfo")],
        Some(Outcome::Failed) => vec![Note::unknown("ibv_devinfo -v ended with an error")],
        _ if host.is_mac() => vec![Note::unknown("ibv_devinfo was not run")],
        _ => Vec::new(),
    }
}

/// F53: a probe of the provider may hang or crash; then nothing is known about the provider
pub(super) fn provider(host: &HostReport) -> Vec<Note> {
    const ADVICE: &str =
        "run this again; if the finding stays, replug the cables, and restart the host if that does not help";
    let Some(run) = host.tool("verbs_provider") else { return Vec::new() };
    vec![match run.outcome {
        Outcome::Hung => Note::unknown(&run.detail).advise(ADVICE),
        Outcome::Failed => Note::warn(&run.detail, ADVICE),
        _ => match host.provider {
            // The check `verbs_devices` reports these.
            ProviderStatus::Absent | ProviderStatus::ListFailed | ProviderStatus::Unusable => {
                return Vec::new();
            }
            _ => Note::ok(&run.detail),
        },
    }]
}

/// F4: names are not stable, and a device does not always use the interface that it is named after
///
/// The first GID of a port is made from the hardware address of the interface that the device uses.
pub(super) fn interface_mapping(host: &HostReport) -> Vec<Note> {
    const LOOK_UP_AGAIN: &str =
        "look the device up again before each use: the numbers change with restarts and network settings";
    let note = |device: &DeviceSummary| {
        let Some(interface) = device.interface() else {
            return Note::unknown("the name of the device does not contain an interface");
        };
        let ports = host.hardware_ports.as_deref();
        if ports.is_some() && !host.thunderbolt_interfaces().any(|port| port == interface) {
            return Note::warn(format!("no Thunderbolt port has the interface {interface}"), LOOK_UP_AGAIN);
        }
        if host.interfaces.is_some() && host.interface(interface).is_none() {
            return Note::warn(format!("there is no interface {interface}"), LOOK_UP_AGAIN);
        }
        let made_from =
            device.ports.iter().filter_map(|port| port.gids.as_ref()).flatten().find_map(|gid| gid.ether());
        let Some(made_from) = made_from else {
            return if ports.is_some() {
                Note::ok(format!("{interface} is a Thunderbolt port"))
            } else {
                Note::unknown("neither the ports nor the GIDs show which interface the device uses")
            };
        };
        let all = host.interfaces.iter().flatten();
        let used: Vec<_> = all
            .filter(|other| other.ether.as_deref() == Some(&made_from) && !other.is_bridge())
            .map(|other| other.name.as_str())
            .collect();
        if used.is_empty() || used.contains(&interface) {
            Note::ok(format!("{interface}, GID made from {made_from}"))
        } else {
            Note::warn(
                format!("its GID is made from {made_from}, the address of {}", used.join(", ")),
                "configure the interface that the GID names, not the one that the device is named after",
            )
        }
    };
    host.devices.iter().flatten().map(|device| note(device).on(&device.name)).collect()
}

/// F1, F7, F9, F73: a port is active only if the host at the other end of its cable has RDMA enabled
pub(super) fn port_state(host: &HostReport) -> Vec<Note> {
    let mut notes = Vec::new();
    let mut all_inactive = true;
    for device in host.devices.iter().flatten() {
        if device.ports.is_empty() {
            all_inactive = false;
            notes.push(Note::unknown("its ports are not known").on(&device.name));
        }
        for port in &device.ports {
            all_inactive &= port.state.is_some() && !port.is_active();
            notes.push(state(host, device, port).on(device.label(port)));
        }
    }
    if all_inactive && !notes.is_empty() {
        notes.push(Note::fail("no port is active", "connect a host that has RDMA enabled"));
    }
    notes
}

fn state(host: &HostReport, device: &DeviceSummary, port: &Port) -> Note {
    let Some(text) = port.state.as_deref() else { return Note::unknown("its state is not known") };
    if port.is_active() {
        return Note::ok(text);
    }
    let has_cable = host.bus_of(device).map(|bus| bus.hosts().next().is_some());
    match has_cable {
        Some(true) if host.rdma_ctl == RdmaCtl::Disabled => {
            Note::fail(format!("{text}, with a cable"), "enable RDMA on this host, and restart it")
        }
        Some(true) => Note::fail(
            format!("{text}, with a cable to another host"),
            "enable RDMA on the host at the other end and restart it, then replug the cable",
        ),
        Some(false) => Note::ok(format!("{text}, without a cable")),
        None if host.is_mac() => Note::unknown(format!("{text}; whether it has a cable is not known")),
        None => Note::warn(text, "connect the port, or use one that is active"),
    }
}

/// F26, F27, F28, F30, F34: smaller limits than the library expects
pub(super) fn device_limits(host: &HostReport) -> Vec<Note> {
    let wanted = Caps::tb5();
    let note = |device: &DeviceSummary| {
        let message = device.ports.iter().find_map(|port| port.max_msg_sz);
        let limits = [
            ("max_qp", device.max_qp, wanted.max_qp),
            ("max_cq", device.max_cq, wanted.max_cq),
            ("max_pd", device.max_pd, wanted.max_pd),
            ("max_mr", device.max_mr, wanted.max_mr),
            ("max_sge", device.max_sge, wanted.max_sge),
            ("max_msg_sz", message, wanted.max_message),
        ];
        let known: Vec<_> =
            limits.into_iter().filter_map(|(name, got, want)| Some((name, got?, want))).collect();
        let text = |(name, got, _): &(&str, u64, u32)| format!("{name} {got}");
        let short: Vec<_> = known.iter().filter(|(_, got, want)| *got < u64::from(*want)).collect();
        if known.is_empty() {
            Note::unknown("ibv_devinfo -v printed no limits")
        } else if short.is_empty() {
            Note::ok(known.iter().map(text).collect::<Vec<_>>().join(", "))
        } else {
            Note::warn(
                short.into_iter().map(text).collect::<Vec<_>>().join(", "),
                "use fewer queue pairs on this device, and send shorter messages",
            )
        }
    };
    host.devices.iter().flatten().map(|device| note(device).on(&device.name)).collect()
}

/// F76: connecting failed on some Mac minis with a path MTU of 4096, and on none with 1024
pub(super) fn path_mtu(host: &HostReport) -> Vec<Note> {
    let mut notes = Vec::new();
    for device in host.devices.iter().flatten() {
        for port in device.active_ports() {
            let note = match port.active_mtu {
                None => Note::unknown("active_mtu is not known"),
                Some(mtu @ ..1024) => {
                    Note::warn(format!("active_mtu {mtu}"), "connect with this path MTU instead of 1024")
                }
                Some(mtu) => Note::ok(format!("active_mtu {mtu}; connections use 1024")),
            };
            notes.push(note.on(device.label(port)));
        }
    }
    notes
}
