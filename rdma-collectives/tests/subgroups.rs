//! Operations among some of the hosts, with relays

mod common;

use common::{Numbers, connected_graphs, random_cabling};
use rdma_collectives::{
    Cabling, Certificate, Operation, Plan, PlanError, Ratio, VerifyError, all_reduce, all_reduce_among,
    bound, verify,
};

const RATE: u64 = 1000;

fn ratio(numerator: u128, denominator: u128) -> Ratio {
    Ratio::new(numerator, denominator * u128::from(RATE)).unwrap()
}

#[test]
fn hosts_that_are_not_members_relay() {
    // A star whose centre is not a member: every tree leads over it.
    let star = Cabling::star(4, RATE);
    let plan = all_reduce_among(&star, &[1, 2, 3]).unwrap();
    assert_eq!((plan.time, plan.bound), (ratio(1, 1), ratio(1, 1)));
    assert_eq!(verify(&star, &plan), Ok(Ratio::ONE));
    // A pair in a ring gets both ways.
    let ring = Cabling::ring(4, RATE);
    let plan = all_reduce_among(&ring, &[0, 1]).unwrap();
    assert_eq!((plan.time, plan.bound), (ratio(1, 2), ratio(1, 2)));
    assert_eq!(verify(&ring, &plan), Ok(Ratio::ONE));
}

/// Catches a bound above a plan, a tree that loses a member, and trees that are not the best.
#[test]
fn every_sub_group_of_every_cabling_of_3_to_6_hosts_is_planned_at_the_bound() {
    let mut count = 0;
    for (hosts, pairs) in connected_graphs(6) {
        let cabling = Cabling::of_pairs(hosts, pairs, RATE);
        for set in 1_u32..1 << hosts {
            let members: Vec<_> = (0..hosts).filter(|host| set >> host & 1 == 1).collect();
            if members.len() >= 2 {
                let plan = all_reduce_among(&cabling, &members).unwrap();
                assert_eq!(verify(&cabling, &plan), Ok(Ratio::ONE), "{cabling:?}\n{plan}");
                count += 1;
            }
        }
    }
    assert_eq!(count, 7004);
}

/// With mixed rates and more hosts, plans are accepted, and within the factor of 2 between trees and partitions.
#[test]
fn sub_groups_of_mixed_cablings_are_planned_within_twice_the_bound() {
    let mut numbers = Numbers(17);
    let mut optimal = 0;
    for _ in 0..200 {
        let cabling = random_cabling(&mut numbers, 9, &[1, 2, 3]);
        let hosts = cabling.hosts().len();
        let members: Vec<_> = (0..hosts).filter(|&host| host < 2 || numbers.below(2) == 0).collect();
        let plan = all_reduce_among(&cabling, &members).unwrap();
        let excess = verify(&cabling, &plan).unwrap();
        assert!(excess <= Ratio::new(2, 1).unwrap(), "{excess}");
        assert_eq!(plan.to_string().parse(), Ok(plan.clone()));
        assert_eq!(bound(&cabling, &plan.operation).unwrap(), (plan.bound, plan.certificate));
        optimal += usize::from(excess == Ratio::ONE);
    }
    assert!(optimal == 200, "{optimal} of 200");
}

#[test]
fn an_all_reduce_among_all_is_an_all_reduce() {
    let mut numbers = Numbers(19);
    for _ in 0..50 {
        let cabling = random_cabling(&mut numbers, 6, &[1, 2, 3]);
        let everyone: Vec<_> = (0..cabling.hosts().len()).collect();
        let (among, all) = (all_reduce_among(&cabling, &everyone).unwrap(), all_reduce(&cabling).unwrap());
        assert_eq!((among.time, among.bound), (all.time, all.bound));
    }
}

#[test]
fn wrong_members_are_refused_and_strangers_may_be_unconnected() {
    let mesh = Cabling::mesh(3, RATE);
    for members in [&[][..], &[1], &[0, 0], &[0, 3]] {
        assert_eq!(all_reduce_among(&mesh, members), Err(PlanError::Members { hosts: 3 }));
    }
    let apart = Cabling::of_pairs(4, [(0, 1), (1, 2)], RATE);
    let plan = all_reduce_among(&apart, &[0, 2]).unwrap();
    assert_eq!(verify(&apart, &plan), Ok(Ratio::ONE));
    let error = all_reduce_among(&apart, &[0, 3]).unwrap_err();
    assert_eq!(error.to_string(), "a, b, c cannot reach d: connect them by a cable");
    // A part without a member proves nothing: nothing has to get there.
    let forged = Plan { certificate: Certificate::Partition(vec![vec![0], vec![1], vec![2, 3]]), ..plan };
    assert!(matches!(verify(&apart, &forged), Err(VerifyError::Certificate { .. })));
    let forged = Plan { operation: Operation::AllReduceAmong { members: vec![0, 0] }, ..forged };
    assert!(matches!(verify(&apart, &forged), Err(VerifyError::Operation { .. })));
}
