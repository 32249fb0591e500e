//! What the environment, or `rdma_sim_configure` in its place, says about the simulation

use std::sync::{Mutex, PoisonError};

use crate::shared::{self, Settings};

/// Variables that were set by a call instead of in the environment.
static CONFIGURED: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

/// Takes `NAME=VALUE` words, separated by commas, instead of environment variables
pub(crate) fn configure(text: &str) {
    let words = text.split(',').filter_map(|word| word.split_once('='));
    let mut configured = CONFIGURED.lock().unwrap_or_else(PoisonError::into_inner);
    configured.extend(words.map(|(name, value)| (name.trim().to_owned(), value.to_owned())));
}

/// The value of a variable; an empty one is none
pub(crate) fn variable(name: &str) -> Option<String> {
    let configured = CONFIGURED.lock().unwrap_or_else(PoisonError::into_inner);
    let found = configured.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
    found.or_else(|| std::env::var(name).ok()).filter(|value| !value.is_empty())
}

/// How time passes that is not that of the clock on the wall
///
/// With either clock, time passes in `rdma_sim_step`, `rdma_sim_rest` and, by 1 ns, `rdma_sim_inject`. A verb that blocks, because the
/// profile or a fault says that it takes time, advances the clock by as long as it blocks, and events that are due by then take place before
/// it returns. Posts advance no virtual clock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum VirtualClock {
    /// Time also jumps to the next event when the program polls an empty completion queue, or asks a channel for an event that it lacks
    Jumping,
    /// Time passes in no other way: polls do not advance the clock
    Stepped,
}

/// The virtual clock that `RDMA_SIM_CLOCK` asks for, if it asks for one
pub(crate) fn virtual_clock() -> Result<Option<VirtualClock>, String> {
    match variable("RDMA_SIM_CLOCK").as_deref() {
        None => Ok(None),
        Some("virtual") => Ok(Some(VirtualClock::Jumping)),
        Some("stepped") => Ok(Some(VirtualClock::Stepped)),
        Some(other) => Err(format!(
            "RDMA_SIM_CLOCK: {other:?} is unknown: write virtual or stepped, or leave the variable out"
        )),
    }
}

/// The variables that decide the settings of a fabric, beside the topology, by the name of the setting
const SETTINGS: [(&str, &str); 3] =
    [("profile", "RDMA_SIM_PROFILE"), ("pace", "RDMA_SIM_PACE"), ("seed", "RDMA_SIM_SEED")];
const TOPOLOGY: &str = "RDMA_SIM_TOPOLOGY";

/// Whether a variable asks for settings of the fabric
pub(crate) fn has_settings() -> bool {
    SETTINGS.iter().map(|(_, variable)| variable).chain([&TOPOLOGY]).any(|name| variable(name).is_some())
}

/// The settings that the variables ask for
pub(crate) fn settings() -> Result<Settings, String> {
    let named = |name: &'static str| move |error| format!("{name}: {error}");
    let topology = variable(TOPOLOGY).unwrap_or_else(|| "pair".to_owned());
    let mut settings = Settings::new(shared::topology(&topology, None).map_err(named(TOPOLOGY))?);
    for (setting, name) in SETTINGS {
        if let Some(value) = variable(name) {
            settings = settings.set(setting, &value).map_err(named(name))?;
        }
    }
    Ok(settings)
}
