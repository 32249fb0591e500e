//! Plans of cablings whose hosts have caps: by hand, against linear programs over all trees and paths, and against the verifier

#[path = "../common/mod.rs"]
mod common;
mod oracle;

use common::{Numbers, random_cabling};
use rdma_collectives::{
    Cable, Cabling, Certificate, HostCap, Operation, Plan, PlanError, Price, Ratio, Resource, VerifyError,
    bound, flood, plan, verify,
};

/// Bytes per second of a cable.
const RATE: u64 = 9_200_000_000;

fn capped(cabling: &Cabling, caps: &[(usize, HostCap)]) -> Cabling {
    caps.iter().fold(cabling.clone(), |cabling, (host, cap)| cabling.with_cap(*host, *cap).unwrap())
}

/// The time of a plan that the verifier finds optimal, in relation to that of one cable; the bound alone is the same
fn cable_times(cabling: &Cabling, operation: &Operation) -> Ratio {
    let plan = plan(cabling, operation).unwrap();
    assert_eq!(verify(cabling, &plan), Ok(Ratio::ONE), "{cabling:?}\n{plan}");
    assert_eq!(bound(cabling, operation).unwrap(), (plan.bound, plan.certificate.clone()));
    assert_eq!(plan.to_string().parse(), Ok(plan.clone()), "{plan}");
    plan.time.checked_mul(Ratio::new(RATE.into(), 1).unwrap()).unwrap()
}

fn ratio(numerator: u128, denominator: u128) -> Ratio {
    Ratio::new(numerator, denominator).unwrap()
}

/// All operations that the hosts of a cabling take part in alike, but for a root
fn operations(hosts: usize, root: usize, amounts: &[u64]) -> Vec<Operation> {
    let amounts = amounts.to_vec();
    vec![
        Operation::AllReduce,
        Operation::Broadcast { root },
        Operation::Reduce { root },
        Operation::AllGather { amounts: amounts.clone() },
        Operation::ReduceScatter { amounts: amounts.clone() },
        Operation::Scatter { root, amounts: amounts.clone() },
        Operation::Gather { root, amounts: amounts.clone() },
        Operation::AllToAll { amounts: vec![amounts; hosts] },
    ]
}

/// Four hosts in a mesh, each of which carries as much as one cable
///
/// In an all_reduce the three arcs of a tree have six ends, over four hosts: 6/4. In a broadcast each host but the root receives all of it. In the others
/// each host sends or receives three parts of four, or of sixteen, and neighbours get them directly.
#[test]
fn a_mesh_of_hosts_that_carry_one_cable_each() {
    let mesh = Cabling::mesh(4, RATE);
    let all = [0, 1, 2, 3].map(|host| (host, HostCap::new(RATE)));
    let times = [
        ratio(3, 2),
        Ratio::ONE,
        Ratio::ONE,
        ratio(3, 4),
        ratio(3, 4),
        ratio(3, 4),
        ratio(3, 4),
        ratio(3, 16),
    ];
    for (operation, time) in operations(4, 1, &[1; 4]).iter().zip(times) {
        assert_eq!(cable_times(&capped(&mesh, &all), operation), time, "{operation:?}");
    }
}

/// A star of four whose centre carries as much as one cable
///
/// In an all_reduce it sends each leaf the sum: 3. A broadcast from a leaf leaves it twice. It receives three parts of four in a gather.
/// In an all_to_all, of sixteen parts it sends three of its own and passes six on.
#[test]
fn a_star_with_a_capped_centre() {
    let star = capped(&Cabling::star(4, RATE), &[(0, HostCap::new(RATE))]);
    let operations = operations(4, 1, &[1; 4]);
    assert_eq!(cable_times(&star, &operations[0]), ratio(3, 1));
    assert_eq!(cable_times(&star, &operations[1]), ratio(2, 1));
    assert_eq!(cable_times(&star, &Operation::Broadcast { root: 0 }), ratio(3, 1));
    assert_eq!(cable_times(&star, &Operation::Reduce { root: 0 }), ratio(3, 1));
    assert_eq!(cable_times(&star, &Operation::Gather { root: 0, amounts: vec![1; 4] }), ratio(3, 4));
    assert_eq!(cable_times(&star, operations.last().unwrap()), ratio(9, 16));
    // Among the leaves alone it is the same, and the bound counts one crossing less in each direction.
    let leaves = plan(&star, &Operation::AllReduceAmong { members: vec![1, 2, 3] }).unwrap();
    assert_eq!(leaves.time, ratio(3, RATE.into()));
    assert_eq!(verify(&star, &leaves), Ok(ratio(3, 2)));
}

/// The middle of three passes everything on: it sends twice what each of its cables carries.
#[test]
fn a_chain_with_a_capped_middle() {
    let chain = Cabling::line(3, RATE);
    let middle = |cap| capped(&chain, &[(1, cap)]);
    assert_eq!(cable_times(&middle(HostCap::new(RATE)), &Operation::AllReduce), ratio(2, 1));
    assert_eq!(cable_times(&middle(HostCap::new(RATE * 3 / 2)), &Operation::AllReduce), ratio(4, 3));
    // From an end, the middle receives once and sends once.
    assert_eq!(cable_times(&middle(HostCap::new(RATE)), &Operation::Broadcast { root: 0 }), Ratio::ONE);
    let receive = HostCap { send: None, receive: Some(RATE / 2) };
    assert_eq!(cable_times(&middle(receive), &Operation::Broadcast { root: 0 }), ratio(2, 1));
    assert_eq!(cable_times(&middle(receive), &Operation::Broadcast { root: 1 }), Ratio::ONE);
}

/// Catches a cap that counts in the wrong direction.
#[test]
fn a_host_that_sends_more_slowly_than_it_receives() {
    let pair = capped(&Cabling::line(2, RATE), &[(0, HostCap { send: Some(RATE / 2), receive: None })]);
    assert_eq!(cable_times(&pair, &Operation::Broadcast { root: 0 }), ratio(2, 1));
    assert_eq!(cable_times(&pair, &Operation::Broadcast { root: 1 }), Ratio::ONE);
    assert_eq!(cable_times(&pair, &Operation::Reduce { root: 0 }), Ratio::ONE);
    assert_eq!(cable_times(&pair, &Operation::Reduce { root: 1 }), ratio(2, 1));
    assert_eq!(cable_times(&pair, &Operation::AllReduce), ratio(2, 1));
}

/// The middle of three sends each other host the sum. Catches a bound that looks at the first host alone.
#[test]
fn a_chain_whose_middle_sends_slowly() {
    let send = HostCap { send: Some(RATE), receive: None };
    let chain = capped(&Cabling::line(3, RATE), &[(1, send)]);
    assert_eq!(cable_times(&chain, &Operation::AllReduce), ratio(2, 1));
}

/// Three hosts, one of which sends 19/10 of a cable, and receives over two: its trees get 19/10 + 1 over two arcs each, the bound counts
/// 39/10 + 2 in both directions over four. Catches prices of hosts that do not become those of cables where there is no cap.
#[test]
fn a_cap_in_one_direction_counts_together_with_the_other_direction() {
    let send = HostCap { send: Some(RATE * 19 / 10), receive: None };
    let plan = plan(&capped(&Cabling::mesh(3, RATE), &[(0, send)]), &Operation::AllReduce).unwrap();
    assert_eq!(
        [plan.time, plan.bound],
        [(20, 29), (40, 59)].map(|(over, below)| ratio(over, below * u128::from(RATE)))
    );
}

/// Caps of at least what all cables carry change nothing but the fingerprint, and one that is not reached not the time.
#[test]
fn caps_that_do_not_bind_change_nothing() {
    let mut numbers = Numbers(31);
    for _ in 0..50 {
        let cabling = random_cabling(&mut numbers, 7, &[1, 2, 3, 5]);
        let hosts = cabling.hosts().len();
        let whole: u64 = cabling.cables().iter().map(|cable| cable.rates[0]).sum();
        let loose =
            capped(&cabling, &[(0, HostCap::new(whole)), (1, HostCap { send: Some(whole), receive: None })]);
        for operation in operations(hosts, 1, &vec![1; hosts]) {
            let expected = plan(&cabling, &operation).unwrap();
            let found = plan(&loose, &operation).unwrap();
            assert_ne!(found.cabling, expected.cabling);
            assert_eq!(found, Plan { cabling: found.cabling, ..expected });
        }
    }
    let send = HostCap { send: Some(2 * RATE), receive: None };
    let mesh = capped(&Cabling::mesh(4, RATE), &[(1, send), (2, send), (3, send)]);
    assert_eq!(cable_times(&mesh, &Operation::Broadcast { root: 0 }), ratio(1, 3));
}

/// Random caps, most of them below what the cables of the host carry
fn random_caps(numbers: &mut Numbers, cabling: &Cabling, rates: &[u64], is_symmetric: bool) -> Cabling {
    (0..cabling.hosts().len()).fold(cabling.clone(), |cabling, host| {
        let mut cap = || (numbers.below(3) > 0).then(|| rates[numbers.below(rates.len())]);
        let send = cap();
        let receive = if is_symmetric { send } else { cap() };
        cabling.with_cap(host, HostCap { send, receive }).unwrap()
    })
}

/// Catches a plan that is slower than the best trees or paths, or a bound below them: there is a linear program over all of them.
#[test]
fn random_caps_of_up_to_5_hosts_are_planned_at_the_optimum_of_the_oracle() {
    let mut numbers = Numbers(7);
    for round in 0..120 {
        let most = if round % 4 == 0 { 5 } else { 4 };
        let cabling = random_cabling(&mut numbers, most, &[1, 2, 3]);
        let cabling = random_caps(&mut numbers, &cabling, &[1, 2, 3], true);
        let hosts = cabling.hosts().len();
        let amounts: Vec<_> = (0..hosts).map(|_| 1 + numbers.below(3) as u64).collect();
        for operation in operations(hosts, numbers.below(hosts), &amounts) {
            let slow = matches!(
                operation,
                Operation::AllGather { .. } | Operation::ReduceScatter { .. } | Operation::AllToAll { .. }
            );
            if hosts == 5 && slow {
                continue;
            }
            let plan = plan(&cabling, &operation).unwrap();
            assert_eq!(verify(&cabling, &plan), Ok(Ratio::ONE), "{cabling:?}\n{plan}");
            assert_eq!(plan.time, oracle::seconds(&cabling, &operation), "{cabling:?}\n{plan}");
        }
    }
}

/// Catches prices of the wrong direction, shares that do not add up, and bounds that differ from those without a plan.
#[test]
fn random_caps_of_up_to_6_hosts_are_planned_at_the_bound() {
    let mut numbers = Numbers(11);
    let rounding = ratio(1_000_000_001, 1_000_000_000);
    for round in 0..150 {
        let rates: &[u64] =
            if round % 2 == 0 { &[1, 2, 3, 4] } else { &[9_217_345_619, 4_608_123_457, 2_499_999_999] };
        let is_symmetric = round % 3 > 0;
        let cabling = random_cabling(&mut numbers, 6, rates);
        let cabling = match is_symmetric {
            true => cabling,
            false => {
                let cables = cabling.cables().iter();
                let mut rate = || rates[numbers.below(rates.len())];
                let cables: Vec<_> =
                    cables.map(|cable| Cable { rates: [cable.rates[0], rate()], ..*cable }).collect();
                Cabling::new(cabling.hosts().iter().cloned(), cables).unwrap()
            }
        };
        let cabling = random_caps(&mut numbers, &cabling, rates, is_symmetric);
        let hosts = cabling.hosts().len();
        let mut amounts: Vec<_> = (0..hosts).map(|_| numbers.below(4) as u64).collect();
        amounts[numbers.below(hosts)] += 1;
        for operation in operations(hosts, numbers.below(hosts), &amounts) {
            let found = plan(&cabling, &operation);
            assert_eq!(
                bound(&cabling, &operation),
                found.clone().map(|plan| (plan.bound, plan.certificate)),
                "{cabling:?} {operation:?}"
            );
            let plan = match found {
                Ok(plan) => plan,
                Err(error) => {
                    assert_eq!(error, PlanError::NothingToSend);
                    continue;
                }
            };
            let above = verify(&cabling, &plan).unwrap();
            assert!(above >= Ratio::ONE);
            // An all_reduce uses each tree in both directions.
            if is_symmetric || operation != Operation::AllReduce {
                let most = if round % 2 == 0 { Ratio::ONE } else { rounding };
                assert!(above <= most, "{above}: {cabling:?}\n{plan}");
            }
            assert_eq!(plan.to_string().parse(), Ok(plan));
        }
    }
}

#[test]
fn sub_groups_of_capped_hosts_are_planned_within_twice_the_bound() {
    let mut numbers = Numbers(19);
    for _ in 0..100 {
        let cabling = random_cabling(&mut numbers, 7, &[1, 2, 3]);
        let cabling = random_caps(&mut numbers, &cabling, &[1, 2, 3], true);
        let hosts = cabling.hosts().len();
        let members: Vec<_> = (0..hosts).filter(|&host| host < 2 || numbers.below(2) == 0).collect();
        let operation = Operation::AllReduceAmong { members };
        let plan = plan(&cabling, &operation).unwrap();
        let above = verify(&cabling, &plan).unwrap();
        assert!((Ratio::ONE..=ratio(2, 1)).contains(&above), "{above}: {cabling:?}\n{plan}");
        assert_eq!(bound(&cabling, &operation).unwrap(), (plan.bound, plan.certificate));
    }
}

/// Each change breaks one claim. Catches a verifier that believes prices, or does not add up what hosts carry.
#[test]
fn wrong_prices_and_overloaded_hosts_are_refused() {
    let star = capped(&Cabling::star(4, RATE), &[(0, HostCap::new(RATE))]);
    for operation in operations(4, 0, &[1; 4]) {
        let good = plan(&star, &operation).unwrap();
        let Certificate::Prices(prices) = &good.certificate else { panic!("{good}") };
        let with = |certificate| {
            verify(&star, &Plan { certificate: Certificate::Prices(certificate), ..good.clone() })
        };
        for place in 0..prices.len() {
            let mut changed = prices.clone();
            changed[place].price += 1;
            changed.push(Price { of: Resource::Cables { from: 3, to: 0 }, price: 1 });
            let error = with(changed).unwrap_err();
            assert!(matches!(error, VerifyError::Bound { .. } | VerifyError::Certificate { .. }), "{error}");
            let mut twice = prices.clone();
            twice.push(prices[place]);
            let error = with(twice).unwrap_err();
            assert!(matches!(error, VerifyError::Certificate { .. }), "{error}");
        }
        for of in [
            Resource::Send { host: 1 },
            Resource::Receive { host: 3 },
            Resource::Send { host: 9 },
            Resource::Cables { from: 1, to: 2 },
        ] {
            let error = with(vec![Price { of, price: 1 }]).unwrap_err();
            assert!(matches!(error, VerifyError::Certificate { .. }), "{error}");
        }
        let error = with(Vec::new()).unwrap_err();
        assert!(matches!(error, VerifyError::Certificate { .. }), "{error}");
        // The cables alone are fast enough for this claim.
        let faster = Plan { time: ratio(1, 9_000_000_000), ..good.clone() };
        if good.time > faster.time {
            let error = verify(&star, &faster).unwrap_err();
            assert!(matches!(error, VerifyError::HostLoad { .. }), "{error}");
        }
        // A plan of the cabling without caps is one of another cabling, whichever fingerprint it has.
        let without = plan(&Cabling::star(4, RATE), &operation).unwrap();
        assert!(matches!(verify(&star, &without), Err(VerifyError::OtherCabling { .. })));
        let forged = Plan { cabling: star.fingerprint(), ..without };
        let error = verify(&star, &forged).unwrap_err();
        assert!(matches!(error, VerifyError::HostLoad { .. } | VerifyError::Bound { .. }), "{error}");
    }
}

/// Prices of hosts as text: `a>` is what a sends, `>a` what it receives.
#[test]
fn prices_of_hosts_are_written_and_read() {
    let line = capped(&Cabling::line(3, 1000), &[(1, HostCap { send: None, receive: Some(500) })]);
    let plan = plan(&line, &Operation::Broadcast { root: 0 }).unwrap();
    assert!(plan.to_string().contains("\nprices >b 1\n"), "{plan}");
    let text = plan.to_string().replace(">b 1\n", ">b 1 c> 2 a>b 3\n");
    let prices = [
        Price { of: Resource::Receive { host: 1 }, price: 1 },
        Price { of: Resource::Send { host: 2 }, price: 2 },
        Price { of: Resource::Cables { from: 0, to: 1 }, price: 3 },
    ];
    assert_eq!(text.parse::<Plan>().unwrap().certificate, Certificate::Prices(prices.to_vec()));
    for wrong in [">", "d>", ">d", "b"] {
        let error = text.replace("c>", wrong).parse::<Plan>().unwrap_err();
        assert_eq!((error.line, error.cell), (8, 4), "{error}");
    }
}

/// Catches a flood whose time forgets the caps: short vectors would be flooded through a slow host.
#[test]
fn flooding_counts_caps() {
    let star = Cabling::star(4, RATE);
    let slow = capped(&star, &[(0, HostCap::new(RATE))]);
    // The centre sends its own quarter three times, and each other one twice.
    let time = flood(&slow).unwrap().time.checked_mul(ratio(RATE.into(), 1)).unwrap();
    assert_eq!(time, ratio(9, 4));
    assert_eq!(verify(&slow, &flood(&slow).unwrap()), Ok(Ratio::ONE));
}

/// Above 16 hosts, caps count in the time of a plan and not in its bound: catches a time that the hosts do not keep.
#[test]
fn plans_of_many_capped_hosts_state_their_times() {
    for hosts in [17, 70] {
        let star = capped(&Cabling::star(hosts, RATE), &[(0, HostCap::new(RATE))]);
        let mut operations = operations(hosts, 1, &vec![1; hosts]);
        operations.push(Operation::AllReduceAmong { members: (0..hosts).collect() });
        for operation in operations {
            let plan = match plan(&star, &operation) {
                Err(PlanError::TooManyHosts { most: 64, .. }) => continue,
                plan => plan.unwrap(),
            };
            let above = verify(&star, &plan).unwrap();
            assert!(above >= Ratio::ONE, "{above}");
            assert_eq!(bound(&star, &operation).unwrap(), (plan.bound, plan.certificate));
        }
    }
}
