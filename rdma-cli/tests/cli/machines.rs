//! `tb5 serve`, and `tb5 copy`, `ping` and `bw` between two machines, here two processes

#[cfg(target_os = "linux")]
mod beside;
mod listening;
mod peers;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::copy::{mode, noise, set_mode, with_source};
use crate::support::{
    Folder, Running, assert_code, assert_failed, eventually, json, keys, stderr, stdout, tool,
};

const LEN: usize = 3 << 20;

/// A process that serves, and its port
pub(crate) struct Listener {
    pub(crate) running: Running,
    pub(crate) port: u16,
}

impl Listener {
    pub(crate) fn start(root: &Path, options: &[&str]) -> Self {
        Self::of(tool().args(["copy", "--listen"]).arg(root).args(options))
    }

    pub(crate) fn serve(options: &[&str]) -> Self {
        Self::of(tool().arg("serve").args(options))
    }

    /// A process that serves on all addresses of this machine
    pub(crate) fn on_all_addresses(options: &[&str]) -> Self {
        Self::begin(tool().arg("serve").args(options))
    }

    fn of(command: &mut Command) -> Self {
        Self::begin(command.args(["--bind", "127.0.0.1"]))
    }

    fn begin(command: &mut Command) -> Self {
        command.args(["--port", "0"]);
        let mut running = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
        let mut line = String::new();
        // Byte by byte: what comes behind the line is read at the end.
        let output = running.stdout.as_mut().unwrap();
        while !line.ends_with('\n') {
            let mut byte = [0];
            output.read_exact(&mut byte).unwrap();
            line.push(byte[0].into());
        }
        let port = line.rsplit(':').next().unwrap().trim_end_matches(|letter: char| !letter.is_ascii_digit());
        let port = port.parse().unwrap();
        Self { running, port }
    }

    /// What a client prints, and how it ends
    pub(crate) fn ask(&self, command: &str, options: &[&str]) -> Output {
        tool().args([command, "127.0.0.1:", "--port", &self.port.to_string()]).args(options).output().unwrap()
    }

    /// The arguments of a sender
    pub(crate) fn send<'a>(&self, options: &[&'a str]) -> Vec<String> {
        ["copy", "--port"]
            .into_iter()
            .map(str::to_owned)
            .chain([self.port.to_string()])
            .chain(options.iter().map(|option: &&'a str| (*option).to_owned()))
            .collect()
    }
}

#[test]
fn a_file_is_copied_between_machines() {
    for (to, name) in
        [("", "source"), ("other", "other"), ("inside", "inside/source"), ("inside/x", "inside/x")]
    {
        let content = noise(LEN, 1);
        let (folder, root) = (with_source(&content), Folder::new());
        root.directory("inside");
        let listener = Listener::start(&root.path(""), &[]);
        let sent = tool()
            .args(listener.send(&["--json"]))
            .arg(folder.path("source"))
            .arg(format!("127.0.0.1:{to}"))
            .output()
            .unwrap();
        let received = listener.running.finish();
        assert_code(&received, 0);
        let report = json(&sent);
        let hash = blake3::hash(&content).to_string();
        assert_eq!((&report["blake3"], &report["bytes"]), (&hash.into(), &LEN.into()));
        // Regression: it was empty for a copy that keeps the name of its source.
        assert_eq!(report["path"], name);
        assert_eq!((&report["backend"], &report["role"]), (&"tcp".into(), &"sender".into()));
        let expected = [
            "backend",
            "blake3",
            "bytes",
            "devices",
            "directories",
            "discarded_bytes",
            "files",
            "goodput_bytes_per_second",
            "links",
            "path",
            "peer",
            "reconnects",
            "resumed_bytes",
            "retransmitted_bytes",
            "role",
            "wall_seconds",
        ];
        assert_eq!(keys(&report), expected);
        assert_eq!(report["devices"], serde_json::json!(["tcp"]));
        assert!(fs::read(root.path(name)).unwrap() == content, "{to}");
        let said = stdout(&received);
        assert!(said.contains("carrier: TCP (") && said.contains("verified at both ends"), "{said}");
        assert!(stderr(&received).contains("without --key"), "{}", stderr(&received));
    }
}

#[test]
fn a_directory_is_copied_between_machines() {
    let (folder, root) = (Folder::new(), Folder::new());
    folder.directory("tree");
    folder.directory("tree/empty");
    folder.write("tree/a", noise(100_000, 1));
    folder.write("tree/b", "");
    std::os::unix::fs::symlink("a", folder.path("tree/link")).unwrap();
    let listener = Listener::start(&root.path(""), &[]);
    let sent =
        tool().args(listener.send(&["-r"])).arg(folder.path("tree")).arg("127.0.0.1:copy").output().unwrap();
    assert_code(&sent, 0);
    assert_code(&listener.running.finish(), 0);
    assert!(fs::read(root.path("copy/a")).unwrap() == noise(100_000, 1));
    assert_eq!(fs::read_link(root.path("copy/link")).unwrap(), Path::new("a"));
    assert!(root.path("copy/empty").is_dir() && fs::read(root.path("copy/b")).unwrap().is_empty());
    assert_eq!(root.entries(), ["copy"]);
}

/// Catches a stranger, a wrong key or a request that cannot be met that ends the wait or keeps an honest sender out.
#[test]
fn strangers_are_not_in_the_way() {
    let (folder, root) = (with_source(&noise(LEN, 1)), Folder::new());
    let key = folder.write("key", "7f".repeat(32));
    let wrong = folder.write("wrong", "80".repeat(32));
    let listener = Listener::start(&root.path(""), &["--key", key.to_str().unwrap()]);
    let connect = || TcpStream::connect((Ipv4Addr::LOCALHOST, listener.port)).unwrap();
    let silent = [connect(), connect(), connect()];
    connect().write_all(&noise(1000, 2)).unwrap();
    connect().write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let send = |options: &[&str], to: &str| {
        tool().args(listener.send(options)).arg(folder.path("source")).arg(to).output().unwrap()
    };
    let keyless = send(&[], "127.0.0.1:x");
    assert_failed(&keyless, 1, &["no session could be made", "the peer wants a shared key"]);
    let other = send(&["--key", wrong.to_str().unwrap()], "127.0.0.1:x");
    assert_failed(&other, 1, &["the peer has another shared key"]);
    let key = ["--key", key.to_str().unwrap()];
    assert_failed(
        &send(&key, "127.0.0.1:missing/x"),
        1,
        &["127.0.0.1: the other side has no such file or directory: its output says more"],
    );
    // Regression: the sender read only that the other side has given up.
    std::os::unix::fs::symlink("/tmp", root.path("out")).unwrap();
    let why = "127.0.0.1: the other side has a symbolic link in this path, and writes nothing through it";
    assert_failed(&send(&key, "127.0.0.1:out/x"), 1, &[why]);
    fs::remove_file(root.path("out")).unwrap();
    assert_code(&send(&key, "127.0.0.1:x"), 0);
    drop(silent);
    let received = listener.running.finish();
    assert_code(&received, 0);
    let said = stderr(&received);
    assert!(said.contains("another shared key") && said.contains("is not there: create it first"), "{said}");
    assert!(said.contains("out: is a symbolic link: remove it, or name another place: nothing is"), "{said}");
    assert_eq!(root.entries(), ["x"]);
}

/// Catches a side that waits for ever when the other one is interrupted, and a rest that is lost.
#[test]
fn an_interrupted_copy_between_machines_is_continued() {
    let len = 1_u64 << 30;
    for interrupts_sender in [true, false] {
        let (folder, root) = (Folder::new(), Folder::new());
        fs::File::create(folder.path("source")).unwrap().set_len(len).unwrap();
        let listener = Listener::start(&root.path(""), &[]);
        let mut command = tool();
        command.args(listener.send(&[])).arg(folder.path("source")).arg("127.0.0.1:copy");
        let sender = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
        let arrived = || {
            let names = fs::read_dir(root.path("")).unwrap().map(|entry| entry.unwrap().path());
            names.filter_map(|path| fs::metadata(path).ok()).map(|found| found.len()).sum::<u64>()
        };
        eventually(|| arrived() > 8 << 20);
        if interrupts_sender { &sender } else { &listener.running }.signal(libc::SIGINT);
        let (sent, received) = (sender.finish(), listener.running.finish());
        // Each side says by its exit code whether its own user has stopped it.
        let (why, codes) = match interrupts_sender {
            true => ("interrupted", [130, 1]),
            false => ("127.0.0.1: the other side was stopped by its user", [1, 130]),
        };
        assert_failed(
            &sent,
            codes[0],
            &[
                "the copy is not complete (",
                "); copy again, and what the other side has kept is not sent again",
                why,
            ],
        );
        assert_failed(&received, codes[1], &["what has arrived is in", "copy again to continue"]);
        let rest = fs::metadata(root.path(".copy.tb5-partial")).unwrap().len();
        assert!(rest > 1 << 20 && rest < len, "{rest}");

        let listener = Listener::start(&root.path(""), &[]);
        let again = tool()
            .args(listener.send(&["--json"]))
            .arg(folder.path("source"))
            .arg("127.0.0.1:copy")
            .output()
            .unwrap();
        assert_code(&listener.running.finish(), 0);
        assert_eq!(json(&again)["resumed_bytes"], rest);
        assert_eq!(fs::metadata(root.path("copy")).unwrap().len(), len);
        assert_eq!(root.entries(), ["copy"]);
    }
}

/// Regression: directories kept the write permission that they have while they are written.
#[test]
fn directories_have_their_modes_after_an_interrupted_copy_between_machines() {
    let (folder, root) = (Folder::new(), Folder::new());
    folder.directory("source");
    folder.directory("source/locked");
    fs::File::create(folder.path("source/locked/file")).unwrap().set_len(1 << 30).unwrap();
    set_mode(folder.path("source/locked"), 0o555);
    let start = |listener: &Listener| {
        let mut command = tool();
        command.args(listener.send(&["-r"])).arg(folder.path("source")).arg("127.0.0.1:copy");
        Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
    };
    let listener = Listener::start(&root.path(""), &[]);
    let sender = start(&listener);
    let arrived = || {
        let names = fs::read_dir(root.path("copy/locked")).into_iter().flatten().flatten();
        names.filter_map(|entry| entry.metadata().ok()).map(|found| found.len()).sum::<u64>()
    };
    eventually(|| arrived() > 8 << 20);
    listener.running.signal(libc::SIGTERM);
    assert_code(&listener.running.finish(), 143);
    assert_code(&sender.finish(), 1);
    assert!(root.path("copy/locked/.file.tb5-partial").exists());
    assert_eq!(mode(root.path("copy/locked")), 0o555);

    fs::File::options()
        .write(true)
        .open(folder.path("source/locked/file"))
        .unwrap()
        .set_len(64 << 20)
        .unwrap();
    let listener = Listener::start(&root.path(""), &[]);
    assert_code(&start(&listener).finish(), 0);
    assert_code(&listener.running.finish(), 0);
    assert_eq!(mode(root.path("copy/locked")), 0o555);
    // Only root could remove the files of a locked directory.
    for locked in [folder.path("source/locked"), root.path("copy/locked")] {
        set_mode(locked, 0o755);
    }
}

/// Regression: a file got the name of a directory that does not exist.
#[test]
fn a_directory_that_does_not_exist_is_refused_with_its_slash() {
    let (folder, root) = (with_source(&noise(1000, 1)), Folder::new());
    root.write("file", "text");
    let into = root.path("");
    let server = Listener::serve(&["--into", into.to_str().unwrap()]);
    for to in ["none/", "none/.", "file/"] {
        let sent = tool()
            .args(server.send(&[]))
            .arg(folder.path("source"))
            .arg(format!("127.0.0.1:{to}"))
            .output()
            .unwrap();
        assert_failed(&sent, 1, &["127.0.0.1: the other side "]);
    }
    server.running.signal(libc::SIGTERM);
    let served = server.running.finish();
    assert_failed(
        &served,
        0,
        &["none: there is no such directory: create it first", "file: is not a directory"],
    );
    assert_eq!(root.entries(), ["file"]);
    assert_eq!(fs::read(root.path("file")).unwrap(), b"text");
}

/// Catches a server that answers one peer, or one after another, and one that ends with a peer that fails.
#[test]
fn a_server_answers_several_peers_until_ctrl_c() {
    let (folder, root) = (with_source(&noise(LEN, 1)), Folder::new());
    let into = root.path("");
    let server = Listener::serve(&["--into", into.to_str().unwrap()]);
    let port = server.port.to_string();
    let mut pinging = tool();
    pinging.args(["ping", "127.0.0.1:", "--count", "10000000", "--port", &port]);
    let pinging = Running::start(pinging.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let silent = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).unwrap();

    let ping = json(&server.ask("ping", &["--count", "5", "--bytes", "100KiB", "--json"]));
    let expected = [
        "backend",
        "count",
        "devices",
        "peer",
        "reconnects",
        "retransmitted_bytes",
        "rtt_ns",
        "size_bytes",
        "wall_seconds",
    ];
    assert_eq!(keys(&ping), expected);
    assert_eq!(
        (&ping["backend"], &ping["count"], &ping["size_bytes"]),
        (&"tcp".into(), &5.into(), &102_400.into())
    );
    assert!(ping["rtt_ns"]["min"].as_u64().unwrap() > 0);
    let bw = json(&server.ask("bw", &["--bytes", "64KiB..128KiB", "--in-flight", "2", "--json"]));
    let expected = [
        "backend",
        "devices",
        "in_flight",
        "peer",
        "reconnects",
        "retransmitted_bytes",
        "rows",
        "wall_seconds",
    ];
    assert_eq!(keys(&bw), expected);
    assert_eq!(bw["rows"].as_array().unwrap().len(), 2);
    let sent =
        tool().args(server.send(&[])).arg(folder.path("source")).arg("127.0.0.1:copy").output().unwrap();
    assert_code(&sent, 0);
    assert!(fs::read(root.path("copy")).unwrap() == noise(LEN, 1));

    // A peer that vanishes is told of, and the server goes on.
    pinging.signal(libc::SIGKILL);
    drop((pinging.finish(), silent));
    assert_code(&server.ask("ping", &["--count", "1"]), 0);
    server.running.signal(libc::SIGINT);
    let served = server.running.finish();
    assert_code(&served, 0);
    let said = stdout(&served);
    for line in ["measures: ping", "measures: bw", "copies to", "answered", "received"] {
        assert!(said.contains(line), "{line}: {said}");
    }
}

/// Catches a reason that stays at the other side, and a measurement that waits for a process that takes copies only.
#[test]
fn what_a_server_does_not_do_is_refused_with_the_reason() {
    let (folder, root) = (with_source(&noise(100, 1)), Folder::new());
    let key = folder.write("key", "7f".repeat(32));
    let key = ["--key", key.to_str().unwrap()];
    let server = Listener::serve(&key);
    assert_failed(&server.ask("ping", &[]), 1, &["the peer wants a shared key"]);
    assert_code(&server.ask("ping", &[&["--count", "1"][..], &key].concat()), 0);
    let sent = tool().args(server.send(&key)).arg(folder.path("source")).arg("127.0.0.1:x").output().unwrap();
    assert_failed(&sent, 1, &["the other side takes no copies: run `tb5 serve --into DIR` there"]);
    server.running.signal(libc::SIGTERM);
    let served = server.running.finish();
    assert_code(&served, 0);
    assert!(stderr(&served).contains("write --into DIR to take copies"), "{}", stderr(&served));

    let listener = Listener::start(&root.path(""), &[]);
    assert_failed(
        &listener.ask("bw", &[]),
        1,
        &["the other side takes one copy and nothing else: run `tb5 serve` there"],
    );
    listener.running.signal(libc::SIGINT);
    let listened = listener.running.finish();
    assert_failed(&listened, 130, &["it asks for a measurement", "interrupted"]);
    for (arguments, code, why) in [
        (&["ping", "--port", "1", "127.0.0.1:"][..], 1, "127.0.0.1, port 1: run `tb5 serve` there first"),
        (&["ping", "--port", "0", "127.0.0.1:"], 2, "--port 0 is for the side that listens"),
        (&["serve", "--into", "Cargo.toml"], 1, "Cargo.toml: is not a directory"),
        (&["ping", "--port", "1"], 2, "--port is for two machines: write HOST:, or leave it out"),
        (&["bw", "--key", "x"], 2, "--key is for two machines"),
        (&["bw", "a:", "--seed", "1"], 2, "cannot be used with '--seed <SEED>'"),
        (&["ping", "a:", "--profile", "tb5"], 2, "cannot be used with '--profile <PROFILE|FILE>'"),
        (&["ping", "a/b"], 2, "write the name or the address of a machine"),
        (
            &["bw", "a:", "--bytes", "8MiB"],
            2,
            "--bytes: 8MiB is too long: messages to another machine have at most 4MiB",
        ),
        (&["serve", "--into", "/nowhere"], 1, "/nowhere: there is no such directory: create it first"),
    ] {
        assert_failed(&tool().args(arguments).output().unwrap(), code, &[why]);
    }
}

/// Over the simulated fabric the carrier is RDMA; when the cable is out, TCP.
#[cfg(target_os = "linux")]
#[test]
fn rdma_carries_a_copy_where_both_machines_have_it() {
    for fault in [None, Some("after 3000 frames b:rdma_en2 unplug")] {
        let (folder, root) = (Folder::new(), Folder::new());
        // Piece by piece: other tests measure the memory of programs that begin as copies of this process.
        let mut source = fs::File::create(folder.path("source")).unwrap();
        (0..40).for_each(|piece| source.write_all(&noise(1 << 20, piece)).unwrap());
        let tb5 = env!("CARGO_BIN_EXE_tb5");
        let mut command = tool();
        command.arg("run").args(fault.map(|fault| format!("--fault={fault}"))).arg("--");
        command.args([tb5, "copy", "--bind", "127.0.0.1", "--port", "7466", "--listen"]).arg(root.path(""));
        command.args([":", tb5, "copy", "--port", "7466"]).arg(folder.path("source")).arg("127.0.0.1:copy");
        let output = command.output().unwrap();
        let (said, summary) = (stdout(&output), stderr(&output));
        assert_code(&output, 0);
        assert!(said.contains("b | carrier: RDMA over rdma_en2; TCP while no cable works"), "{said}");
        let hash = |path| {
            let mut hasher = blake3::Hasher::new();
            hasher.update_reader(fs::File::open(path).unwrap()).unwrap().finalize()
        };
        assert_eq!(hash(root.path("copy")), hash(folder.path("source")));
        let sent = summary.lines().find(|line| line.contains("b:rdma_en2  a:rdma_en2")).unwrap();
        if fault.is_none() {
            assert!(
                sent.contains("40.") && sent.contains("MiB"),
                "everything goes over the cable: {summary}"
            );
        } else {
            assert!(!summary.contains("did not fire") && !sent.contains("40."), "{summary}");
        }
    }
}

#[test]
fn options_that_would_do_nothing_are_refused() {
    let folder = with_source(b"content");
    let source = folder.path("source");
    for (options, to, why) in [
        (&["--cables=2"][..], "127.0.0.1:", "--cables is for two simulated Macs"),
        (&["--seed=2"], "127.0.0.1:", "--seed is for two simulated Macs"),
        (&["--fault=a:rdma_en2 unplug"], "127.0.0.1:", "--fault is for two simulated Macs"),
        (&["--port=1"], "copy", "--port is for two machines"),
        (&["--carrier=tcp"], "copy", "--carrier is for two machines"),
        (&["--key=x"], "copy", "--key is for two machines"),
        (&["--bind=127.0.0.1"], "copy", "--bind is for the side with --listen"),
        (&["--bind=127.0.0.1"], "127.0.0.1:", "--bind is for the side with --listen"),
    ] {
        let output = tool()
            .arg("copy")
            .args(options)
            .arg(&source)
            .arg(to)
            .current_dir(folder.path(""))
            .output()
            .unwrap();
        assert_failed(&output, 2, &[why]);
    }
    let nothing = tb5!["copy", "--port", "1", &source, "127.0.0.1:x"];
    assert_failed(&nothing, 1, &["127.0.0.1, port 1: run `tb5 copy --listen DIR` there first"]);
    let port = tb5!["copy", "--port", "1", &source, "127.0.0.1:7480"];
    assert_failed(&port, 1, &["tb5: the copy will be called 7480; a port is written as --port 7480\n"]);
    let out = tb5!["copy", &source, "127.0.0.1:../x"];
    assert_failed(&out, 2, &["../x: must be below the directory of the listening side"]);
    assert_eq!(folder.entries(), ["source"]);
}
