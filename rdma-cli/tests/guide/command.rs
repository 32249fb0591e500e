//! Runs the commands of a page

use std::env;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use crate::book::root;
use crate::pattern;

/// A folder in which the commands of a page run one after another, with the `tb5` that was built
pub(crate) struct Scratch(TempDir);

/// How commands are written where the tool may not be in the path
pub(crate) const BY_CARGO: &str = "cargo run --release -- ";

/// What a command of a console block exits with
const EXITS: &str = " # exits with ";

impl Scratch {
    /// A folder with what a clone of the repository has and the commands use
    pub(crate) fn new() -> Self {
        let folder = TempDir::with_prefix("guide-").expect("a temporary folder");
        fs::copy(root().join("README.md"), folder.path().join("README.md")).expect("the README");
        for linked in ["rdma-sim", "rdma-doctor"] {
            std::os::unix::fs::symlink(root().join(linked), folder.path().join(linked)).expect("a folder");
        }
        Self(folder)
    }

    /// Whether the machine has a program
    pub(crate) fn has(&self, program: &str) -> bool {
        self.shell(&format!("command -v {program}")).status.success()
    }

    /// Runs commands, which exit with `code`, and returns what they print
    ///
    /// # Panics
    ///
    /// If they exit with another code.
    pub(crate) fn run(&self, at: &str, commands: &str, code: i32) -> String {
        let Output { status, stdout, stderr } = self.shell(&commands.replace(BY_CARGO, "tb5 "));
        let [stdout, stderr] = [stdout, stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        assert_eq!(status.code(), Some(code), "{at}: {commands}\n{stdout}{stderr}");
        stdout
    }

    /// Runs the commands of a console block, which begin with `$`, and compares the lines below each; returns their number
    ///
    /// # Panics
    ///
    /// If the output of one is not as the block says.
    pub(crate) fn compare(&self, at: &str, block: &str) -> usize {
        let commands = block.strip_prefix("$ ").unwrap_or_else(|| panic!("{at}: a console begins with `$ `"));
        let mut count = 0;
        for session in commands.split("\n$ ") {
            let (command, expected) = session.split_once('\n').unwrap_or((session, ""));
            let (command, code) = command.split_once(EXITS).unwrap_or((command, "0"));
            let code = code.parse().unwrap_or_else(|_| panic!("{at}: `{code}` is no exit code"));
            let printed = self.run(at, command, code);
            assert!(
                pattern::matches(expected, &printed),
                "{at}: {command}\nprints\n{printed}\ninstead of\n{expected}"
            );
            count += 1;
        }
        count
    }

    /// Writes a file for the commands that follow
    ///
    /// # Panics
    ///
    /// If it does not parse.
    pub(crate) fn write(&self, at: &str, name: &str, text: &str) {
        if name.ends_with(".toml") {
            toml::from_str::<toml::Table>(text).unwrap_or_else(|error| panic!("{at}: {error}"));
        } else {
            serde_json::from_str::<serde_json::Value>(text).unwrap_or_else(|error| panic!("{at}: {error}"));
        }
        fs::write(self.0.path().join(name), text).expect("a file of the page");
    }

    /// Runs commands with the tool in the path
    pub(crate) fn shell(&self, commands: &str) -> Output {
        let tool = Path::new(env!("CARGO_BIN_EXE_tb5")).parent().expect("the tool is in a folder");
        let path = env::var_os("PATH").unwrap_or_default();
        let path =
            env::join_paths([tool.to_owned()].into_iter().chain(env::split_paths(&path))).expect("folders");
        let mut shell = Command::new("bash");
        shell.args(["-euo", "pipefail", "-c", commands]).current_dir(self.0.path()).env("PATH", path);
        shell.stdin(Stdio::null()).output().expect("bash runs")
    }
}
