//! `tb5 run --net`: hosts with networks of their own
//!
//! Needs a C compiler, and a system that gives namespaces to this user. Where it does not, the tests say so and pass, unless
//! `RDMA_REQUIRE_NAMESPACES` is set, as in CI.

#![allow(unsafe_code, reason = "calls of libc")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::ChildStdout;
use std::sync::OnceLock;

use super::fixture::{Run, lines_of};
use crate::support::{
    Folder, Running, assert_code, eventually, json, program, simulated_provider, stderr, text, tool,
};

/// Whether `--net` works here; says why not, once
fn has_namespaces() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| {
        let output = Run::new(["--net", "--hosts", "2", "--", "true"]).output();
        let has = output.status.success();
        if !has {
            let why = stderr(&output);
            skip(&why);
        }
        has
    })
}

/// Says why a test is skipped; fails instead where it must not be
#[expect(clippy::print_stderr, reason = "the only way to say why a test is skipped")]
fn skip(why: &str) {
    assert!(std::env::var_os("RDMA_REQUIRE_NAMESPACES").is_none(), "{why}");
    eprintln!("NOT TESTED: {why}");
}

/// The program of `net.c`
fn net() -> String {
    static BUILT: OnceLock<(Folder, PathBuf)> = OnceLock::new();
    let (_, path) = BUILT.get_or_init(|| {
        let folder = Folder::new();
        let path = folder.path("net");
        let code = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/net.c");
        let status =
            program("cc").args(["-O1", "-Wall", "-Werror", "-o"]).arg(&path).arg(code).arg("-ldl").status();
        assert!(status.expect("there is a C compiler").success());
        (folder, path)
    });
    path.to_str().expect("the path is text").to_owned()
}

/// Hosts whose first one serves, and whose second one says which addresses it reaches
fn reaching(options: &[&str], addresses: &[&str]) -> (Run, Running, Lines) {
    let net = net();
    let server = [net.as_str(), "serve", "7000", ":"];
    let client = [&[net.as_str(), "reach", "7000"], addresses].concat();
    let mut run = Run::new([options, &["--net", "--hosts", "2", "--"], &server, &client].concat());
    let mut child = run.start();
    let lines = Lines::of(&mut child);
    (run, child, lines)
}

/// What the second host of [`reaching`] prints: the state of an address when it changes
struct Lines {
    output: BufReader<ChildStdout>,
    states: BTreeMap<String, String>,
}

impl Lines {
    fn of(run: &mut Running) -> Self {
        Self { output: BufReader::new(run.stdout.take().unwrap()), states: BTreeMap::new() }
    }

    /// The next line of the host
    fn next(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "the run has ended: {:?}", self.states);
            if let Some(line) = line.strip_prefix("b | ") {
                return line.trim_end().to_owned();
            }
        }
    }

    /// Waits until the addresses have these states; one that changes for a moment, as on a busy machine, is none
    fn wait_for<const N: usize>(&mut self, expected: [&str; N]) {
        let has_come = |states: &BTreeMap<String, String>| {
            let mut pairs = expected.iter().filter_map(|text| text.split_once(' '));
            pairs.all(|(address, state)| states.get(address).is_some_and(|now| now == state))
        };
        while !has_come(&self.states) {
            if let Some((address, state)) = self.next().split_once(' ') {
                self.states.insert(address.to_owned(), state.to_owned());
            }
        }
    }
}

fn end(run: &Run, child: Running) {
    child.signal(libc::SIGTERM);
    assert_code(&child.finish(), 143);
    run.assert_nothing_is_left();
}

/// Catches cables that faults do not cut for IP, an unplug that also cuts Ethernet, and addresses that a replug does not bring back.
#[test]
fn a_pulled_cable_carries_no_ip_until_it_is_plugged_in_again() {
    if !has_namespaces() {
        return;
    }
    let addresses = ["169.254.1.1", "a", "fe80::3496:ff:fe00:0%en2"];
    let (run, child, mut lines) = reaching(&[], &addresses);
    lines.wait_for(["169.254.1.1 reached", "a reached", "fe80::3496:ff:fe00:0%en2 reached"]);
    for _ in 0..2 {
        run.fabric(&["a:rdma_en2 unplug"]);
        lines.wait_for(["169.254.1.1 cut", "a reached", "fe80::3496:ff:fe00:0%en2 cut"]);
        run.fabric(&["b:rdma_en2 replug"]);
        lines.wait_for(["169.254.1.1 reached", "fe80::3496:ff:fe00:0%en2 reached"]);
    }
    end(&run, child);
}

/// Catches faults of the command line that are not applied, and a network that carries IP where no cable is.
#[test]
fn a_cable_that_is_pulled_from_the_start_carries_no_ip() {
    if !has_namespaces() {
        return;
    }
    let (run, child, mut lines) =
        reaching(&["--fault", "a:rdma_en2 unplug"], &["169.254.1.1", "169.254.1.2"]);
    lines.wait_for(["169.254.1.1 cut", "169.254.1.2 cut"]);
    run.fabric(&["a:rdma_en2 replug"]);
    lines.wait_for(["169.254.1.1 reached"]);
    end(&run, child);
}

/// Catches a fault that waits for frames, which the process that counts them announces.
#[test]
fn a_cable_that_the_traffic_of_programs_pulls_carries_no_ip() {
    if !has_namespaces() {
        return;
    }
    let script = "ibv_uc_pingpong -g 1 -n 1000000000 & exec \"$0\" serve 7000";
    // Both programs of the first host listen, and the client starts when one of them does.
    let client = "until ibv_uc_pingpong -g 1 -n 1000000000 a; do sleep 0.05; done & exec \"$0\" reach 7000 169.254.1.1";
    let net = net();
    let options = ["--net", "--hosts", "2", "--fault", "after 20000 frames a:rdma_en2 unplug", "--"];
    let words = ["sh", "-c", script, &net, ":", "sh", "-c", client, &net];
    let mut run = Run::new([&options[..], &words].concat());
    let mut child = run.start();
    Lines::of(&mut child).wait_for(["169.254.1.1 cut"]);
    end(&run, child);
}

/// Catches interfaces whose addresses are not those of the GID table, in a cabling with several cables to a host.
#[test]
fn interfaces_have_the_addresses_that_the_gid_tables_show() {
    if !has_namespaces() {
        return;
    }
    for options in [&["--hosts", "4"][..], &["--hosts", "5", "--topology", "ring"]] {
        let output = Run::new([&["--net"], options, &["--", &net(), "addresses"]].concat()).output();
        assert_code(&output, 0);
        assert_eq!(lines_of(&output.stdout, "d"), ["en2 has 3", "en3 has 3", "en4 has 3"]);
    }
}

/// Catches a provider that programs do not find under the path of a Mac, one that is loaded a second time, and one that stays there.
#[test]
fn programs_find_the_provider_where_a_mac_has_it() {
    if !has_namespaces() {
        return;
    }
    let script = "$0 provider && unset LD_PRELOAD LD_LIBRARY_PATH && $0 provider && ls -A /usr/lib | wc -l";
    let output = Run::new(["--net", "--hosts", "2", "--", "sh", "-c", script, &net()]).output();
    assert_code(&output, 0);
    let before = fs::read_dir("/usr/lib").unwrap().count();
    let devices = "3 devices, rdma_en2 first";
    for host in ["a", "b"] {
        let lines = lines_of(&output.stdout, host);
        let count = (before + 1).to_string();
        assert_eq!(lines, [devices, "the preloaded one", devices, "not preloaded", &count]);
    }
    assert!(!Path::new("/usr/lib/librdma.dylib").exists());
}

/// Catches a host name that does not lead to its host.
#[test]
fn an_unmodified_server_and_client_find_each_other_by_name() {
    if !has_namespaces() {
        return;
    }
    let server = ["ibv_uc_pingpong", "-g", "1", "-n", "500"];
    // The server may not listen yet on a machine that is busy.
    let client = ["sh", "-c", "until ibv_uc_pingpong -g 1 -n 500 a; do sleep 0.05; done"];
    let words = [&["--json", "--net", "--hosts", "2", "--"], &server[..], &[":"], &client].concat();
    let output = Run::new(words).output();
    assert_code(&output, 0);
    assert_eq!(json(&output)["cables"][0]["ends"][1]["messages"], 500);
}

/// Catches runs that share a network: both have the same addresses, and the same port.
#[test]
fn two_runs_at_once_do_not_disturb_each_other() {
    if !has_namespaces() {
        return;
    }
    let (first, one, mut first_lines) = reaching(&[], &["169.254.1.1"]);
    first_lines.wait_for(["169.254.1.1 reached"]);
    let (second, two, mut second_lines) = reaching(&["--fault", "a:rdma_en2 unplug"], &["169.254.1.1", "a"]);
    second_lines.wait_for(["169.254.1.1 cut", "a reached"]);
    end(&first, one);
    second.fabric(&["a:rdma_en2 replug"]);
    second_lines.wait_for(["169.254.1.1 reached"]);
    end(&second, two);
}

/// Catches interfaces, mounts, files or namespaces that outlive a run, however it ends.
#[test]
fn nothing_is_left_of_a_network() {
    if !has_namespaces() {
        return;
    }
    let state = || {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let interfaces = fs::read_dir("/sys/class/net").unwrap().count();
        (mounts, interfaces, Path::new("/usr/lib/librdma.dylib").exists())
    };
    let before = state();
    for signal in [libc::SIGINT, libc::SIGKILL] {
        let script = "readlink /proc/self/ns/net; sleep 1000 & wait";
        let mut run = Run::new(["--net", "--hosts", "2", "--", "sh", "-c", script]);
        let mut child = run.start();
        let namespace = Lines::of(&mut child).next();
        assert!(namespace.starts_with("net:["), "{namespace}");
        assert!(namespaces().contains(&namespace));
        child.signal(signal);
        child.finish();
        run.assert_no_process_is_left();
        eventually(|| !namespaces().contains(&namespace));
        assert_eq!(state(), before);
        assert_code(&tb5!["fabric"], 0);
        run.assert_nothing_is_left();
    }
}

/// The network namespaces of all processes
fn namespaces() -> Vec<String> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let links = processes.filter_map(|process| fs::read_link(process.path().join("ns/net")).ok());
    links.map(|link| link.display().to_string()).collect()
}

/// Catches a need for privileges: user namespaces give those that it takes.
#[test]
fn an_unprivileged_user_gets_a_network() {
    const NOBODY: u32 = 65534;
    // SAFETY: the call has no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        // All other tests are this one.
        return;
    }
    // The programs, where any user may read them.
    let folder = Folder::new();
    let net = net();
    fs::set_permissions(folder.path("."), fs::Permissions::from_mode(0o755)).unwrap();
    let copied = |from: &Path, name: &str| {
        fs::copy(from, folder.path(name)).unwrap();
        folder.path(name)
    };
    let tb5 = copied(Path::new(tool().get_program()), "tb5");
    let provider = copied(&simulated_provider(), "librdma.so");
    let net = copied(Path::new(&net), "net");
    let script = "$0 addresses && $0 provider && id -u";
    let mut command = program(tb5);
    command.args(["run", "--net", "--hosts", "2", "--", "sh", "-c", script]).arg(net);
    command.env("RDMA_SIM_PROVIDER", provider).current_dir("/").uid(NOBODY).gid(NOBODY);
    let output = command.output().unwrap();
    if !output.status.success() {
        let why = stderr(&output);
        return skip(&why);
    }
    for host in ["a", "b"] {
        let lines = lines_of(&output.stdout, host);
        assert_eq!(lines[lines.len() - 2..], ["the preloaded one", "65534"], "{}", text(&output.stdout));
    }
}

/// Catches a run that goes on without a network, in which a program would use TCP of another network in silence.
#[test]
fn without_namespaces_one_sentence_says_so() {
    // In a user namespace that allows no further ones, without the privilege to make others.
    let script = "echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin \"$@\"";
    let mut command = program("unshare");
    command.args(["-Ur", "sh", "-c", script, "sh"]).arg(tool().get_program());
    command.args(["run", "--net", "--hosts", "2", "--", "echo", "started"]);
    let output = command.output().unwrap();
    let errors = stderr(&output);
    if errors.contains("unshare:") || errors.contains("setpriv:") || errors.contains("cannot create") {
        return skip(&errors);
    }
    assert_code(&output, 1);
    assert!(text(&output.stdout).is_empty(), "{}", text(&output.stdout));
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(
        errors.contains("--net needs a namespace, which this system does not give to this user"),
        "{errors}"
    );
}
