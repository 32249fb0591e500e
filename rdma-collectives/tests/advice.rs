//! Advice on cables: which one to add, what each is worth, and which cabling is best

mod common;

use common::{Numbers, random_cabling};
use rdma_collectives::{
    Addition, AdviceError, Cabling, Operation, PlanError, Ratio, Unplug, additions, all_reduce, bound,
    recommend, unplugs, verify,
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
