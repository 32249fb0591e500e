//! Detects when a server listens: clients that are started earlier fail

/// Whether a process of the group listens on a TCP port; `None` if the system does not show it
#[cfg(target_os = "linux")]
pub(super) fn is_listening(group: u32) -> Option<bool> {
    use procfs::net::TcpState;
    use procfs::process::{FDTarget, Process, all_processes};

    // The group may have a network of its own, which its first process shows.
    let leader = i32::try_from(group).ok().and_then(|leader| Process::new(leader).ok());
    let sockets = leader.map(|leader| [leader.tcp(), leader.tcp6()]);
    let sockets = sockets.into_iter().flatten().flatten().flatten();
    let sockets = sockets.filter(|socket| socket.state == TcpState::Listen);
    let inodes: Vec<_> = sockets.map(|socket| socket.inode).collect();
    let is_member = |process: &Process| process.stat().is_ok_and(|stat| stat.pgrp as u32 == group);
    let listens = |process: &Process| {
        let mut files = process.fd().into_iter().flatten().flatten();
        files.any(|file| matches!(file.target, FDTarget::Socket(inode) if inodes.contains(&inode)))
    };
    let mut processes = all_processes().ok()?.flatten();
    Some(processes.any(|process| is_member(&process) && listens(&process)))
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
        let group = procfs::process::Process::myself().unwrap().stat().unwrap().pgrp as u32;
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(is_listening(group), Some(true));
        drop(listener);
        assert_eq!(is_listening(u32::MAX), Some(false));
    }
}
