//! What is left on the screen of a terminal when a command has ended: results and remarks, and no row of a progress bar

use std::fs;
use std::io::{Read as _, Write as _};
use std::num::NonZero;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use vt100::Parser;

use crate::machines::Listener;
use crate::support::{Folder, Running, assert_code, program, text, tool};

const COLUMNS: u16 = 80;
/// As many that no row leaves the screen
const ROWS: u16 = 1000;
const CTRL_C: &[u8] = &[3];

/// `tb5` on a terminal of its own, standard error included
fn on_a_terminal(folder: &Folder, command: &str) -> Command {
    on_a_terminal_of(COLUMNS, folder, command)
}

fn on_a_terminal_of(columns: u16, folder: &Folder, command: &str) -> Command {
    let mut script = program("script");
    let tool = env!("CARGO_BIN_EXE_tb5");
    script.args(["-qec", &format!("stty cols {columns} rows {ROWS}; exec '{tool}' {command}"), "/dev/null"]);
    script.env("TERM", "xterm-256color").current_dir(folder.path(""));
    script.stdin(Stdio::piped()).stdout(Stdio::piped());
    script
}

/// The rows of the screen once `bytes` were printed
fn rows(bytes: &[u8]) -> Vec<String> {
    rows_of(COLUMNS, bytes)
}

fn rows_of(columns: u16, bytes: &[u8]) -> Vec<String> {
    let [rows, columns] = [ROWS, columns].map(|length| NonZero::new(length).unwrap());
    let mut terminal = Parser::new(rows, columns, 0);
    terminal.process(bytes);
    terminal.screen().rows(0, columns.get()).map(|row| row.trim_end().to_owned()).collect()
}

/// Asserts that `bytes` drew a bar or a spinner, and that none of it stays on the screen
#[track_caller]
fn assert_cleared(command: &str, bytes: &[u8]) {
    let is_drawn = |letter: char| matches!(letter, '█' | '░' | '\u{2800}'..='\u{28ff}');
    assert!(text(bytes).contains(is_drawn), "{command} drew nothing: {}", text(bytes));
    let rows = rows(bytes);
    let left: Vec<_> = rows.iter().filter(|row| row.contains(is_drawn)).collect();
    assert!(left.is_empty(), "{command} left {left:#?} in\n{}", rows.join("\n").trim_end());
}

/// Catches bars that are drawn over each other, and results and remarks that are printed over a bar.
#[test]
fn no_bar_is_left_by_a_command_with_a_host() {
    let (folder, root) = (Folder::new(), Folder::new());
    folder.write("source", vec![7; 20 << 20]);
    let server = Listener::serve(&["--into", root.path("").to_str().unwrap()]);
    for command in [
        "copy source 127.0.0.1:",
        "ping 127.0.0.1: --count 200",
        "bw 127.0.0.1: --bytes 4KiB",
        "demo 127.0.0.1:",
    ] {
        for more in ["", "-v"] {
            let command = format!("{command} --port {} {more}", server.port);
            let ended = Running::start(&mut on_a_terminal(&folder, &command)).finish();
            assert_code(&ended, 0);
            assert_cleared(&command, &ended.stdout);
        }
    }
}

/// Catches bars of two copies that are drawn over each other.
#[test]
fn no_bar_is_left_by_a_server_of_two_copies_at_once() {
    let (folder, root) = (Folder::new(), Folder::new());
    folder.write("source", vec![7; 60 << 20]);
    let serve = format!("serve --bind 127.0.0.1 --port 0 --into '{}'", root.path("").display());
    let mut server = Running::start(&mut on_a_terminal(&folder, &serve));
    let mut printed = Vec::new();
    let port = loop {
        let mut byte = [0];
        server.stdout.as_mut().unwrap().read_exact(&mut byte).unwrap();
        printed.extend(byte);
        let printed = text(&printed);
        if let Some((_, port)) = printed.split_once("listening on 127.0.0.1:")
            && let Some((port, _)) = port.split_once('\r')
        {
            break port.to_owned();
        }
    };
    let copies = ["a", "b"].map(|to| {
        let mut copy = tool();
        copy.args(["copy", "source", &format!("127.0.0.1:{to}"), "--port", &port]);
        Running::start(copy.current_dir(folder.path("")).stdout(Stdio::null()))
    });
    copies.into_iter().for_each(|copy| assert_code(&copy.finish(), 0));
    server.stdin.as_mut().unwrap().write_all(CTRL_C).unwrap();
    let ended = server.finish();
    assert_code(&ended, 0);
    printed.extend(ended.stdout);
    assert_cleared("serve", &printed);
    assert_eq!(text(&printed).matches("verified at both ends").count(), 2, "{}", text(&printed));
}

/// Catches events that are printed over a bar.
#[test]
fn no_bar_is_left_among_the_events_of_verbose() {
    let folder = Folder::new();
    folder.write("source", vec![7; 60 << 20]);
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/../rdma-sim/scenarios/replug-during-transfer.toml");
    for command in [
        "copy -v --cables 2 source copy --fault 'at 1ms a:rdma_en2 unplug; at 2ms a:rdma_en2 replug'",
        &format!("sim run '{scenario}' --seeds 0..4 -v"),
        &format!("sim trace '{scenario}' -v --html page.html"),
        "bench all-reduce --bytes 4KiB..1MiB -v",
        "demo -v",
    ] {
        let ended = Running::start(&mut on_a_terminal(&folder, command)).finish();
        assert_code(&ended, 0);
        assert_cleared(command, &ended.stdout);
    }
    assert!(fs::exists(folder.path("copy")).unwrap());
}

/// Catches a bar that stays in the row above because the terminal shows Ctrl-C as `^C`.
#[test]
fn no_bar_is_left_by_ctrl_c() {
    let folder = Folder::new();
    let server = Listener::serve(&[]);
    for (command, shown, times) in [
        ("ping --count 10000000", "/10000000", 1),
        (&*format!("ping 127.0.0.1: --port {} --count 10000000", server.port), "/10000000", 1),
        ("demo", "3/6", 2),
        // Regression: the last part heard of no interrupt, and the report was written.
        ("demo", "6/6", 1),
    ] {
        let mut running = Running::start(&mut on_a_terminal(&folder, command));
        let mut printed = Vec::new();
        while !text(&printed).contains(shown) {
            let mut byte = [0];
            running.stdout.as_mut().unwrap().read_exact(&mut byte).unwrap();
            printed.extend(byte);
        }
        // The second one ends a command at once.
        for _ in 0..times {
            // The command may have ended.
            let _ = running.stdin.as_mut().unwrap().write_all(CTRL_C);
            sleep(Duration::from_millis(50));
        }
        let ended = running.finish();
        assert_code(&ended, 130);
        printed.extend(ended.stdout);
        assert_cleared(command, &printed);
        assert!(rows(&printed).iter().any(|row| row == "tb5: interrupted"), "{:?}", rows(&printed));
    }
}

/// Regression: on a narrow terminal, a bar takes two rows, of which a signal erased one.
#[test]
fn no_row_of_a_bar_is_left_on_a_narrow_terminal() {
    let folder = Folder::new();
    for columns in [12, 20] {
        let command = on_a_terminal_of(columns, &folder, "ping --count 10000000");
        let mut running = Running::start(&mut { command });
        let mut printed = Vec::new();
        while text(&printed).matches("/10000000").count() < 3 {
            let mut byte = [0];
            running.stdout.as_mut().unwrap().read_exact(&mut byte).unwrap();
            printed.extend(byte);
        }
        running.stdin.as_mut().unwrap().write_all(CTRL_C).unwrap();
        let ended = running.finish();
        assert_code(&ended, 130);
        printed.extend(ended.stdout);
        let rows = rows_of(columns, &printed);
        let left = rows.iter().position(|row| row.contains("/s") || row.contains("0000000"));
        assert_eq!(left, None, "{}", rows.join("\n").trim_end());
    }
}
