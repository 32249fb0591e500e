//! `tb5 completions`, `tb5 man`, and the help

use std::fs;

use crate::support::{Folder, Running, assert_code, assert_failed, stdout, tool};

/// The commands that the help lists
fn commands() -> Vec<String> {
    let help = stdout(&tb5!["--help"]);
    let list = help.split_once("Commands:").unwrap().1.split_once("Options:").unwrap().0;
    let names = list.lines().filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

/// Catches a shell that is not offered, and a command that its completions do not know.
#[test]
fn completions_of_each_shell_name_every_command() {
    let commands = commands();
    assert!(commands.len() > 10 && commands.contains(&"demo".to_owned()), "{commands:?}");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = tb5!["completions", shell];
        assert_code(&output, 0);
        let script = stdout(&output);
        for command in &commands {
            assert!(script.contains(command.as_str()), "{shell} lacks {command}");
        }
    }
    assert_failed(&tb5!["completions", "tcsh"], 2, &["possible values: bash, elvish, fish, powershell, zsh"]);
}

/// Catches a page that is not one for `man`, and a command without one.
#[test]
fn each_command_has_a_page_of_the_manual() {
    let main = stdout(&tb5!["man"]);
    for section in [".TH tb5 1", ".SH \"EXAMPLES\"\ntb5; ", ".SH \"EXIT STATUS\"\n0 done"] {
        assert!(main.contains(section), "{section}: {main}");
    }
    assert!(!main.contains("EXTRA") && !main.contains("help(1)"), "{main}");
    let folder = Folder::new();
    assert_code(&tb5!["man", "--out", folder.path("man1")], 0);
    for command in commands() {
        let page = fs::read_to_string(folder.path(format!("man1/tb5-{command}.1"))).unwrap();
        assert!(!page.contains("EXTRA") && !page.contains("help(1)"), "{page}");
        assert!(page.contains(".SH SYNOPSIS") && page.contains(&format!("tb5\\-{command}")), "{page}");
    }
    assert!(folder.path("man1/tb5-topo-plan.1").exists() && !folder.path("man1/tb5-provider.1").exists());
}

/// Every command with its subcommands, as words of the command line
fn all_commands() -> Vec<Vec<String>> {
    let below = |name: &str| {
        let help = stdout(&tb5![name, "--help"]);
        let list =
            help.split_once("\nCommands:\n").map(|(_, rest)| rest.split_once("\n\n").unwrap().0.to_owned());
        let names = list.unwrap_or_default();
        let names = names.lines().filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next());
        let subcommands =
            names.filter(|name| *name != "help").map(|below| vec![name.to_owned(), below.to_owned()]);
        subcommands.collect::<Vec<_>>()
    };
    let with_subcommands = |name: String| {
        let subcommands = below(&name);
        [vec![vec![name]], subcommands].concat()
    };
    commands().into_iter().flat_map(with_subcommands).collect()
}

/// The commands of the examples in a help, without what a shell does with their output
fn examples(help: &str) -> Vec<String> {
    let text = help.split_once("Examples:").map_or("", |(_, rest)| rest.split("\n\n").next().unwrap());
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let starts =
        text.match_indices("tb5 ").map(|(at, _)| at).filter(|at| *at == 0 || text.as_bytes()[at - 1] == b' ');
    let ends = ["; ", " | ", " && ", " > ", ", and ", ". "];
    let command = |at: usize| {
        let rest = &text[at..];
        let end = ends.iter().filter_map(|end| rest.find(end)).min().unwrap_or(rest.len());
        rest[..end].trim_end_matches([';', '.']).to_owned()
    };
    starts.map(command).collect()
}

/// Words as a shell splits them, with single quotes
fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for (quoted, part) in text.split('\'').enumerate().map(|(number, part)| (number % 2 == 1, part)) {
        for (number, word) in
            if quoted { vec![part] } else { part.split(' ').collect() }.into_iter().enumerate()
        {
            if number > 0 {
                words.push(String::new());
            }
            words.last_mut().unwrap().push_str(word);
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Catches a command without examples or exit codes in its help, and an example that is no valid command line.
#[test]
fn the_help_of_each_command_has_examples_that_are_valid() {
    let mut count = 0;
    for command in all_commands() {
        let output = tool().args(&command).arg("--help").output().unwrap();
        assert_code(&output, 0);
        let help = stdout(&output);
        let is_group = ["sim", "topo"].contains(&command[command.len() - 1].as_str());
        assert!(is_group || help.contains("Exit codes:"), "{command:?} has no exit codes: {help}");
        let examples = examples(&help);
        assert!(!examples.is_empty(), "{command:?} has no examples: {help}");
        for example in examples {
            let mut arguments = words(&example);
            // `help` is a command of its own.
            if arguments.iter().any(|word| word == "help") {
                assert_code(&tool().args(&arguments[1..]).output().unwrap(), 0);
                continue;
            }
            // The help is printed if all options before it are valid; what follows is a program of its own.
            let end = arguments.iter().position(|word| word == "--").unwrap_or(arguments.len());
            arguments.insert(end, "--help".to_owned());
            let parsed = tool().args(&arguments[1..]).output().unwrap();
            assert_eq!(
                parsed.status.code(),
                Some(0),
                "{example}: {}",
                String::from_utf8_lossy(&parsed.stderr)
            );
            count += 1;
        }
    }
    assert!(count > 50, "{count} examples");
}

/// Catches a reader of a long text that ends early and is reported as a failure.
#[test]
fn a_closed_pipe_is_not_a_failure() {
    for arguments in [&["completions", "zsh"][..], &["man"], &["topo", "draw", "mesh:6", "--format", "svg"]] {
        let mut running = Running::start(tool().args(arguments).stdout(std::process::Stdio::piped()));
        drop(running.stdout.take());
        assert_code(&running.finish(), 0);
    }
}
