//! The subcommand that a misspelt one is nearest to

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, Error};

use crate::args::Args;

/// An error that names the nearest subcommand, also where clap names none: for `rnu`, it does not see that `run` is near
pub(crate) fn named(mut error: Error) -> Error {
    let Some(ContextValue::String(wrong)) = error.get(ContextKind::InvalidSubcommand) else { return error };
    if error.get(ContextKind::SuggestedSubcommand).is_some() {
        return error;
    }
    let near = |name: &str| strsim::osa_distance(wrong, name) == 1;
    let names = subcommands().into_iter().filter(|name| near(name)).collect::<Vec<_>>();
    if !names.is_empty() {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(names));
    }
    error
}

/// The names that are possible where the first wrong one is
fn subcommands() -> Vec<String> {
    let mut command = Args::command();
    let arguments = std::env::args_os().skip(1).filter_map(|argument| argument.into_string().ok());
    for name in arguments.filter(|argument| !argument.starts_with('-') && argument != "help") {
        let Some(subcommand) = command.find_subcommand(&name) else { break };
        command = subcommand.clone();
    }
    let shown = command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set());
    shown.map(|subcommand| subcommand.get_name().to_owned()).collect()
}
