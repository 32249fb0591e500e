use serde::{Deserialize, Serialize};

use super::matrix_error::MatrixError;
use super::port::{device_name, interface_number};
use super::shapes::host_name;
use super::{MacModel, Topology, TopologyError};
use crate::LineRate;

/// The devices of one rank towards another
#[derive(Deserialize, Serialize)]
#[serde(untagged, expecting = "a cell is null, \"rdma_enN\", or a list of such names")]
enum Cell {
    None,
    One(String),
    Many(Vec<String>),
}

/// The devices of one rank
#[derive(Default, Deserialize, Serialize)]
#[serde(transparent)]
pub(super) struct Row(Vec<Cell>);

impl From<Cell> for Vec<String> {
    fn from(cell: Cell) -> Self {
        match cell {
            Cell::None => Self::new(),
            Cell::One(device) => vec![device],
            Cell::Many(devices) => devices,
        }
    }
}

impl From<Vec<String>> for Cell {
    fn from(mut devices: Vec<String>) -> Self {
        match devices.len() {
            0 => Self::None,
            1 => Self::One(devices.remove(0)),
            _ => Self::Many(devices),
        }
    }
}

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
    /// [`TopologyError::Matrix`], [`TooManyHosts`](TopologyError::TooManyHosts).
    pub fn from_matrix(json: &str) -> Result<Self, TopologyError> {
        let rows: Vec<Row> = serde_json::from_str(json)
            .map_err(|error| MatrixError::Json { line: error.line(), message: error.to_string() })?;
        let names = (0..rows.len()).map(host_name).collect();
        from_rows(names, rows)
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
    pub(super) fn row(&self, row: usize) -> Row {
        let devices = |column: usize| {
            let cables = self.cables.iter().filter_map(move |cable| match cable.ends {
                [a, b] if a.host == row && b.host == column => Some(a),
                [a, b] if b.host == row && a.host == column => Some(b),
                _ => None,
            });
            cables.map(|end| self.hosts[row].ports[end.port].device.clone()).collect::<Vec<_>>()
        };
        Row((0..self.hosts.len()).map(|column| devices(column).into()).collect())
    }
}

/// The topology of Macs with these names, whose devices the rows hold
pub(super) fn from_rows(names: Vec<String>, rows: Vec<Row>) -> Result<Topology, TopologyError> {
    let matrix: Vec<Vec<Vec<String>>> =
        rows.into_iter().map(|Row(row)| row.into_iter().map(Vec::from).collect()).collect();
    check(&matrix)?;

    let mut topology = Topology::new();
    for (row, cells) in matrix.iter().enumerate() {
        let (first, ports) = interfaces(row, cells)?;
        topology.add_host_from(&names[row], ports, first)?;
    }
    for (row, cells) in matrix.iter().enumerate() {
        for (column, devices) in cells.iter().enumerate().skip(row + 1) {
            let (a, b) = (&*names[row], &*names[column]);
            for (device, counterpart) in devices.iter().zip(&matrix[column][row]) {
                topology.add_cable((a, &**device), (b, &**counterpart), LineRate::TB5)?;
            }
        }
    }
    Ok(topology)
}

fn check(matrix: &[Vec<Vec<String>>]) -> Result<(), MatrixError> {
    let rows = matrix.len();
    if let Some(row) = matrix.iter().position(|cells| cells.len() != rows) {
        return Err(MatrixError::NotSquare { row, cells: matrix[row].len(), rows });
    }
    for (row, cells) in matrix.iter().enumerate() {
        if !cells[row].is_empty() {
            return Err(MatrixError::Diagonal { row, devices: cells[row].clone() });
        }
        let mut seen: Vec<(usize, &String)> = Vec::new();
        for (column, device) in
            cells.iter().enumerate().flat_map(|(c, cell)| cell.iter().map(move |d| (c, d)))
        {
            if let Some((first, _)) = seen.iter().find(|(_, other)| *other == device) {
                let columns = [*first, column];
                return Err(MatrixError::Repeated { row, device: device.clone(), columns });
            }
            seen.push((column, device));
        }
        for (column, devices) in cells.iter().enumerate() {
            let counterparts = &matrix[column][row];
            if devices.len() != counterparts.len() {
                let (devices, counterparts) = (devices.clone(), counterparts.clone());
                return Err(MatrixError::Uneven { row, column, devices, counterparts });
            }
        }
    }
    Ok(())
}

/// The first interface of a rank, and how many it has
fn interfaces(row: usize, cells: &[Vec<String>]) -> Result<(u16, usize), MatrixError> {
    let (mut first, mut last) = (Topology::FIRST_INTERFACE, Topology::FIRST_INTERFACE);
    for (column, devices) in cells.iter().enumerate() {
        for device in devices {
            let number = interface_number(device);
            let (low, high) = number.map_or((first, last), |number| (first.min(number), last.max(number)));
            if number.is_none() || usize::from(high - low) >= MacModel::MAX_PORTS {
                let possible = [first, first + MacModel::MAX_PORTS as u16 - 1].map(|n| device_name(n, 0));
                return Err(MatrixError::Device { row, column, device: device.clone(), possible });
            }
            (first, last) = (low, high);
        }
    }
    Ok((first, usize::from(last - first) + 1))
}
