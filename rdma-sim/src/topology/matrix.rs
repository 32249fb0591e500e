use rdma_core::{DeviceMatrix, DeviceRow};

use super::port::{device_name, interface_number};
use super::shapes::host_name;
use super::{MacModel, Topology, TopologyError};
use crate::LineRate;

impl Topology {
    /// The cluster that a device matrix of MLX describes (`MLX_IBV_DEVICES`), with Thunderbolt 5 cables
    ///
    /// `m[i][j]` holds the devices of rank `i` whose cables lead to rank `j`: null, a name, or a list of names in the
    /// order of those in `m[j][i]`. The matrix names neither Macs nor their models: rank 0
    /// is called `a`, rank 1 `b`, and each is a generic Mac with ports up to the last device of its row.
    ///
    /// ```
    /// use rdma_sim::Topology;
    ///
    /// let matrix = r#"[[null, "rdma_en5"], ["rdma_en3", null]]"#;
    /// let topology = Topology::from_matrix(matrix)?;
    /// let [a, b] = topology.links().next().unwrap().ends;
    /// assert_eq!((a.host, a.device, b.host, b.device), ("a", "rdma_en5", "b", "rdma_en3"));
    /// # Ok::<(), rdma_sim::TopologyError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`TopologyError::Matrix`], [`MatrixDevice`](TopologyError::MatrixDevice), [`TooManyHosts`](TopologyError::TooManyHosts).
    pub fn from_matrix(json: &str) -> Result<Self, TopologyError> {
        let matrix: DeviceMatrix = json.parse()?;
        let names = (0..matrix.hosts()).map(host_name).collect();
        from_named(names, &matrix)
    }

    /// The device matrix of MLX, as JSON with a line for each rank; ranks follow the order of the hosts
    ///
    /// Names, models, unused ports, rates and addresses are not in it.
    pub fn to_matrix(&self) -> String {
        let row = |row| serde_json::to_string(&self.row(row)).expect("names and lists of names are JSON");
        let rows: Vec<String> = (0..self.hosts.len()).map(row).collect();
        format!("[\n  {}\n]\n", rows.join(",\n  "))
    }

    /// The devices of a rank towards each rank
    pub(super) fn row(&self, row: usize) -> DeviceRow {
        let devices = |column: usize| {
            let cables = self.cables.iter().filter_map(move |cable| match cable.ends {
                [a, b] if a.host == row && b.host == column => Some(a),
                [a, b] if b.host == row && a.host == column => Some(b),
                _ => None,
            });
            cables.map(|end| self.hosts[row].ports[end.port].device.clone()).collect::<Vec<_>>()
        };
        (0..self.hosts.len()).map(devices).collect::<Vec<_>>().into()
    }
}

/// The topology of Macs with these names, whose devices the matrix holds
pub(super) fn from_named(names: Vec<String>, matrix: &DeviceMatrix) -> Result<Topology, TopologyError> {
    let hosts = 0..matrix.hosts();
    let mut topology = Topology::new();
    for row in hosts.clone() {
        let (first, ports) = interfaces(row, matrix)?;
        topology.add_host_from(&names[row], ports, first)?;
    }
    for row in hosts.clone() {
        for column in hosts.clone().skip(row + 1) {
            let (a, b) = (&*names[row], &*names[column]);
            for (device, counterpart) in matrix.devices(row, column).iter().zip(matrix.devices(column, row)) {
                topology.add_cable((a, &**device), (b, &**counterpart), LineRate::TB5)?;
            }
        }
    }
    Ok(topology)
}

/// The first interface of a rank, and how many it has
fn interfaces(row: usize, matrix: &DeviceMatrix) -> Result<(u16, usize), TopologyError> {
    let (mut first, mut last) = (Topology::FIRST_INTERFACE, Topology::FIRST_INTERFACE);
    for column in 0..matrix.hosts() {
        for device in matrix.devices(row, column) {
            let number = interface_number(device);
            let (low, high) = number.map_or((first, last), |number| (first.min(number), last.max(number)));
            if number.is_none() || usize::from(high - low) >= MacModel::MAX_PORTS {
                let possible = [first, first + MacModel::MAX_PORTS as u16 - 1].map(|n| device_name(n, 0));
                return Err(TopologyError::MatrixDevice { row, column, device: device.clone(), possible });
            }
            (first, last) = (low, high);
        }
    }
    Ok((first, usize::from(last - first) + 1))
}
