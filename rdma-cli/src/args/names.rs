//! Help of options that take a shape or a profile by name

use rdma_sim::Model;
use rdma_sim::topology::Shape;

/// Help of an argument that names a cabling
pub(super) fn cabling() -> String {
    let [others @ .., last] = Shape::ALL.map(|shape| shape.to_string());
    format!(
        "Cabling: {} or {last}, with a number of hosts as in ring:4, or a file (TOML, or a device matrix or hostfile of MLX in JSON); \
         `-` is standard input",
        others.join(", ")
    )
}

/// Help of an option that names a profile: what the profile is for, and the names
pub(crate) fn profile(purpose: &str) -> String {
    let names = Model::PROFILES.join(", ");
    format!("{purpose}: {names}, a file that tb5 calibrate wrote, or `-` for one on standard input")
}

#[cfg(test)]
mod tests {
    /// The help of each argument of `command` and of its commands that takes `value`
    fn helps(command: &clap::Command, value: &str) -> Vec<String> {
        let takes = |argument: &&clap::Arg| {
            argument.get_value_names().is_some_and(|names| names.iter().any(|name| name == value))
        };
        let own = command.get_arguments().filter(takes).map(|argument| format!("{:?}", argument.get_help()));
        own.chain(command.get_subcommands().flat_map(|command| helps(command, value))).collect()
    }

    /// Catches an option for a shape or a profile whose help leaves names out, such as those of a new one.
    #[test]
    fn the_help_names_every_shape_and_profile() {
        let shapes = super::Shape::ALL.map(|shape| shape.to_string());
        let profiles = super::Model::PROFILES.map(str::to_owned);
        for (value, names, least) in [("SHAPE|FILE", &shapes[..], 3), ("PROFILE|FILE", &profiles, 5)] {
            let helps = helps(&crate::args::command(), value);
            assert!(helps.len() >= least, "{helps:?}");
            for help in helps {
                let missing: Vec<_> = names.iter().filter(|name| !help.contains(*name)).collect();
                assert!(missing.is_empty(), "{help} names no {missing:?}");
            }
        }
    }
}
