//! Detects when a server listens: clients that are started earlier fail

#[cfg(target_os = "linux")]
use std::{ffi::OsString, fs, path::Path};

/// Whether a process of the group listens on a TCP port; `None` if the system does not show it
#[cfg(target_os = "linux")]
pub(super) fn is_listening(group: u32) -> Option<bool> {
    // The group may have a network of its own, which its first process shows.
    let read = |name| {
        let own = fs::read_to_string(format!("/proc/{group}/net/{name}"));
        own.or_else(|_| fs::read_to_string(format!("/proc/net/{name}"))).ok()
    };
    // A host without IPv6 has only the first one.
    let tables: Vec<_> = ["tcp", "tcp6"].into_iter().filter_map(read).collect();
    if tables.is_empty() {
        return None;
    }
    let sockets: Vec<_> = tables.iter().flat_map(|table| listening_sockets(table)).collect();
    let mut processes = fs::read_dir("/proc").ok()?.flatten();
    Some(processes.any(|process| is_member(&process.path(), group) && has_one(&process.path(), &sockets)))
}

/// The listening sockets of a table of the kernel, as the links in `/proc/PID/fd` name them
#[cfg(target_os = "linux")]
fn listening_sockets(table: &str) -> impl Iterator<Item = OsString> {
    /// `TCP_LISTEN` of the kernel, in hexadecimal digits
    const LISTEN: &str = "0A";
    table.lines().filter_map(|line| {
        let fields: Vec<_> = line.split_ascii_whitespace().collect();
        let [_, _local, _remote, LISTEN, _queues, _timer, _retransmits, _user, _timeout, inode, ..] =
            fields[..]
        else {
            return None;
        };
        Some(format!("socket:[{inode}]").into())
    })
}

/// The group of a process, from its status as the kernel prints it: `PID (NAME) STATE PARENT GROUP …`, where a name may be anything
#[cfg(target_os = "linux")]
fn group_of(status: &str) -> Option<u32> {
    let (_, fields) = status.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(2)?.parse().ok()
}

/// Whether the process is a member of the group
#[cfg(target_os = "linux")]
fn is_member(process: &Path, group: u32) -> bool {
    fs::read(process.join("stat"))
        .is_ok_and(|status| group_of(&String::from_utf8_lossy(&status)) == Some(group))
}

/// Whether the process has one of the sockets open
#[cfg(target_os = "linux")]
fn has_one(process: &Path, sockets: &[OsString]) -> bool {
    let files = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    let mut targets = files.filter_map(|file| fs::read_link(file.path()).ok());
    targets.any(|target| sockets.iter().any(|socket| target.as_os_str() == socket))
}

#[cfg(not(target_os = "linux"))]
pub(super) fn is_listening(_: u32) -> Option<bool> {
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_listening_process_is_found() {
        let group = group_of(&fs::read_to_string("/proc/self/stat").unwrap()).unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(is_listening(group), Some(true));
        drop(listener);
        assert_eq!(is_listening(u32::MAX), Some(false));
    }

    /// Catches a group that is read from a fixed place of the line.
    #[test]
    fn names_of_processes_may_be_anything() {
        assert_eq!(group_of("31 (a) S 9) S 7 40 40 0 -1 4194560\n"), Some(40));
    }

    /// Catches sockets in another state, and a column beside the inode; rows as the kernel of Linux 6 prints them.
    #[test]
    fn only_listening_sockets_count() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
            0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 22113 1 0 100 0 0 10 0\n   \
            1: 0100007F:1F90 0100007F:D2F0 01 00000000:00000000 00:00000000 00000000  1000        0 22114 1 0 20 4 30 10 -1\n";
        assert_eq!(listening_sockets(table).collect::<Vec<_>>(), ["socket:[22113]"]);
    }
}
