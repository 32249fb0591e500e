//! `tb5 completions` and `tb5 man`: what shells and `man` read, from the arguments themselves

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use clap::{Command, CommandFactory as _};
use clap_mangen::Man as Page;
use serde::Serialize;

use crate::args::{Args, Completions, Man};
use crate::failure::at;
use crate::file::{is_standard, write_all};
use crate::report::Output;

#[derive(Debug, Serialize)]
struct Completed {
    shell: String,
    text: String,
}

#[derive(Debug, Serialize)]
struct Manual {
    text: String,
}

/// The files of the pages of the manual
#[derive(Debug, Default, Serialize)]
struct Pages {
    files: Vec<String>,
}

pub(crate) fn completions(args: &Completions, output: Output) -> Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "tb5", &mut text);
    let completed = Completed { shell: args.shell.to_string(), text: String::from_utf8(text)? };
    output.print(&completed, || without_end(&completed.text))
}

pub(crate) fn man(args: &Man, output: Output) -> Result<()> {
    let mut command = Args::command();
    command.build();
    let Some(folder) = args.out.as_ref().filter(|folder| !is_standard(folder)) else {
        let manual = Manual { text: page(command)? };
        return output.print(&manual, || without_end(&manual.text));
    };
    fs::create_dir_all(folder).with_context(|| at(folder, "cannot be created"))?;
    let mut pages = Pages::default();
    write_pages(folder, command, "tb5", &mut pages.files)?;
    output.print_json(|| pages)
}

/// A text whose last line is ended when it is printed
fn without_end(text: &str) -> String {
    text.strip_suffix('\n').unwrap_or(text).to_owned()
}

/// A page for a command and one for each of its subcommands
fn write_pages(folder: &Path, command: Command, name: &str, files: &mut Vec<String>) -> Result<()> {
    for subcommand in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        let page_name = format!("{name}-{}", subcommand.get_name());
        // `help` is a command of clap, not of the tool.
        if subcommand.get_name() != "help" {
            write_pages(folder, subcommand.clone(), &page_name, files)?;
        }
    }
    let file = folder.join(format!("{name}.1"));
    write_all(&file, &page(command)?)?;
    files.push(file.display().to_string());
    Ok(())
}

fn page(command: Command) -> Result<String> {
    let mut text = Vec::new();
    Page::new(command).render(&mut text)?;
    Ok(String::from_utf8(text)?)
}
