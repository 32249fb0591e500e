//! `tb5 copy` between two machines, here two processes

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::Stdio;

use crate::copy::{noise, with_source};
use crate::support::{
    Folder, Running, assert_code, assert_failed, eventually, json, keys, stderr, stdout, tool,
};

const LEN: usize = 3 << 20;

/// A process that waits for a copy, and its port
struct Listener {
    running: Running,
    port: u16,
}

impl Listener {
    fn start(root: &Path, options: &[&str]) -> Self {
        let mut command = tool();
        command.args(["copy", "--bind", "127.0.0.1", "--port", "0", "--listen"]).arg(root).args(options);
        let mut running = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
        let mut line = String::new();
        // Byte by byte: what comes behind the line is read at the end.
        let output = running.stdout.as_mut().unwrap();
        while !line.ends_with('\n') {
            let mut byte = [0];
            output.read_exact(&mut byte).unwrap();
            line.push(byte[0].into());
        }
        let port = line.trim().rsplit(':').next().unwrap().parse().unwrap();
        Self { running, port }
    }

    /// The arguments of a sender
    fn send<'a>(&self, options: &[&'a str]) -> Vec<String> {
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
        assert_eq!((&report["backend"], &report["role"]), (&"tcp".into(), &"sender".into()));
        let expected = [
            "backend",
            "blake3",
            "bytes",
            "devices",
            "goodput_bytes_per_second",
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
    assert_failed(&send(&key, "127.0.0.1:missing/x"), 1, &["the other side has given up, and says why"]);
    assert_code(&send(&key, "127.0.0.1:x"), 0);
    drop(silent);
    let received = listener.running.finish();
    assert_code(&received, 0);
    let said = stderr(&received);
    assert!(said.contains("another shared key") && said.contains("is not there: create it first"), "{said}");
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
        assert_failed(&received, 1, &["what has arrived is in", "copy again to continue"]);
        let why = if interrupts_sender { "interrupted" } else { "the other side has given up" };
        assert_failed(&sent, 1, &[why]);
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

/// Over the simulated fabric the carrier is RDMA; when the cable is out, TCP.
#[cfg(target_os = "linux")]
#[test]
fn rdma_carries_a_copy_where_both_machines_have_it() {
    let content = noise(40 << 20, 1);
    for fault in [None, Some("after 3000 frames b:rdma_en2 unplug")] {
        let (folder, root) = (with_source(&content), Folder::new());
        let tb5 = env!("CARGO_BIN_EXE_tb5");
        let mut command = tool();
        command.arg("run").args(fault.map(|fault| format!("--fault={fault}"))).arg("--");
        command.args([tb5, "copy", "--bind", "127.0.0.1", "--port", "7466", "--listen"]).arg(root.path(""));
        command.args([":", tb5, "copy", "--port", "7466"]).arg(folder.path("source")).arg("127.0.0.1:copy");
        let output = command.output().unwrap();
        let (said, summary) = (stdout(&output), stderr(&output));
        assert_code(&output, 0);
        assert!(said.contains("b | carrier: RDMA over rdma_en2; TCP while no cable works"), "{said}");
        assert!(fs::read(root.path("copy")).unwrap() == content);
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
        (&["--fault=unplug@1ms"], "127.0.0.1:", "--fault is for two simulated Macs"),
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
    let out = tb5!["copy", &source, "127.0.0.1:../x"];
    assert_failed(&out, 1, &["../x: must be below the directory of the listening side"]);
    assert_eq!(folder.entries(), ["source"]);
}
