//! The summary of a run: exit codes, traffic and faults

use rdma_sim::CableStats;
use rdma_sim_verbs::shared::SharedFabric;
use serde::Serialize;

use super::faults;
use super::host::Host;
use super::watch::Cause;
use crate::report::{SIMULATOR, bytes, table};

#[derive(Debug, Serialize)]
pub(super) struct Summary {
    backend: &'static str,
    fabric: String,
    outcome: &'static str,
    exit_code: u8,
    seconds: f64,
    hosts: Vec<Ended>,
    cables: Vec<Cable>,
    faults: Vec<Happened>,
}

#[derive(Debug, Serialize)]
struct Ended {
    host: String,
    /// `null` if the program was killed or not started.
    exit_code: Option<i32>,
    signal: Option<i32>,
    killed_by_fault: bool,
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
pub(crate) struct Happened {
    pub(crate) fault: String,
    pub(crate) happened: bool,
}

/// The faults of a fabric
pub(crate) fn faults_of(fabric: &SharedFabric) -> Vec<Happened> {
    let faults = faults::of(fabric).into_iter();
    faults.map(|(fault, happened)| Happened { fault: fault.to_string(), happened }).collect()
}

impl Summary {
    pub(super) fn new(fabric: &SharedFabric, hosts: &[Host], cause: Cause, seconds: f64) -> Self {
        let (outcome, exit_code) = match cause {
            Cause::Done => ("done", 0),
            Cause::Failed(number) => ("failed", hosts[number].code().unwrap_or(1)),
            Cause::Interrupted(signal) => ("interrupted", 128_u8.wrapping_add(signal as u8)),
            Cause::TimedOut => ("timed_out", 124),
            Cause::Unread => ("output_closed", 128 + libc::SIGPIPE as u8),
        };
        let ended = |host: &Host| Ended {
            host: host.name.clone(),
            exit_code: host.ended.and_then(|status| status.code()),
            signal: host.ended_by(),
            killed_by_fault: faults::that_killed(fabric, host).is_some(),
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
            seconds,
            hosts: hosts.iter().map(ended).collect(),
            cables: topology.links().map(|link| Cable { ends: link.ends.map(end) }).collect(),
            faults: faults_of(fabric),
        }
    }

    pub(super) fn exit_code(&self) -> u8 {
        self.exit_code
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
        if !idle.is_empty() {
            let (count, cables) = (idle.len(), if idle.len() == 1 { "cable" } else { "cables" });
            lines.push(format!("{count} idle {cables}"));
        }
        for Happened { fault, happened } in &self.faults {
            lines.push(format!("fault {fault}{}", if *happened { "" } else { " (did not fire)" }));
        }
        lines.join("\n")
    }
}
