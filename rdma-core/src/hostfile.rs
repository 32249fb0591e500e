use std::str::FromStr;

use serde::Deserialize;

use crate::{DeviceMatrix, DeviceRow, MatrixError};

/// The hosts of a hostfile of `mlx.launch`, as `mlx.distributed_config` writes it for JACCL
///
/// The hosts stand alone, or beside the backend and the environment, which are not used.
///
/// ```
/// use rdma_core::Hostfile;
///
/// let hostfile: Hostfile = r#"[{"ssh": "studio", "ips": ["10.0.0.1"], "rdma": [null, "rdma_en5"]},
///                              {"ssh": "mini", "rdma": ["rdma_en3", null]}]"#.parse()?;
/// assert_eq!(hostfile.hosts()[0].addresses, ["10.0.0.1"]);
/// assert_eq!(hostfile.matrix()?.devices(1, 0), ["rdma_en3"]);
/// # Ok::<(), rdma_core::HostfileError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Hostfile {
    hosts: Vec<HostfileEntry>,
    rows: Vec<DeviceRow>,
}

/// A host of a [`Hostfile`]
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct HostfileEntry {
    /// Its name for ssh
    pub name: String,
    /// Its addresses, `ips`
    pub addresses: Vec<String>,
    /// The line in which it begins, counted from one
    pub line: usize,
}

/// Why a hostfile is refused
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum HostfileError {
    /// The text is no list of hosts
    #[error("line {line}: {message}")]
    Json {
        /// The line, counted from one
        line: usize,
        /// The message of the parser
        message: String,
    },

    /// The rows of the hosts are no matrix
    #[error("line {line}: {reason}")]
    Matrix {
        /// The line of the host that is wrong, counted from one
        line: usize,
        /// The row and the cell
        #[source]
        reason: MatrixError,
    },
}

impl Hostfile {
    /// The hosts, by rank
    pub fn hosts(&self) -> &[HostfileEntry] {
        &self.hosts
    }

    /// The devices of each host that lead to each other one
    ///
    /// # Errors
    ///
    /// [`HostfileError::Matrix`] with what is wrong, and with the line of the host.
    pub fn matrix(&self) -> Result<DeviceMatrix, HostfileError> {
        DeviceMatrix::from_rows(self.rows.iter().cloned()).map_err(|reason| {
            let host = reason.row().and_then(|row| self.hosts.get(row));
            HostfileError::Matrix { line: host.map_or(1, |host| host.line), reason }
        })
    }
}

impl FromStr for Hostfile {
    type Err = HostfileError;

    /// Reads JSON
    ///
    /// # Errors
    ///
    /// [`HostfileError::Json`] with the line, and with the field or the cell.
    fn from_str(json: &str) -> Result<Self, HostfileError> {
        let found = hosts(json).map_err(|error| {
            let line = error.line();
            let message = error.to_string().replace(&format!("at line {line} column"), "at column");
            // The end of an empty text is in its line 0.
            HostfileError::Json { line: line.max(1), message }
        })?;
        let lines = host_lines(json);
        let entry =
            |(Host { ssh, ips, rdma }, line)| (HostfileEntry { name: ssh, addresses: ips, line }, rdma);
        let (hosts, rows) = found.into_iter().zip(lines).map(entry).unzip();
        Ok(Self { hosts, rows })
    }
}

/// Not an enum of both forms: errors in one that serde tries have no line.
fn hosts(json: &str) -> serde_json::Result<Vec<Host>> {
    if json.trim_start().starts_with('[') {
        return serde_json::from_str(json);
    }
    Ok(serde_json::from_str::<Launch>(json)?.hosts)
}

/// The lines in which the hosts of a hostfile begin, counted from one; the text is JSON that `hosts` has read
fn host_lines(json: &str) -> Vec<usize> {
    let is_list = json.trim_start().starts_with('[');
    let (mut lines, mut line, mut depth) = (Vec::new(), 1, 0);
    // The last text outside of all lists, which is the key of the list that follows; and whether that list has the hosts.
    let (mut key, mut has_hosts) = (String::new(), is_list);
    let mut letters = json.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\n' => line += 1,
            '"' => {
                let mut text = String::new();
                while let Some(letter) = letters.next().filter(|letter| *letter != '"') {
                    text.push(letter);
                    if letter == '\\' {
                        text.extend(letters.next());
                    }
                }
                if depth == 1 {
                    key = text;
                }
            }
            '[' | '{' => {
                let depth_of_hosts = if is_list { 1 } else { 2 };
                if depth == 1 && !is_list {
                    has_hosts = letter == '[' && key == "hosts";
                }
                if has_hosts && depth == depth_of_hosts {
                    lines.push(line);
                }
                depth += 1;
            }
            ']' | '}' => depth -= 1,
            _ => (),
        }
    }
    lines
}

#[derive(Deserialize)]
#[serde(expecting = "a list of hosts, or an object with `hosts`")]
struct Launch {
    hosts: Vec<Host>,
}

#[derive(Deserialize)]
#[serde(expecting = "a host with `ssh` and `rdma`")]
struct Host {
    ssh: String,
    #[serde(default)]
    ips: Vec<String>,
    #[serde(default)]
    rdma: DeviceRow,
}
