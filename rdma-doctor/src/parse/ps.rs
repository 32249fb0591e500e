use super::bounds::{keep, lines, short};
use crate::report::Process;

/// Reads the processes in state `U` of `ps -axo pid,stat,etime,comm`: they wait in the kernel and cannot be interrupted
///
/// Only the name of the program is kept: its path can contain the name of a user.
pub fn ps(text: &str) -> Vec<Process> {
    let mut waiting = Vec::new();
    for line in lines(text) {
        let mut words = line.split_whitespace();
        let (Some(pid), Some(state), Some(elapsed)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        let Ok(pid) = pid.parse() else { continue };
        if state.starts_with('U') {
            let program = words.collect::<Vec<_>>().join(" ");
            let program = program.rsplit('/').next().unwrap_or_default().trim_matches(['(', ')']);
            keep(
                &mut waiting,
                Process { pid, state: short(state), elapsed: short(elapsed), program: short(program) },
            );
        }
    }
    waiting
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_processes_that_wait_in_the_kernel_are_kept_and_without_their_path() {
        let text = "  PID STAT  ELAPSED COMM\n    1 Ss   3-04:05:06 /sbin/launchd\n  412 UE     01:02:03 \
                    /Users/someone/My Tools/python3\n  413 U+        00:09 (ibv_devinfo)\n x U 1 y\n";
        let found = ps(text);
        let found: Vec<_> =
            found.iter().map(|it| (it.pid, it.program.as_str(), it.is_unkillable())).collect();
        assert_eq!(found, [(412, "python3", true), (413, "ibv_devinfo", false)]);
    }
}
