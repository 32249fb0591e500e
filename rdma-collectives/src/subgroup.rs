use crate::flow::{Flow, INFINITE};
use crate::large::MAX_EXACT_HOSTS;
use crate::packing::{Packing, Rates};
use crate::rounding::{exact_shares, fine_shares};
use crate::tree::SpanningTree;
use crate::{Cabling, Certificate, Operation, Plan, PlanError, Ratio, Tree, all_reduce};

/// Up to so many partitions are tried for the bound.
const MOST_PARTITIONS: u128 = 300_000;

/// A plan of an all_reduce among some of the hosts, in which others may relay and add up
///
/// The trees span the members and may use relays. They are the best ones that there are, up to rounding, if at most 8 hosts are
/// not members; with more, the relays of each tree are all or none. Bound and time may differ by up to a factor of 2 even
/// so: the bound counts crossings between sets of hosts, and no trees may do with so few.
///
/// # Errors
///
/// [`PlanError::Members`] for fewer than two hosts, unknown ones or one that is there twice; [`PlanError::Disconnected`] if they
/// cannot reach each other; [`PlanError::TooManyHosts`] above [`MAX_EXACT_HOSTS`]; or [`PlanError::Overflow`].
pub fn all_reduce_among(cabling: &Cabling, members: &[usize]) -> Result<Plan, PlanError> {
    let (bound, certificate) = bound(cabling, members)?;
    let operation = Operation::AllReduceAmong { members: members.to_vec() };
    if members.len() == cabling.hosts().len() {
        // Without a choice of relays, there is an exact method, whose trees are fewer.
        return Ok(Plan { operation, bound, certificate, ..all_reduce(cabling)? });
    }
    let rates = Rates::of(cabling);
    let (packed, _) = Packing::new(&rates, members, u128::min).solve();
    let (trees, weights): (Vec<SpanningTree>, Vec<f64>) = packed.into_iter().unzip();
    let rounded = [exact_shares as fn(&[f64]) -> Option<Vec<Ratio>>, fine_shares];
    let plans = rounded.into_iter().filter_map(|round| {
        let shared = trees.iter().zip(round(&weights)?).filter(|(_, share)| *share != Ratio::ZERO);
        let trees: Vec<_> = shared.map(|(tree, share)| lowest(cabling, tree, share)).collect();
        Some((rates.slowest(&trees)?, trees))
    });
    let best = plans.reduce(|best, next| if next.0 < best.0 { next } else { best });
    let (time, trees) = best.ok_or(PlanError::Overflow)?;
    Ok(Plan::new(cabling, operation, [time, bound], certificate, trees))
}

/// The tree with the root that makes it lowest
fn lowest(cabling: &Cabling, tree: &SpanningTree, share: Ratio) -> Tree {
    let latency = |from: usize, to: usize| {
        let between =
            cabling.cables().iter().filter(|cable| cable.ends == [from, to] || cable.ends == [to, from]);
        between.map(|cable| cable.latency_ns).max().unwrap_or_default()
    };
    let rooted = tree.hosts().into_iter().map(|root| {
        let (arcs, height) = tree.rooted(root, latency);
        (height, root, arcs)
    });
    let (_, root, arcs) = rooted.min().unwrap_or_default();
    Tree { share, root, arcs }
}

/// Bytes per second of all cables, each direction by itself, that are counted
fn rate(cabling: &Cabling, counted: impl Fn(usize, usize) -> bool) -> u128 {
    let directions = cabling.cables().iter().flat_map(|cable| {
        let [left, right] = cable.ends;
        [(left, right, cable.rates[0]), (right, left, cable.rates[1])]
    });
    directions.filter(|&(from, to, _)| counted(from, to)).map(|(_, _, rate)| u128::from(rate)).sum()
}

/// Seconds per byte below which no all_reduce among these hosts is, with the proof
pub(crate) fn bound(cabling: &Cabling, members: &[usize]) -> Result<(Ratio, Certificate), PlanError> {
    let without = bound_without_caps(cabling, members)?;
    let rates = Rates::of(cabling);
    if !rates.has_caps() {
        return Ok(without);
    }
    let packing = Packing::new(&rates, members, |there, back| there + back);
    let (_, prices) = packing.solve();
    let bounds = rates.rounded(&packing, &prices).into_iter().filter_map(|prices| {
        let bound = Ratio::new(rates.joined(&prices, members), rates.whole(&prices)?)?;
        Some((bound, Certificate::Prices(prices)))
    });
    Ok(bounds.fold(without, |best, next| if next.0 > best.0 { next } else { best }))
}

fn bound_without_caps(cabling: &Cabling, members: &[usize]) -> Result<(Ratio, Certificate), PlanError> {
    let hosts = cabling.hosts().len();
    if hosts > MAX_EXACT_HOSTS {
        return Err(PlanError::TooManyHosts { hosts, most: MAX_EXACT_HOSTS });
    }
    let unknown = members.iter().any(|&member| member >= hosts);
    let twice = (1..members.len()).any(|index| members[..index].contains(&members[index]));
    if members.len() < 2 || unknown || twice {
        return Err(PlanError::Members { hosts });
    }
    let components = cabling.components();
    let apart = |component: &Vec<usize>| {
        let inside = members.iter().filter(|member| component.contains(member)).count();
        inside > 0 && inside < members.len()
    };
    if components.iter().any(apart) {
        let names = |part: &Vec<usize>| part.iter().map(|&host| cabling.hosts()[host].clone()).collect();
        return Err(PlanError::Disconnected { parts: components.iter().map(names).collect() });
    }
    let mut parts = Parts { cabling, members: members.len(), order: members.to_vec(), best: None };
    parts.order.extend((0..hosts).filter(|host| !members.contains(host)));
    match partitions(members.len(), hosts - members.len()) <= MOST_PARTITIONS {
        true => parts.extend(&mut vec![0; hosts], 0, 0),
        false => return cut_bound(cabling, members),
    }
    let (bound, parts) = parts.best.ok_or(PlanError::Overflow)?;
    Ok((bound, Certificate::Partition(parts)))
}

/// How many partitions there are in which each part has a member
fn partitions(members: usize, relays: usize) -> u128 {
    // By parts, the partitions of the members so far (Stirling numbers of the second kind).
    let mut counts = vec![0_u128; members + 1];
    counts[0] = 1;
    for _ in 0..members {
        for parts in (1..=members).rev() {
            counts[parts] = counts[parts].saturating_mul(parts as u128).saturating_add(counts[parts - 1]);
        }
        counts[0] = 0;
    }
    let relayed = (1..=members).map(|parts| {
        let ways = (0..relays).fold(1_u128, |ways, _| ways.saturating_mul(parts as u128));
        counts[parts].saturating_mul(ways)
    });
    relayed.fold(0, u128::saturating_add)
}

/// The search for the partition with the largest bound
struct Parts<'a> {
    cabling: &'a Cabling,
    members: usize,
    /// The hosts, members first
    order: Vec<usize>,
    best: Option<(Ratio, Vec<Vec<usize>>)>,
}

impl Parts<'_> {
    /// Puts the host at `place` of the order into each of the parts so far, and a member also into one of its own
    fn extend(&mut self, parts: &mut Vec<usize>, place: usize, count: usize) {
        let Some(&host) = self.order.get(place) else {
            return self.consider(parts, count);
        };
        for part in 0..count + usize::from(place < self.members) {
            parts[host] = part;
            self.extend(parts, place + 1, count.max(part + 1));
        }
    }

    fn consider(&mut self, parts: &[usize], count: usize) {
        let crossing = rate(self.cabling, |from, to| parts[from] != parts[to]);
        let bound = Ratio::new(2 * (count as u128 - 1), crossing).filter(|_| count > 1);
        if let Some(bound) = bound
            && self.best.as_ref().is_none_or(|(best, _)| bound > *best)
        {
            let hosts = |part| (0..parts.len()).filter(|&host| parts[host] == part).collect();
            self.best = Some((bound, (0..count).map(hosts).collect()));
        }
    }
}

/// The narrowest way from one member to another
fn cut_bound(cabling: &Cabling, members: &[usize]) -> Result<(Ratio, Certificate), PlanError> {
    let hosts = cabling.hosts().len();
    let first = members[0];
    let ways = members[1..].iter().flat_map(|&other| [(first, other), (other, first)]);
    let cuts = ways.map(|(source, sink)| {
        let mut flow = Flow::new(hosts);
        for cable in cabling.cables() {
            flow.add(cable.ends[0], cable.ends[1], cable.rates[0].into(), cable.rates[1].into());
        }
        let rate = flow.send(source, sink, INFINITE);
        let reached = flow.reached(source);
        (rate, (0..hosts).filter(|&host| reached[host]).collect())
    });
    let (rate, inside) = cuts.min().ok_or(PlanError::Overflow)?;
    Ok((Ratio::new(1, rate).ok_or(PlanError::Overflow)?, Certificate::Cut(inside)))
}
