//! The experiments, those first that cannot do harm

mod connecting;
mod delivery;
mod failing;
mod figures;
mod idle;
mod limits;
mod memory;
mod queues;
mod timing;

use crate::error::CalibrateError;
use crate::lab::Lab;
use crate::options::Options;

pub(crate) async fn run(lab: &mut Lab<'_>, options: &Options) -> Result<(), CalibrateError> {
    memory::run(lab)?;
    connecting::run(lab).await?;
    timing::run(lab).await?;
    figures::run(lab).await?;
    delivery::run(lab).await?;
    limits::run(lab).await?;
    queues::run(lab).await?;
    failing::run(lab).await?;
    if options.error_state {
        memory::after_error(lab)?;
    }
    if options.idle_death {
        idle::run(lab).await?;
    }
    Ok(())
}
