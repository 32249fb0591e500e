//! `tb5 completions` and `tb5 man`: what shells and `man` read, from the arguments themselves

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use clap::Command;
use clap::builder::Resettable;
use clap_mangen::Man as Page;
use serde::Serialize;

use crate::args::{self, Completions, Man};
use crate::failure::{at, is_standard};
use crate::file::write_all;
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
    clap_complete::generate(args.shell, &mut args::completed_command(), "tb5", &mut text);
    let completed = Completed { shell: args.shell.to_string(), text: String::from_utf8(text)? };
    output.print(&completed, || without_end(&completed.text))
}

pub(crate) fn man(args: &Man, output: Output) -> Result<()> {
    // `help` is a command of clap, not of the tool.
    let mut command = args::command().disable_help_subcommand(true);
    command = command.mut_subcommands(|command| command.disable_help_subcommand(true));
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

/// A text without its last line break, which printing adds
fn without_end(text: &str) -> String {
    text.strip_suffix('\n').unwrap_or(text).to_owned()
}

/// A page for a command and one for each of its subcommands
fn write_pages(folder: &Path, command: Command, name: &str, files: &mut Vec<String>) -> Result<()> {
    for subcommand in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        let page_name = format!("{name}-{}", subcommand.get_name());
        write_pages(folder, subcommand.clone(), &page_name, files)?;
    }
    let file = folder.join(format!("{name}.1"));
    write_all(&file, &page(command)?)?;
    files.push(file.display().to_string());
    Ok(())
}

/// First words of the paragraphs of a help that are sections of the manual; the others are its notes
const SECTIONS: [(&str, &str); 2] = [("Examples: ", "EXAMPLES"), ("Exit codes: ", "EXIT STATUS")];

fn page(command: Command) -> Result<String> {
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let (mut notes, mut sections) = (Vec::new(), Vec::new());
    for paragraph in help.split("\n\n").filter(|paragraph| !paragraph.is_empty()) {
        match SECTIONS.iter().find_map(|(begin, name)| Some((*name, paragraph.strip_prefix(begin)?))) {
            Some((name, content)) => sections.push((name, content.to_owned())),
            None => notes.push(paragraph),
        }
    }
    if !notes.is_empty() {
        sections.insert(0, ("NOTES", notes.join("\n\n")));
    }
    let mut text = Vec::new();
    Page::new(command.clone().after_help(Resettable::Reset)).render(&mut text)?;
    let mut text = String::from_utf8(text)?;
    for (name, content) in sections {
        let mut section = Vec::new();
        Page::new(command.clone().after_help(content)).render_extra_section(&mut section)?;
        let section = String::from_utf8(section)?;
        // Behind the heading of clap, and without what begins a page.
        let (_, content) = section.split_once(".SH EXTRA\n").context("clap has written no section")?;
        text += &format!(".SH \"{name}\"\n{content}");
    }
    Ok(text)
}
