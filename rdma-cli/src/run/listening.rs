//! Detects when a server listens: clients that are started earlier fail

#![allow(unsafe_code, reason = "calls of libc")]

/// Whether a process of the group listens on a TCP port; `None` if the system does not show it
#[cfg(target_os = "linux")]
pub(super) fn is_listening(group: u32) -> Option<bool> {
    use std::fs;

    let sockets: Vec<String> = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|table| fs::read_to_string(table).ok())
        .flat_map(|table| table.lines().filter_map(listening_socket).map(str::to_owned).collect::<Vec<_>>())
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let mut members = processes.filter(|process| {
        let stat = fs::read_to_string(process.path().join("stat")).unwrap_or_default();
        group_of(&stat) == Some(group)
    });
    let is_listening = |process: &fs::DirEntry| {
        let files = fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten();
        let mut targets = files.filter_map(|file| fs::read_link(file.path()).ok());
        targets.any(|target| sockets.iter().any(|socket| target.as_os_str() == socket.as_str()))
    };
    Some(members.any(|process| is_listening(&process)))
}

/// The inode of a listening socket, from a line of `/proc/net/tcp`
#[cfg(target_os = "linux")]
fn listening_socket(line: &str) -> Option<&str> {
    const LISTEN: &str = "0A";
    let mut words = line.split_ascii_whitespace().skip(3);
    (words.next()? == LISTEN).then(|| words.nth(5)).flatten()
}

/// The process group, from `/proc/PID/stat`
#[cfg(target_os = "linux")]
fn group_of(stat: &str) -> Option<u32> {
    // The name in brackets may contain spaces and brackets.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(2)?.parse().ok()
}

#[cfg(not(target_os = "linux"))]
pub(super) fn is_listening(_: u32) -> Option<bool> {
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn lines_of_proc_are_parsed() {
        let line = "   0: 0100007F:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4242 1 x";
        assert_eq!(listening_socket(line), Some("4242"));
        assert_eq!(listening_socket(&line.replace(" 0A ", " 01 ")), None);
        assert_eq!(listening_socket("  sl  local_address rem_address   st"), None);
        assert_eq!(group_of("17 (a ) b) S 1 23 17 0"), Some(23));
    }

    #[test]
    fn a_listening_process_is_found() {
        // SAFETY: the call has no preconditions.
        let group = unsafe { libc::getpgrp() } as u32;
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(is_listening(group), Some(true));
        drop(listener);
        assert_eq!(is_listening(u32::MAX), Some(false));
    }
}
