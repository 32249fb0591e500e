//! Groups of plain threads: every operation of the blocking front end, over the free-running simulator and over TCP
#![cfg(unix)]

use std::error::Error;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use rdma_async::{BlockingStream, Device, Node, NodeOptions, Session, ThreadRuntime, block_on};
use rdma_collectives::blocking::Group;
use rdma_collectives::{Cabling, GroupError, GroupOptions, Reduction};
use rdma_sim::{Sim, Topology};
use rdma_tcp::{TcpDevice, TcpOptions};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const RANKS: usize = 3;
/// A line: rank 1 relays between the others.
const CABLES: [(usize, usize); 2] = [(0, 1), (1, 2)];
const RATE: u64 = 9_200_000_000;

/// The end of a cable, before its session exists
enum End {
    Connects(TcpStream),
    Accepts(TcpListener),
}

/// Runs `program` on a thread for each rank, with nodes whose devices `open` opens for a rank and its neighbour
fn on_threads<D: Device, T: Send>(
    open: impl Fn(usize, usize) -> Result<D> + Clone + Send + Sync + 'static,
    program: impl Fn(Group<D>) -> Result<T> + Sync,
) -> Vec<Result<T>> {
    let cabling = Cabling::of_pairs(RANKS, CABLES, RATE);
    let mut ends: Vec<Vec<(usize, End)>> = (0..RANKS).map(|_| Vec::new()).collect();
    for (left, right) in CABLES {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        ends[left].push((right, End::Connects(stream)));
        ends[right].push((left, End::Accepts(listener)));
    }
    let rank = |rank: usize, ends: Vec<(usize, End)>| {
        let runtime = ThreadRuntime::start()?;
        let mut nodes = Vec::new();
        let sessions = ends.into_iter().map(|(neighbour, end)| {
            let open = open.clone();
            let (node, session) = connect(&runtime, move || open(rank, neighbour), end)?;
            nodes.push(node);
            Ok((neighbour, session))
        });
        let sessions: Vec<_> = sessions.collect::<Result<_>>()?;
        let result = program(Group::join(rank, &cabling, sessions.clone())?);
        // Before the thread of the nodes ends: what a neighbour still waits for is on its way.
        for (_, session) in sessions {
            let _is_over_already = block_on(session.close());
        }
        nodes.iter().for_each(|node| block_on(node.wait_idle()));
        result
    };
    thread::scope(|scope| {
        let ranks = ends.into_iter().enumerate();
        let threads: Vec<_> = ranks.map(|(number, ends)| scope.spawn(move || rank(number, ends))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

fn connect<D: Device>(
    runtime: &ThreadRuntime,
    open: impl Fn() -> Result<D> + Send + Sync + 'static,
    end: End,
) -> Result<(Node<D>, Session<D>)> {
    let options = NodeOptions::new().peer_timeout(Duration::from_secs(20));
    let node = Node::builder(open).runtime(runtime.handle()).options(options).build()?;
    let session = match end {
        End::Connects(stream) => block_on(node.connect(BlockingStream::new(stream)?))?,
        End::Accepts(listener) => {
            block_on(node.serve(BlockingStream::new(listener.accept()?.0)?))?;
            block_on(node.accept()).ok_or("the node is closed")?
        }
    };
    Ok((node, session))
}

fn over_tcp(_: usize, _: usize) -> Result<TcpDevice> {
    Ok(TcpDevice::bind((Ipv4Addr::LOCALHOST, 0).into(), TcpOptions::new())?)
}

/// Runs `program` over simulated Macs in real time
fn over_the_simulator<T: Send>(
    program: impl Fn(Group<rdma_sim::SimDevice>) -> Result<T> + Sync,
) -> Vec<Result<T>> {
    let sim = Sim::new().topology(Topology::graph(RANKS, 3, &CABLES).unwrap());
    let running = rdma_sim::driver::realtime::start(sim, drop).unwrap();
    let net = running.net().clone();
    let open = move |rank: usize, neighbour: usize| {
        let name = |rank: usize| ["a", "b", "c"][rank];
        Ok(net.host(name(rank)).open_to(name(neighbour))?)
    };
    on_threads(open, program)
}

/// Every operation, with results that no other operation has
fn every_operation<D: Device>(mut group: Group<D>) -> Result<()> {
    let rank = group.rank();
    assert_eq!((group.size(), group.hosts().len(), group.epoch()), (RANKS, RANKS, 0));
    for len in [1, 1000, 300_000] {
        let mut vector = vec![rank as f32; len];
        group.all_reduce(&mut vector, Reduction::Sum)?;
        assert!(vector.iter().all(|sum| *sum == 3.0), "{len} elements");
    }
    let mut vector = [rank as u32; 5];
    group.broadcast(2, &mut vector)?;
    assert_eq!(vector, [2; 5]);
    let mut vector = [rank as i64];
    group.reduce(1, &mut vector, Reduction::Max)?;
    assert_eq!(vector, [[0], [2], [2]][rank]);
    let mut all = [0; 6];
    group.all_gather(&[rank as u8; 2], &mut all)?;
    assert_eq!(all, [0, 0, 1, 1, 2, 2]);
    let counts = [1, 0, 2];
    let mut all = [9; 3];
    group.all_gather_v(&vec![rank as u16; counts[rank]], &counts, &mut all)?;
    assert_eq!(all, [0, 2, 2]);
    let mut part = [0];
    group.reduce_scatter(&[1, 10, 100], &mut part, Reduction::Sum)?;
    assert_eq!(part, [[3], [30], [300]][rank]);
    let mut part = vec![0; counts[rank]];
    group.reduce_scatter_v(&[1, 10, 100], &counts, &mut part, Reduction::Sum)?;
    assert_eq!(part, [&[3][..], &[], &[30, 300]][rank]);
    let root: &[u64] = if rank == 1 { &[4, 5, 6] } else { &[] };
    let mut part = [0];
    group.scatter(1, root, &mut part)?;
    assert_eq!(part, [rank as u64 + 4]);
    let mut part = vec![0; counts[rank]];
    group.scatter_v(1, root, &counts, &mut part)?;
    assert_eq!(part, [&[4][..], &[], &[5, 6]][rank]);
    let mut all = if rank == 0 { vec![0; 3] } else { Vec::new() };
    group.gather(0, &[rank as i8], &mut all)?;
    assert!(rank != 0 || all == [0, 1, 2]);
    group.gather_v(0, &vec![7; counts[rank]], &counts, &mut all)?;
    assert!(rank != 0 || all == [7, 7, 7]);
    let mut received = [0; 3];
    group.all_to_all(&[0, 1, 2].map(|to| 10 * rank + to).map(|value| value as i32), &mut received)?;
    assert_eq!(received, [0, 10, 20].map(|from| from + rank as i32));
    let mut received = vec![0; 3 * counts[rank]];
    let sent = [vec![rank as u8; 1], vec![rank as u8; 2]].concat();
    group.all_to_all_v(&sent, &counts, &mut received, &[counts[rank]; 3])?;
    assert_eq!(received, [&[0, 1, 2][..], &[], &[0, 0, 1, 1, 2, 2]][rank]);
    let mut vector = [rank as f64];
    group.transfer(2, 0, &mut vector)?;
    assert_eq!(vector, [[2.0], [1.0], [2.0]][rank]);
    match rank {
        1 => group.send(2, &[7_i64, 8])?,
        2 => {
            let mut vector = [0_i64; 2];
            group.recv(1, &mut vector)?;
            assert_eq!(vector, [7, 8]);
        }
        _ => (),
    }
    let mut beside = group.duplicate(GroupOptions::new())?;
    beside.barrier()?;
    // Ranks 1 and 2 have a cable of their own.
    let part = group.split((rank > 0).then_some(7), 0, GroupOptions::new())?;
    assert_eq!(part.map(|part| part.size()), (rank > 0).then_some(2));
    group.barrier()?;
    Ok(())
}

/// Catches an operation of the front end that calls another one or swaps its arguments (tried: `broadcast` from rank 0 whatever the
/// root), and a thread that sleeps on when its operation is done.
#[test]
fn every_operation_works_from_plain_threads_over_tcp() {
    on_threads(over_tcp, every_operation).into_iter().for_each(|result| result.unwrap());
}

#[test]
fn every_operation_works_from_plain_threads_over_the_free_running_simulator() {
    over_the_simulator(every_operation).into_iter().for_each(|result| result.unwrap());
}

/// Catches survivors that wait for a rank that has left, and a group that does not go on without it.
#[test]
fn threads_go_on_without_a_rank_that_leaves() {
    let sums = over_the_simulator(|mut group| {
        let barrier = group.barrier();
        if group.rank() == 2 {
            return Ok(barrier.map(|()| None)?);
        }
        barrier?;
        let mut vector = [1];
        let next = group.all_reduce(&mut vector, Reduction::Sum);
        assert!(matches!(next, Err(GroupError::Left { rank: 2 })), "{next:?}");
        let mut group = group.shrink()?;
        let mut vector = [1];
        group.all_reduce(&mut vector, Reduction::Sum)?;
        Ok(Some((vector[0], group.size(), group.epoch())))
    });
    let sums: Vec<_> = sums.into_iter().map(|sum| sum.unwrap()).collect();
    assert_eq!(sums, [Some((2, 2, 1)), Some((2, 2, 1)), None]);
}

/// Catches an error of the first call that overtakes the end of joining: a rank that was still joining failed to.
#[test]
fn threads_that_call_different_operations_learn_of_it() {
    for _ in 0..10 {
        let errors = over_the_simulator(|mut group| {
            let mut vector = [1.0_f32; 3];
            Ok(match group.rank() {
                0 => group.broadcast(0, &mut vector),
                _ => group.all_reduce(&mut vector, Reduction::Sum),
            })
        });
        for error in errors {
            let error = error.unwrap().unwrap_err();
            let GroupError::Mismatch { sequence: 0, mut ranks, .. } = error else { panic!("{error}") };
            ranks.sort_unstable();
            assert_eq!(ranks, [0, 1]);
        }
    }
}
