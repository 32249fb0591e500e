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
    assert!(main.contains(".TH tb5 1") && main.contains("EXIT") || main.contains("Exit codes"), "{main}");
    let folder = Folder::new();
    assert_code(&tb5!["man", "--out", folder.path("man1")], 0);
    for command in commands() {
        let page = fs::read_to_string(folder.path(format!("man1/tb5-{command}.1"))).unwrap();
        assert!(page.contains(".SH SYNOPSIS") && page.contains(&format!("tb5\\-{command}")), "{page}");
    }
    assert!(folder.path("man1/tb5-topo-plan.1").exists() && !folder.path("man1/tb5-provider.1").exists());
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
