//! The ping-pong that comes with libibverbs, between two processes over the same devices

use std::process::{Command, Stdio};
use std::time::Duration;

use rdma_tests::hosts::Running;

/// Longer than the slowest of them takes in an emulated machine.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Between two looks at a process.
const NAP: Duration = Duration::from_millis(50);

/// Microseconds per round trip as printed by the program, or the reason for none
///
/// With `sleeps`, it sleeps until there are completions, instead of polling for them.
pub(crate) fn ping_pong([a, b]: [&str; 2], len: usize, count: u32, sleeps: bool) -> Result<f64, String> {
    let start = |device: &str, more: &[&str]| {
        let (len, count) = (len.to_string(), count.to_string());
        // The second entry of the GID table is that of the IPv4 address.
        let mut command = Command::new("ibv_uc_pingpong");
        command.args(["-d", device, "-g", "1", "-s", &len, "-n", &count]);
        command.args(sleeps.then_some("-e")).args(more).stdout(Stdio::piped()).stderr(Stdio::null());
        command.spawn().map(Running).map_err(|error| format!("ibv_uc_pingpong: {error}"))
    };
    let mut server = start(b, &[])?;
    let mut left = TIMEOUT.as_millis() / NAP.as_millis();
    let mut client = start(a, &["localhost"])?;
    while left > 0 {
        left -= 1;
        std::thread::sleep(NAP);
        let exit = client.0.try_wait().map_err(|error| error.to_string())?;
        match exit {
            Some(exit) if exit.success() => return microseconds(client),
            Some(_) if server.0.try_wait().is_ok_and(|exit| exit.is_none()) => {
                // The server does not listen yet.
                client = start(a, &["localhost"])?;
            }
            Some(exit) => return Err(format!("ibv_uc_pingpong: {exit}")),
            None => (),
        }
    }
    Err("ibv_uc_pingpong: no end in sight".to_owned())
}

/// What stands before "usec/iter"
fn microseconds(mut ended: Running) -> Result<f64, String> {
    let out = ended.0.stdout.take().map(std::io::read_to_string);
    let text = out.and_then(Result::ok).unwrap_or_default();
    let words: Vec<_> = text.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "usec/iter").and_then(|at| at.checked_sub(1));
    at.and_then(|at| words[at].parse().ok())
        .ok_or_else(|| format!("unexpected output of ibv_uc_pingpong: {text}"))
}
