//! What one peer of `tb5 serve` costs the others: Linux says how many threads a process has, and which files it has open

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpStream};
use std::process::Stdio;

use super::Listener;
use crate::copy::compiled;
use crate::support::{Folder, Running, assert_code, eventually, tool};

/// Catches threads that each connection starts and that stay for seconds, until the system has no more of them and the server ends.
#[test]
fn connections_that_come_to_nothing_leave_no_threads() {
    let server = Listener::serve(&["--carrier", "tcp"]);
    for _ in 0..20 {
        for _ in 0..10 {
            drop(TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).unwrap());
        }
        // It has come to those before.
        assert_code(&server.ask("ping", &["--count", "1"]), 0);
    }
    let threads = fs::read_dir(format!("/proc/{}/task", server.running.id())).unwrap().count();
    // Sixteen connections at once may become sessions.
    assert!(threads < 50, "{threads} threads after 200 connections");
}

/// Catches a server that compares what a copy has already without a look at its other peers.
#[test]
fn a_server_answers_while_it_compares_files() {
    let (folder, root) = (Folder::new(), Folder::new());
    for file in [folder.directory("dir").join("file"), root.directory("dir").join("file")] {
        // Without blocks, and longer than can be read before a peer gives up.
        File::create(file).unwrap().set_len(256 << 30).unwrap();
    }
    let server = Listener::serve(&["--into", root.path("").to_str().unwrap()]);
    let mut copy = tool();
    copy.args(server.send(&["-r"])).arg(folder.path("dir")).arg("127.0.0.1:dir");
    let copy = Running::start(copy.stdout(Stdio::null()).stderr(Stdio::null()));
    let descriptors = format!("/proc/{}/fd", server.running.id());
    eventually(|| {
        let mut open = fs::read_dir(&descriptors).unwrap().flatten();
        open.any(|file| fs::read_link(file.path()).is_ok_and(|path| path == root.path("dir/file")))
    });
    assert_code(&server.ask("ping", &["--count", "3"]), 0);
    copy.signal(libc::SIGINT);
    assert_code(&copy.finish(), 130);
    server.running.signal(libc::SIGINT);
    assert_code(&server.running.finish(), 0);
}

/// Catches a server that answers no other peer while it waits for the disk. The test loads a library that syncs once a file exists.
#[test]
fn a_server_answers_while_it_syncs_a_file() {
    const SLOW_SYNC: &str = r#"
        #include <fcntl.h>
        #include <stdlib.h>
        #include <sys/stat.h>
        #include <sys/syscall.h>
        #include <unistd.h>
        int fsync(int fd) {
            struct stat found;
            close(open(getenv("SYNC_BEGUN"), O_CREAT | O_WRONLY, 0600));
            for (int i = 0; i < 6000 && stat(getenv("SYNC_ENDS"), &found); i++) usleep(10000);
            return syscall(SYS_fsync, fd);
        }
    "#;
    let (folder, root) = (Folder::new(), Folder::new());
    let library = compiled(&folder, SLOW_SYNC);
    let source = folder.write("source", b"content");
    let mut command = tool();
    command.args(["serve", "--into"]).arg(root.path("")).env("LD_PRELOAD", library);
    command.env("SYNC_BEGUN", folder.path("begun")).env("SYNC_ENDS", folder.path("ends"));
    let server = Listener::of(&mut command);
    let mut copy = tool();
    copy.args(server.send(&[])).arg(source).arg("127.0.0.1:");
    let copy = Running::start(copy.stdout(Stdio::null()).stderr(Stdio::null()));
    eventually(|| folder.path("begun").exists());
    assert_code(&server.ask("ping", &["--count", "3"]), 0);
    assert!(!root.path("source").exists());
    folder.write("ends", b"");
    assert_code(&copy.finish(), 0);
    assert_eq!(fs::read(root.path("source")).unwrap(), b"content");
    server.running.signal(libc::SIGINT);
    assert_code(&server.running.finish(), 0);
}
