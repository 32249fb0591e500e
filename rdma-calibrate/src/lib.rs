#![doc = include_str!("../README.md")]

mod calls;
mod conformance;
mod control;
mod error;
mod findings;
mod flow;
mod lab;
mod machine;
#[allow(unsafe_code, reason = "registering needs a promise about the memory")]
mod memory;
mod message;
mod options;
mod page;
mod plan;
#[allow(unsafe_code, reason = "posting needs a promise about the memory")]
mod registered_qp;
mod rule_plan;
mod serve;
mod stages;
mod station;
mod transitions;
mod version;
mod watched;

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};

pub use self::calls::Calls;
pub use self::conformance::BEHAVIOURS;
pub use self::conformance::expectations::Expectations;
pub use self::conformance::verdict::{Behaviour, Conformance, Verdict};
pub use self::error::{CalibrateError, PeerFailure};
pub use self::findings::{CableRates, Findings, Goodput, RoundTrips, RuleFinding, Simulation};
pub use self::machine::{Machine, Path, ViewOfC};
pub use self::options::Options;
pub use self::plan::{How, PLAN, Plan};
pub use self::rule_plan::{UNCHECKED_RULES, checked_rules};
pub use self::serve::{Greeted, serve, serve_watched};
pub use self::version::VERSION;

use self::conformance::expectations::Mode;
use self::control::Stream;
use self::lab::Lab;
use self::stages::Stage;

/// Finds out how the device of `machine` behaves, with the help of a peer that [serves](serve) at the other end of `stream`
///
/// Destroys each object that it has made, however it ends. A device may count some still: regions after [`Options::risk_reboot`], and a
/// protection domain after a lost link.
///
/// # Errors
///
/// [`CalibrateError::Device`] if the device cannot be used; [`CalibrateError::NotCalibrate`] and [`CalibrateError::Version`] if the peer is
/// another program, or of another version; [`CalibrateError::PeerGone`] if it vanishes, [`CalibrateError::PeerSilent`] if it does not
/// answer; [`CalibrateError::Stage`] and [`CalibrateError::PeerFailed`] if a device is gone, or if nothing connects any more;
/// [`CalibrateError::FailedTransitions`] if more transitions might wedge the port. What else fails ends the experiments of one stage, and is
/// in [`Findings::stopped`].
///
/// # Cancel safety
///
/// Cancel safe: dropping the future destroys what it has created.
pub async fn calibrate(
    machine: &dyn Machine,
    stream: impl AsyncRead + AsyncWrite + Send + Unpin,
    options: &Options,
) -> Result<Findings, CalibrateError> {
    let calls = Arc::new(Calls::new(machine.runtime()));
    calibrate_watched(machine, stream, options, &calls).await
}

/// As [`calibrate`], and notes in `calls` which verb it is in: for a thread that watches whether one hangs
///
/// # Errors
///
/// As [`calibrate`]: [`CalibrateError`].
///
/// # Cancel safety
///
/// As [`calibrate`].
pub async fn calibrate_watched(
    machine: &dyn Machine,
    mut stream: impl AsyncRead + AsyncWrite + Send + Unpin,
    options: &Options,
    calls: &Arc<Calls>,
) -> Result<Findings, CalibrateError> {
    calibrate_over(machine, &mut stream, options, calls).await
}

/// Tries every behaviour of the conformance body on the device of `machine`, with a peer that [serves](serve) at the other end of `stream`
///
/// What is expected is what [`Machine::expectations`] states. Without that, and unless the device is a network adapter, the experiments of a
/// calibration first find the rules in which devices differ: from when on receives are accepted, what a full queue does, what queues count,
/// and whether a message has to span the frames of its receive. Behaviours of a rule that was not found are skipped.
///
/// With [`Options::risk_reboot`], two transitions to RTR fail by it on Apple's device, and the last behaviour sets a queue pair to the
/// error state. Leaves no object, however it ends. Once nothing connects any more, too many transitions have failed, or the peer is gone,
/// [`Conformance::ended`] has the reason, and the behaviours that were not tried are skipped.
///
/// # Errors
///
/// Those with which [`calibrate`] begins: [`CalibrateError::Device`] if the device cannot be used; [`CalibrateError::NotCalibrate`] if the
/// peer is another program, says nothing, or ends the connection before its greeting; [`CalibrateError::Version`] if it speaks another version.
///
/// # Cancel safety
///
/// As [`calibrate`].
pub async fn conform(
    machine: &dyn Machine,
    mut stream: impl AsyncRead + AsyncWrite + Send + Unpin,
    options: &Options,
    calls: &Arc<Calls>,
) -> Result<Conformance, CalibrateError> {
    let mut lab = Lab::connect(machine, &mut stream, calls).await?;
    machine.begins(Stage::Conformance.name(), 1, 1);
    let found = match lab.stated_expectations() {
        Some(_) => Ok(()),
        None => stages::find_expected(&mut lab).await,
    };
    let (behaviours, ended) = conformance::run(&mut lab, Mode::alone(options), found.err()).await;
    let ended = match ended {
        Some(error) => Some(lab.explain(error).await.during(Stage::Conformance.name())),
        None => None,
    };
    if !matches!(ended, Some(CalibrateError::PeerGone | CalibrateError::PeerSilent(_))) {
        lab.finish().await;
    }
    Ok(Conformance { behaviours, ended })
}

async fn calibrate_over(
    machine: &dyn Machine,
    stream: &mut dyn Stream,
    options: &Options,
    calls: &Arc<Calls>,
) -> Result<Findings, CalibrateError> {
    let mut lab = Lab::connect(machine, stream, calls).await?;
    stages::run(&mut lab, options).await?;
    lab.finish().await;
    lab.findings.finish(options);
    Ok(lab.findings)
}
