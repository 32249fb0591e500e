//! From outputs to reports, and from reports to files and back

mod support;

use std::{env, fs};

use rdma_doctor::HostReport;
use rdma_doctor::discover::{Outputs, Tool};
use rdma_doctor::report::{Outcome, RdmaCtl};
use support::{fixture, folder, outputs};

#[test]
fn the_outputs_of_two_macs_make_the_reports_in_the_fixtures() {
    for host in ["left", "right"] {
        let json = serde_json::to_string_pretty(&outputs(host).report()).unwrap() + "\n";
        let kept = folder().join(format!("reports/{host}.json"));
        if env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&kept, &json).unwrap();
        }
        let kept = fs::read_to_string(kept).unwrap();
        assert_eq!(json, kept, "run with UPDATE_GOLDEN=1 if it should change");
    }
}

#[test]
fn a_report_is_the_same_after_serializing_and_reading() {
    let report = outputs("left").report();
    let json = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<HostReport>(&json).unwrap(), report);
    assert_eq!(serde_json::from_str::<HostReport>("{}").unwrap(), HostReport::default());
}

#[test]
fn the_keys_of_a_report_are_stable() {
    let json = serde_json::to_value(HostReport::default()).unwrap();
    let keys: Vec<_> = json.as_object().unwrap().keys().map(String::as_str).collect();
    let promised = [
        "devices",
        "exo_daemon",
        "firewall",
        "hardware_model",
        "hardware_ports",
        "idle_sleep_minutes",
        "incident_reports",
        "incidents",
        "interfaces",
        "ipv4_neighbours",
        "ipv6_neighbours",
        "kernel_log",
        "kernel_objects",
        "live_links",
        "macos_build",
        "macos_version",
        "network_settings",
        "peer_probes",
        "platform",
        "port_owners",
        "provider",
        "rdma_ctl",
        "routes",
        "thunderbolt",
        "tools",
        "uptime",
        "waiting_processes",
    ];
    assert_eq!(keys, promised);
}

#[test]
fn services_of_the_text_form_are_added_to_the_peers_of_the_json() {
    let rdma = |outputs: &Outputs| outputs.report().thunderbolt.unwrap()[0].peers[0].rdma_service;
    let both = outputs("left");
    assert_eq!(rdma(&both), Some(true));
    let lower = fixture("left/system_profiler.txt").replace("7A1B0C2D", "7a1b0c2d");
    assert_eq!(rdma(&both.clone().with(Tool::SystemProfilerText, lower)), Some(true));
    let without = fixture("odd/system_profiler-peer_without_rdma.txt");
    assert_eq!(rdma(&both.clone().with(Tool::SystemProfilerText, without)), Some(false));
    assert_eq!(rdma(&both.with_outcome(Tool::SystemProfilerText, Outcome::Hung)), None);
}

#[test]
fn a_tool_that_hangs_leaves_its_fields_unknown_and_is_recorded() {
    let mut hung = outputs("left");
    for tool in Tool::ALL {
        hung.tools.get_mut(&tool).unwrap().outcome = Outcome::Hung;
    }
    let report = hung.report();
    assert_eq!(report.rdma_ctl, RdmaCtl::Hung);
    assert!(report.hung("ibv_devinfo") && report.hung("system_profiler"));
    let rest = HostReport::default();
    assert_eq!(report.thunderbolt, rest.thunderbolt);
    assert_eq!(report.devices, rest.devices);
    assert_eq!(report.interfaces, rest.interfaces);
    assert_eq!(report.macos_version, rest.macos_version);
    assert_eq!(report.tools.len(), Tool::ALL.len());
}

#[test]
fn devices_that_cannot_be_opened_are_still_listed() {
    let report = outputs("left").with_outcome(Tool::IbvDevinfo, Outcome::Hung).report();
    let devices = report.devices.unwrap();
    let names: Vec<_> = devices.iter().map(|device| device.name.as_str()).collect();
    assert_eq!(names, ["rdma_en2", "rdma_en3", "rdma_en4"]);
    assert!(devices.iter().all(|device| device.ports.is_empty()));
}

#[test]
fn an_empty_list_of_devices_differs_from_an_unknown_one() {
    let listed = |devices: Outcome, list: &str, info: Outcome, text: &str| {
        let mut outputs = Outputs::default().with(Tool::IbvDevices, list).with(Tool::IbvDevinfo, text);
        outputs.tools.get_mut(&Tool::IbvDevices).unwrap().outcome = devices;
        outputs.tools.get_mut(&Tool::IbvDevinfo).unwrap().outcome = info;
        outputs.report().devices.map(|devices| devices.len())
    };
    let (none_listed, none_found) =
        (fixture("odd/ibv_devices-none.txt"), fixture("odd/ibv_devinfo-none.txt"));
    assert_eq!(listed(Outcome::Done, &none_listed, Outcome::Failed, &none_found), Some(0));
    assert_eq!(listed(Outcome::Hung, "", Outcome::Failed, &none_found), Some(0));
    assert_eq!(listed(Outcome::Done, &none_listed, Outcome::Hung, ""), Some(0));
    assert_eq!(listed(Outcome::Hung, "", Outcome::Hung, ""), None);
    assert_eq!(listed(Outcome::Absent, "", Outcome::Absent, ""), None);
}

#[test]
fn an_unreadable_output_is_recorded_with_its_tool() {
    let broken = fixture("broken/system_profiler-truncated.json");
    let report = outputs("left").with(Tool::SystemProfiler, broken).report();
    assert_eq!(report.thunderbolt, None);
    let detail = &report.tool("system_profiler").unwrap().detail;
    assert!(detail.starts_with("not JSON: "), "{detail}");
}

/// Breaks if ports below which no owner is listed, perhaps because the names of field notes are wrong, show that there is none.
#[test]
fn a_registry_without_the_class_of_owners_does_not_show_that_there_are_none() {
    let owners = |outputs: Outputs| Outputs { owners: None, ..outputs }.report().kernel_objects.owners;
    assert_eq!(owners(outputs("left")), None);
    let listed = fixture("field/two-programs-one-port/left/ioreg.txt");
    assert_eq!(owners(outputs("left").with(Tool::IoregPorts, listed)).unwrap().len(), 2);
}

/// Breaks if the ports of an output that was cut off count as all of them.
#[test]
fn an_output_of_ioreg_that_was_cut_off_lists_no_owners() {
    let whole = fixture("left/ioreg.txt");
    let long = format!("{whole}{}", " ".repeat(rdma_doctor::parse::MAX_INPUT - whole.len()));
    assert_eq!(outputs("left").with(Tool::IoregPorts, long).report().port_owners, None);
}
