use rdma_core::{DeviceMatrix, DeviceRow, MatrixError};
use serde::{Deserialize, Serialize};

use super::matrix::from_named;
use super::{Topology, TopologyError};

/// The hosts of a hostfile of `mlx.launch`: they stand alone, or beside the backend and the environment
///
/// Not an enum of both: errors in one that serde tries have no line.
fn hosts(json: &str) -> serde_json::Result<Vec<HostEntry>> {
    if json.trim_start().starts_with('[') {
        return serde_json::from_str(json);
    }
    Ok(serde_json::from_str::<Launch>(json)?.hosts)
}

#[derive(Deserialize)]
#[serde(expecting = "a list of hosts, or an object with `hosts`")]
struct Launch {
    hosts: Vec<HostEntry>,
}

#[derive(Deserialize)]
#[serde(expecting = "a host with `ssh` and `rdma`")]
struct HostEntry {
    ssh: String,
    #[serde(default)]
    rdma: DeviceRow,
}

/// What is written of a host; addresses are left to its owner
#[derive(Serialize)]
struct Written<'a> {
    ssh: &'a str,
    ips: [&'a str; 0],
    rdma: DeviceRow,
}

impl Topology {
    /// The cluster that a hostfile of MLX describes, as `mlx.distributed_config` writes it for JACCL
    ///
    /// Hosts are called as their `ssh` names; the row of each in `rdma` is that of [the matrix](Self::from_matrix). Addresses, the
    /// backend and the environment are not used.
    ///
    /// ```
    /// use rdma_sim::Topology;
    ///
    /// let hostfile = r#"[{"ssh": "studio", "ips": ["10.0.0.1"], "rdma": [null, "rdma_en5"]},
    ///                    {"ssh": "mini", "rdma": ["rdma_en3", null]}]"#;
    /// let topology = Topology::from_hostfile(hostfile)?;
    /// let [a, b] = topology.links().next().unwrap().ends;
    /// assert_eq!((a.host, a.device, b.host, b.device), ("studio", "rdma_en5", "mini", "rdma_en3"));
    /// assert_eq!(Topology::from_hostfile(&topology.to_hostfile())?, topology);
    /// # Ok::<(), rdma_sim::TopologyError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`TopologyError::Matrix`], [`MatrixDevice`](TopologyError::MatrixDevice), [`UnusableName`](TopologyError::UnusableName), [`DuplicateHost`](TopologyError::DuplicateHost),
    /// [`TooManyHosts`](TopologyError::TooManyHosts).
    pub fn from_hostfile(json: &str) -> Result<Self, TopologyError> {
        let found = hosts(json)
            .map_err(|error| MatrixError::Json { line: error.line(), message: error.to_string() })?;
        let (names, rows): (_, Vec<_>) = found.into_iter().map(|host| (host.ssh, host.rdma)).unzip();
        from_named(names, &DeviceMatrix::from_rows(rows)?)
    }

    /// A hostfile of MLX for JACCL, as JSON with a line for each host
    ///
    /// The addresses are left out: `mlx.launch` needs that of the first host, at which the others find it.
    pub fn to_hostfile(&self) -> String {
        let host = |(number, host): (usize, &super::Host)| {
            let written = Written { ssh: host.name(), ips: [], rdma: self.row(number) };
            serde_json::to_string(&written).expect("names and lists of names are JSON")
        };
        let hosts: Vec<_> = self.hosts.iter().enumerate().map(host).collect();
        format!("{{\"backend\": \"jaccl\", \"envs\": [], \"hosts\": [\n  {}\n]}}\n", hosts.join(",\n  "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches a file that is read in one of its two forms only, and rows that are taken for those of other hosts.
    #[test]
    fn both_forms_of_a_hostfile_are_read_and_a_wrong_row_is_named() {
        let hosts = r#"[{"ssh": "m1", "rdma": [null, ["rdma_en4", "rdma_en5"], "rdma_en3"]},
                        {"ssh": "m2", "ips": [], "rdma": [["rdma_en2", "rdma_en3"], null, null]},
                        {"ssh": "m3", "rdma": ["rdma_en2", null, null]}]"#;
        let topology = Topology::from_hostfile(hosts).unwrap();
        let launch = format!(r#"{{"backend": "jaccl", "envs": ["A=1"], "hosts": {hosts}}}"#);
        assert_eq!(Topology::from_hostfile(&launch).unwrap(), topology);
        let cables: Vec<_> =
            topology.links().map(|link| link.ends.map(|end| (end.host, end.device))).collect();
        assert_eq!(
            cables,
            [
                [("m1", "rdma_en4"), ("m2", "rdma_en2")],
                [("m1", "rdma_en5"), ("m2", "rdma_en3")],
                [("m1", "rdma_en3"), ("m3", "rdma_en2")],
            ]
        );
        for (text, why) in [
            ("7", "a list of hosts"),
            ("[{\"ssh\": \"a\",\n\"rdma\": 7}]", "line 2"),
            ("{\"hosts\":\n\n[{\"rdma\": []}]}", "line 3"),
            ("[\n7]", "a host with `ssh` and `rdma`"),
            (r#"[{"ssh": "a"}]"#, "row 0 has 0 cells"),
            (r#"[{"ssh": "a b", "rdma": [null]}]"#, "a b"),
            (r#"[{"ssh": "a", "rdma": [null, "rdma_en2"]}, {"ssh": "b", "rdma": [null, null]}]"#, "rdma_en2"),
        ] {
            let error = Topology::from_hostfile(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
