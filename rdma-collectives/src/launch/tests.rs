use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::clock::now;
use super::rendezvous::{Neighbour, Rendezvous, seen};
use super::wire::{self, Answer, MAX_ANSWER, NeighbourHello, Protocol, Registration};
use super::{Launch, LaunchError, fingerprint};

/// An address at which nothing listens yet
fn free() -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().to_string()
}

fn rendezvous(rank: usize, size: usize, coordinator: &str) -> Rendezvous {
    Rendezvous {
        rank,
        size,
        neighbours: (0..size).filter(|other| *other != rank).collect(),
        matrix: 7,
        node: format!("node {rank}"),
        coordinator: coordinator.to_owned(),
        timeout: Duration::from_secs(30),
        is_dropped: Arc::default(),
    }
}

/// That of the pair below.
const FINGERPRINT: u64 = 16_015_796_719_095_599_993;

type Connected = Result<Vec<Neighbour>, LaunchError>;

/// Connects ranks, each on a thread
fn connect(ranks: Vec<Rendezvous>) -> Vec<Connected> {
    thread::scope(|scope| {
        let threads: Vec<_> = ranks.into_iter().map(|rank| scope.spawn(move || rank.run())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn errors(ranks: Vec<Connected>) -> Vec<String> {
    ranks.into_iter().map(|rank| rank.unwrap_err().to_string()).collect()
}

#[test]
fn each_rank_of_a_mesh_is_connected_to_each_other_once() {
    let coordinator = free();
    let ranks = connect((0..5).rev().map(|rank| rendezvous(rank, 5, &coordinator)).collect());
    for (connected, rank) in ranks.into_iter().zip((0..5).rev()) {
        let mut connected = connected.unwrap();
        connected.sort_by_key(|neighbour| neighbour.rank);
        let found: Vec<_> =
            connected.iter().map(|neighbour| (neighbour.rank, neighbour.node.clone())).collect();
        let node = |other: usize| (other > rank).then(|| format!("node {other}"));
        let expected: Vec<_> =
            (0..5).filter(|other| *other != rank).map(|other| (other, node(other))).collect();
        assert_eq!(found, expected);
    }
}

/// Catches a rank 0 that waits for what strangers say, few or many, and one that takes garbage for a rank.
#[test]
fn strangers_keep_no_rank_waiting() {
    let coordinator = free();
    let [first, second] = [0, 1].map(|rank| rendezvous(rank, 2, &coordinator));
    thread::scope(|scope| {
        let first = scope.spawn(move || first.run());
        let silent: Vec<_> = (0..50).map(|_| connected_to(&coordinator)).collect();
        for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"{}\n", b"\xff\n", &[b'x'; 5000]] {
            connected_to(&coordinator).write_all(garbage).unwrap();
        }
        let second = second.run().unwrap();
        assert_eq!((second.len(), first.join().unwrap().unwrap().len()), (1, 1));
        drop(silent);
    });
}

/// A connection to `coordinator` once it listens there
fn connected_to(coordinator: &str) -> TcpStream {
    let until = now() + Duration::from_secs(30);
    loop {
        match TcpStream::connect(coordinator) {
            Ok(stream) => return stream,
            Err(error) => assert!(now() < until, "{error}"),
        }
    }
}

/// Registers a rank that does not listen for its neighbours
fn register(coordinator: &str, rank: usize) -> impl FnOnce() -> TcpStream + Send {
    let coordinator = coordinator.to_owned();
    move || {
        let stream = connected_to(&coordinator);
        wire::write(&stream, &Registration { protocol: Protocol::V1, rank, matrix: 7, port: 1 }).unwrap();
        stream
    }
}

/// Catches a process of another run that is taken for a neighbour.
#[test]
fn a_process_of_another_run_is_no_neighbour() {
    let coordinator = free();
    let first = rendezvous(0, 2, &coordinator);
    thread::scope(|scope| {
        let first = scope.spawn(move || first.run());
        let protocol = Protocol::V1;
        let to_first = register(&coordinator, 1)();
        let answer: Answer = wire::read(&to_first, MAX_ANSWER, || false).unwrap();
        let Answer::Roster { token, addresses } = answer else { panic!("{answer:?}") };
        let greet = |token: String, node: &str| {
            let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, addresses[0].port())).unwrap();
            let hello = NeighbourHello { protocol, token, rank: 1, node: node.to_owned() };
            wire::write(&stream, &hello).unwrap();
            stream
        };
        let stranger = greet(token.replace(|letter: char| letter.is_ascii_digit(), "f"), "stranger");
        // Closed, not kept.
        stranger.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let read = stranger.take(1).read_to_end(&mut Vec::new());
        assert!(!read.is_err_and(|error| wire::is_temporary(&error)), "it is taken for the neighbour");
        let _neighbour = greet(token, "neighbour");
        assert_eq!(first.join().unwrap().unwrap()[0].node.as_deref(), Some("neighbour"));
    });
}

/// Catches ranks that wait for ever, and errors that do not say for whom.
#[test]
fn all_that_have_come_learn_who_has_not() {
    let coordinator = free();
    let mut ranks: Vec<_> = [0, 1, 3].map(|rank| rendezvous(rank, 5, &coordinator)).into();
    ranks[0].timeout = Duration::from_secs(3);
    let message = "ranks 2, 4 have not come within 3s";
    assert_eq!(errors(connect(ranks)), [message; 3]);
}

#[test]
fn without_rank_0_the_others_name_where_they_have_looked() {
    let coordinator = free();
    let mut rank = rendezvous(1, 2, &coordinator);
    rank.timeout = Duration::from_millis(200);
    let error = rank.run().unwrap_err();
    assert!(
        matches!(&error, LaunchError::Unreachable { coordinator: found, .. } if *found == coordinator),
        "{error}"
    );
}

#[test]
fn a_rank_with_another_matrix_is_named_on_all() {
    let coordinator = free();
    let mut ranks: Vec<_> = (0..2).map(|rank| rendezvous(rank, 3, &coordinator)).collect();
    ranks[1].matrix = 8;
    let message = "rank 1 has another device matrix than rank 0";
    assert_eq!(errors(connect(ranks)), [message; 2]);
    // A rank beyond the matrix of rank 0.
    let ranks = vec![rendezvous(0, 3, &coordinator), rendezvous(3, 4, &coordinator)];
    assert_eq!(
        errors(connect(ranks)),
        [message.replace("rank 1", "rank 3"), message.replace("rank 1", "rank 3")]
    );
}

#[test]
fn two_processes_of_one_rank_are_named_on_all() {
    let coordinator = free();
    let ranks = [0, 1, 1].map(|rank| rendezvous(rank, 3, &coordinator)).into();
    for error in errors(connect(ranks)) {
        assert!(error.starts_with("two processes are rank 1: 127.0.0.1:"), "{error}");
    }
}

/// Catches a rank 0 that counts a rank that has ended, and one that refuses the process which is started in its place.
#[test]
fn a_rank_that_ends_and_starts_again_is_the_second_one() {
    let coordinator = free();
    let [first, second, again, third] = [0, 1, 1, 2].map(|rank| rendezvous(rank, 3, &coordinator));
    let gives_up = Arc::clone(&second.is_dropped);
    thread::scope(|scope| {
        let first = scope.spawn(move || first.run());
        let second = scope.spawn(move || second.run());
        // It may have come or not.
        thread::sleep(Duration::from_millis(300));
        gives_up.store(true, Ordering::Relaxed);
        second.join().unwrap().unwrap_err();
        let (again, third) = (scope.spawn(move || again.run()), scope.spawn(move || third.run()));
        for rank in [first, again, third] {
            assert_eq!(rank.join().unwrap().unwrap().len(), 2);
        }
    });
}

/// Catches neighbours that wait for a rank that has ended, and those that name another one instead.
#[test]
fn a_rank_that_ends_behind_the_roster_is_named_by_all_that_wait_for_it() {
    let coordinator = free();
    // A line: rank 2 has no cable to rank 0, and waits for rank 1, which waits for rank 3.
    let mut ranks: Vec<_> = (0..3).map(|rank| rendezvous(rank, 4, &coordinator)).collect();
    ranks[0].neighbours = vec![1];
    ranks[1].neighbours = vec![0, 2, 3];
    ranks[2].neighbours = vec![1];
    let registered = register(&coordinator, 3);
    let connected = thread::scope(|scope| {
        let connected = scope.spawn(move || connect(ranks));
        let _answer: Answer = wire::read(&registered(), MAX_ANSWER, || false).unwrap();
        connected.join().unwrap()
    });
    let [first, second, third] = connected.try_into().unwrap();
    assert_eq!(first.unwrap().len(), 1);
    assert_eq!(errors(vec![second, third]), ["rank 3 has not come within 10s"; 2]);
}

/// Catches an end of time that no clock can tell.
#[test]
fn a_timeout_may_be_as_long_as_it_likes() {
    for rank in [0, 1] {
        let mut rank = rendezvous(rank, 2, &free());
        (rank.timeout, rank.is_dropped) = (Duration::MAX, Arc::new(AtomicBool::new(true)));
        rank.run().unwrap_err();
    }
}

/// Catches the number of an interface that counts on another host.
#[test]
fn link_local_addresses_are_those_of_the_interface_that_leads_to_rank_0() {
    let address = |text: &str| text.parse::<SocketAddr>().unwrap();
    let at = address("[fe80::1%4]:5000");
    assert_eq!(seen(0, address("[::]:6000"), at), address("[fe80::1%4]:6000"));
    assert_eq!(seen(1, address("[fe80::2%9]:6001"), at), address("[fe80::2%4]:6001"));
    assert_eq!(seen(1, address("[2001:db8::2]:6001"), at), address("[2001:db8::2]:6001"));
    assert_eq!(seen(0, address("0.0.0.0:6000"), address("10.0.0.1:5000")), address("10.0.0.1:6000"));
}

/// Catches a number that another version would not have, and one that only counts the cables.
#[test]
fn matrices_that_differ_in_a_device_have_other_numbers() {
    let of = |json: &str| fingerprint(&json.parse().unwrap());
    let pair = of(r#"[[null, "rdma_en2"], ["rdma_en3", null]]"#);
    assert_eq!(pair, FINGERPRINT);
    assert_ne!(pair, of(r#"[[null, "rdma_en3"], ["rdma_en2", null]]"#));
}

/// Catches a thread that looks for the others for ever after its future was dropped.
#[test]
fn a_dropped_rank_gives_up() {
    for rank in [0, 1] {
        let rank = Rendezvous { is_dropped: Arc::new(AtomicBool::new(true)), ..rendezvous(rank, 2, &free()) };
        rank.run().unwrap_err();
    }
}

/// Reads variables, with the file `devices.json` of `matrix`
fn launch(variables: &[(&str, &str)], matrix: &str) -> Result<Launch, String> {
    let folder = std::env::temp_dir().join(format!("rdma-launch-{}-{:p}", std::process::id(), matrix));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("devices.json"), matrix).unwrap();
    let variables: BTreeMap<_, _> = variables.iter().copied().collect();
    let value = |name: &str| match *variables.get(name)? {
        "devices.json" => Some(folder.join("devices.json")),
        value => Some(PathBuf::from(value)),
    };
    let read = Launch::from_variables(value);
    std::fs::remove_dir_all(&folder).unwrap();
    read.map_err(|error| error.to_string().replace(&format!("{}/", folder.display()), ""))
}

#[test]
fn the_environment_of_mlx_and_that_of_jaccl_name_the_same() {
    let ring = r#"[[null, "rdma_en2", "rdma_en3"], ["rdma_en5", null, "rdma_en2"], [["rdma_en2"], "rdma_en3", null]]"#;
    let of_mlx =
        [("MLX_RANK", "2"), ("MLX_IBV_DEVICES", "devices.json"), ("MLX_JACCL_COORDINATOR", "10.0.0.1:5000")];
    let of_jaccl =
        [("JACCL_RANK", "2"), ("JACCL_IBV_DEVICES", "devices.json"), ("JACCL_COORDINATOR", "10.0.0.1:5000")];
    // An empty variable is none.
    let empty = [("JACCL_RANK", "")].into_iter().chain(of_mlx).collect::<Vec<_>>();
    for variables in [&of_mlx[..], &of_jaccl, &empty] {
        let launch = launch(variables, ring).unwrap();
        assert_eq!((launch.rank(), launch.size(), &*launch.coordinator), (2, 3, "10.0.0.1:5000"));
        let ends: Vec<_> = launch.cabling().cables().iter().map(|cable| cable.ends).collect();
        assert_eq!(ends, [[0, 1], [0, 2], [1, 2]]);
    }
}

#[test]
fn errors_of_the_environment_name_the_variable_and_the_cell() {
    let pair = r#"[[null, "rdma_en2"], ["rdma_en2", null]]"#;
    let [rank, devices, coordinator] =
        [("MLX_RANK", "1"), ("MLX_IBV_DEVICES", "devices.json"), ("MLX_JACCL_COORDINATOR", "10.0.0.1:5000")];
    let start = "start the ranks by `mlx.launch --backend jaccl` or `tb5 run`";
    let cases: [(&[_], _, _); 8] = [
        (&[devices, coordinator], pair, format!("neither JACCL_RANK nor MLX_RANK is set: {start}")),
        (&[rank, coordinator], pair, format!("neither JACCL_IBV_DEVICES nor MLX_IBV_DEVICES is set: {start}")),
        (&[rank, devices], pair, format!("neither JACCL_COORDINATOR nor MLX_JACCL_COORDINATOR is set: {start}")),
        (
            &[("MLX_RANK", "-1"), devices, coordinator],
            pair,
            "JACCL_RANK or MLX_RANK is \"-1\", which is no number of a rank".to_owned(),
        ),
        (&[("MLX_RANK", "2"), devices, coordinator], pair, "there is no rank 2 among 2 hosts".to_owned()),
        (
            &[rank, ("MLX_IBV_DEVICES", "/nowhere.json"), coordinator],
            pair,
            "/nowhere.json: No such file or directory (os error 2)".to_owned(),
        ),
        (
            &[rank, devices, coordinator],
            r#"[[null, "rdma_en2"], [null, null]]"#,
            "devices.json: m[0][1] has 1 (rdma_en2), but m[1][0] has 0 (none): a cable has a device at both ends".to_owned(),
        ),
        (
            &[rank, devices, coordinator],
            "[[null,\n7], [null, null]]",
            "devices.json: the matrix is no list of rows of devices: a cell is null, \"rdma_enN\", or a list of such \
             names at line 2 column 2"
                .to_owned(),
        ),
    ];
    for (variables, matrix, message) in cases {
        assert_eq!(launch(variables, matrix).unwrap_err(), message);
    }
}

/// Catches addresses of another host or without their port, and errors without the line and the cell.
#[test]
fn a_hostfile_has_the_matrix_and_the_address_of_rank_0() {
    let launch = |rank, text: &str| Launch::from_hostfile(rank, &text.parse().unwrap());
    let text = |ips: &str| {
        format!(
            "{{\"backend\": \"jaccl\", \"hosts\": [\n{{\"ssh\": \"a\", {ips} \"rdma\": [null, \"rdma_en2\"]}},\n\
             {{\"ssh\": \"b\", \"ips\": [\"10.0.0.2\"], \"rdma\": [\"rdma_en3\", null]}}]}}"
        )
    };
    let matrix = r#"[[null, "rdma_en2"], ["rdma_en3", null]]"#.parse().unwrap();
    for (ips, coordinator) in [
        (r#"["10.0.0.1", "10.0.1.1"]"#, "10.0.0.1:32323"),
        (r#"["fe80::1"]"#, "[fe80::1]:32323"),
        (r#"["a.local"]"#, "a.local:32323"),
    ] {
        let found = launch(1, &text(&format!("\"ips\": {ips},"))).unwrap();
        assert_eq!((found.rank, &found.matrix, &*found.coordinator), (1, &matrix, coordinator));
    }
    let refused = |rank, text: &str| launch(rank, text).unwrap_err().to_string();
    assert_eq!(
        refused(0, &text("")),
        "line 2: a has no address in `ips`, at which the other ranks find rank 0"
    );
    assert_eq!(refused(2, &text(r#""ips": ["10.0.0.1"],"#)), "there is no rank 2 among 2 hosts");
    assert_eq!(refused(0, "[]"), "there is no rank 0 among 0 hosts");
    assert_eq!(
        refused(0, &text("").replace("\"rdma_en3\"", "null")),
        "line 2: m[0][1] has 1 (rdma_en2), but m[1][0] has 0 (none): a cable has a device at both ends"
    );
    let error = "[{\"ssh\": \"a\",\n\"rdma\": [7]}]".parse::<super::Hostfile>().unwrap_err().to_string();
    assert!(error.starts_with("line 2: a cell is null, \"rdma_enN\", or a list of such names"), "{error}");
}
