/// Why a device matrix is refused
///
/// Rows and columns are counted from zero, as ranks are.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MatrixError {
    /// A device from a Mac to itself
    #[error("m[{row}][{row}] has {}, a cable of rank {row} to itself: it must be null", names(devices))]
    Diagonal {
        /// The rank
        row: usize,
        /// The devices that stand there instead of null
        devices: Vec<String>,
    },

    /// The text is not a list of lists of devices
    #[error("the matrix is no list of rows of devices: {message}")]
    Json {
        /// The line, counted from one
        line: usize,
        /// The message of the parser
        message: String,
    },

    /// A row does not have a cell for each rank
    #[error("the matrix has {rows} rows, but row {row} has {cells} cells: it must be square")]
    NotSquare {
        /// The first row of another length
        row: usize,
        /// How many cells it has
        cells: usize,
        /// How many rows there are
        rows: usize,
    },

    /// A row has a device twice
    #[error("rank {row} has {device} in m[{row}][{}] and in m[{row}][{}]: a port takes one cable", columns[0], columns[1])]
    Repeated {
        /// The rank
        row: usize,
        /// The device
        device: String,
        /// The columns that name it
        columns: [usize; 2],
    },

    /// Two ranks name different numbers of devices for the cables between them
    #[error(
        "m[{row}][{column}] has {} ({}), but m[{column}][{row}] has {} ({}): a cable has a device at both ends",
        devices.len(), names(devices), counterparts.len(), names(counterparts)
    )]
    Uneven {
        /// One rank
        row: usize,
        /// The other
        column: usize,
        /// Devices of the one towards the other
        devices: Vec<String>,
        /// Devices of the other towards the one
        counterparts: Vec<String>,
    },
}

impl MatrixError {
    /// The row that is wrong, counted from zero, if the text has rows
    pub fn row(&self) -> Option<usize> {
        match *self {
            Self::Diagonal { row, .. }
            | Self::NotSquare { row, .. }
            | Self::Repeated { row, .. }
            | Self::Uneven { row, .. } => Some(row),
            Self::Json { .. } => None,
        }
    }
}

/// Devices in an error message
fn names(devices: &[String]) -> String {
    if devices.is_empty() { "none".to_owned() } else { devices.join(", ") }
}
