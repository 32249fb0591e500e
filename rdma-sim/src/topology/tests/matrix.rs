use crate::LineRate;
use crate::topology::{Port, Topology, TopologyError};

#[test]
fn a_matrix_is_written_as_mlx_reads_it() {
    let topology = Topology::new()
        .host("a", 6)
        .host("b", 6)
        .host("c", 6)
        .cable(("b", 3), ("a", 0), LineRate::TB5)
        .cable(("a", 2), ("b", 1), LineRate::TB5)
        .cable(("a", 1), ("c", 5), LineRate::TB5);
    let expected = r#"[
  [null,["rdma_en2","rdma_en4"],"rdma_en3"],
  [["rdma_en5","rdma_en3"],null,null],
  ["rdma_en7",null,null]
]
"#;
    assert_eq!(topology.to_matrix(), expected);
    let read = Topology::from_matrix(expected).unwrap();
    assert_eq!(read.to_matrix(), expected);
    assert_eq!(read.hosts().iter().map(|host| host.ports().len()).collect::<Vec<_>>(), [3, 4, 6]);
}

#[test]
fn a_matrix_may_start_below_the_usual_interface() {
    let matrix = r#"[[null, ["rdma_en1", "rdma_en3"]], [["rdma_en2", "rdma_en4"], []]]"#;
    let topology = Topology::from_matrix(matrix).unwrap();
    let devices: Vec<_> = topology.hosts()[0].ports().iter().map(Port::device).collect();
    assert_eq!(devices, ["rdma_en1", "rdma_en2", "rdma_en3"]);
    assert_eq!(Topology::from_toml(&topology.to_toml()), Ok(topology));
    assert_eq!(Topology::from_matrix("[[null]]"), Ok(Topology::new().host("a", 1)));
    assert_eq!(Topology::from_matrix("[]"), Ok(Topology::new()));
}

#[test]
fn errors_in_a_matrix_name_the_cell() {
    let table = [
        (
            r#"[[null, "rdma_en2"], ["rdma_en2"]]"#,
            "the matrix has 2 rows, but row 1 has 1 cells: it must be square",
        ),
        (
            r#"[[null, "rdma_en2"], [null, null]]"#,
            "m[0][1] has 1 (rdma_en2), but m[1][0] has 0 (none): a cable has a device at both ends",
        ),
        (
            r#"[[null, "rdma_en2"], [["rdma_en2", "rdma_en3"], null]]"#,
            "m[0][1] has 1 (rdma_en2), but m[1][0] has 2 (rdma_en2, rdma_en3): a cable has a device at both ends",
        ),
        (
            r#"[["rdma_en2", null], [null, null]]"#,
            "m[0][0] has rdma_en2, a cable of rank 0 to itself: it must be null",
        ),
        (
            r#"[[null, "rdma_en2", "rdma_en2"], ["rdma_en2", null, null], ["rdma_en2", null, null]]"#,
            "rank 0 has rdma_en2 in m[0][1] and in m[0][2]: a port takes one cable",
        ),
        (
            r#"[[null, ["rdma_en2", "rdma_en2"]], [["rdma_en2", "rdma_en3"], null]]"#,
            "rank 0 has rdma_en2 in m[0][1] and in m[0][1]: a port takes one cable",
        ),
        (
            r#"[[null, "rdma_en2"], ["mlx5_0", null]]"#,
            "m[1][0] has \"mlx5_0\": devices of rank 1 are rdma_en2 to rdma_en33",
        ),
        (
            r#"[[null, "rdma_en34"], ["rdma_en2", null]]"#,
            "m[0][1] has \"rdma_en34\": devices of rank 0 are rdma_en2 to rdma_en33",
        ),
        (
            r#"[[null, "rdma_en02"], ["rdma_en2", null]]"#,
            "m[0][1] has \"rdma_en02\": devices of rank 0 are rdma_en2 to rdma_en33",
        ),
        (
            "[[null,\n 7], [null, null]]",
            "the matrix is no list of rows of devices: a cell is null, \"rdma_enN\", or a list of such names at line 2",
        ),
        ("{}", "the matrix is no list of rows of devices: invalid type: map, expected a sequence at line 1"),
    ];
    for (matrix, message) in table {
        let error = Topology::from_matrix(matrix).unwrap_err();
        assert!(matches!(error, TopologyError::Matrix(_) | TopologyError::MatrixDevice { .. }));
        assert!(error.to_string().starts_with(message), "{error}\nis not\n{message}");
    }
}
