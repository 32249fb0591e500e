//! Where the commands that listen say so

use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Command, Stdio};

use serde_json::Value;

#[cfg(target_os = "linux")]
use crate::run::fixture::{Run, lines_of};
use crate::support::{Folder, Running, assert_code, eventually, keys, stdout, tool};

const ANY_PORT: [&str; 4] = ["--bind", "127.0.0.1", "--port", "0"];

/// The line that a command prints before any peer connects
fn first_line(command: &mut Command) -> String {
    let folder = Folder::new();
    let path = folder.path("said");
    let out = fs::File::create(&path).unwrap();
    let running = Running::start(command.stdout(out).stderr(Stdio::null()));
    eventually(|| fs::read_to_string(&path).unwrap().ends_with('\n'));
    running.signal(libc::SIGINT);
    running.finish();
    fs::read_to_string(path).unwrap()
}

/// Asserts that `line` is an object with the address alone
#[track_caller]
fn assert_object(line: &str) {
    let first: Value = serde_json::from_str(line).unwrap();
    assert_eq!(keys(&first), ["listening"]);
    assert_port(first["listening"].as_str().unwrap());
}

/// Asserts that `line` is text with the address
#[track_caller]
fn assert_text(line: &str) {
    assert_port(line.trim_end().strip_prefix("listening on ").unwrap_or_else(|| panic!("{line}")));
}

#[track_caller]
fn assert_port(address: &str) {
    let port = address.strip_prefix("127.0.0.1:").and_then(|port| port.parse().ok());
    assert!(port > Some(0_u16), "{address}");
}

/// Catches a command that does not say which port the system has chosen: no peer can connect to it.
#[test]
fn the_port_that_the_system_chooses_is_printed() {
    let root = Folder::new();
    let into = root.path("");
    let commands = [&["copy", "--listen", into.to_str().unwrap()][..], &["serve"]];
    for words in commands {
        let with = |option: &str| first_line(tool().args(words).args(ANY_PORT).arg(option));
        assert_object(&with("--json"));
        assert_text(&with("--quiet"));
    }
}

/// The same of a command that needs a device.
#[cfg(target_os = "linux")]
#[test]
fn a_calibration_prints_the_port_that_the_system_chooses() {
    let first_line = |option: &str| {
        let folder = Folder::new();
        let (tb5, said) = (env!("CARGO_BIN_EXE_tb5"), folder.path("said").display().to_string());
        let listening = [&[tb5, "calibrate", "--listen", option][..], &ANY_PORT].concat().join(" ");
        // A shell has its background commands ignore SIGINT.
        let script = format!(
            "{listening} > {said} & until read line < {said}; do sleep 0.05; done; kill $!; wait; echo \"$line\""
        );
        let output = Run::new(["--hosts", "2", "--", "sh", "-c", &script, ":", "true"]).output();
        assert_code(&output, 0);
        lines_of(&output.stdout, "a").concat()
    };
    assert_object(&first_line("--json"));
    assert_text(&first_line("--quiet"));
}

/// Catches an address among the results of `--quiet` although its user has chosen it.
#[test]
fn a_port_that_the_user_has_chosen_is_not_printed_with_quiet() {
    // The connection keeps the port from other programs; a server that sets SO_REUSEADDR can listen on it.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let connection = [TcpStream::connect(address).unwrap(), listener.accept().unwrap().0];
    drop(listener);
    let mut command = tool();
    command.args(["serve", "--quiet", "--bind", "127.0.0.1", "--port", &address.port().to_string()]);
    let running = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    eventually(|| TcpStream::connect(address).is_ok());
    running.signal(libc::SIGINT);
    let served = running.finish();
    drop(connection);
    assert_code(&served, 0);
    assert_eq!(stdout(&served), "");
}
