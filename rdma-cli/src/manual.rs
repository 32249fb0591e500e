//! `tb5 completions` and `tb5 man`: what shells and `man` read, from the arguments themselves

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use clap::{Command, CommandFactory as _};
use clap_mangen::Man as Page;

use crate::args::{Args, Completions, Man};
use crate::failure::at;
use crate::file::write_all;

pub(crate) fn completions(args: &Completions) -> Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "tb5", &mut text);
    write_all(Path::new("-"), &String::from_utf8(text)?)
}

pub(crate) fn man(args: &Man) -> Result<()> {
    let mut command = Args::command();
    command.build();
    let Some(folder) = &args.out else { return write_all(Path::new("-"), &page(command)?) };
    fs::create_dir_all(folder).with_context(|| at(folder, "cannot be created"))?;
    write_pages(folder, command, "tb5")
}

/// A page for a command and one for each of its subcommands
fn write_pages(folder: &Path, command: Command, name: &str) -> Result<()> {
    for subcommand in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        let page_name = format!("{name}-{}", subcommand.get_name());
        // `help` is a command of clap, not of the tool.
        if subcommand.get_name() != "help" {
            write_pages(folder, subcommand.clone(), &page_name)?;
        }
    }
    write_all(&folder.join(format!("{name}.1")), &page(command)?)
}

fn page(command: Command) -> Result<String> {
    let mut text = Vec::new();
    Page::new(command).render(&mut text)?;
    Ok(String::from_utf8(text)?)
}
