//! The experiments, those first that cannot do harm

mod answers;
mod cables;
mod connecting;
mod delivery;
mod failing;
mod figures;
mod fixed;
mod idle;
mod limits;
mod memory;
mod messages;
mod processor;
mod queues;
mod timing;
mod verbs;

use crate::conformance;
use crate::conformance::expectations::Mode;
use crate::error::CalibrateError;
use crate::lab::Lab;
use crate::message::Request;
use crate::options::Options;

pub(crate) async fn run(lab: &mut Lab<'_>, options: &Options) -> Result<(), CalibrateError> {
    let wanted = |stage: &Stage| match stage {
        Stage::ErrorState => options.error_state,
        Stage::IdleDeath => options.idle_death,
        _ => true,
    };
    let stages: Vec<_> = Stage::ALL.into_iter().filter(wanted).collect();
    for (number, stage) in (1..).zip(&stages) {
        lab.machine.begins(stage.name(), number, stages.len());
        match stage {
            Stage::Memory => memory::run(lab)?,
            Stage::Connecting => connecting::run(lab).await?,
            Stage::Processor => processor::run(lab).await?,
            Stage::Timing => timing::run(lab).await?,
            Stage::Figures => figures::run(lab, options.stream_time).await?,
            Stage::Cables => cables::run(lab, options.stream_time).await?,
            Stage::Verbs => verbs::run(lab).await?,
            Stage::Delivery => delivery::run(lab).await?,
            Stage::Limits => limits::run(lab).await?,
            Stage::Queues => queues::run(lab).await?,
            Stage::Fixed => fixed::run(lab).await?,
            Stage::Conformance => conform(lab).await?,
            Stage::Failing => failing::run(lab).await?,
            Stage::ErrorState => memory::after_error(lab)?,
            Stage::IdleDeath if lab.findings.wedged.is_some() => idle::skip(lab),
            Stage::IdleDeath => idle::run(lab).await?,
        }
    }
    Ok(())
}

/// The conformance body, without what leaves something behind
async fn conform(lab: &mut Lab<'_>) -> Result<(), CalibrateError> {
    lab.ask(Request::Drop).await?;
    let mode = Mode { failing_transitions: false, error_state: false };
    lab.findings.behaviours = conformance::run(lab, mode).await?;
    Ok(())
}

/// Experiments of one kind
#[derive(Clone, Copy)]
enum Stage {
    Memory,
    Connecting,
    Processor,
    Timing,
    Figures,
    Cables,
    Verbs,
    Delivery,
    Limits,
    Queues,
    Fixed,
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
        Self::Limits,
        Self::Queues,
        // Once it is known what queues hold.
        Self::Figures,
        Self::Cables,
        Self::Fixed,
        // Once the rules are known in which devices differ.
        Self::Conformance,
        Self::Failing,
        Self::IdleDeath,
        // The last: what it leaves behind would be in the way.
        Self::ErrorState,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Connecting => "connecting",
            Self::Processor => "processor",
            Self::Timing => "timing",
            Self::Figures => "goodput and round trips",
            Self::Cables => "several cables",
            Self::Verbs => "times of verbs",
            Self::Delivery => "delivery",
            Self::Limits => "limits",
            Self::Queues => "queues",
            Self::Fixed => "rules without a field",
            Self::Conformance => "behaviours",
            Self::Failing => "failures",
            Self::ErrorState => "the error state",
            Self::IdleDeath => "idleness",
        }
    }
}
