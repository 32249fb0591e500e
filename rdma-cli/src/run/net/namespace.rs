//! Namespaces: one of users and mounts for the tool and all programs, and one of networks for each host

#![allow(
    unsafe_code,
    reason = "what a child does before it starts, and leaving a namespace, are calls of the system"
)]

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::thread;

use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::process::{getegid, geteuid};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use super::netlink::{End, LOOPBACK, Netlink};

/// Gives this process mounts of its own; and without the privilege to do so, users of its own, in which it has that privilege
///
/// All users and groups keep their numbers. The process has one thread.
pub(super) fn enter() -> io::Result<()> {
    match unshare(UnshareFlags::NEWNS) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let (user, group) = (geteuid().as_raw(), getegid().as_raw());
            unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNS)?;
            // The kernel takes the map of a group only then.
            fs::write("/proc/self/setgroups", "deny")?;
            fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
            fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
        }
        outcome => outcome?,
    }
    // Mounts of this process appear nowhere else.
    Ok(mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?)
}

fn unshare(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: the flags leave the table of file descriptors shared, which is what makes the call unsafe.
    Ok(unsafe { unshare_unsafe(flags) }?)
}

/// A network namespace, which lasts as long as this value and the processes in it
#[derive(Debug)]
pub(super) struct Namespace(OwnedFd);

impl Namespace {
    /// A network namespace with nothing but a loopback interface, and a socket for more
    pub(super) fn new() -> io::Result<(Self, Netlink)> {
        // The thread ends in the new namespace, and this process stays where it is.
        thread::scope(|scope| match scope.spawn(Self::make).join() {
            Ok(made) => made,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    }

    fn make() -> io::Result<(Self, Netlink)> {
        unshare(UnshareFlags::NEWNET)?;
        let namespace = File::open("/proc/thread-self/ns/net")?.into();
        let mut links = Netlink::open()?;
        links.set_up(LOOPBACK, true)?;
        let group = getegid().as_raw();
        // Lets `ping` work without privileges. Where this file is read-only, it needs them.
        let _ = fs::write("/proc/sys/net/ipv4/ping_group_range", format!("{group} {group}"));
        Ok((Self(namespace), links))
    }

    /// Starts the program of `command` in this namespace, if the namespace lasts until then
    pub(super) fn set(&self, command: &mut Command) {
        let namespace = self.0.as_raw_fd();
        let enter = move || {
            // SAFETY: the call has no preconditions.
            match unsafe { libc::setns(namespace, libc::CLONE_NEWNET) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        };
        // SAFETY: the closure makes one system call and touches no memory.
        unsafe { command.pre_exec(enter) };
    }

    /// Adds the interface `local`, whose other end is `remote` in the namespace of `middle`, and still down
    pub(super) fn join(
        &self,
        links: &mut Netlink,
        local: End<'_>,
        middle: &mut Netlink,
        remote: End<'_>,
    ) -> io::Result<()> {
        middle.add_cable(remote, local, self.0.as_fd())?;
        middle.disable_own_addresses(remote.index)?;
        links.disable_own_addresses(local.index)?;
        links.set_up(local.index, true)
    }
}
