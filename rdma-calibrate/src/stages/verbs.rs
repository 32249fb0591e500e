//! Times of the verbs of set-up and teardown
//!
//! The model has one constant for several verbs. It becomes the mean of those, so that setting up and tearing down a connection takes as
//! long as it did; the page has each verb.

use rdma_core::{CompletionQueue as _, Device as _, FRAME, QpInit, QueuePair as _, Transition};
use rdma_sim::profile::Decided;

use super::samples::median;
use crate::Findings;
use crate::error::CalibrateError;
use crate::lab::Lab;
use crate::machine::Path;
use crate::memory::Memory;

const ROUNDS: usize = 9;
/// The unit in which memory is registered, and the many pages of a large region.
const PAGE: usize = 16 << 10;
const PAGES: usize = 512;

/// The fields that it decides.
const FIELDS: [&str; 6] = [
    "timing.open_ns",
    "timing.create_ns",
    "timing.register_ns",
    "timing.register_page_ns",
    "timing.modify_ns",
    "timing.teardown_ns",
];
/// The names of the timed verbs on the page, in the order of [`Round`].
const VERBS: [&str; 12] = [
    "opening the device, median",
    "creation of a completion queue, median",
    "creation of a queue pair and transition to INIT, median",
    "transition to RTR, median",
    "transition to RTS, median",
    "registration of 16 KiB, median",
    "registration of 8 MiB, median",
    "deregistration of 16 KiB, median",
    "deregistration of 8 MiB, median",
    "destruction of a queue pair, median",
    "destruction of a completion queue, median",
    "closing the device, median",
];

/// The time of each of [`VERBS`], in nanoseconds
type Round = [f64; VERBS.len()];

pub(super) async fn run(lab: &mut Lab<'_>) -> Result<(), CalibrateError> {
    let mut rounds = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        rounds.push(round(lab).await?);
    }
    let took: Round = std::array::from_fn(|verb| {
        let mut times: Vec<_> = rounds.iter().map(|round| round[verb]).collect();
        median(&mut times)
    });
    for (what, ns) in VERBS.into_iter().zip(took) {
        lab.findings.figure(what, format_args!("{:.3} µs", ns / 1000.0));
    }
    let takes_time = took.iter().any(|ns| *ns > 0.0);
    lab.findings.decide("timing.verbs_take_time", takes_time);
    if !takes_time {
        for field in FIELDS {
            lab.findings.leave(field, "the clock did not move during the verbs");
        }
        return Ok(());
    }
    enter(&mut lab.findings, &took);
    Ok(())
}

fn enter(findings: &mut Findings, took: &Round) {
    for (field, ns) in FIELDS.into_iter().zip(constants(took)) {
        match ns {
            Some(ns) => findings.decide(field, ns.round() as u64),
            None => findings.leave(field, "no such time follows from those of the verbs; the page has each"),
        }
    }
    for field in ["timing.create_ns", "timing.modify_ns", "timing.teardown_ns"] {
        if findings.profile.decided(field) == Some(Decided::Measured) {
            findings.profile.remark(field, "the mean of several verbs; the page has each");
        }
    }
}

/// The constants of the model, in the order of [`FIELDS`]
///
/// A difference of verbs is `None` if it is no time of a verb: it is zero or negative, by noise or by a device that the model does not fit.
fn constants(took: &Round) -> [Option<f64>; FIELDS.len()] {
    let [open, cq, qp, rtr, rts, small, large, dereg, _, destroy_qp, destroy_cq, close] = *took;
    let modify = (rtr + rts) / 2.0;
    // Pages may take no time.
    let page = Some((large - small) / (PAGES - 1) as f64).filter(|ns| *ns >= 0.0);
    let register = page.map(|page| small - page).filter(|ns| *ns > 0.0);
    // A queue pair is created and set to INIT.
    let create = Some((cq + qp - modify) / 2.0).filter(|ns| *ns > 0.0);
    let teardown = (dereg + destroy_qp + destroy_cq + close) / 4.0;
    [Some(open), create, register, page, Some(modify), Some(teardown)]
}

/// Makes, connects and destroys one of everything
async fn round(lab: &mut Lab<'_>) -> Result<Round, CalibrateError> {
    // An address to connect to: the queue pair of the peer need not be connected for it.
    let frames = lab.device.caps().max_queue_frames.min(64);
    let peer = lab.make(0, frames, FRAME).await?;
    let (device, open) = lab.time(|| lab.open(Path::default())).await;
    let device = device?;
    let (cq, create_cq) = lab.time(|| device.create_cq(64)).await;
    let cq = cq?;
    let init = QpInit::with_frames(frames);
    let (qp, create_qp) = lab.time(|| cq.create_qp(&init)).await;
    let mut qp = qp?;
    let (changed, rtr) = lab.time(|| qp.modify(Transition::ReadyToReceive { peer })).await;
    changed?;
    let (changed, rts) = lab.time(|| qp.modify(Transition::ReadyToSend)).await;
    changed?;
    let mut small = Memory::mapped(PAGE)?;
    let (registered, register_small) = lab.time(|| small.register_all(&device)).await;
    registered?;
    lab.keep_alive().await?;
    let mut large = Memory::mapped(PAGES * PAGE)?;
    let (registered, register_large) = lab.time(|| large.register_all(&device)).await;
    registered?;
    let (_, destroy_qp) = lab.time(|| qp.destroy()).await;
    let (_, deregister_small) = lab.time(|| small.deregister()).await;
    let (_, deregister_large) = lab.time(|| large.deregister()).await;
    drop((qp, small, large));
    let ((), destroy_cq) = lab.time(|| drop(cq)).await;
    let ((), close) = lab.time(|| drop(device)).await;
    let took = [
        open,
        create_cq,
        create_qp,
        rtr,
        rts,
        register_small,
        register_large,
        deregister_small,
        deregister_large,
        destroy_qp,
        destroy_cq,
        close,
    ];
    Ok(took.map(|time| time.as_nanos() as f64))
}

#[cfg(test)]
mod tests {
    use rdma_core::{PortState, PortStatus};

    use super::*;

    /// A real device has a time for each verb: a connection takes as long with the constants as it did.
    #[test]
    fn the_constants_add_up_to_what_a_connection_took() {
        let took = [90.0, 30.0, 70.0, 50.0, 10.0, 25.0, 25.0 + 511.0 * 2.0, 4.0, 100.0, 6.0, 8.0, 2.0];
        let [open, create, register, page, modify, teardown] = constants(&took).map(Option::unwrap);
        assert_eq!(open + 2.0 * create + 3.0 * modify, 90.0 + 30.0 + 70.0 + 50.0 + 10.0);
        assert_eq!(4.0 * teardown, 4.0 + 6.0 + 8.0 + 2.0);
        assert_eq!([register + page, register + 512.0 * page], [25.0, 25.0 + 511.0 * 2.0]);
    }

    /// Regression: a difference that noise had made negative was entered as 0 ns, measured.
    ///
    /// Catches a difference that is zero or negative and counts as a time, and pages that take no time and are left undecided.
    #[test]
    fn a_difference_of_verbs_that_is_no_time_is_left_undecided() {
        let found = |took: Round| {
            let mut findings = Findings::new("rdma_en2", PortStatus::new(PortState::Active, 80_000_000_000));
            enter(&mut findings, &took);
            let is_left = |field: &&str| findings.profile.decided(field) == Some(Decided::Undecided);
            let left: Vec<_> = FIELDS.into_iter().filter(is_left).collect();
            assert!(
                left.iter().all(|field| findings.profile.why(field).unwrap().starts_with("no such time"))
            );
            left
        };
        let took = [90.0, 30.0, 70.0, 50.0, 10.0, 25.0, 25.0, 4.0, 100.0, 6.0, 8.0, 2.0];
        let with = |verb: usize, ns| {
            let mut changed = took;
            changed[verb] = ns;
            changed
        };
        assert_eq!(found(took), [""; 0], "pages take no time");
        assert_eq!(found(with(3, 190.0)), ["timing.create_ns"], "it would be zero");
        assert_eq!(found(with(3, 400.0)), ["timing.create_ns"]);
        assert_eq!(found(with(6, 24.0)), ["timing.register_ns", "timing.register_page_ns"]);
        assert_eq!(found(with(6, 25.0 * 513.0)), ["timing.register_ns"]);
    }
}
