use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::MatrixError;

/// Which devices of each host lead to which other host, as MLX writes it for its backend JACCL
///
/// `m[i][j]` holds the devices of rank `i` whose cables lead to rank `j`: null, a name, or a list of names in the order of those in
/// `m[j][i]`.
///
/// ```
/// use rdma_core::DeviceMatrix;
///
/// let matrix: DeviceMatrix = r#"[[null, "rdma_en5"], ["rdma_en3", null]]"#.parse()?;
/// assert_eq!((matrix.hosts(), matrix.devices(0, 1)), (2, &["rdma_en5".to_owned()][..]));
///
/// let error = r#"[[null, "rdma_en5"], [null, null]]"#.parse::<DeviceMatrix>().unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "m[0][1] has 1 (rdma_en5), but m[1][0] has 0 (none): a cable has a device at both ends"
/// );
/// # Ok::<_, rdma_core::MatrixError>(())
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DeviceMatrix(Vec<Vec<Vec<String>>>);

/// The devices of one rank of a [`DeviceMatrix`] towards each rank, as JSON has them
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(transparent)]
pub struct DeviceRow(Vec<Cell>);

/// The devices of one rank towards another
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(untagged, expecting = "a cell is null, \"rdma_enN\", or a list of such names")]
enum Cell {
    None,
    One(String),
    Many(Vec<String>),
}

impl DeviceMatrix {
    /// The matrix of these rows
    ///
    /// # Errors
    ///
    /// * [`MatrixError::NotSquare`] if a row does not have a cell for each rank;
    /// * [`MatrixError::Diagonal`] if a device leads from a rank to itself;
    /// * [`MatrixError::Repeated`] if a device leads to two ranks;
    /// * [`MatrixError::Uneven`] if two ranks name different numbers of cables between them.
    pub fn from_rows(rows: impl IntoIterator<Item = DeviceRow>) -> Result<Self, MatrixError> {
        let rows = rows.into_iter().map(|DeviceRow(row)| row.into_iter().map(Vec::from).collect());
        let matrix = Self(rows.collect());
        matrix.check()?;
        Ok(matrix)
    }

    /// How many hosts there are
    pub fn hosts(&self) -> usize {
        self.0.len()
    }

    /// The devices of rank `from` whose cables lead to rank `to`
    ///
    /// # Panics
    ///
    /// Panics unless both are below [`hosts`](Self::hosts).
    pub fn devices(&self, from: usize, to: usize) -> &[String] {
        &self.0[from][to]
    }

    fn check(&self) -> Result<(), MatrixError> {
        let Self(matrix) = self;
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
}

impl FromStr for DeviceMatrix {
    type Err = MatrixError;

    /// Reads JSON
    ///
    /// # Errors
    ///
    /// [`MatrixError::Json`], and those of [`from_rows`](Self::from_rows).
    fn from_str(json: &str) -> Result<Self, MatrixError> {
        let rows: Vec<DeviceRow> = serde_json::from_str(json)
            .map_err(|error| MatrixError::Json { line: error.line(), message: error.to_string() })?;
        Self::from_rows(rows)
    }
}

impl From<Vec<Vec<String>>> for DeviceRow {
    /// The row with these devices towards each rank
    fn from(row: Vec<Vec<String>>) -> Self {
        Self(row.into_iter().map(Cell::from).collect())
    }
}

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
