//! Plans of up to 64 hosts stay as they are: plan files are stored, and builds of one version have to make the same plans

use rdma_collectives::{Cable, Cabling, Operation, plan};

const RATE: u64 = 9_200_000_000;

/// Rates and latencies without a common unit, some of them different in both directions
fn measured(cabling: &Cabling) -> Cabling {
    let cable = |(index, cable): (usize, &Cable)| {
        let rates = [RATE + index as u64 * 7_919 % 1_000_003, RATE + index as u64 % 2 * 13];
        Cable { rates, ..*cable }.latency_ns(5_000 + index as u64 % 3 * 700)
    };
    let cables: Vec<_> = cabling.cables().iter().enumerate().map(cable).collect();
    Cabling::new(cabling.hosts().iter().cloned(), cables).unwrap()
}

fn torus(side: usize) -> Cabling {
    let at = move |row: usize, column: usize| row % side * side + column % side;
    let hosts = (0..side).flat_map(move |row| (0..side).map(move |column| (row, column)));
    let pairs = hosts.flat_map(move |(row, column)| {
        [(at(row, column), at(row, column + 1)), (at(row, column), at(row + 1, column))]
    });
    Cabling::of_pairs(side * side, pairs, RATE)
}

/// FNV-1a of all plans of a cabling as files
fn hash(cabling: &Cabling) -> u64 {
    let hosts = cabling.hosts().len();
    let (root, amounts) = (hosts / 2, (0..hosts as u64).map(|host| host % 3).collect::<Vec<_>>());
    let mut operations = vec![
        Operation::AllReduce,
        Operation::Broadcast { root },
        Operation::Reduce { root },
        Operation::Scatter { root, amounts: amounts.clone() },
        Operation::Gather { root, amounts: amounts.clone() },
    ];
    if hosts <= 16 {
        operations.push(Operation::AllGather { amounts: amounts.clone() });
        operations.push(Operation::ReduceScatter { amounts: amounts.clone() });
        operations.push(Operation::AllToAll { amounts: vec![amounts; hosts] });
    }
    let plans = operations.iter().map(|operation| plan(cabling, operation).unwrap());
    let flood = rdma_collectives::flood(cabling).unwrap();
    let text: String = plans.chain([flood]).map(|plan| plan.to_string()).collect();
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

/// Catches another planner for small groups, another order of equally good trees, and another fingerprint of a cabling.
#[test]
fn plans_of_up_to_64_hosts_stay_as_they_are() {
    let mesh = Cabling::mesh(6, RATE);
    for (cabling, expected) in [
        (Cabling::line(5, RATE), 0xf6e1_e671_a233_5b6a),
        (Cabling::ring(9, RATE).with_latency(6_300), 0xe56c_0ea9_b111_b445),
        (Cabling::star(7, RATE), 0x6804_1a60_4045_b637),
        (measured(&mesh), 0x633a_9d4d_1cda_537e),
        (mesh, 0x11c1_2b2a_ec59_5a76),
        (Cabling::petersen(RATE), 0x3f2f_b426_abb6_64b5),
        (measured(&Cabling::hypercube(4, RATE)), 0xf25b_e8fa_0ada_6dda),
        (Cabling::ring(64, RATE), 0x8076_a479_42c2_c764),
        (torus(8), 0xc2d3_5e54_a3ae_5aba),
    ] {
        let found = hash(&cabling);
        assert_eq!(found, expected, "{} hosts: {found:#018x}", cabling.hosts().len());
    }
}
