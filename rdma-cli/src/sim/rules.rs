//! The device model of a scenario

use rdma_sim::Model;
use rdma_sim::profile::Profile;
use serde::Deserialize;
use toml::Spanned;

use super::invalid::Invalid;
use super::period::Period;

/// `[rules]`: rules of the profile that a scenario overrides
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RulesTable {
    /// Failed transitions to RTR after which a port refuses all further ones.
    failed_rtr_wedges: Option<u32>,
    idle_death: Option<Period>,
    link_local_source: Option<bool>,
    replug_leaks_pds: Option<u32>,
}

/// The profile called `profile`, or of the file of that name, with these rules
pub(super) fn model(profile: Option<&Spanned<String>>, table: &RulesTable) -> Result<Model, Invalid> {
    let mut model = match profile {
        None => Model::tb5(),
        Some(name) => {
            let profile = Profile::find(name.get_ref());
            profile.map_err(|error| Invalid::at(name, error.to_string()))?.model
        }
    };
    let rules = &mut model.rules;
    rules.failed_rtr_wedges = table.failed_rtr_wedges.or(rules.failed_rtr_wedges);
    rules.idle_death = table.idle_death.map(|Period(rest)| rest).or(rules.idle_death);
    rules.link_local_source = table.link_local_source.unwrap_or(rules.link_local_source);
    rules.replug_leaks_pds = table.replug_leaks_pds.unwrap_or(rules.replug_leaks_pds);
    Ok(model)
}
