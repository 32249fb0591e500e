//! The summary of a run: exit codes, traffic and faults

use rdma_sim::CableStats;
use rdma_sim_verbs::shared::{Lateness, SharedFabric};
use serde::Serialize;

use super::cause::Cause;
use super::faults;
use super::host::Host;
use crate::report::{SIMULATOR, bytes, is_quiet, table};
use crate::signals::exit_code;

#[derive(Debug, Serialize)]
pub(super) struct Summary {
    backend: &'static str,
    fabric: String,
    outcome: &'static str,
    exit_code: u8,
    wall_seconds: f64,
    hosts: Vec<Ended>,
    cables: Vec<Cable>,
    faults: Vec<FaultOutcome>,
    /// `null` if cables are as fast as the machine allows.
    pace: Option<Pace>,
    /// Whether programs find the provider at the path that it has on Macs.
    #[serde(skip)]
    has_net: bool,
}

/// Whether hosts kept the pace of the modelled cables
#[derive(Debug, Serialize)]
struct Pace {
    /// A host that is late by no more has kept pace.
    tolerance_seconds: f64,
    late: Vec<Late>,
}

/// A host that did not keep pace
#[derive(Debug, Serialize)]
struct Late {
    host: String,
    /// Of the time of the run, for how long it was behind.
    share: f64,
    worst_seconds: f64,
}

#[derive(Debug, Serialize)]
struct Ended {
    host: String,
    /// `null` if the program was killed or not started.
    exit_code: Option<i32>,
    signal: Option<i32>,
    killed_by_fault: bool,
    /// Whether its program, or a process that the program started, has opened a device.
    opened_device: bool,
}

#[derive(Debug, Serialize)]
struct Cable {
    ends: [End; 2],
}

/// One end of a cable, with the traffic sent from it
#[derive(Clone, Debug, Serialize)]
pub(crate) struct End {
    host: String,
    device: String,
    #[serde(flatten)]
    pub(crate) sent: CableStats,
}

/// The columns of a port: messages, bytes, stalls
pub(crate) fn columns(sent: &CableStats) -> [String; 3] {
    [sent.messages.to_string(), bytes(sent.payload_bytes), sent.stalls.to_string()]
}

#[derive(Debug, Serialize)]
pub(crate) struct FaultOutcome {
    pub(crate) fault: String,
    pub(crate) fired: bool,
}

/// The faults of a fabric
pub(crate) fn faults_of(fabric: &SharedFabric) -> Vec<FaultOutcome> {
    let faults = faults::of(fabric).into_iter();
    faults.map(|(fault, fired)| FaultOutcome { fault: fault.to_string(), fired }).collect()
}

/// The outcome in the summary, and the exit code
pub(super) fn outcome(cause: Cause, hosts: &[Host]) -> (&'static str, u8) {
    match cause {
        Cause::Done => ("done", 0),
        Cause::Failed(number) => ("failed", hosts[number].code().unwrap_or(1)),
        Cause::Interrupted(signal) => ("interrupted", exit_code(signal)),
        Cause::TimedOut => ("timed_out", 124),
        Cause::Unwritten => ("output_failed", 1),
        Cause::Unread => ("output_closed", exit_code(libc::SIGPIPE)),
    }
}

impl Summary {
    pub(super) fn new(
        fabric: &SharedFabric,
        hosts: &[Host],
        cause: Cause,
        wall_seconds: f64,
        has_net: bool,
    ) -> Self {
        let (outcome, exit_code) = outcome(cause, hosts);
        let ended = |(number, host): (usize, &Host)| Ended {
            host: host.name.clone(),
            exit_code: host.ended.and_then(|status| status.code()),
            signal: host.ended_by(),
            killed_by_fault: faults::that_killed(fabric, host).is_some(),
            opened_device: fabric.has_opened_device(number),
        };
        let not_started = |host: &rdma_sim::topology::Host| Ended {
            host: host.name().to_owned(),
            exit_code: None,
            signal: None,
            killed_by_fault: false,
            opened_device: false,
        };
        let sent = fabric.sent();
        let topology = fabric.settings().topology();
        let end = |end: rdma_sim::topology::LinkEnd<'_>| {
            let port = fabric
                .ports()
                .position(|(host, port)| (host.name(), port.device()) == (end.host, end.device));
            let sent = port.and_then(|port| sent.get(port)).copied().unwrap_or_default();
            End { host: end.host.to_owned(), device: end.device.to_owned(), sent }
        };
        Self {
            backend: SIMULATOR,
            fabric: fabric.name().to_owned(),
            outcome,
            exit_code,
            wall_seconds,
            hosts: hosts
                .iter()
                .enumerate()
                .map(ended)
                .chain(topology.hosts().iter().skip(hosts.len()).map(not_started))
                .collect(),
            cables: topology.links().map(|link| Cable { ends: link.ends.map(end) }).collect(),
            faults: faults_of(fabric),
            pace: fabric.settings().is_paced().then(|| Pace::new(fabric, wall_seconds)),
            has_net,
        }
    }

    /// As text; idle cables are only counted
    pub(super) fn text(&self) -> String {
        let (used, idle): (Vec<_>, Vec<_>) =
            self.cables.iter().partition(|cable| cable.ends.iter().any(|end| end.sent.frames > 0));
        let heading = ["", "from", "to", "messages", "bytes", "stalls"].map(str::to_owned);
        let direction = |from: &End, to: &End| {
            let [messages, bytes, stalls] = columns(&from.sent);
            let name = |end: &End| format!("{}:{}", end.host, end.device);
            ["cable".to_owned(), name(from), name(to), messages, bytes, stalls]
        };
        let rows = used.iter().flat_map(|cable| {
            let [a, b] = &cable.ends;
            [direction(a, b), direction(b, a)]
        });
        let mut lines = Vec::new();
        if !used.is_empty() {
            lines.push(table(std::iter::once(heading).chain(rows)));
        }
        if !idle.is_empty() && !is_quiet() {
            let (count, cables) = (idle.len(), if idle.len() == 1 { "cable" } else { "cables" });
            lines.push(format!("{count} idle {cables}"));
        }
        if self.outcome == "done" && !is_quiet() && !self.hosts.iter().any(|host| host.opened_device) {
            // A program may look for the library at the path that it has on Macs, not find it, and use TCP.
            let path = "; one that opens /usr/lib/librdma.dylib by its path needs --net";
            let has_path = self.has_net || cfg!(not(target_os = "linux"));
            lines.push(format!("no program opened a device{}", if has_path { "" } else { path }));
        }
        for FaultOutcome { fault, fired } in &self.faults {
            lines.push(format!("fault {fault}{}", if *fired { "" } else { " (did not fire)" }));
        }
        lines.extend(self.pace.iter().flat_map(Pace::text));
        lines.join("\n")
    }
}

impl Pace {
    fn new(fabric: &SharedFabric, wall_seconds: f64) -> Self {
        let hosts = fabric.settings().topology().hosts().iter().enumerate();
        let late = hosts.filter_map(|(number, host)| {
            let Lateness { behind, worst, .. } = fabric.lateness(number)?;
            let (host, share) = (host.name().to_owned(), (behind.as_secs_f64() / wall_seconds).min(1.0));
            Some(Late { host, share, worst_seconds: worst.as_secs_f64() })
        });
        Self { tolerance_seconds: Lateness::TOLERANCE.as_secs_f64(), late: late.collect() }
    }

    fn text(&self) -> Vec<String> {
        if self.late.is_empty() {
            return vec!["pace kept".to_owned()];
        }
        let line = |Late { host, share, worst_seconds }: &Late| {
            let (percent, ms) = (share * 100.0, worst_seconds * 1e3);
            format!("pace not kept: {host} was late for {percent:.1} % of the time, by up to {ms:.1} ms")
        };
        self.late.iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_did_not_keep_pace_is_named() {
        let late = |host: &str, share, worst_seconds| Late { host: host.to_owned(), share, worst_seconds };
        let pace = |late| Pace { tolerance_seconds: 0.0, late };
        assert_eq!(pace(vec![]).text(), ["pace kept"]);
        assert_eq!(
            pace(vec![late("a", 0.0139, 0.003_21), late("c", 1.0, 0.5)]).text(),
            [
                "pace not kept: a was late for 1.4 % of the time, by up to 3.2 ms",
                "pace not kept: c was late for 100.0 % of the time, by up to 500.0 ms"
            ]
        );
    }
}
