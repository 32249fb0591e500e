//! macOS, its settings and its devices

use super::check::Note;
use crate::report::{HostReport, LinkSpeed, Outcome, ProviderStatus, RdmaCtl};

const NO_VERSION: &str = "sw_vers printed no version that is known";
const NO_TOOL: &str = "update to macOS 26.2 or later, which brings the tool";

/// F6: `librdma.dylib` and the tools came with macOS 26.2
pub(super) fn macos_version(host: &HostReport) -> Note {
    let Some(release) = host.macos_release() else { return Note::unknown(NO_VERSION) };
    if release < (26, 2) {
        Note::fail(version(host), "update to macOS 26.2 or later, the same version on all hosts")
    } else {
        Note::ok(version(host))
    }
}

/// F30: on 26.2 messages above 4 KiB do not work well; MLX sends them from 26.3 on only
pub(super) fn message_limit(host: &HostReport) -> Note {
    match host.macos_release() {
        None => Note::unknown(NO_VERSION),
        Some((26, 2)) => {
            Note::warn(version(host), "update to macOS 26.3 or later, or send no message above 4 KiB")
        }
        Some(_) => Note::ok(version(host)),
    }
}

fn version(host: &HostReport) -> String {
    let version = host.macos_version.as_deref().unwrap_or("?");
    match &host.macos_build {
        Some(build) => format!("macOS {version} ({build})"),
        None => format!("macOS {version}"),
    }
}

/// F1: RDMA is off by default, and only Recovery can switch it on
pub(super) fn rdma_enabled(host: &HostReport) -> Note {
    match host.rdma_ctl {
        RdmaCtl::Enabled => Note::ok("rdma_ctl status: enabled"),
        RdmaCtl::Disabled => Note::fail(
            "rdma_ctl status: disabled",
            "start the Mac in Recovery, run `rdma_ctl enable` in its Terminal, and restart",
        ),
        RdmaCtl::Absent => Note::fail("there is no rdma_ctl", NO_TOOL),
        RdmaCtl::Hung => Note::fail("rdma_ctl status did not end in time", "restart the Mac"),
        RdmaCtl::Unknown => Note::unknown("rdma_ctl was not run, or its output was not understood"),
    }
}

/// F1, F2, F6, F80: no library, no list and an empty list have different remedies
pub(super) fn verbs_devices(host: &HostReport) -> Vec<Note> {
    match host.provider {
        ProviderStatus::Absent => {
            return vec![Note::fail(
                "the verbs library cannot be loaded",
                if host.is_mac() {
                    "update to macOS 26.2 or later, which brings librdma"
                } else {
                    "install libibverbs and the provider of the adapter"
                },
            )];
        }
        ProviderStatus::ListFailed => {
            return vec![Note::fail("ibv_get_device_list returned NULL", "restart the host")];
        }
        ProviderStatus::Unusable => {
            let why =
                host.tool("verbs_provider").map_or("it is no verbs provider", |run| run.detail.as_str());
            return vec![Note::fail(why, "set RDMA_PROVIDER to a verbs provider, or unset it")];
        }
        ProviderStatus::Listed | ProviderStatus::Unknown => {}
    }
    let tool_absent =
        host.tool("ibv_devices").is_some_and(|run| run.outcome == Outcome::Absent) && host.is_mac();
    vec![match host.devices.as_deref() {
        None if tool_absent => Note::fail("there is no ibv_devices", NO_TOOL),
        None => Note::unknown("the devices could not be listed"),
        Some([]) => no_devices(host),
        Some(devices) => {
            let names: Vec<_> = devices.iter().map(|device| device.name.as_str()).collect();
            Note::ok(names.join(", "))
        }
    }]
}

fn no_devices(host: &HostReport) -> Note {
    if !host.is_mac() {
        return Note::fail("this host has no verbs devices", "use a host with RDMA, or the simulator");
    }
    let speeds: Vec<_> = host.thunderbolt.iter().flatten().filter_map(|bus| bus.link_speed()).collect();
    match host.rdma_ctl {
        RdmaCtl::Enabled if is_thunderbolt_5(&speeds) => Note::fail(
            "RDMA is enabled, and a Mac with Thunderbolt 5 lists no device",
            "restart the Mac: the setting takes effect with the next start",
        ),
        RdmaCtl::Enabled if !speeds.is_empty() => Note::fail(
            "RDMA is enabled, and no device is listed; no receptacle exceeds 40 Gb/s",
            "use a Mac with Thunderbolt 5",
        ),
        RdmaCtl::Enabled => Note::fail("RDMA is enabled, and no device is listed", "restart the Mac"),
        _ => Note::fail(
            "there are no verbs devices",
            "enable RDMA in Recovery with `rdma_ctl enable`, and restart",
        ),
    }
}

/// F2: Thunderbolt 3 and 4 stop at 40 Gb/s
///
/// Devices may be listed on such Macs or not, and work or not; all of that was reported. If all receptacles carry 40 Gb/s links, their limit is not known:
/// then only [`link_speed`](super::cables::link_speed) has a finding.
pub(super) fn thunderbolt_5(host: &HostReport) -> Note {
    let Some(buses) = host.thunderbolt.as_deref() else {
        return Note::unknown("system_profiler listed no Thunderbolt buses");
    };
    let speeds: Vec<_> = buses.iter().filter_map(|bus| bus.link_speed()).collect();
    let listed: Vec<_> = buses.iter().filter_map(|bus| bus.speed.as_deref()).collect();
    let evidence = format!("speeds of the receptacles: {}", listed.join(", "));
    if buses.is_empty() {
        Note::fail("there is no Thunderbolt receptacle", "use a Mac with Thunderbolt 5")
    } else if is_thunderbolt_5(&speeds) {
        Note::ok(evidence)
    } else if speeds.iter().any(|speed| speed.is_limit) {
        Note::warn(evidence, "use a Mac with Thunderbolt 5: RDMA is documented for receptacles of 80 Gb/s")
    } else {
        Note::unknown(evidence)
            .advise("unplug one cable and run this again: only a free receptacle shows its limit")
    }
}

fn is_thunderbolt_5(speeds: &[LinkSpeed]) -> bool {
    speeds.iter().any(|speed| speed.gigabits > 40)
}

/// F8: a Mac that sleeps takes its ports down, and Thunderbolt traffic does not wake it
pub(super) fn idle_sleep(host: &HostReport) -> Note {
    match host.idle_sleep_minutes {
        None => Note::unknown("pmset printed no sleep time"),
        Some(0) => Note::ok("sleep 0"),
        Some(minutes) => Note::warn(format!("sleep {minutes}"), "run `sudo pmset -a sleep 0`"),
    }
}
