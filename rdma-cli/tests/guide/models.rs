//! The table of Macs in `formats.md`, as the simulator has them

use rdma_sim::{MacModel, Topology};

/// The rows of all models that are sold
pub(crate) fn rows() -> impl Iterator<Item = String> {
    MacModel::ALL.into_iter().map(|model| {
        let topology = Topology::new().host("a", model);
        let ports = topology.hosts()[0].ports();
        let devices: Vec<_> = ports.iter().map(|port| format!("`{}`", port.device())).collect();
        let gigabits = model.line_rate().bits_per_second / 1_000_000_000;
        format!("| `{model}` | {} | {gigabits} |", devices.join(", "))
    })
}
