//! Advice on cables: which one to add, what each is worth, and which cabling is best

mod common;

use common::{Numbers, random_cabling};
use rdma_collectives::{
    Addition, AdviceError, Cabling, CablingError, Limit, Operation, PlanError, Ratio, Unplug, additions,
    all_reduce, bound, recommend, recommend_for, unplugs, verify,
};

const RATE: u64 = 1000;

fn ratio(numerator: u128, denominator: u128) -> Ratio {
    Ratio::new(numerator, denominator * u128::from(RATE)).unwrap()
}

fn without(unplug: Result<Unplug, PlanError>) -> Option<Ratio> {
    unplug.unwrap().without
}

/// The cables that could be added for an all_reduce, the best first
fn added(cabling: &Cabling, rate: u64, free_ports: &[usize]) -> Vec<Addition> {
    let found = additions(cabling, &Operation::AllReduce, rate, free_ports).unwrap();
    let mut found = found.collect::<Result<Vec<_>, _>>().unwrap();
    found.sort();
    found
}

#[test]
fn the_worth_of_a_cable_is_the_time_without_it() {
    let chord = Cabling::of_pairs(4, [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)], RATE);
    let found: Vec<_> = unplugs(&chord, &Operation::AllReduce).unwrap().map(without).collect();
    let (tail, ring) = (Some(ratio(1, 1)), Some(ratio(3, 4)));
    assert_eq!(found, [tail, tail, tail, tail, ring]);
    let (star, broadcast) = (Cabling::star(4, RATE), Operation::Broadcast { root: 0 });
    assert!(unplugs(&star, &broadcast).unwrap().map(without).all(|without| without.is_none()));
    let apart = Cabling::of_pairs(3, [(0, 1)], RATE);
    assert!(matches!(unplugs(&apart, &Operation::AllReduce).err(), Some(PlanError::Disconnected { .. })));
}

/// Catches an order that does not put the best first, ports that are not counted, and parts that stay apart.
#[test]
fn the_next_cable_is_the_one_that_helps_most() {
    let line = Cabling::line(4, RATE);
    let found = added(&line, RATE, &[1, 1, 1, 1]);
    assert_eq!((found[0].ends, found[0].with, found[0].diameter), ([0, 3], ratio(3, 4), 2));
    assert_eq!(found.len(), 6);
    let found = added(&line, RATE, &[1, 0, 1, 0]);
    assert_eq!(found.iter().map(|addition| addition.ends).collect::<Vec<_>>(), [[0, 2]]);
    let apart = Cabling::of_pairs(3, [(0, 1)], RATE);
    let found = added(&apart, RATE, &[2; 3]);
    assert_eq!(found.iter().map(|addition| addition.ends).collect::<Vec<_>>(), [[0, 2], [1, 2]]);
    let wrong = AdviceError::FreePorts { numbers: 2, hosts: 3 };
    assert_eq!(additions(&apart, &Operation::AllReduce, RATE, &[2; 2]).err(), Some(wrong));
    // A planner of many hosts may be asked how far it is.
    let steps = additions(&line, &Operation::AllReduce, RATE, &[1, 0, 1, 1]).unwrap();
    assert_eq!(steps.size_hint().1, Some(3));
}

/// More cables never make the bound worse: catches a strength that depends on the order of cables.
#[test]
fn no_cable_makes_an_all_reduce_slower() {
    let mut numbers = Numbers(7);
    for _ in 0..100 {
        let cabling = random_cabling(&mut numbers, 6, &[1, 2, 3]);
        let (now, _) = bound(&cabling, &Operation::AllReduce).unwrap();
        for without in unplugs(&cabling, &Operation::AllReduce).unwrap().map(without) {
            assert!(without.is_none_or(|without| without >= now));
        }
        let ports = vec![1; cabling.hosts().len()];
        for addition in added(&cabling, 2, &ports) {
            assert!(addition.with <= now);
        }
    }
}

/// The cabling theorem: catches a recommendation above the bound, and one with more cables than there are ports.
#[test]
fn recommended_cablings_meet_the_bound_of_their_ports() {
    for hosts in 2..=12 {
        for ports in if hosts == 2 { 1 } else { 2 }..=6 {
            let recommended = recommend(hosts, ports, RATE).unwrap();
            let cabling = &recommended.cabling;
            let plan = all_reduce(cabling).unwrap();
            assert_eq!(verify(cabling, &plan), Ok(Ratio::ONE));
            assert_eq!(plan.time, recommended.time);
            for host in 0..hosts {
                let ends = cabling.cables().iter().flat_map(|cable| cable.ends);
                assert!(ends.filter(|&end| end == host).count() <= ports);
            }
            assert_eq!(cabling.cables().len(), hosts * ports / 2);
            assert!(recommended.is_optimal(), "{hosts} hosts, {ports} ports: {recommended}");
        }
    }
    assert_eq!(recommend(10, 3, RATE).unwrap().cabling, Cabling::petersen(RATE));
    assert_eq!(recommend(6, 3, RATE).unwrap().diameter, 2);
    assert_eq!(recommend(32, 6, RATE).unwrap().least, ratio(31, 96));
    let error = AdviceError::Ports { hosts: 3, ports: 1, fewest: 2 };
    assert_eq!(recommend(3, 1, RATE), Err(error));
    assert_eq!(recommend(1, 1, RATE), Err(AdviceError::Plan(PlanError::OneHost)));
}

#[test]
fn a_recommendation_prints_its_proof() {
    assert_eq!(
        recommend(4, 3, RATE).unwrap().to_string(),
        "4 hosts with 3 ports each have at most 6 cables of 1000 bytes per second.\n\
         In an all_reduce, each byte crosses between hosts at least 2 x 3 times, over at most 2 x 6 directions of cables: it \
         takes at least 1/2000 seconds per byte over any cabling.\n\
         This cabling takes 1/2000 seconds per byte: no cabling is faster."
    );
}

/// All operations of equal amounts, with the second host as root
fn operations(hosts: usize) -> Vec<Operation> {
    let amounts = || vec![1; hosts];
    vec![
        Operation::AllReduce,
        Operation::AllGather { amounts: amounts() },
        Operation::ReduceScatter { amounts: amounts() },
        Operation::Broadcast { root: 1 },
        Operation::Reduce { root: 1 },
        Operation::Scatter { root: 1, amounts: amounts() },
        Operation::Gather { root: 1, amounts: amounts() },
        Operation::AllToAll { amounts: vec![amounts(); hosts] },
    ]
}

/// All ways to put cables into these ports
fn all_cablings(ports: &[usize]) -> Vec<Vec<(usize, usize)>> {
    let hosts = ports.len();
    let mut all = vec![(ports.to_vec(), Vec::new())];
    for pair in (0..hosts).flat_map(|left| (left + 1..hosts).map(move |right| (left, right))) {
        let with = |(free, pairs): (Vec<usize>, Vec<_>)| {
            (0..=free[pair.0].min(free[pair.1])).map(move |count| {
                let (mut free, mut pairs) = (free.clone(), pairs.clone());
                free[pair.0] -= count;
                free[pair.1] -= count;
                pairs.extend(vec![pair; count]);
                (free, pairs)
            })
        };
        all = all.into_iter().flat_map(with).collect();
    }
    all.into_iter().map(|(_, pairs)| pairs).collect()
}

/// Against all cablings of three and four hosts: catches a limit above the best one, a cabling that is not the best, and too many cables.
#[test]
fn no_cabling_of_the_same_ports_is_faster_than_the_recommended_one() {
    let (mut tried, mut proven) = (0, 0);
    for ports in [
        &[1, 1, 2][..],
        &[1, 2, 3],
        &[2, 2, 2],
        &[3, 1, 3],
        &[5, 2, 2],
        &[3, 3, 2, 2],
        &[1, 3, 1, 2],
        &[2, 4, 2, 1],
    ] {
        for operation in operations(ports.len()) {
            let best = recommend_for(ports, RATE, &operation).unwrap();
            assert_eq!(bound(&best.cabling, &operation).unwrap().0, best.time);
            for (host, ports) in ports.iter().enumerate() {
                let ends = best.cabling.cables().iter().flat_map(|cable| cable.ends);
                assert!(ends.filter(|end| *end == host).count() <= *ports);
            }
            let cablings = all_cablings(ports);
            tried += cablings.len();
            proven += usize::from(best.is_optimal());
            let times = cablings
                .into_iter()
                .filter_map(|pairs| bound(&Cabling::of_pairs(ports.len(), pairs, RATE), &operation).ok());
            let fastest = times.map(|(time, _)| time).min().unwrap();
            assert_eq!(best.time, fastest, "{ports:?}, {operation:?}: {best}");
            assert!(best.least <= fastest, "{ports:?}, {operation:?}: {best}");
        }
    }
    assert_eq!((tried, proven), (1712, 64), "bounds of cablings computed, recommendations at their limit");
}

/// Catches a search that ends far from the limit where no cabling is known.
#[test]
fn hosts_with_different_ports_are_cabled_at_the_limit() {
    for (ports, limit, least) in [
        (&[6, 3, 3][..], Limit::Cables, ratio(2, 6)),
        (&[6, 3, 3, 3], Limit::Cables, ratio(3, 7)),
        (&[6, 6, 3, 3, 3], Limit::Cables, ratio(4, 10)),
        (&[6, 6, 6, 6, 3, 3, 3, 3], Limit::Cables, ratio(7, 18)),
        (&[6, 6, 1, 3], Limit::Ports { host: 2 }, ratio(1, 1)),
    ] {
        let best = recommend_for(ports, RATE, &Operation::AllReduce).unwrap();
        assert_eq!((best.limit, best.least), (limit, least), "{ports:?}");
        assert!(best.is_optimal(), "{ports:?}: {best}");
        let plan = all_reduce(&best.cabling).unwrap();
        assert_eq!((verify(&best.cabling, &plan), plan.time), (Ok(Ratio::ONE), best.time));
    }
}

/// Catches a mesh of many ports that is refused, and numbers that are not.
#[test]
fn ports_that_cannot_connect_the_hosts_are_refused() {
    let refused = |ports: &[usize]| recommend_for(ports, RATE, &Operation::AllReduce).unwrap_err();
    assert_eq!(refused(&[1, 1, 1, 2]), AdviceError::TotalPorts { hosts: 4, ports: 5, fewest: 6 });
    assert_eq!(refused(&[0, 5, 5]), AdviceError::TotalPorts { hosts: 3, ports: 10, fewest: 4 });
    assert_eq!(
        refused(&[usize::MAX, 2, 2]),
        AdviceError::TotalPorts { hosts: 3, ports: usize::MAX, fewest: 4 }
    );
    assert_eq!(refused(&[]), AdviceError::Cabling(CablingError::Hosts { hosts: 0 }));
    assert_eq!(refused(&[3; 65]), AdviceError::Plan(PlanError::TooManyHosts { hosts: 65, most: 64 }));
    assert_eq!(refused(&[33; 4]), AdviceError::Ports { hosts: 4, ports: 33, fewest: 2 });
    let unknown = recommend_for(&[2; 3], RATE, &Operation::Broadcast { root: 3 });
    assert_eq!(unknown, Err(AdviceError::Plan(PlanError::Root { root: 3, hosts: 3 })));
    let mesh = recommend(12, 11, RATE).unwrap();
    assert_eq!((mesh.diameter, mesh.is_optimal(), mesh.cabling.cables().len()), (1, true, 66));
}

/// Catches cables that are moved without need, hosts that change places although one has more ports or is the root, and cables that stay
/// although they are slower.
#[test]
fn the_recommended_cabling_leaves_cables_where_they_are() {
    let kept = |ports: &[usize], operation: Operation, current: &Cabling| {
        let best = recommend_for(ports, RATE, &operation).unwrap().nearest_to(current);
        assert_eq!(bound(&best.cabling, &operation).unwrap().0, best.time);
        assert_eq!(best.cabling.hosts(), current.hosts());
        for (host, ports) in ports.iter().enumerate() {
            let ends = best.cabling.cables().iter().flat_map(|cable| cable.ends);
            assert!(ends.filter(|end| *end == host).count() <= *ports);
        }
        let ends = |cabling: &Cabling| {
            let ends = cabling
                .cables()
                .iter()
                .map(|cable| [cable.ends[0].min(cable.ends[1]), cable.ends[0].max(cable.ends[1])]);
            ends.collect::<Vec<_>>()
        };
        let mut left = ends(&best.cabling);
        let found = ends(current).into_iter().filter(|pair| {
            let place = left.iter().position(|other| other == pair);
            place.map(|place| left.swap_remove(place)).is_some()
        });
        found.count()
    };
    let line = Cabling::of_pairs(5, [(3, 1), (1, 4), (4, 0), (0, 2)], RATE);
    assert_eq!(kept(&[2; 5], Operation::AllReduce, &line), 4, "a ring closes a line of any order");
    let apart = Cabling::of_pairs(6, [(0, 2), (2, 4), (4, 0), (1, 3), (3, 5), (5, 1)], RATE);
    assert_eq!(kept(&[2; 6], Operation::AllReduce, &apart), 4);
    kept(&[3, 1, 1, 1], Operation::AllReduce, &Cabling::star(4, RATE));
    kept(&[1, 1, 1, 3], Operation::AllReduce, &Cabling::star(4, RATE));
    kept(&[3, 3, 2, 2], Operation::Scatter { root: 2, amounts: vec![1; 4] }, &Cabling::star(4, RATE));
    let slow = recommend(5, 2, RATE).unwrap().nearest_to(&Cabling::ring(5, RATE / 2));
    assert_eq!(slow.cabling.cables()[0].rates, [RATE; 2]);
}
