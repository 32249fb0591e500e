//! The experiments, those first that cannot do harm

mod bound;
mod cables;
mod connecting;
mod delivery;
mod failing;
mod figures;
mod idle;
mod limits;
mod memory;
mod processor;
mod queues;
mod samples;
mod spacing;
mod streams;
mod timing;
mod turns;
mod verbs;
mod view_of_c;

use rdma_core::Device as _;

use crate::conformance;
use crate::conformance::expectations::Mode;
use crate::error::CalibrateError;
use crate::lab::Lab;
use crate::message::Request;
use crate::options::Options;

/// Carries out all experiments; those of one stage may stop without a result, and the others go on
pub(crate) async fn run(lab: &mut Lab<'_>, options: &Options) -> Result<(), CalibrateError> {
    let wanted = |stage: &Stage| match stage {
        Stage::ErrorState => options.risk_reboot,
        Stage::IdleDeath => options.idle_death,
        _ => true,
    };
    let stages: Vec<_> = Stage::ALL.into_iter().filter(wanted).collect();
    for (number, stage) in (1..).zip(&stages) {
        lab.machine.begins(stage.name(), number, stages.len());
        let before = lab.findings.clone();
        if let Err(error) = stage.run(lab, options).await {
            let error = lab.explain(error).await;
            if !error.is_of_stage() {
                return Err(error.during(stage.name()));
            }
            lab.findings.stopped.push((stage.name(), error.to_string()));
            lab.report();
            // What the peer has of it goes, and its late replies are ignored.
            lab.ask(Request::Drop).await?;
        }
        // Experiments take for a rule or a limit what a port refuses that was wedged meanwhile.
        if stage.leaves_the_port()
            && let Err(error) = lab.require_connections().await
        {
            lab.findings = before;
            lab.findings.stopped.push((stage.name(), error.to_string()));
            lab.report();
            return Err(error.during("a connection after others"));
        }
        lab.report();
    }
    Ok(())
}

/// Decides the rules that say what to expect of behaviours; those of experiments that stop stay undecided
///
/// A queue is overfilled here alone: only this side uses the memory of its receives, and no message comes.
///
/// # Errors
///
/// Those after which nothing else may be tried.
pub(crate) async fn find_expected(lab: &mut Lab<'_>) -> Result<(), CalibrateError> {
    lab.findings.profile.model.caps.send_waits_for_receive = lab.device.caps().send_waits_for_receive;
    for stage in [Stage::Connecting, Stage::Delivery, Stage::Queues] {
        let ended = match stage {
            // The others of this stage do not matter here.
            Stage::Delivery => delivery::frame_match(lab).await,
            stage => stage.run(lab, &Options::default()).await,
        };
        if let Err(error) = ended {
            let error = lab.explain(error).await;
            if !error.is_of_stage() {
                return Err(error.during(stage.name()));
            }
        }
        lab.ask(Request::Drop).await?;
    }
    Ok(())
}

/// The conformance body, without what leaves something behind, and the rules that it shows
///
/// # Errors
///
/// [`CalibrateError::FailedTransitions`] if so many transitions to RTR have failed by it that no other experiment may connect.
async fn conform(lab: &mut Lab<'_>, options: &Options) -> Result<(), CalibrateError> {
    lab.ask(Request::Drop).await?;
    let (behaviours, broken) = conformance::run(lab, Mode::stage(options), None).await;
    conformance::rules::enter(&mut lab.findings, &behaviours);
    lab.findings.behaviours = behaviours;
    broken.map_or(Ok(()), Err).inspect_err(|_| lab.report())
}

/// Experiments of one kind
#[derive(Clone, Copy)]
pub(crate) enum Stage {
    Memory,
    Connecting,
    Processor,
    Timing,
    Figures,
    Cables,
    Verbs,
    Delivery,
    ViewOfC,
    Limits,
    Queues,
    Conformance,
    Failing,
    ErrorState,
    IdleDeath,
}

impl Stage {
    const ALL: [Self; 15] = [
        Self::Memory,
        Self::Connecting,
        // Before the ways of messages, which contain its costs.
        Self::Processor,
        Self::Timing,
        Self::Verbs,
        Self::Delivery,
        Self::ViewOfC,
        Self::Limits,
        Self::Queues,
        // Once it is known what queues hold.
        Self::Figures,
        Self::Cables,
        // Once the rules are known in which devices differ.
        Self::Conformance,
        Self::Failing,
        Self::IdleDeath,
        // The last: what it leaves behind would be in the way.
        Self::ErrorState,
    ];

    async fn run(self, lab: &mut Lab<'_>, options: &Options) -> Result<(), CalibrateError> {
        match self {
            Self::Memory => memory::run(lab).await,
            Self::Connecting => connecting::run(lab).await,
            Self::Processor => processor::run(lab).await,
            Self::Timing => timing::run(lab).await,
            Self::Figures => figures::run(lab, options.stream_time).await,
            Self::Cables => cables::run(lab, options.stream_time).await,
            Self::Verbs => verbs::run(lab).await,
            Self::Delivery => delivery::run(lab).await,
            Self::ViewOfC => view_of_c::run(lab).await,
            Self::Limits => limits::run(lab, options.risk_reboot).await,
            Self::Queues => queues::run(lab).await,
            Self::Conformance => conform(lab, options).await,
            Self::Failing => failing::run(lab, options.risk_reboot).await,
            Self::ErrorState if idle::has_spoiled(&lab.findings) => {
                memory::skip(lab);
                Ok(())
            }
            Self::ErrorState => memory::after_error(lab).await,
            Self::IdleDeath if lab.findings.wedged.is_some() => {
                idle::skip(lab);
                Ok(())
            }
            Self::IdleDeath => idle::run(lab).await,
        }
    }

    /// False if it connects nothing, or if the port may connect nothing after it
    fn leaves_the_port(self) -> bool {
        !matches!(self, Self::Memory | Self::Failing | Self::IdleDeath | Self::ErrorState)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Connecting => "connecting",
            Self::Processor => "processor",
            Self::Timing => "timing",
            Self::Figures => "goodput and round trips",
            Self::Cables => "several cables",
            Self::Verbs => "times of verbs",
            Self::Delivery => "delivery",
            Self::ViewOfC => "what C sees",
            Self::Limits => "limits",
            Self::Queues => "queues",
            Self::Conformance => "behaviours",
            Self::Failing => "failures",
            Self::ErrorState => "the error state",
            Self::IdleDeath => "idleness",
        }
    }
}
