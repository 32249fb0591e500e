//! What one side of two machines says of the other one: why it cannot go on, and by which address it is reached

use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::process::Stdio;

use crate::copy::{under_way, with_source};
use crate::machines::Listener;
use crate::support::{Folder, Running, assert_code, assert_failed, eventually, stderr, stdout, tool};

/// Catches a listener for IPv4 alone, and peers that are named by addresses in the form of IPv6.
#[test]
fn a_machine_is_reached_by_both_versions_of_ip() {
    let listener = Listener::on_all_addresses(&[]);
    let mut hosts = vec!["127.0.0.1:"];
    // A machine may lack IPv6.
    hosts.extend(TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok().then_some("[::1]:"));
    for host in &hosts {
        let port = listener.port.to_string();
        let asked = tool().args(["ping", host, "--count", "3", "--port", &port]).output().unwrap();
        assert_code(&asked, 0);
    }
    listener.running.signal(libc::SIGINT);
    let said = stdout(&listener.running.finish());
    for host in hosts {
        assert!(said.contains(&format!("ping of {host}")) && !said.contains("ffff:"), "{said}");
    }
}

/// Catches a reason of the receiver that its peer is not told.
#[test]
fn the_sender_is_told_why_a_copy_cannot_be_written() {
    let (folder, root) = (with_source(b"content"), Folder::new());
    root.directory("directory");
    root.directory("directory/source");
    let long = "x".repeat(300);
    let into = root.path("");
    let listener = Listener::serve(&["--into", into.to_str().unwrap()]);
    for (name, why) in [
        (long.as_str(), "has no room for so long a name, and most systems for none of more than 255 bytes"),
        ("missing/x", "has no such file or directory"),
        ("directory", "has a directory in the place of a file"),
    ] {
        let sent = tool()
            .args(listener.send(&[]))
            .arg(folder.path("source"))
            .arg(format!("127.0.0.1:{name}"))
            .output()
            .unwrap();
        assert_failed(&sent, 1, &[&format!("the other side {why}: its output says more")]);
    }
    assert_eq!(root.entries(), ["directory"]);
    assert_eq!(fs::read_dir(root.path("directory/source")).unwrap().count(), 0);
}

/// Catches a reason that one line says several times, because an error says the text of its source.
#[test]
fn a_line_says_each_reason_once() {
    let (folder, root) = (Folder::new(), Folder::new());
    fs::File::create(folder.path("source")).unwrap().set_len(1 << 40).unwrap();
    let into = root.path("");
    let server = Listener::serve(&["--into", into.to_str().unwrap()]);
    drop(TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).unwrap());
    let mut command = tool();
    command.args(server.send(&[])).arg(folder.path("source")).arg("127.0.0.1:copy");
    let sender = Running::start(command.stdout(Stdio::null()).stderr(Stdio::null()));
    under_way(&root);
    sender.signal(libc::SIGKILL);
    drop(sender.finish());
    eventually(|| root.entries() == [".copy.tb5-partial"]);
    server.running.signal(libc::SIGTERM);
    let served = server.running.finish();
    assert_code(&served, 0);
    let said = stderr(&served);
    for reason in ["nothing arrived from it for", "unexpected end of file"] {
        let lines: Vec<_> = said.lines().filter(|line| line.contains(reason)).collect();
        assert_eq!(lines.len(), 1, "{reason}: {said}");
        assert_eq!(lines[0].matches(reason).count(), 1, "{said}");
    }
}
