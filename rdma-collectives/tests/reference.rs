//! The optimum of well-known cablings, computed beforehand by other programs, with a linear program as the oracle
//!
//! Times are in units of the time that one cable takes in one direction for the vector of one host.

use rdma_collectives::{Cable, Cabling, Operation, Ratio, bound, plan, verify};

/// Bytes per second of a cable, the unit.
const RATE: u64 = 1_000_000;

struct Row {
    name: &'static str,
    cabling: Cabling,
    all_reduce: &'static str,
    /// Of all_gather, in relation to what all hosts have together
    all_gather: &'static str,
    broadcast: &'static str,
    all_to_all: &'static str,
    /// Of all_reduce after the worst single unplug, or `split`
    unplugged: &'static str,
}

fn row(name: &'static str, cabling: Cabling, figures: [&'static str; 5]) -> Row {
    let [all_reduce, all_gather, broadcast, all_to_all, unplugged] = figures;
    Row { name, cabling, all_reduce, all_gather, broadcast, all_to_all, unplugged }
}

/// A cabling with cables of these relative rates, in tenths of the unit
fn mixed(hosts: usize, cables: &[(usize, usize, u64)]) -> Cabling {
    let cables: Vec<_> = cables.iter().map(|&(a, b, tenths)| Cable::new(a, b, RATE / 10 * tenths)).collect();
    Cabling::new((0..hosts).map(|host| format!("m{host}")), cables).unwrap()
}

fn table() -> Vec<Row> {
    let mesh = |hosts| Cabling::mesh(hosts, RATE);
    let ring = |hosts| Cabling::ring(hosts, RATE);
    let line = |hosts| Cabling::line(hosts, RATE);
    let chord = Cabling::of_pairs(4, [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)], RATE);
    let bridge = Cabling::of_pairs(6, [(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3), (0, 3)], RATE);
    let slow_mesh = mixed(4, &[(0, 1, 5), (0, 2, 10), (0, 3, 10), (1, 2, 10), (1, 3, 10), (2, 3, 10)]);
    vec![
        row("pair", mesh(2), ["1/1", "1/2", "1/1", "1/2", "split"]),
        row("pair, 2 cables", mixed(2, &[(0, 1, 10), (0, 1, 10)]), ["1/2", "1/4", "1/2", "1/4", "1/1"]),
        row("pair, 80+40", mixed(2, &[(0, 1, 10), (0, 1, 5)]), ["2/3", "1/3", "2/3", "1/3", "2/1"]),
        row("mesh 3", mesh(3), ["2/3", "1/3", "1/2", "1/3", "1/1"]),
        row("mesh 4", mesh(4), ["1/2", "1/4", "1/3", "1/4", "3/5"]),
        row("mesh 5", mesh(5), ["2/5", "1/5", "1/4", "1/5", "4/9"]),
        row("ring 4", ring(4), ["3/4", "3/8", "1/2", "1/2", "1/1"]),
        row("ring 5", ring(5), ["4/5", "2/5", "1/2", "3/5", "1/1"]),
        row("ring 6", ring(6), ["5/6", "5/12", "1/2", "3/4", "1/1"]),
        row("ring 8", ring(8), ["7/8", "7/16", "1/2", "1/1", "1/1"]),
        row("line 3", line(3), ["1/1", "2/3", "1/1", "2/3", "split"]),
        row("line 4", line(4), ["1/1", "3/4", "1/1", "1/1", "split"]),
        row("star 4", Cabling::star(4, RATE), ["1/1", "3/4", "1/1", "3/4", "split"]),
        row("ring 4 + chord", chord, ["3/5", "3/8", "1/2", "3/8", "1/1"]),
        row("prism 6", Cabling::prism(3, RATE), ["5/9", "5/18", "1/3", "1/2", "5/8"]),
        row("K3,3", Cabling::bipartite(3, 3, RATE), ["5/9", "5/18", "1/3", "7/18", "5/8"]),
        row("cube 8", Cabling::hypercube(3, RATE), ["7/12", "7/24", "1/3", "1/2", "7/11"]),
        row("Petersen 10", Cabling::petersen(RATE), ["3/5", "3/10", "1/3", "1/2", "9/14"]),
        row("two triangles + bridge", bridge, ["1/1", "1/2", "1/1", "3/2", "split"]),
        row("mesh 4, one 40 Gb/s cable", slow_mesh, ["6/11", "3/10", "2/5", "3/10", "2/3"]),
        row(
            "triangle 80+80+40",
            mixed(3, &[(0, 1, 10), (1, 2, 10), (2, 0, 5)]),
            ["4/5", "4/9", "2/3", "4/9", "2/1"],
        ),
        row(
            "line 3, first doubled",
            mixed(3, &[(0, 1, 10), (0, 1, 10), (1, 2, 10)]),
            ["1/1", "2/3", "1/1", "2/3", "split"],
        ),
    ]
}

/// The time of a plan that the verifier finds optimal, in units; the bound alone is the same
fn units(cabling: &Cabling, operation: &Operation, payload: u64) -> Ratio {
    let plan = plan(cabling, operation).unwrap();
    assert_eq!(verify(cabling, &plan), Ok(Ratio::ONE), "{plan}");
    let (bound, certificate) = bound(cabling, operation).unwrap();
    assert_eq!((bound, &certificate), (plan.bound, &plan.certificate));
    plan.time.checked_mul(Ratio::new((RATE * payload).into(), 1).unwrap()).unwrap()
}

/// Catches each operation whose optimum is not that of theory: plan and verifier could agree on something else.
#[test]
fn well_known_cablings_have_their_known_optimum() {
    for Row { name, cabling, all_reduce, all_gather, broadcast, all_to_all, unplugged } in table() {
        let hosts = cabling.hosts().len();
        let ones = vec![1; hosts];
        let ratio = |text: &str| text.parse::<Ratio>().unwrap();
        assert_eq!(units(&cabling, &Operation::AllReduce, 1), ratio(all_reduce), "{name}: all_reduce");
        let operation = Operation::AllGather { amounts: ones.clone() };
        assert_eq!(units(&cabling, &operation, 1), ratio(all_gather), "{name}: all_gather");
        let operation = Operation::ReduceScatter { amounts: ones.clone() };
        assert_eq!(units(&cabling, &operation, 1), ratio(all_gather), "{name}: reduce_scatter");
        let broadcasts = (0..hosts).map(|root| units(&cabling, &Operation::Broadcast { root }, 1));
        assert_eq!(broadcasts.max(), Some(ratio(broadcast)), "{name}: broadcast");
        let operation = Operation::AllToAll { amounts: vec![ones; hosts] };
        let payload = hosts as u64;
        assert_eq!(units(&cabling, &operation, payload), ratio(all_to_all), "{name}: all_to_all");
        let without = (0..cabling.cables().len()).map(|cable| cabling.without_cable(cable).unwrap());
        let times: Option<Vec<_>> = without
            .map(|rest| (rest.components().len() == 1).then(|| units(&rest, &Operation::AllReduce, 1)))
            .collect();
        let worst = times.and_then(|times| times.into_iter().max());
        assert_eq!(worst.map_or_else(|| "split".to_owned(), |worst| worst.to_string()), unplugged, "{name}");
    }
}
