//! The conformance body alone, and measurements, on devices of other rules and limits

use std::sync::Arc;

use futures::future::join;
use rdma_calibrate::{
    BEHAVIOURS, Behaviour, Calls, Conformance, Machine as _, Options, Verdict, conform, serve,
};
use rdma_core::Caps;
use rdma_sim::profile::Profile;
use rdma_sim::rules::{EarlyReceives, FrameMatch, QueueGrant, QueueUnit, RingOverflow};
use rdma_sim::{Model, Sim, Timing};

use crate::devices::Cables;
use crate::figures::assert_within;
use crate::mac::{Ended, Mac, calibrated, ended, on_host};

/// The verdicts of the body on two Macs of `model`; no object is left
fn conformed(model: Model) -> Conformance {
    let sim = Sim::new().model(model).sanitize(true);
    let run = sim.run(async |net| {
        let (asks, answers) = net.tcp();
        let [a, b] = ["a", "b"].map(|host| Mac(net.clone(), host));
        let asked = on_host(&net, "a", async move {
            let calls = Arc::new(Calls::new(a.runtime()));
            conform(&a, asks, &Options::default(), &calls).await
        });
        join(asked, on_host(&net, "b", async move { serve(&b, answers).await })).await
    });
    assert!(run.leaks.is_empty(), "{}", run.leaks);
    run.value.0.unwrap_or_else(|error| panic!("{error}"))
}

fn failed(behaviours: &[Behaviour]) -> Vec<&Behaviour> {
    behaviours.iter().filter(|behaviour| matches!(behaviour.verdict, Verdict::Failed(_))).collect()
}

fn skipped<'a>(behaviours: &'a [Behaviour], reason: &str) -> Vec<&'a str> {
    let is_it = |verdict: &Verdict| matches!(verdict, Verdict::Skipped(why) if why.contains(reason));
    behaviours.iter().filter(|behaviour| is_it(&behaviour.verdict)).map(|behaviour| behaviour.name).collect()
}

/// A device with the rules of the simulator, but for these
fn ruled(change: impl FnOnce(&mut Model)) -> Model {
    let mut model = Model::tb5();
    change(&mut model);
    model
}

/// Regression: without a calibration, the body expected the rules of the simulator of every device, and overfilled queues of devices that damage
/// data then.
///
/// Catches an expectation that does not follow from the rules of the device.
#[test]
fn the_body_alone_finds_the_rules_by_which_it_judges() {
    let strict = Profile::named("tb5-strict").unwrap().model;
    for model in [
        ruled(|model| model.rules.ring_overflow = RingOverflow::Corrupts),
        ruled(|model| model.rules.early_receives = EarlyReceives::FromReadyToSend),
        ruled(|model| model.rules.early_receives = EarlyReceives::FromReadyToReceive),
        ruled(|model| model.rules.frame_match = FrameMatch::Fits),
        ruled(|model| model.rules.queue_unit = QueueUnit::Requests),
        ruled(|model| model.caps.send_waits_for_receive = false),
        strict,
    ] {
        let rules = format!("{:?}", model.rules);
        let overflows = model.rules.ring_overflow == RingOverflow::Corrupts;
        let found = conformed(model);
        assert_eq!(found.ended, None, "{rules}");
        assert_eq!(found.behaviours.len(), BEHAVIOURS.len());
        assert_eq!(failed(&found.behaviours), Vec::<&Behaviour>::new(), "{rules}");
        let unfilled = skipped(&found.behaviours, "a full queue accepts more");
        assert_eq!(!unfilled.is_empty(), overflows, "{unfilled:?}");
        assert_eq!(skipped(&found.behaviours, "is not known"), [""; 0]);
    }
}

/// A device with these limits
fn limited(change: impl FnOnce(&mut Caps)) -> Model {
    ruled(|model| change(&mut model.caps))
}

/// Regression: a device with one queue pair was said to break four rules, because no behaviour looked at its limits.
///
/// Catches a behaviour that needs more than the device has and counts as lacking, in the body alone and in a calibration.
#[test]
fn no_behaviour_fails_for_the_limits_of_the_device() {
    let devices = [
        ("max_qp", limited(|caps| caps.max_qp = 1)),
        ("max_cq", limited(|caps| caps.max_cq = 1)),
        ("max_mr", limited(|caps| caps.max_mr = 1)),
        ("max_pd", limited(|caps| caps.max_pd = 1)),
        ("max_pd", limited(|caps| caps.max_pd = 2)),
        ("max_queue_frames", limited(|caps| caps.max_queue_frames = 255)),
        ("max_queue_frames", limited(|caps| caps.max_queue_frames = 15)),
        ("max_queue_frames", limited(|caps| caps.max_queue_frames = 2)),
        ("max_cqe", limited(|caps| caps.max_cqe = 16)),
        ("max_message", limited(|caps| caps.max_message = 4096)),
        ("queue_grant", ruled(|model| model.rules.queue_grant = QueueGrant::Fixed(15))),
    ];
    for (limit, model) in devices {
        let limit = format!("{limit}: {:?}", model.caps);
        let alone = conformed(model.clone()).behaviours;
        assert_eq!(failed(&alone), Vec::<&Behaviour>::new(), "{limit}");
        // Some do not carry out every other experiment; such a stage stops.
        let Ok(found) = calibrated(model, 1, Options::default()).asked else { continue };
        assert_eq!(failed(&found.behaviours), Vec::<&Behaviour>::new(), "{limit}");
        let broken: Vec<_> = found.rules.iter().filter(|rule| rule.instead.is_some()).collect();
        assert!(broken.is_empty(), "{limit}: {broken:?}");
    }
}

/// Catches a behaviour that is left out although the device has what it needs.
#[test]
fn a_device_that_has_what_each_behaviour_needs_leaves_none_out() {
    let enough = limited(|caps| {
        (caps.max_qp, caps.max_cq, caps.max_mr, caps.max_pd) = (2, 2, 2, 3);
    });
    let found = conformed(enough).behaviours;
    assert_eq!(failed(&found), Vec::<&Behaviour>::new());
    assert_eq!(skipped(&found, "at once"), [""; 0]);
    let one = conformed(limited(|caps| caps.max_qp = 1)).behaviours;
    let without = skipped(&one, "it needs 2 queue pairs at once, and the device has 1");
    assert!(without.contains(&"two_queue_pairs_do_not_mix") && without.len() == 6, "{without:?}");
}

/// Regression: experiments posted 128 and 160 frames at once, also where a queue holds fewer, and left all times of such a device undecided.
///
/// Catches an experiment of a time that needs a longer queue than the device has.
#[test]
fn times_are_measured_with_short_queues() {
    let limits =
        [2, 3, 4, 7, 15, 31, 64, 100, 127].map(|frames| limited(|caps| caps.max_queue_frames = frames));
    let grants = [16, 100].map(|frames| ruled(|model| model.rules.queue_grant = QueueGrant::Fixed(frames)));
    for mut model in limits.into_iter().chain(grants) {
        // None of the base.
        (model.timing.frame_ns, model.timing.per_message_ns, model.timing.doorbell_ns) = (700, 140, 2_000);
        let device = format!("{:?}, {:?}", model.caps, model.rules.queue_grant);
        let truth = model.timing.clone();
        let found = calibrated(model, 1, Options::default()).asked.unwrap();
        assert_eq!(found.stopped, [], "{device}");
        assert!(found.profile.model.timing.line_rate, "{device}");
        let times = |t: &Timing| {
            let way = t.doorbell_ns + t.propagation_ns + t.delivery_ns;
            [way, t.frame_ns, t.per_message_ns].map(|ns| ns as f64)
        };
        for (truth, found) in times(&truth).into_iter().zip(times(&found.profile.model.timing)) {
            assert_within(&device, truth, found);
        }
    }
}

/// Regression: the receives that test how many a queue takes named one part of the memory, which a device may write in any order.
///
/// Catches a request of a calibration over memory that another one may still name.
#[test]
fn no_request_names_the_memory_of_another_one() {
    let short = limited(|caps| caps.max_queue_frames = 7);
    let loses = ruled(|model| model.caps.send_waits_for_receive = false);
    let profiles = ["tb5", "tb5-strict", "roce"].map(|name| Profile::named(name).unwrap().model);
    for model in profiles.into_iter().chain([short, loses]) {
        let device = format!("{:?}", model.rules);
        let Ended { asked, served, misuse, .. } =
            ended(Cables::ONE, Sim::new().model(model).sanitize(true), Options::default());
        served.unwrap();
        assert_eq!(asked.unwrap().stopped, [], "{device}");
        assert!(misuse.is_empty(), "{misuse:?}, {device}");
    }
}
