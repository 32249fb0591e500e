use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::meeting::{Meeting, Neighbour};
use super::wire::{self, Answer, Greeting, Hello, Protocol};
use super::{Launch, LaunchError};

/// An address at which nothing listens yet
fn free() -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().to_string()
}

fn meeting(rank: usize, size: usize, coordinator: &str) -> Meeting {
    Meeting {
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

type Met = Result<Vec<Neighbour>, LaunchError>;

/// Lets ranks meet, each on a thread
fn meet(meetings: Vec<Meeting>) -> Vec<Met> {
    thread::scope(|scope| {
        let threads: Vec<_> = meetings.into_iter().map(|rank| scope.spawn(move || rank.meet())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn errors(met: Vec<Met>) -> Vec<String> {
    met.into_iter().map(|met| met.unwrap_err().to_string()).collect()
}

#[test]
fn each_rank_of_a_mesh_meets_each_other_once() {
    let coordinator = free();
    let met = meet((0..5).rev().map(|rank| meeting(rank, 5, &coordinator)).collect());
    for (met, rank) in met.into_iter().zip((0..5).rev()) {
        let mut met = met.unwrap();
        met.sort_by_key(|neighbour| neighbour.rank);
        let found: Vec<_> = met.iter().map(|neighbour| (neighbour.rank, neighbour.node.clone())).collect();
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
    let [first, second] = [0, 1].map(|rank| meeting(rank, 2, &coordinator));
    thread::scope(|scope| {
        let first = scope.spawn(move || first.meet());
        let connect = || loop {
            if let Ok(stream) = TcpStream::connect(&coordinator) {
                return stream;
            }
        };
        let silent: Vec<_> = (0..200).map(|_| connect()).collect();
        for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"{}\n", b"\xff\n", &[b'x'; 5000]] {
            connect().write_all(garbage).unwrap();
        }
        let second = second.meet().unwrap();
        assert_eq!((second.len(), first.join().unwrap().unwrap().len()), (1, 1));
        drop(silent);
    });
}

/// Catches a rank that takes whoever says its number for its neighbour.
#[test]
fn a_process_of_another_run_is_no_neighbour() {
    let coordinator = free();
    let first = meeting(0, 2, &coordinator);
    thread::scope(|scope| {
        let first = scope.spawn(move || first.meet());
        let protocol = Protocol::V1;
        let mut to_first = loop {
            if let Ok(stream) = TcpStream::connect(&coordinator) {
                break stream;
            }
        };
        wire::write(&mut to_first, &Hello { protocol, rank: 1, matrix: 7, port: 1 }).unwrap();
        let answer: Answer = wire::read(&mut to_first, || false).unwrap();
        let (token, addresses) = answer.all().unwrap();
        let greet = |token: String, node: &str| {
            let mut stream = TcpStream::connect(addresses[0]).unwrap();
            let greeting = Greeting { protocol, token, rank: 1, node: node.to_owned() };
            wire::write(&mut stream, &greeting).unwrap();
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
    let mut ranks: Vec<_> = [0, 1, 3].map(|rank| meeting(rank, 5, &coordinator)).into();
    ranks[0].timeout = Duration::from_secs(3);
    let message = "ranks 2, 4 have not come within 3s";
    assert_eq!(errors(meet(ranks)), [message; 3]);
}

#[test]
fn without_rank_0_the_others_name_where_they_have_looked() {
    let coordinator = free();
    let mut rank = meeting(1, 2, &coordinator);
    rank.timeout = Duration::from_millis(200);
    let error = rank.meet().unwrap_err();
    assert!(
        matches!(&error, LaunchError::Unreachable { coordinator: found, .. } if *found == coordinator),
        "{error}"
    );
}

#[test]
fn a_rank_with_another_matrix_is_named_on_all() {
    let coordinator = free();
    let mut ranks: Vec<_> = (0..2).map(|rank| meeting(rank, 3, &coordinator)).collect();
    ranks[1].matrix = 8;
    let message = "rank 1 has another device matrix than rank 0";
    assert_eq!(errors(meet(ranks)), [message; 2]);
    // A rank beyond the matrix of rank 0.
    let ranks = vec![meeting(0, 3, &coordinator), meeting(3, 4, &coordinator)];
    assert_eq!(
        errors(meet(ranks)),
        [message.replace("rank 1", "rank 3"), message.replace("rank 1", "rank 3")]
    );
}

#[test]
fn two_processes_of_one_rank_are_named_on_all() {
    let coordinator = free();
    let ranks = [0, 1, 1].map(|rank| meeting(rank, 3, &coordinator)).into();
    for error in errors(meet(ranks)) {
        assert!(error.starts_with("two processes are rank 1: 127.0.0.1:"), "{error}");
    }
}

/// Catches a rank that counts although it has gone, and one whose successor is refused.
#[test]
fn a_rank_that_ends_and_starts_again_is_the_second_one() {
    let coordinator = free();
    let [first, second, again, third] = [0, 1, 1, 2].map(|rank| meeting(rank, 3, &coordinator));
    let gives_up = Arc::clone(&second.is_dropped);
    thread::scope(|scope| {
        let first = scope.spawn(move || first.meet());
        let second = scope.spawn(move || second.meet());
        // It may have come or not.
        thread::sleep(Duration::from_millis(300));
        gives_up.store(true, Ordering::Relaxed);
        second.join().unwrap().unwrap_err();
        let (again, third) = (scope.spawn(move || again.meet()), scope.spawn(move || third.meet()));
        for rank in [first, again, third] {
            assert_eq!(rank.join().unwrap().unwrap().len(), 2);
        }
    });
}

/// Catches a thread that looks for the others for ever after its future was dropped.
#[test]
fn a_dropped_rank_gives_up() {
    for rank in [0, 1] {
        let meeting = Meeting { is_dropped: Arc::new(AtomicBool::new(true)), ..meeting(rank, 2, &free()) };
        meeting.meet().unwrap_err();
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
    for variables in [of_mlx, of_jaccl] {
        let launch = launch(&variables, ring).unwrap();
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
