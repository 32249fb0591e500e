//! Verbs devices of Linux, from sysfs: names, states, rates, GIDs
//!
//! Source: the kernel's `Documentation/ABI/stable/sysfs-class-infiniband`.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use crate::parse::{MAX_ITEMS, short};
use crate::report::{DeviceSummary, GidEntry, HostReport, Platform, Port};

/// Reads the devices below `root`, which is `/sys/class/infiniband` on a live system; without that folder there are no devices
pub(super) fn report(root: &Path) -> HostReport {
    let devices = entries(root).into_iter().map(|name| device(&root.join(&name), name)).collect();
    HostReport { platform: Platform::Linux, devices: Some(devices), ..HostReport::default() }
}

fn device(path: &Path, name: String) -> DeviceSummary {
    let mut device = DeviceSummary::named(name);
    device.node_guid = value(&path.join("node_guid"));
    for number in entries(&path.join("ports")) {
        if let Ok(parsed) = number.parse() {
            device.ports.push(port(&path.join("ports").join(number), parsed));
        }
    }
    device
}

fn port(path: &Path, number: u32) -> Port {
    let mut gids = Vec::new();
    for index in entries(&path.join("gids")) {
        let gid = value(&path.join("gids").join(&index)).and_then(|text| text.parse().ok());
        if let (Ok(index), Some(gid)) = (index.parse(), gid) {
            gids.push(GidEntry { index, gid });
        }
    }
    gids.retain(|entry| !entry.gid.is_unspecified());
    gids.sort_by_key(|entry| entry.index);
    Port {
        number,
        // `4: ACTIVE`, in the words of `ibv_devinfo`.
        state: value(&path.join("state"))
            .map(|state| format!("PORT_{}", state.split_once(": ").map_or(state.as_str(), |(_, name)| name))),
        active_speed: value(&path.join("rate")),
        link_layer: value(&path.join("link_layer")),
        gids: Some(gids),
        ..Port::default()
    }
}

/// Names in a folder, in order
fn entries(path: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(path) else { return Vec::new() };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<_> = names.take(MAX_ITEMS).collect();
    names.sort_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
    names
}

/// The text of a file; unset GIDs of some drivers cannot be read
fn value(path: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(1024).read_to_string(&mut text).ok()?;
    Some(short(&text)).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::TempDir::new().unwrap();
        for (path, content) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        root
    }

    #[test]
    fn devices_ports_and_gids_are_listed_in_order() {
        let root = tree(&[
            ("rxe10/node_guid", "0200:00ff:fe00:0010\n"),
            ("rxe2/node_guid", "0200:00ff:fe00:0002\n"),
            ("rxe2/ports/1/state", "4: ACTIVE\n"),
            ("rxe2/ports/1/rate", "2.5 Gb/sec (1X SDR)\n"),
            ("rxe2/ports/1/link_layer", "Ethernet\n"),
            ("rxe2/ports/1/gids/0", "fe80:0000:0000:0000:0000:00ff:fe00:0002\n"),
            ("rxe2/ports/1/gids/10", "0000:0000:0000:0000:0000:0000:0000:0000\n"),
            ("rxe2/ports/1/gids/2", "0000:0000:0000:0000:0000:ffff:a9fe:0c07\n"),
            ("rxe2/ports/2/state", "1: DOWN\n"),
            ("rxe2/ports/odd/state", "4: ACTIVE\n"),
        ]);
        let devices = report(root.path()).devices.unwrap();
        let names: Vec<_> = devices.iter().map(|device| device.name.as_str()).collect();
        assert_eq!(names, ["rxe2", "rxe10"]);
        let [active, down] = &devices[0].ports[..] else { panic!("{devices:?}") };
        assert!(active.is_active() && !down.is_active());
        assert_eq!(down.state.as_deref(), Some("PORT_DOWN"));
        let gids: Vec<_> = active.gids.iter().flatten().map(|entry| entry.index).collect();
        assert_eq!(gids, [0, 2]);
        assert_eq!(active.gids.as_ref().unwrap()[1].ipv4(), Some([169, 254, 12, 7].into()));
        assert!(devices[1].ports.is_empty());
    }

    #[test]
    fn a_system_without_the_infiniband_class_has_no_devices() {
        let root = tempfile::TempDir::new().unwrap();
        assert_eq!(report(&root.path().join("infiniband")).devices, Some(Vec::new()));
    }
}
