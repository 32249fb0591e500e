use crate::LineRate;
use crate::topology::{MacModel, Topology};

#[test]
fn toml_is_written_without_defaults() {
    let mut topology = Topology::new().host("a", MacModel::MacMiniM4).host("b", 5);
    let b = topology.hosts()[1].ports()[1].addresses().to_vec();
    topology.set_addresses(("b", 1), [b[0], "fe80::c0de".parse().unwrap(), b[1]]).unwrap();
    let slow = LineRate { bits_per_second: 2_500_000_000 };
    let topology = topology.cable(("a", 0), ("b", 1), LineRate::TB5).cable(("a", 1), ("b", 2), slow);
    let expected = r#"[[host]]
name = "a"
mac = "mac-mini-m4"

[[host]]
name = "b"
ports = 5

[[host.port]]
device = "rdma_en3"
addresses = ["link-local", "fe80::c0de", "ipv4"]

[[cable]]
ends = ["a:rdma_en2", "b:rdma_en3"]
gbps = 80

[[cable]]
ends = ["a:rdma_en3", "b:rdma_en4"]
gbps = 2.5
"#;
    assert_eq!(topology.to_toml(), expected);
    assert_eq!(Topology::from_toml(expected), Ok(topology));
}

#[test]
fn a_shape_in_toml_is_the_shape_and_what_follows() {
    let text = "shape = 'pair'\nports = 3\ncables = 2\ngbps = 40\n\
                [[host]]\nname = 'c'\nports = 1\nfirst_interface = 1\n[[cable]]\nends = ['c:rdma_en1', 'a:rdma_en4']";
    let topology = Topology::from_toml(text).unwrap();
    let ends: Vec<_> = topology.links().map(|link| (link.ends.map(|end| end.device), link.rate)).collect();
    assert_eq!(
        ends,
        [
            (["rdma_en2", "rdma_en2"], LineRate::TB4),
            (["rdma_en3", "rdma_en3"], LineRate::TB4),
            (["rdma_en1", "rdma_en4"], LineRate::TB5),
        ]
    );
    assert_eq!(Topology::from_toml(""), Ok(Topology::new()));
}

/// Catches a cap that is lost on the way through a file, and one of another host.
#[test]
fn caps_of_hosts_are_read_and_written() {
    let text = "shape = 'pair'\n[[host]]\nname = 'c'\nports = 1\ncap_gbps = 32.5";
    let topology = Topology::from_toml(text).unwrap();
    let caps: Vec<_> = topology.hosts().iter().map(|host| host.cap()).collect();
    assert_eq!(caps, [None, None, Some(LineRate { bits_per_second: 32_500_000_000 })]);
    assert!(topology.to_toml().contains("cap_gbps = 32.5\n"));
    assert_eq!(Topology::from_toml(&topology.to_toml()), Ok(topology));
}

#[test]
fn errors_in_toml_have_the_line_and_the_remedy() {
    // The two hosts take eight lines.
    let hosts = "[[host]]\nname = 'a'\nports = 3\n\n[[host]]\nname = 'b'\nports = 4\n\n";
    let table = [
        (
            "[[cable]]\nends = ['a:rdma_en2', 'b:rdma_en6']",
            10,
            "b has no port rdma_en6: it has rdma_en2, rdma_en3, rdma_en4, rdma_en5; free of them: rdma_en2,",
        ),
        (
            "[[cable]]\nends = [\n 'a:rdma_en2',\n 'c:rdma_en2']",
            12,
            "no host is called \"c\"; there are: a, b",
        ),
        ("[[cable]]\nends = ['a:rdma_en2', 'a:rdma_en3']", 10, "a cable from rdma_en2 to rdma_en3 of a"),
        ("[[cable]]\nends = ['a:rdma_en2', 'a:rdma_en2']", 10, "both ends of a cable are in rdma_en2 of a"),
        (
            "[[cable]]\nends = ['a:rdma_en2', 'b:rdma_en2']\n\n[[cable]]\nends = ['a:rdma_en3', 'b:rdma_en2']",
            13,
            "rdma_en2 of b has a cable to rdma_en2 of a already; free ports of b: rdma_en3,",
        ),
        (
            "[[cable]]\nends = ['a:rdma_en2', 'b:rdma_en2']\n\n[[cable]]\nends = ['a:rdma_en3',\n'b:rdma_en2']",
            14,
            "rdma_en2 of b has a cable to rdma_en2 of a already",
        ),
        (
            "[[cable]]\nends = ['a', 'b:rdma_en2']",
            10,
            "\"a\" is no end of a cable: write host:device, such as",
        ),
        (
            "[[cable]]\nends = ['a:rdma_en2']",
            10,
            "a cable has 2 ends, not 1: write two, such as [\"a:rdma_en2\",",
        ),
        (
            "[[cable]]\nends = ['a:rdma_en2', 'b:rdma_en2', 'c:nonsense']",
            10,
            "a cable has 2 ends, not 3: write two",
        ),
        ("[[cable]]\nends = ['a:rdma_en2', 'b:rdma_en2',\n 7]", 11, "invalid type: integer `7`"),
        (
            "[[cable]]\nends = ['a:rdma_en2', 'b:rdma_en2']\ngbps = 0",
            11,
            "gbps = 0 is no rate of a cable: give up to 1000",
        ),
        (
            "[[cable]]\nends = ['a:rdma_en2', 'b:rdma_en2']\ngbps = nan",
            11,
            "gbps = NaN is no rate of a cable",
        ),
        (
            "[[cable]]\nends = ['a:rdma_en2', 'b:rdma_en2']\nspeed = 80",
            11,
            "unknown field `speed`, expected `ends` or `gbps`",
        ),
        (
            "[[host]]\nname = 'c'\nports = 3\ncap_gbps = 0",
            12,
            "cap_gbps = 0 is no cap of a host: give up to 1000",
        ),
        ("[[host]]\nname = 'a'\nports = 3", 10, "two hosts are called a: give one of them another name"),
        ("[[host]]\nname = ''\nports = 3", 10, "\"\" names no host"),
        ("[[host]]\nname = 'c'\nports = 99", 11, "c cannot have 99 ports: a simulated Mac has 1 to 32"),
        ("[[host]]\nname = 'c'\n", 9, "c has no Mac: add mac = \"mac-mini-m4-pro\", or ports = 3 for any"),
        (
            "[[host]]\nname = 'c'\nports = 3\nmac = 'mac-mini-m4'",
            11,
            "c has both mac and ports: leave one of them out",
        ),
        (
            "[[host]]\nname = 'c'\nmac = 'mac-mini'",
            11,
            "no Mac model is called \"mac-mini\"; there are: mac-mini-m4,",
        ),
        ("[[host]]\nports = 3", 9, "missing field `name`"),
        (
            "[[hosts]]\nname = 'c'",
            9,
            "a shape has a number of hosts and cables; single ones are [[host]] and [[cable]]",
        ),
        (
            "[[host]]\nname = 'c'\nports = 1\n[[host.port]]\ndevice = 'rdma_en3'\naddresses = []",
            13,
            "c has no port rdma_en3: it has rdma_en2",
        ),
        (
            "[[host]]\nname = 'c'\nports = 1\n[[host.port]]\ndevice = 'rdma_en2'\naddresses = ['ipv4',\n 'ip']",
            15,
            "\"ip\" is no address: write one, or \"link-local\", or \"ipv4\"",
        ),
        (
            "[[host]]\nname = 'c'\nports = 1\n[[host.port]]\ndevice = 'rdma_en2'\naddresses = ['ipv4',\n 'ipv4']",
            15,
            "rdma_en2 of c has the address 169.254.3.1 twice",
        ),
        (
            "[[host]]\nname = 'c'\nports = 1\n[[host.port]]\ndevice = 'rdma_en2'\naddresses = []\n\
             [[host.port]]\ndevice = 'rdma_en2'\naddresses = []",
            16,
            "rdma_en2 of c is there twice: leave one of them out",
        ),
        ("[[cable]\n", 9, "unclosed array table"),
    ];
    for (text, line, message) in table {
        let error = Topology::from_toml(&format!("{hosts}{text}")).unwrap_err();
        assert_eq!(error.line(), Some(line), "{error}");
        let expected = format!("line {line}: {message}");
        assert!(error.to_string().starts_with(&expected), "{error}\nis not\n{expected}");
    }
    for (text, line, message) in [
        ("\nshape = 'torus'\nhosts = 3\nports = 3", 2, "no shape is called \"torus\"; there are: line,"),
        ("\nshape = 'ring'\nports = 3", 2, "the ring has no number of Macs: add one, such as hosts = 4"),
        ("shape = 'ring'\nhosts = four", 2, "four is neither a number nor a text: write a number, or"),
        ("shape = 'ring'\nhosts = seven", 2, "seven is neither a number nor a text: write a number, or"),
        ("shape = ring\nhosts = 4", 1, "ring is neither a number nor a text: write a number, or a text in"),
        ("shape = 'ring'\nhosts = [4", 2, "unclosed array, expected `]`"),
        ("shape = 'mesh'\nhosts = 34", 1, "a cannot have 33 ports: a simulated Mac has 1 to 32"),
        (
            "shape = 'ring'\nhosts = -3",
            2,
            "a shape has a number of hosts and cables; single ones are [[host]] and [[cable]]",
        ),
        ("shape = 'ring'\nhosts = 2\nports = 3", 2, "a ring has at least 3 Macs, not 2"),
        ("shape = 'ring'\nhosts = 3\nports = 0", 3, "a cannot have 0 ports: a simulated Mac has 1 to 32"),
        (
            "shape = 'mesh'\nhosts = 5\nmac = 'mac-mini-m4'",
            1,
            "a mesh of 5 Macs needs 4 ports on a, and a mac-mini-m4 has 3",
        ),
        ("hosts = 3\nports = 3", 1, "hosts belongs to a shape: add one, such as shape = \"ring\""),
        ("\ngbps = 3", 2, "gbps belongs to a shape: add one, such as shape = \"ring\""),
    ] {
        let error = Topology::from_toml(text).unwrap_err();
        let expected = format!("line {line}: {message}");
        assert!(error.to_string().starts_with(&expected), "{error}\nis not\n{expected}");
    }
}
