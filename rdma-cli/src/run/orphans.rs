//! Processes of a program that have left its process group and lost their parent, such as daemons

use std::time::Duration;
use std::{fs, io, thread};

use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, waitpid};

/// Interval at which killed processes are polled.
const INTERVAL: Duration = Duration::from_millis(10);
/// A process that has not ended after so many polls is stuck in the system.
const POLLS: u32 = 200;

/// The orphans of the programs; kills them when it is dropped
#[derive(Debug)]
pub(super) struct Orphans {
    /// Those that a script has started before it became this process by `exec`.
    foreign: Vec<Pid>,
}

impl Orphans {
    /// Makes orphans of the programs children of this process
    pub(super) fn adopt() -> io::Result<Self> {
        set_child_subreaper(Some(getpid()))?;
        Ok(Self { foreign: children().collect() })
    }

    /// Kills the children of this process but `known`, and the orphans that those leave
    pub(super) fn kill(&self, known: &[u32]) {
        for _ in 0..POLLS {
            let is_orphan =
                |child: &Pid| !self.foreign.contains(child) && !known.contains(&(child.as_raw_pid() as u32));
            let orphans: Vec<_> = children().filter(is_orphan).collect();
            if orphans.is_empty() {
                return;
            }
            for orphan in orphans {
                // It fails for a process that has ended meanwhile.
                let _ = kill_process(orphan, Signal::KILL);
                let _ = waitpid(Some(orphan), WaitOptions::NOHANG);
            }
            thread::sleep(INTERVAL);
        }
    }
}

impl Drop for Orphans {
    fn drop(&mut self) {
        self.kill(&[]);
    }
}

/// The children of this process, those among them that have ended and were not waited for
fn children() -> impl Iterator<Item = Pid> {
    let own = getpid().as_raw_pid();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(move |process| {
        let pid = Pid::from_raw(process.file_name().to_str()?.parse().ok()?)?;
        let status = fs::read(process.path().join("stat")).ok()?;
        (parent_of(&String::from_utf8_lossy(&status)) == Some(own)).then_some(pid)
    })
}

/// The parent of a process, from its status as the kernel prints it: `PID (NAME) STATE PARENT …`, where a name may be anything
fn parent_of(status: &str) -> Option<i32> {
    let (_, fields) = status.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches a parent that is read from a fixed place of the line.
    #[test]
    fn names_of_processes_may_be_anything() {
        assert_eq!(parent_of("31 (a) S 9) S 7 40 40 0 -1 4194560\n"), Some(7));
    }
}
