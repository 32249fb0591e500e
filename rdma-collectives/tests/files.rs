//! Plans as files: what is written is read again, mistakes are named by line and cell, and changed plans are refused

mod common;

use common::{Numbers, random_cabling};
use proptest::prelude::*;
use rdma_collectives::{
    Cable, Cabling, Certificate, HostCap, ParsePlanError, Plan, PlanError, PlanFile, Ratio, VerifyError,
    all_gather, all_reduce, broadcast, gather, reduce, reduce_scatter, scatter, verify,
};

fn plans(cabling: &Cabling) -> Vec<Plan> {
    let amounts: Vec<u64> = (1..=cabling.hosts().len() as u64).collect();
    let plans: [Result<Plan, PlanError>; 7] = [
        all_reduce(cabling),
        broadcast(cabling, 0),
        reduce(cabling, 1),
        all_gather(cabling, &amounts),
        reduce_scatter(cabling, &amounts),
        scatter(cabling, 1, &amounts),
        gather(cabling, 0, &amounts),
    ];
    plans.into_iter().map(Result::unwrap).collect()
}

#[test]
fn a_plan_is_written_in_lines_that_people_can_read() {
    let plan = all_reduce(&Cabling::line(3, 1000)).unwrap();
    let expected = "\
rdma-plan 1
cabling FINGERPRINT
hosts a b c
operation all_reduce
# seconds per byte of the payload
time 1/1000
bound 1/1000
partition a | b | c
tree 1/1 b b>a b>c
";
    assert_eq!(plan.to_string(), expected.replace("FINGERPRINT", &plan.cabling.to_string()));
}

/// Catches an operation, a certificate or a tree that is written or read wrongly.
#[test]
fn plans_that_are_written_and_read_are_the_same() {
    let mut numbers = Numbers(3);
    for _ in 0..100 {
        let cabling = random_cabling(&mut numbers, 8, &[1, 2, 5]);
        for plan in plans(&cabling) {
            let text = plan.to_string();
            assert_eq!(text.parse(), Ok(plan.clone()), "{text}");
            assert_eq!(verify(&cabling, &text.parse().unwrap()), Ok(Ratio::ONE), "{text}");
        }
    }
}

/// Catches cables that are written without one of their rates, and a file whose plan is another one than without them.
#[test]
fn a_plan_with_its_cables_is_verified_alone() {
    let cables =
        [Cable::new(0, 1, 1000), Cable { rates: [700, 20], ..Cable::new(2, 1, 5) }, Cable::new(0, 2, 3)];
    let cabling = Cabling::new(["a", "b", "c"], cables).unwrap();
    let plan = all_reduce(&cabling).unwrap();
    let text = PlanFile { plan: plan.clone(), cabling: Some(cabling.clone()) }.to_string();
    assert!(
        text.contains("\nhosts a b c\ncable a>b 1000 1000\ncable c>b 700 20\ncable a>c 3 3\noperation"),
        "{text}"
    );
    assert_eq!(text.parse(), Ok(plan.clone()));
    let verified = |text: &str| {
        let PlanFile { plan, cabling } = text.parse().unwrap();
        verify(&cabling.expect("it has cables"), &plan)
    };
    assert_eq!(verified(&text), verify(&cabling, &plan));
    let error = verified(&text.replace("c>b 700 20", "c>b 700 21")).unwrap_err();
    assert!(matches!(error, VerifyError::OtherCabling { .. }), "{error}");
    assert!(plan.to_string().parse::<PlanFile>().unwrap().cabling.is_none());
    for (from, to, message) in [
        ("a>b 1000", "a>d 1000", "line 4, cell 2: \"a>d\" is not the names of two hosts with > between"),
        ("a>b 1000", "a>a 1000", "line 4, cell 2: \"a>a\" is not the names of two hosts with > between"),
        (
            "700 20",
            "700",
            "line 5, cell 4: the end of the line is not a rate in bytes per second, from 1 to 10^12",
        ),
        ("700 20", "0 20", "line 5, cell 3: \"0\" is not a rate in bytes per second, from 1 to 10^12"),
        ("700 20", "700 20 1", "line 5, cell 5: \"1\" is not the end of the line"),
    ] {
        let error = text.replacen(from, to, 1).parse::<PlanFile>().unwrap_err();
        assert_eq!(error.to_string(), message);
    }
    let cap = HostCap { send: Some(900), receive: None };
    let capped = cabling.with_cap(0, cap).unwrap().with_cap(2, HostCap::new(800)).unwrap();
    let plan = all_reduce(&capped).unwrap();
    let with_caps = PlanFile { plan: plan.clone(), cabling: Some(capped.clone()) }.to_string();
    assert!(with_caps.contains("\ncable a>c 3 3\ncap a 900 -\ncap c 800 800\noperation"), "{with_caps}");
    assert_eq!(verified(&with_caps), verify(&capped, &plan));
    let error = verified(&with_caps.replace("cap a 900 -", "cap a 900 901")).unwrap_err();
    assert!(matches!(error, VerifyError::OtherCabling { .. }), "{error}");
    for (from, to, message) in [
        ("cap c", "cap a", "line 8, cell 2: \"a\" is not a host without a cap so far"),
        ("cap c", "cap d", "line 8, cell 2: \"d\" is not a host without a cap so far"),
        ("900 -", "900 0", "line 7, cell 4: \"0\" is not a rate in bytes per second, from 1 to 10^12, or -"),
        ("900 -", "900 - 1", "line 7, cell 5: \"1\" is not the end of the line"),
    ] {
        let error = with_caps.replacen(from, to, 1).parse::<PlanFile>().unwrap_err();
        assert_eq!(error.to_string(), message);
    }
    let error = text.replace("hosts a b c", "hosts a b c d/e").parse::<PlanFile>().unwrap_err();
    assert!(
        error.to_string().starts_with("line 3, cell 1: ") && error.to_string().contains("d/e"),
        "{error}"
    );
}

#[test]
fn mistakes_are_named_by_line_and_cell() {
    let text = "rdma-plan 1\ncabling 0123456789abcdef\nhosts a b\n\n# a remark\noperation broadcast a\ntime 1/2\nbound 1/2\ncut a\ntree 1/1 a a>b\n";
    assert!(text.parse::<Plan>().is_ok());
    for (from, to, message) in [
        ("rdma-plan 1", "plan 1", "line 1, cell 1: \"plan\" is not rdma-plan"),
        ("rdma-plan 1", "rdma-plan 2", "line 1, cell 2: \"2\" is not 1"),
        ("0123456789abcdef", "abc", "line 2, cell 2: \"abc\" is not a fingerprint of 16 hexadecimal digits"),
        ("hosts a b", "hosts a a", "line 3, cell 3: \"a\" is not the name of one more host"),
        ("hosts a b", "hosts", "line 3, cell 2: the end of the line is not the name of one more host"),
        ("broadcast a", "shout a", "line 6, cell 2: \"shout\" is not the name of an operation"),
        ("broadcast a", "broadcast c", "line 6, cell 3: \"c\" is not the name of a host"),
        ("broadcast a", "broadcast a b", "line 6, cell 4: \"b\" is not the end of the line"),
        ("broadcast a", "all_gather 1", "line 6, cell 4: the end of the line is not a whole number"),
        ("broadcast a", "all_gather 1 -1", "line 6, cell 4: \"-1\" is not a whole number"),
        ("time 1/2", "time 1/0", "line 7, cell 2: \"1/0\" is not a fraction such as 3/8"),
        ("bound 1/2\n", "", "line 8, cell 1: \"cut\" is not bound"),
        ("cut a", "slice a", "line 9, cell 1: \"slice\" is not cut, partition or prices"),
        ("a>b", "a-b", "line 10, cell 4: \"a-b\" is not the names of two hosts with > between"),
        ("tree 1/1", "tree", "line 10, cell 2: \"a\" is not a fraction such as 3/8"),
        (
            "cut a\ntree 1/1 a a>b\n",
            "",
            "line 9, cell 1: the end of the text is not cut, partition or prices",
        ),
    ] {
        let error = text.replacen(from, to, 1).parse::<Plan>().unwrap_err();
        assert_eq!(error.to_string(), message);
    }
    let ParsePlanError { line, cell, .. } = "".parse::<Plan>().unwrap_err();
    assert_eq!((line, cell), (1, 1));
}

#[test]
fn a_plan_for_another_cabling_is_refused() {
    let plan = all_reduce(&Cabling::mesh(4, 1000)).unwrap();
    for other in [Cabling::ring(4, 1000), Cabling::mesh(4, 999), Cabling::mesh(5, 1000)] {
        assert!(matches!(verify(&other, &plan), Err(VerifyError::OtherCabling { .. })));
    }
    // A forged fingerprint does not help, because the verifier adds up the loads itself.
    let slower = Cabling::of_pairs(4, [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (1, 3)], 999);
    let forged = Plan { cabling: slower.fingerprint(), ..plan };
    assert!(matches!(verify(&slower, &forged), Err(VerifyError::Load { .. })));
}

/// Each change breaks one claim. Catches a verifier that does not look at it.
#[test]
fn a_plan_with_one_wrong_claim_is_refused() {
    let cabling = Cabling::of_pairs(4, [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)], 1000);
    let good = all_reduce(&cabling).unwrap();
    assert_eq!(verify(&cabling, &good), Ok(Ratio::ONE));
    let refused = |change: &dyn Fn(&mut Plan)| {
        let mut plan = good.clone();
        change(&mut plan);
        verify(&cabling, &plan).unwrap_err()
    };
    let ratio = |numerator, denominator| Ratio::new(numerator, denominator).unwrap();
    let faster = refused(&|plan| plan.time = ratio(1, 2000));
    assert!(matches!(faster, VerifyError::Load { .. }), "{faster}");
    for bound in [ratio(1, 2000), ratio(1, 500), Ratio::ZERO] {
        let error = refused(&|plan| plan.bound = bound);
        assert!(matches!(error, VerifyError::Bound { .. }), "{error}");
    }
    for change in [
        &|plan: &mut Plan| drop(plan.trees.pop()),
        &|plan: &mut Plan| plan.trees[0].share = Ratio::ZERO,
        &|plan: &mut Plan| plan.trees.push(plan.trees[0].clone()),
    ] as [&dyn Fn(&mut Plan); 3]
    {
        let error = refused(change);
        assert!(matches!(error, VerifyError::Shares { .. }), "{error}");
    }
    for change in [
        &|plan: &mut Plan| plan.trees[0].arcs.truncate(2),
        &|plan: &mut Plan| (plan.trees[0].root, plan.trees[0].arcs) = (0, vec![(1, 2), (0, 1), (0, 3)]),
        &|plan: &mut Plan| plan.trees[0].arcs.push((1, 2)),
        &|plan: &mut Plan| plan.trees[0].root = 9,
        &|plan: &mut Plan| (plan.trees[0].root, plan.trees[0].arcs) = (0, vec![(0, 1), (0, 2), (1, 3)]),
        &|plan: &mut Plan| plan.trees[0].arcs[2] = (7, 8),
        &|plan: &mut Plan| plan.trees[0].arcs[2] = plan.trees[0].arcs[0],
    ] as [&dyn Fn(&mut Plan); 7]
    {
        let error = refused(change);
        assert!(matches!(error, VerifyError::Tree { tree: 1, .. }), "{error}");
    }
    for parts in [
        vec![],
        vec![vec![0, 1, 2, 3]],
        vec![vec![0, 1], vec![2]],
        vec![vec![0, 1], vec![1, 2, 3]],
        vec![vec![0, 1], vec![2, 3, 4]],
        vec![vec![0, 1, 2, 3], vec![]],
    ] {
        let error = refused(&|plan| plan.certificate = Certificate::Partition(parts.clone()));
        assert!(matches!(error, VerifyError::Certificate { .. }), "{error}");
    }
    for cut in [vec![], vec![0, 1, 2, 3], vec![0, 9]] {
        let error = refused(&|plan| plan.certificate = Certificate::Cut(cut.clone()));
        assert!(matches!(error, VerifyError::Certificate { .. }), "{error}");
    }
    let error = refused(&|plan| plan.certificate = Certificate::Prices(Vec::new()));
    assert!(matches!(error, VerifyError::Certificate { .. }), "{error}");
}

/// Data of a scatter that goes to another host, and a tree of an all_gather with another root.
#[test]
fn data_that_goes_astray_is_noticed() {
    let cabling = Cabling::mesh(4, 1000);
    let mut plan = scatter(&cabling, 0, &[1; 4]).unwrap();
    let tree = plan.trees.iter_mut().find(|tree| tree.arcs == [(0, 1)]).unwrap();
    tree.arcs = vec![(0, 2)];
    assert!(matches!(verify(&cabling, &plan), Err(VerifyError::Shares { .. })));
    let tree = plan.trees.first_mut().unwrap();
    tree.arcs = vec![(0, 2), (0, 1)];
    assert!(matches!(verify(&cabling, &plan), Err(VerifyError::Tree { tree: 1, .. })));
    let mut plan = all_gather(&cabling, &[1; 4]).unwrap();
    let first = plan.trees[0].clone();
    plan.trees.iter_mut().for_each(|tree| *tree = first.clone());
    assert!(matches!(verify(&cabling, &plan), Err(VerifyError::Shares { .. })));
}

proptest! {
    /// Texts near to a plan: no panic in the parser or the verifier, and a plan that is accepted prints as it parses.
    #[test]
    fn damaged_files_are_refused_or_still_right(
        seed in 0_u64..50,
        which in 0_usize..7,
        place in any::<prop::sample::Index>(),
        replacement in "[a-d0-9/> |\\n-]{0,3}",
        length in 0_usize..4,
    ) {
        let cabling = random_cabling(&mut Numbers(seed), 4, &[1, 2]);
        let mut text: Vec<char> = plans(&cabling)[which].to_string().chars().collect();
        let start = place.index(text.len());
        let end = (start + length).min(text.len());
        text.splice(start..end, replacement.chars());
        let text: String = text.into_iter().collect();
        if let Ok(plan) = text.parse::<Plan>() {
            prop_assert_eq!(plan.to_string().parse(), Ok(plan.clone()));
            if let Ok(excess) = verify(&cabling, &plan) {
                prop_assert!(excess >= Ratio::ONE, "{}", text);
            }
        }
    }
}

#[test]
fn plans_stay_valid_when_latencies_change() {
    let plan = all_reduce(&Cabling::mesh(3, 1000)).unwrap();
    assert_eq!(verify(&Cabling::mesh(3, 1000).with_latency(7000), &plan), Ok(Ratio::ONE));
}
