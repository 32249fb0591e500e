//! Plans of more than 64 hosts: bound and plan stand apart, and how far, the verifier says

mod common;

use common::Numbers;
use rdma_collectives::{
    Cable, Cabling, MAX_EXACT_HOSTS, MAX_HOSTS, Operation, PlanError, Ratio, all_reduce, bound, plan, verify,
};

const RATE: u64 = 9_200_000_000;

fn torus(rows: usize, columns: usize) -> Cabling {
    let at = move |row: usize, column: usize| row % rows * columns + column % columns;
    let hosts = (0..rows).flat_map(move |row| (0..columns).map(move |column| (row, column)));
    let pairs = hosts.flat_map(move |(row, column)| {
        [(at(row, column), at(row, column + 1)), (at(row, column), at(row + 1, column))]
    });
    Cabling::of_pairs(rows * columns, pairs, RATE)
}

/// By how much the plan of an all_reduce is above its bound, and its most hops from a root
fn excess(cabling: &Cabling) -> (f64, usize) {
    let plan = all_reduce(cabling).unwrap();
    assert_eq!(bound(cabling, &plan.operation).unwrap(), (plan.bound, plan.certificate.clone()));
    let hops = plan.trees.iter().map(|tree| {
        let mut hops = vec![0; plan.hosts.len()];
        tree.arcs.iter().for_each(|&(parent, child)| hops[child] = hops[parent] + 1);
        hops.into_iter().max().unwrap()
    });
    (verify(cabling, &plan).unwrap().to_f64(), hops.max().unwrap())
}

/// Catches trees that share cables although they need not, and trees that begin at an end.
#[test]
fn regular_cablings_are_planned_at_their_bound() {
    let hosts = 100;
    assert_eq!(excess(&Cabling::line(hosts, RATE)), (1.0, 50));
    assert_eq!(excess(&Cabling::star(hosts, RATE)), (1.0, 1));
    // All hosts apart have 100 cables for 99 crossings, which take fractions of trees.
    assert_eq!(excess(&Cabling::ring(hosts, RATE)), (100.0 / 99.0, 50));
    for (cabling, most, hops) in [
        (torus(10, 10), 1.011, 16),
        (Cabling::hypercube(7, RATE), 1.01, 20),
        (Cabling::circulant(100, &[1, 7, 23], RATE), 1.011, 16),
        (Cabling::prism(50, RATE), 1.011, 60),
    ] {
        let (excess, height) = excess(&cabling);
        assert!(excess <= most && height <= hops, "{} hosts: {excess}, {height} hops", cabling.hosts().len());
    }
}

/// Catches a bound of single hosts only, where one cable joins two halves, and trees that forget how fast cables are.
#[test]
fn irregular_cablings_are_planned_within_a_third_of_their_bound() {
    let half = torus(8, 8);
    let shifted = |cable: &Cable| Cable { ends: cable.ends.map(|end| end + 64), ..*cable };
    let with_bridge = |half: &Cabling| {
        let cables = half.cables().iter().copied().chain(half.cables().iter().map(shifted));
        let cables: Vec<_> = cables.chain([Cable::new(9, 80, RATE)]).collect();
        Cabling::new((0..128).map(|host| format!("h{host}")), cables).unwrap()
    };
    assert_eq!(excess(&with_bridge(&half)).0, 1.0);
    let mut numbers = Numbers(7);
    for _ in 0..10 {
        let hosts = 65 + numbers.below(40);
        let mut cables: Vec<_> = (1..hosts).map(|host| Cable::new(numbers.below(host), host, RATE)).collect();
        for _ in 0..2 * hosts {
            let (left, right) = (numbers.below(hosts), numbers.below(hosts));
            if left != right {
                cables.push(Cable::new(left, right, RATE / (1 + numbers.below(2) as u64)));
            }
        }
        let cabling = Cabling::new((0..hosts).map(|host| format!("h{host}")), cables).unwrap();
        let (excess, _) = excess(&cabling);
        assert!(excess <= 1.34, "{hosts} hosts: {excess}");
    }
}

/// Catches a plan that the verifier refuses, and a bound that belongs to another operation.
#[test]
fn all_operations_over_many_hosts_are_planned() {
    for cabling in [torus(10, 10), Cabling::ring(MAX_EXACT_HOSTS + 1, RATE)] {
        let hosts = cabling.hosts().len();
        let (root, amounts) = (7, (0..hosts as u64).map(|host| host % 3).collect::<Vec<_>>());
        for (operation, most) in [
            (Operation::Broadcast { root }, 2.0),
            (Operation::Reduce { root }, 2.0),
            (Operation::AllGather { amounts: amounts.clone() }, 1.5),
            (Operation::ReduceScatter { amounts: amounts.clone() }, 1.5),
            (Operation::Scatter { root, amounts: amounts.clone() }, 1.5),
            (Operation::Gather { root, amounts: amounts.clone() }, 1.5),
            (Operation::AllToAll { amounts: vec![amounts.clone(); hosts] }, 1.5),
        ] {
            let plan = plan(&cabling, &operation).unwrap();
            let excess = verify(&cabling, &plan).unwrap();
            assert!(excess >= Ratio::ONE && excess.to_f64() <= most, "{operation:?}: {}", excess.to_f64());
            assert_eq!(bound(&cabling, &operation).unwrap().0, plan.bound, "{operation:?}");
        }
    }
}

/// Catches an impossible operation that is planned, or that makes a panic.
#[test]
fn impossible_operations_over_many_hosts_are_refused() {
    let ring = Cabling::ring(100, RATE);
    let refused = |operation| {
        let error = plan(&ring, &operation).unwrap_err();
        assert_eq!(bound(&ring, &operation).unwrap_err(), error);
        error
    };
    assert_eq!(refused(Operation::Broadcast { root: 100 }), PlanError::Root { root: 100, hosts: 100 });
    let (amounts, wrong) = (vec![1; 99], PlanError::Amounts { amounts: 99, hosts: 100 });
    assert_eq!(refused(Operation::AllGather { amounts: amounts.clone() }), wrong);
    assert_eq!(refused(Operation::Scatter { root: 0, amounts }), wrong);
    assert_eq!(refused(Operation::Gather { root: 0, amounts: vec![0; 100] }), PlanError::NothingToSend);
    let mut only_root = vec![0; 100];
    only_root[3] = 5;
    assert_eq!(refused(Operation::Scatter { root: 3, amounts: only_root }), PlanError::NothingToSend);
    let among = Operation::AllReduceAmong { members: vec![0, 1] };
    assert_eq!(refused(among), PlanError::TooManyHosts { hosts: 100, most: MAX_EXACT_HOSTS });
    let many = Cabling::ring(257, RATE);
    let all_to_all = Operation::AllToAll { amounts: vec![vec![1; 257]; 257] };
    assert_eq!(plan(&many, &all_to_all).unwrap_err(), PlanError::TooManyHosts { hosts: 257, most: 256 });
}

/// Catches trees of the largest cabling that share more cables than they need to, or are high.
#[test]
fn a_torus_of_1024_hosts_is_planned_near_its_bound() {
    let torus = torus(32, 32);
    assert_eq!(torus.hosts().len(), MAX_HOSTS);
    let (excess, hops) = excess(&torus);
    assert!(excess <= 1.001 && hops <= 64, "{excess}, {hops} hops");
}

/// Catches advice that compares bounds which are not those of the best plans, and that takes hours.
#[test]
fn cablings_of_many_hosts_are_not_compared() {
    let (ring, operation) = (Cabling::ring(MAX_EXACT_HOSTS + 1, RATE), Operation::AllReduce);
    let error = PlanError::TooManyHosts { hosts: MAX_EXACT_HOSTS + 1, most: MAX_EXACT_HOSTS };
    assert_eq!(rdma_collectives::unplugs(&ring, &operation).err(), Some(error));
    assert!(rdma_collectives::unplugs(&Cabling::ring(MAX_EXACT_HOSTS, RATE), &operation).is_ok());
}
