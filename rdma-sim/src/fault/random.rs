//! Faults that [`Choices`] pick

use std::time::Duration;

use rdma_core::Time;

use super::kind::{FaultKind, TargetKind};
use super::plan::{Fault, FaultPlan, Target, Trigger};
use crate::choices::Choices;
use crate::topology::Topology;

/// The most faults that are drawn for one plan: more would take the memory of the machine
const MOST: u32 = 10_000;
/// In which time faults begin, unless it is known how long a run takes
const HORIZON: Duration = Duration::from_millis(10);
/// How far from a moment with traffic a fault may begin, before and behind it together: about a round trip
const NEAR_NS: u32 = 20_000;
/// How many frames a fault waits for at most, if it is not known how many a run has
const MOST_FRAMES: u64 = 256;
/// How long an outage may be that outlasts the timeouts of programs
const LONG: Duration = Duration::from_secs(10);

/// Which faults are drawn, how many, where and when
///
/// ```
/// use std::time::Duration;
///
/// use rdma_sim::{FaultKind, RandomFaults, Seeded, Topology};
///
/// let topology = Topology::pair();
/// let faults = RandomFaults::up_to(5).kinds([FaultKind::Unplug, FaultKind::Kill]).within(Duration::from_millis(10));
/// let plan = |seed| faults.draw(&mut Seeded::new(seed), &topology);
/// assert_eq!(plan(7), plan(7));
/// assert_eq!(plan(7).check(&topology), Ok(()));
/// ```
///
/// * **Kinds**: those that a session is expected to notice or to survive, unless [named](Self::kinds): `corrupt`, `delay`, `flap`,
///   `idle-death`, `kill`, `leak-pds`, `lose`, `pause`, `sleep`, `slow`, `unplug` and `unresolvable`. Half of the plans draw from a random
///   subset of them only (swarm testing: A. Groce et al., ISSTA 2012).
/// * **Ends**: a fault that lasts is followed by the one that ends it, such as `unplug` by `replug`: 1 µs to a quarter of the horizon later,
///   and now and then up to 10 s, for longer than a program waits.
/// * **Moments**: half of the faults begin at any time, a quarter near the traffic, and a quarter after a number of frames of the port, or of
///   the first cabled port of the host. Near is within 10 µs of a moment at which the first run of a [`check`](crate::check()), the plain one, has
///   completed a request: a run of another schedule may be up to milliseconds away from there, so that only those that count frames fire
///   amid its traffic. Their number is at most as large as that of the frames of the plain run, or 256 if there was none, and each order of
///   magnitude is as likely as the others.
/// * A fault that another one ends counts frames only under [`Check::liveness`](crate::Check::liveness), and then lasts until all faults
///   end: no fault can be written that follows another one which counts frames. Otherwise it begins near the traffic, as do faults of ports
///   that have sent nothing in the plain run; without moments, at any time.
#[derive(Clone, Debug, Eq, PartialEq)]
#[must_use = "nothing is drawn before `draw`, or `Check::random_faults`"]
pub struct RandomFaults {
    most: u32,
    kinds: Vec<FaultKind>,
    targets: Vec<Target>,
    horizon: Option<Duration>,
    /// Where the traffic of the test is, if that was measured
    traffic: Option<Traffic>,
    /// Whether the check ends all faults at last, also those that no other fault of the plan ends
    is_calmed: bool,
}

/// Where the traffic of a run is
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Traffic {
    /// Moments with traffic
    pub(crate) moments: Vec<Time>,
    /// How many frames each cabled port has sent
    pub(crate) frames: Vec<(Target, u64)>,
}

impl Traffic {
    /// How many frames a fault at `target` can wait for
    fn frames_of(&self, target: &Target) -> u64 {
        let found = self.frames.iter().find(|(port, _)| match target {
            Target::Host(host) => port.host() == host,
            Target::Port { .. } => port == target,
        });
        found.map_or(0, |(_, frames)| *frames)
    }
}

/// A host or port at which faults may happen
#[derive(Clone, Copy)]
struct FaultSite<'a> {
    host: &'a str,
    device: Option<&'a str>,
}

impl RandomFaults {
    /// Up to `most` faults in a run; more than 10,000 are as 10,000
    pub fn up_to(most: u32) -> Self {
        Self { most, kinds: Vec::new(), targets: Vec::new(), horizon: None, traffic: None, is_calmed: false }
    }

    /// Draws from these faults, with the arguments that they have here
    pub fn kinds(self, kinds: impl IntoIterator<Item = FaultKind>) -> Self {
        Self { kinds: kinds.into_iter().collect(), ..self }
    }

    /// Draws from these hosts, with their ports, and these ports
    pub fn at<T: Into<Target>>(self, targets: impl IntoIterator<Item = T>) -> Self {
        Self { targets: targets.into_iter().map(Into::into).collect(), ..self }
    }

    /// Begins all faults in the first `horizon` of a run, but for those that count frames
    ///
    /// Otherwise in the time that the first run of a check takes, or within 10 ms.
    pub fn within(self, horizon: Duration) -> Self {
        Self { horizon: Some(horizon), ..self }
    }

    /// Begins half of the faults where this traffic is, and all that begin at a time within `end`, unless it is [given](Self::within)
    pub(crate) fn around(&mut self, mut traffic: Traffic, end: Time) {
        let horizon = Time::ZERO + *self.horizon.get_or_insert_with(|| end.since(Time::ZERO));
        traffic.moments.retain(|moment| *moment <= horizon);
        self.traffic = Some(traffic);
    }

    /// Draws also faults that last and wait for frames: all end at last
    pub(crate) fn calmed(self, is_calmed: bool) -> Self {
        Self { is_calmed, ..self }
    }

    /// Draws a plan for a simulation of `topology`
    ///
    /// Faults that end others are beside the number that was asked for.
    pub fn draw(&self, choices: &mut dyn Choices, topology: &Topology) -> FaultPlan {
        let places = self.places(topology);
        let kinds = self.draw_kinds(choices);
        if places.is_empty() {
            return FaultPlan::none();
        }
        let count = choices.pick(self.most.min(MOST) + 1);
        let faults = (0..count).flat_map(|_| self.draw_fault(choices, &places, &kinds).into_iter().flatten());
        FaultPlan::sorted(faults.collect())
    }

    /// In which time faults begin, if it is known
    pub(crate) fn horizon(&self) -> Option<Duration> {
        self.horizon
    }

    /// How many faults are drawn at most
    pub(crate) fn most(&self) -> usize {
        self.most.min(MOST) as usize
    }

    /// Whether this could draw the faults of `plan`, whatever their times and numbers of frames are
    pub(crate) fn draws(&self, plan: &FaultPlan, topology: &Topology) -> bool {
        let places = self.places(topology);
        let is_drawn = |fault: &Fault| {
            let is_there = places.iter().any(|place| match &fault.target {
                Target::Host(host) => place.host == host,
                Target::Port { host, device } => place.host == host && place.device == Some(device),
            });
            is_there && self.draws_kind(&fault.kind)
        };
        let groups = plan.groups();
        // What ends a fault is drawn with it.
        groups.len() <= self.most() && groups.iter().all(|group| is_drawn(&plan.0[group[0]]))
    }

    fn draws_kind(&self, kind: &FaultKind) -> bool {
        match &self.kinds[..] {
            [] => (0..DEFAULTS).any(|number| default_kind(number, 1, Duration::ZERO).name() == kind.name()),
            kinds => kinds.contains(kind),
        }
    }

    /// Draws a fault, and the one that ends it
    #[cfg(any(feature = "proptest", feature = "arbitrary"))]
    pub(super) fn draw_one(
        &self,
        choices: &mut dyn Choices,
        topology: &Topology,
    ) -> impl Iterator<Item = Fault> {
        let (places, kinds) = (self.places(topology), self.all_kinds().collect::<Vec<_>>());
        let found = if places.is_empty() { [None, None] } else { self.draw_fault(choices, &places, &kinds) };
        found.into_iter().flatten()
    }

    /// The cabled ports and the hosts that may be hit
    fn places<'a>(&'a self, topology: &'a Topology) -> Vec<FaultSite<'a>> {
        let ends = topology.links().flat_map(|link| link.ends);
        let cabled = ends.map(|end| FaultSite { host: end.host, device: Some(end.device) });
        if self.targets.is_empty() {
            return cabled.collect();
        }
        let is_in = |place: &FaultSite<'_>, target: &Target| match target {
            Target::Host(host) => place.host == host,
            Target::Port { host, device } => place.host == host && place.device == Some(device),
        };
        let found = cabled.filter(|place| self.targets.iter().any(|target| is_in(place, target)));
        let hosts = self.targets.iter().filter_map(|target| match target {
            Target::Host(host) => Some(FaultSite { host, device: None }),
            Target::Port { .. } => None,
        });
        // A port that has no cable or does not exist is drawn, too: the plan is then refused, rather than empty.
        let others = self.targets.iter().filter_map(|target| match target {
            Target::Port { host, device }
                if !topology
                    .links()
                    .any(|link| link.ends.iter().any(|end| end.host == host && end.device == device)) =>
            {
                Some(FaultSite { host, device: Some(device) })
            }
            _ => None,
        });
        found.chain(hosts).chain(others).collect()
    }

    fn all_kinds(&self) -> std::ops::Range<u32> {
        0..if self.kinds.is_empty() { DEFAULTS } else { self.kinds.len() as u32 }
    }

    /// The kinds of one plan, by number
    fn draw_kinds(&self, choices: &mut dyn Choices) -> Vec<u32> {
        let all = self.all_kinds();
        if choices.pick(2) == 0 {
            return all.collect();
        }
        let some: Vec<_> = all.clone().filter(|_| choices.pick(2) == 0).collect();
        if some.is_empty() { all.collect() } else { some }
    }

    /// A fault, and the fault that ends its effect if nothing else does
    fn draw_fault(
        &self,
        choices: &mut dyn Choices,
        places: &[FaultSite<'_>],
        kinds: &[u32],
    ) -> [Option<Fault>; 2] {
        let horizon = self.horizon.unwrap_or(HORIZON);
        let FaultSite { host, device } = places[choices.pick(places.len() as u32) as usize];
        let number = kinds[choices.pick(kinds.len() as u32) as usize];
        let lasting = draw_duration(choices, horizon);
        let amount = choices.pick(8) + 1;
        let kind = match self.kinds.get(number as usize) {
            Some(kind) => kind.clone(),
            None => default_kind(number, amount, lasting),
        };
        let target = match (kind.target(), device) {
            (TargetKind::Port, Some(device)) => {
                Target::Port { host: host.to_owned(), device: device.to_owned() }
            }
            (TargetKind::Port, None) => return [None, None],
            (TargetKind::Host, _) => Target::Host(host.to_owned()),
        };
        let end = kind.end();
        let can_count = end.is_none() || self.is_calmed;
        match self.draw_trigger(choices, &target, can_count, horizon) {
            Trigger::At(start) => {
                let trigger = Trigger::At(start + lasting);
                let end = end.map(|kind| Fault { trigger, target: target.clone(), kind });
                [Some(Fault { trigger: Trigger::At(start), target, kind }), end]
            }
            trigger => [Some(Fault { trigger, target, kind }), None],
        }
    }

    /// When a fault at `target` begins, which may wait for frames if it `can_count` them
    fn draw_trigger(
        &self,
        choices: &mut dyn Choices,
        target: &Target,
        can_count: bool,
        horizon: Duration,
    ) -> Trigger {
        let manner = choices.pick(4);
        let frames = self.traffic.as_ref().map_or(MOST_FRAMES, |traffic| traffic.frames_of(target));
        if manner == 3 && can_count && frames > 0 {
            return Trigger::AfterFrames(draw_frames(choices, frames));
        }
        let moments = self.traffic.as_ref().map_or(&[][..], |traffic| &traffic.moments);
        if manner < 2 || moments.is_empty() {
            return Trigger::At(Time::ZERO + Duration::from_micros(choices.pick(micros(horizon)).into()));
        }
        let moment = moments[choices.pick(moments.len() as u32) as usize];
        let near = moment + Duration::from_nanos(choices.pick(NEAR_NS).into());
        let near = Time::from_nanos(near.as_nanos().saturating_sub(u64::from(NEAR_NS / 2)));
        Trigger::At(near.min(Time::ZERO + horizon))
    }
}

/// How many kinds [`default_kind`] knows
const DEFAULTS: u32 = 12;

fn default_kind(number: u32, amount: u32, lasting: Duration) -> FaultKind {
    match number {
        0 => FaultKind::Flap { down: lasting },
        1 => FaultKind::Unplug,
        2 => FaultKind::Lose { frames: amount },
        3 => FaultKind::Corrupt { frames: amount },
        4 => FaultKind::Slow { percent: amount * 10 },
        5 => FaultKind::Delay { by: lasting / 16 },
        6 => FaultKind::Pause,
        7 => FaultKind::Kill,
        8 => FaultKind::IdleDeath,
        9 => FaultKind::Sleep,
        10 => FaultKind::LeakPds { count: amount },
        _ => FaultKind::Unresolvable,
    }
}

fn micros(duration: Duration) -> u32 {
    u32::try_from(duration.as_micros()).unwrap_or(u32::MAX)
}

/// How long a fault lasts: each order of magnitude from a microsecond up is as likely as the others
fn draw_duration(choices: &mut dyn Choices, horizon: Duration) -> Duration {
    let longest = micros(if choices.pick(8) == 7 { LONG } else { horizon / 4 }).max(1);
    let scale = 1 << choices.pick(longest.ilog2() + 1);
    Duration::from_micros(u64::from(scale) + u64::from(choices.pick(scale)))
}

/// A number of frames up to `most`, which is not zero: each order of magnitude is as likely as the others
fn draw_frames(choices: &mut dyn Choices, most: u64) -> u64 {
    let scale = 1 << choices.pick(most.ilog2() + 1);
    let rest = (most - scale).saturating_add(1).min(scale);
    scale + u64::from(choices.pick(u32::try_from(rest).unwrap_or(u32::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Seeded;

    fn plan(faults: &RandomFaults, seed: u64) -> FaultPlan {
        faults.draw(&mut Seeded::new(seed), &Topology::pair())
    }

    /// Regression: the largest count overflowed, and the next ones took the memory of the machine.
    #[test]
    fn however_many_faults_are_asked_for_a_plan_is_made() {
        for seed in 0..5 {
            let most = plan(&RandomFaults::up_to(u32::MAX), seed);
            assert_eq!(most, plan(&RandomFaults::up_to(10_000), seed));
            assert!(most.0.len() <= 20_000);
        }
    }

    #[test]
    fn only_the_kinds_and_targets_that_were_named_are_drawn() {
        let faults = RandomFaults::up_to(9).kinds([FaultKind::Kill, FaultKind::Unplug]).at(["b"]);
        let mut names = std::collections::BTreeSet::new();
        for seed in 0..100 {
            for fault in plan(&faults, seed).0 {
                assert_eq!(fault.target.host(), "b", "{fault}");
                names.insert(fault.kind.name());
            }
        }
        assert_eq!(names.into_iter().collect::<Vec<_>>(), ["kill", "replug", "restart", "unplug"]);
        let port = RandomFaults::up_to(9).kinds([FaultKind::Unplug]).at(["a:rdma_en2"]);
        assert!(
            (0..20)
                .all(|seed| plan(&port, seed).0.iter().all(|fault| fault.target.to_string() == "a:rdma_en2"))
        );
    }

    #[test]
    fn half_of_the_faults_begin_where_the_traffic_is() {
        let mut faults = RandomFaults::up_to(20).kinds([FaultKind::Unplug]);
        let moment = Time::from_nanos(5_000_000);
        let traffic = Traffic { moments: vec![moment], frames: Vec::new() };
        faults.around(traffic, Time::from_nanos(1_000_000_000));
        let drawn: Vec<_> = (0..100).flat_map(|seed| plan(&faults, seed).0).collect();
        let drawn: Vec<_> = drawn.into_iter().filter(|fault| fault.kind == FaultKind::Unplug).collect();
        let is_near = |fault: &&Fault| match fault.trigger {
            Trigger::At(time) => time.as_nanos().abs_diff(moment.as_nanos()) <= u64::from(NEAR_NS / 2),
            Trigger::AfterFrames(_) => false,
        };
        let near = drawn.iter().filter(is_near).count();
        assert!((45..55).contains(&(100 * near / drawn.len())), "{near} of {}", drawn.len());
    }

    /// Catches numbers that are all small, numbers above that of the frames which are sent, and faults that wait for frames which never come.
    #[test]
    fn a_quarter_of_the_faults_wait_for_as_many_frames_as_are_sent() {
        let port = |host: &str| Target::Port { host: host.to_owned(), device: "rdma_en2".to_owned() };
        let traffic = Traffic { moments: vec![Time::ZERO], frames: vec![(port("a"), 1000), (port("b"), 0)] };
        let kinds = [FaultKind::IdleDeath, FaultKind::Kill, FaultKind::Reboot { down: HORIZON }];
        for is_calmed in [false, true] {
            let mut faults = RandomFaults::up_to(20).kinds(kinds.clone()).calmed(is_calmed);
            faults.around(traffic.clone(), Time::from_nanos(1_000_000));
            let drawn: Vec<_> = (0..4000).flat_map(|seed| plan(&faults, seed).0).collect();
            for kind in &kinds {
                let of_kind = drawn.iter().filter(|fault| fault.kind == *kind && fault.target.host() == "a");
                let counted = of_kind.clone().filter_map(|fault| match fault.trigger {
                    Trigger::AfterFrames(frames) => Some(frames),
                    Trigger::At(_) => None,
                });
                let counted: Vec<_> = counted.collect();
                let expected = if *kind != FaultKind::Kill || is_calmed { 22..28 } else { 0..1 };
                let percent = 100 * counted.len() / of_kind.count();
                assert!(expected.contains(&percent), "{percent} % of {kind} wait for frames");
                for (least, most) in (0..10).map(|bits| (1 << bits, (2 << bits) - 1)) {
                    let share = counted.iter().filter(|frames| (least..=most).contains(*frames)).count();
                    let percent = 100 * share / counted.len().max(1);
                    assert!(
                        counted.is_empty() || (7..13).contains(&percent),
                        "{percent} % of {least} to {most}"
                    );
                }
                assert!(counted.iter().all(|frames| *frames <= 1000));
            }
            let of_b = drawn.iter().filter(|fault| fault.target.host() == "b");
            assert!(of_b.clone().count() > 1000, "{} faults", of_b.count());
            let counts = |fault: &Fault| matches!(fault.trigger, Trigger::AfterFrames(_));
            assert!(
                !drawn.iter().any(|fault| fault.target.host() == "b" && counts(fault)),
                "b sends nothing"
            );
        }
    }

    /// Catches kinds, targets and numbers of faults that are not compared, and faults that are drawn and not recognised.
    #[test]
    fn faults_that_were_drawn_are_recognised_and_others_are_not() {
        let topology = Topology::pair();
        let kinds = [FaultKind::Unplug, FaultKind::Lose { frames: 2 }];
        let some = RandomFaults::up_to(2).kinds(kinds).at(["b"]);
        for seed in 0..200 {
            for faults in [&RandomFaults::up_to(4), &some] {
                let drawn = plan(faults, seed);
                assert!(faults.draws(&drawn, &topology), "{drawn}");
            }
        }
        let draws = |text: &str| some.draws(&text.parse().unwrap(), &topology);
        assert!(draws("at 1s b:rdma_en2 lose 2; at 2s b:rdma_en2 unplug"));
        assert!(draws(
            "after 900 frames b:rdma_en2 lose 2; at 2s b:rdma_en2 unplug; at 3s b:rdma_en2 replug"
        ));
        assert!(!draws("at 1s a:rdma_en2 lose 2"), "another host");
        assert!(!draws("at 1s b:rdma_en2 lose 3"), "another argument");
        assert!(!draws("at 1s b kill"), "another kind");
        let three = ["at 1s b:rdma_en2 lose 2"; 3].join("; ");
        assert!(!draws(&three), "too many");
    }
}
