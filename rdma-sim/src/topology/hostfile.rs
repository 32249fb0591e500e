use rdma_core::{DeviceRow, Hostfile, HostfileError};
use serde::Serialize;

use super::matrix::from_named;
use super::{Topology, TopologyError};

/// The position of the host that an error is about
fn wrong_host(error: &TopologyError, names: &[String]) -> Option<usize> {
    let called = |name: &String, number: usize| {
        (0..names.len()).filter(|position| names[*position] == *name).nth(number)
    };
    match error {
        TopologyError::MatrixDevice { row, .. } => Some(*row),
        TopologyError::DuplicateHost { host } => called(host, 1),
        TopologyError::TooManyHosts { host } | TopologyError::UnusableName { host } => called(host, 0),
        _ => None,
    }
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
    /// [`TopologyError::Text`] if the text is no hostfile. [`TopologyError::At`] with the line of the host if the hosts have
    /// [no matrix](TopologyError::Matrix), a [device](TopologyError::MatrixDevice) or [name](TopologyError::UnusableName) that no simulated
    /// Mac has, a [name twice](TopologyError::DuplicateHost), or if they are [too many](TopologyError::TooManyHosts).
    pub fn from_hostfile(json: &str) -> Result<Self, TopologyError> {
        let refuse = |error| match error {
            HostfileError::Matrix { line, reason } => {
                TopologyError::At { line, error: Box::new(reason.into()) }
            }
            HostfileError::Json { line, message } => TopologyError::Text { line, message },
            other => TopologyError::Text { line: 1, message: other.to_string() },
        };
        let hostfile: Hostfile = json.parse().map_err(refuse)?;
        let matrix = hostfile.matrix().map_err(refuse)?;
        let names: Vec<_> = hostfile.hosts().iter().map(|host| host.name.clone()).collect();
        from_named(names.clone(), &matrix).map_err(|error| {
            match wrong_host(&error, &names).and_then(|host| hostfile.hosts().get(host)) {
                Some(host) => TopologyError::At { line: host.line, error: Box::new(error) },
                None => error,
            }
        })
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
    fn both_forms_of_a_hostfile_are_read() {
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
    }
    /// Catches an error without the line of its host, with that of another one, or without the cell or the field that is wrong.
    #[test]
    fn errors_in_a_hostfile_name_the_line_and_the_cell_or_the_field() {
        let cell = "a cell is null, \"rdma_enN\", or a list of such names at column";
        let ends = "a cable has a device at both ends";
        let table = [
            ("", "line 1: EOF while parsing a value at column ".to_owned()),
            ("7", "line 1: invalid type: integer `7`, expected a list of hosts, or an object with `hosts` at column ".to_owned()),
            ("{\"backend\": \"jaccl\"}", "line 1: missing field `hosts` at column ".to_owned()),
            ("{\"hosts\":\n{}}", "line 2: invalid type: map, expected a sequence at column ".to_owned()),
            ("[\n7]", "line 2: invalid type: integer `7`, expected a host with `ssh` and `rdma` at column ".to_owned()),
            ("[{\"ssh\": \"a\"},\n{\"rdma\": []}]", "line 2: missing field `ssh` at column ".to_owned()),
            ("[{\"ssh\":\n7}]", "line 2: invalid type: integer `7`, expected a string at column ".to_owned()),
            ("[{\"ssh\": \"a\",\n\"rdma\": 7}]", "line 2: invalid type: integer `7`, expected a sequence at column ".to_owned()),
            ("[{\"ssh\": \"a\",\n\"rdma\": [null,\n7]}]", format!("line 3: {cell} ")),
            ("[{\"ssh\": \"a\",\n\"rdma\": [[\"rdma_en2\", 5]]}]", format!("line 2: {cell} ")),
            ("[{\"ssh\": \"a\", \"rdma\": [null]},\n", "line 2: EOF while parsing a value at column ".to_owned()),
            ("[{\"ssh\": \"a\"}]", "line 1: the matrix has 1 rows, but row 0 has 0 cells: it must be square".to_owned()),
            (
                "[{\"ssh\": \"a\", \"rdma\": [null, null]},\n {\"ssh\": \"b\",\n  \"rdma\": [null]}]",
                "line 2: the matrix has 2 rows, but row 1 has 1 cells: it must be square".to_owned(),
            ),
            (
                "[\n{\"ssh\": \"a\", \"rdma\": [null, \"rdma_en2\"]},\n{\"ssh\": \"b\", \"rdma\": [null, null]}]",
                format!("line 2: m[0][1] has 1 (rdma_en2), but m[1][0] has 0 (none): {ends}"),
            ),
            (
                "{\"envs\": [\"[{A=\\\"1\"], \"more\": [{}, [{}]],\n\"hosts\": [{\"ssh\": \"a\", \"more\": {\"hosts\": [{}]}, \"rdma\": [null, null]},\n\n\
                 {\"ssh\": \"b\", \"rdma\": [null, \"rdma_en4\"]}]}",
                "line 4: m[1][1] has rdma_en4, a cable of rank 1 to itself: it must be null".to_owned(),
            ),
            (
                "[\n\n{\"ssh\": \"a\", \"rdma\": [null, \"rdma_en2\", \"rdma_en2\"]},\n{\"ssh\": \"b\", \"rdma\": [\"rdma_en2\", null, null]},\n\
                 {\"ssh\": \"c\", \"rdma\": [\"rdma_en2\", null, null]}]",
                "line 3: rank 0 has rdma_en2 in m[0][1] and in m[0][2]: a port takes one cable".to_owned(),
            ),
            (
                "[{\"ssh\": \"a\", \"rdma\": [null, \"rdma_en2\"]},\n{\"ssh\": \"b\", \"rdma\": [\"mlx5_0\", null]}]",
                "line 2: m[1][0] has \"mlx5_0\": devices of rank 1 are rdma_en2 to rdma_en33".to_owned(),
            ),
            (
                "[{\"ssh\": \"a\", \"rdma\": [null, null]},\n{\"ssh\": \"b c\", \"rdma\": [null, null]}]",
                "line 2: \"b c\" names no host: a name has at least one character, and neither spaces, quotes, ':' nor ';'".to_owned(),
            ),
            (
                "[{\"ssh\": \"a\", \"rdma\": [null, null]},\n\n{\"ssh\": \"a\", \"rdma\": [null, null]}]",
                "line 3: two hosts are called a: give one of them another name".to_owned(),
            ),
        ];
        for (text, message) in table {
            let error = Topology::from_hostfile(text).unwrap_err();
            assert!(error.to_string().starts_with(&message), "{text}: {error}");
            assert_eq!(
                error.line().map(|line| format!("line {line}")),
                message.split(':').next().map(str::to_owned)
            );
        }
    }
}
