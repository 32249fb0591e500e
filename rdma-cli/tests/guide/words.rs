//! Checks the commands of blocks that do not run, and of sentences

use rdma_sim::Replay;

use crate::command::{BY_CARGO, Scratch};
use crate::names::Names;

/// Begins the command of the tool where a page builds it along
const BY_PACKAGE: &str = "cargo run --release -p rdma-cli -- ";

/// Checks the commands of `tb5` and cargo in a line: the tool has the command and its options, and takes their values
///
/// # Errors
///
/// What the tool says of it, or the package or target that cargo has not.
pub(crate) fn check(scratch: &Scratch, line: &str, names: &Names) -> Result<(), String> {
    let line = line.replace(BY_CARGO, "tb5 ").replace(BY_PACKAGE, "tb5 ");
    for command in commands(&line) {
        if command.starts_with("cargo ") {
            names.check(command)?;
        } else if command.starts_with("tb5 ") && !command.starts_with("tb5 help") {
            // What follows belongs to the programs of `tb5 run`.
            let asked = command.split_once(" -- ").map_or(command, |(before, _)| before);
            let answer = scratch.shell(&format!("{asked} --help"));
            let error = String::from_utf8_lossy(&answer.stderr);
            // A sentence may name an option without its value, and write OPERATION for one.
            let stands_for = |name: &str| name.bytes().all(|letter| letter.is_ascii_uppercase());
            let is_placeholder = error
                .split_once("invalid value '")
                .and_then(|(_, rest)| rest.split_once('\''))
                .is_some_and(|(name, _)| stands_for(name));
            let is_known = answer.status.success() || is_placeholder || error.contains("a value is required");
            if !is_known {
                return Err(format!("`{command}`: {error}"));
            }
        }
    }
    Ok(())
}

/// Checks that the lines for `RDMA_SIM_REPLAY` in what a failure prints can be read
///
/// # Panics
///
/// If one cannot.
pub(crate) fn check_replays(at: &str, text: &str) {
    let lines = text.lines().filter(|line| line.starts_with("RDMA_SIM_REPLAY") && !line.contains('…'));
    for line in lines {
        line.parse::<Replay>().unwrap_or_else(|error| panic!("{at}: {line}: {error}"));
    }
}

/// The commands of a line, which end where the shell ends them outside of quotes
fn commands(line: &str) -> impl Iterator<Item = &str> {
    let mut quote = None;
    let parts = line.split(move |letter| match (quote, letter) {
        (None, '\'' | '"') => {
            quote = Some(letter);
            false
        }
        (Some(open), _) => {
            quote = quote.filter(|_| letter != open);
            false
        }
        (None, _) => matches!(letter, '|' | '&' | ';' | '<' | '>' | '#'),
    });
    parts.map(|command| without_variables(command.trim()))
}

/// A command without the variables that are set for it
fn without_variables(mut command: &str) -> &str {
    while let Some((first, rest)) = command.split_once(' ').filter(|(first, _)| {
        first
            .split_once('=')
            .is_some_and(|(name, _)| name.starts_with(|letter: char| letter.is_ascii_uppercase()))
    }) {
        debug_assert!(!first.is_empty());
        command = rest.trim_start();
    }
    command
}

/// The code within sentences and tables
pub(crate) fn spans(text: &str) -> impl Iterator<Item = String> {
    let mut is_code = false;
    let mut paragraphs = vec![String::new()];
    for line in text.lines() {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        let is_prose = !is_code && !is_fence && !line.is_empty();
        match paragraphs.last_mut() {
            Some(paragraph) if is_prose && !line.starts_with(['|', '*']) => {
                paragraph.push_str(line.trim_start());
                paragraph.push(' ');
            }
            _ => paragraphs.push(if is_prose { format!("{line} ") } else { String::new() }),
        }
    }
    let of_paragraph = |paragraph: String| {
        let pieces = paragraph.split('`').skip(1).step_by(2);
        pieces.map(str::to_owned).collect::<Vec<_>>()
    };
    paragraphs.into_iter().flat_map(of_paragraph)
}

#[test]
fn commands_end_at_the_shell_and_spans_cross_lines() {
    let line = "tar -c a | tb5 copy - 'b | c' && tb5 man > d  # a word";
    assert_eq!(
        commands(line).collect::<Vec<_>>(),
        ["tar -c a", "tb5 copy - 'b | c'", "", "tb5 man", "d", "a word"]
    );
    let text = "The `tb5\nping` and\n```sh\n`no`\n```\n| a | `tb5 bw` |\n* `cargo test`\n";
    assert_eq!(spans(text).collect::<Vec<_>>(), ["tb5 ping", "tb5 bw", "cargo test"]);
}

/// Catches a check that accepts anything.
#[test]
fn an_unknown_option_of_a_command_is_found() {
    let (scratch, names) = (Scratch::new(), Names::read());
    for wrong in ["tb5 pong", "tb5 ping --size 4", "tb5 bw --bytes 4QiB", "cargo test -p rdma-nothing"] {
        assert!(check(&scratch, wrong, &names).is_err(), "{wrong}");
    }
    let right = "tb5 run --hosts 2 -- ls --what : tb5 ping; tb5 copy --listen; tb5 bench OPERATION";
    assert_eq!(check(&scratch, right, &names), Ok(()));
}
