use crate::LineRate;
use crate::topology::shapes::host_name;
use crate::topology::{MacModel, Shape, Topology};

#[test]
fn shapes_have_their_cables() {
    let (mini, ultra) = (MacModel::MacMiniM4Pro, MacModel::MacStudioM3Ultra);
    let table = [
        (Shape::Pair, 2, mini, 1, 1),
        (Shape::Pair, 2, ultra, 6, 6),
        (Shape::Line, 5, mini, 1, 4),
        (Shape::Line, 2, mini, 3, 3),
        (Shape::Ring, 3, mini, 1, 3),
        (Shape::Ring, 254, mini, 1, 254),
        (Shape::Ring, 4, ultra, 3, 12),
        (Shape::Star, 4, mini, 1, 3),
        (Shape::Star, 7, ultra, 1, 6),
        // The largest full meshes of both: 6 and 21 cables.
        (Shape::Mesh, 4, mini, 1, 6),
        (Shape::Mesh, 7, ultra, 1, 21),
        (Shape::Mesh, 3, ultra, 3, 9),
    ];
    for (shape, hosts, mac, cables, links) in table {
        let topology = Topology::shaped(shape, hosts, mac, cables, LineRate::TB5).unwrap();
        assert_eq!((topology.hosts().len(), topology.links().len()), (hosts, links), "{shape} of {hosts}");
    }
}

#[test]
fn a_shape_takes_the_ports_in_order() {
    let ring = Topology::ring(3, MacModel::MacMiniM4Pro).unwrap();
    let expected = Topology::new()
        .host("a", MacModel::MacMiniM4Pro)
        .host("b", MacModel::MacMiniM4Pro)
        .host("c", MacModel::MacMiniM4Pro)
        .cable(("a", 0), ("b", 0), LineRate::TB5)
        .cable(("b", 1), ("c", 0), LineRate::TB5)
        .cable(("c", 1), ("a", 1), LineRate::TB5);
    assert_eq!(ring, expected);
    assert_eq!(Topology::graph(3, MacModel::MacMiniM4Pro, &[(0, 1), (1, 2), (2, 0)]), Ok(expected));
    let names: Vec<_> = [0, 25, 26, 51, 52, 701, 702].map(host_name).into();
    assert_eq!(names, ["a", "z", "aa", "az", "ba", "zz", "aaa"]);
}

#[test]
fn an_impossible_shape_is_refused_with_the_reason() {
    let mini = MacModel::MacMiniM4Pro;
    let table = [
        (Topology::mesh(5, mini), "a mesh of 5 Macs needs 4 ports on a, and a mac-mini-m4-pro has 3"),
        (Topology::star(5, mini), "a star of 5 Macs needs 4 ports on a, and a mac-mini-m4-pro has 3"),
        (Topology::line(3, 1), "a line of 3 Macs needs 2 ports on b, and a generic-1 has 1"),
        (
            Topology::shaped(Shape::Ring, 4, mini, 2, LineRate::TB5),
            "a ring of 4 Macs needs 4 ports on a, and a mac-mini-m4-pro has 3",
        ),
        (
            Topology::shaped(Shape::Ring, 4, mini, usize::MAX, LineRate::TB5),
            "a ring of 4 Macs needs 18446744073709551615 ports on a, and a mac-mini-m4-pro has 3",
        ),
        (
            Topology::graph(2, mini, &[(0, 1); 4]),
            "a graph of 2 Macs needs 4 ports on a, and a mac-mini-m4-pro has 3",
        ),
        (Topology::graph(2, mini, &[(0, 2)]), "no host is called \"c\"; there are: a, b"),
        (
            Topology::graph(2, mini, &[(1, 1)]),
            "both ends of a cable are in rdma_en2 of b: a cable joins two ports",
        ),
        (Topology::ring(2, mini), "a ring has at least 3 Macs, not 2"),
        (Topology::mesh(1, mini), "a mesh has at least 2 Macs, not 1"),
        (Topology::shaped(Shape::Pair, 3, mini, 1, LineRate::TB5), "a pair has 2 Macs, not 3"),
        (Topology::mesh(usize::MAX, mini), "bpk is one host too many: the simulator has room for 1778"),
    ];
    for (result, message) in table {
        assert_eq!(result.unwrap_err().to_string(), message);
    }
}
