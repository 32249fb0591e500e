//! The records of a run, and the names of what they are about

use rdma_core::Time;

use super::{Mark, Record, RecordKind};
use crate::fault::Fault;

/// The records of a run, with the names of the hosts, ports, queue pairs and faults that they are about
///
/// [`Run::history`](crate::Run::history) has it if the records were [kept](crate::Sim::keep_records), and
/// [`Net::history`](crate::Net::history) during a run and after one that failed.
///
/// ```
/// use rdma_sim::Sim;
///
/// let run = Sim::new().keep_records().faults("at 0s a:rdma_en2 slow 50%".parse()?).run(async |net| {
///     net.sleep(std::time::Duration::from_nanos(1)).await;
/// });
/// let lines: Vec<_> = run.history.lines().collect();
/// assert_eq!(lines[0], "     0.000000000  fault: at 0s a:rdma_en2 slow 50%");
/// assert_eq!(lines[1], "     0.000000000  cable a:rdma_en2 – b:rdma_en2: at 50 % of its rate");
/// # Ok::<(), rdma_sim::FaultError>(())
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct History {
    /// The records, in the order in which the fabric made them
    pub records: Vec<Record>,
    /// The virtual time at its end
    pub end: Time,
    /// What else a page shows at its time: misuse of memory that the sanitizer found, and what the caller adds, such as why a run
    /// failed
    pub remarks: Vec<(Time, String)>,
    pub(super) names: Names,
    /// What the program states of itself
    pub(super) marks: Vec<Mark>,
    /// How the messages of the posted sends begin, in their order
    pub(super) beginnings: Vec<Box<[u8]>>,
}

/// The names at the start of a run, and the faults
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    pub(crate) hosts: Vec<String>,
    pub(crate) ports: Vec<PortName>,
    pub(crate) faults: Vec<Fault>,
}

/// A port, and the number of the cable in it
#[derive(Clone, Debug)]
pub(crate) struct PortName {
    pub(crate) host: u32,
    pub(crate) device: String,
    pub(crate) cable: Option<u32>,
}

impl History {
    pub(crate) fn new(records: Vec<Record>, names: Names, end: Time, remarks: Vec<(Time, String)>) -> Self {
        Self { records, end, remarks, names, ..Self::default() }
    }

    /// With what the program states of itself
    pub(crate) fn with_marks(self, marks: Vec<Mark>) -> Self {
        Self { marks, ..self }
    }

    /// With how the messages of the posted sends begin
    pub(crate) fn with_beginnings(self, beginnings: Vec<Box<[u8]>>) -> Self {
        Self { beginnings, ..self }
    }
}

impl Names {
    /// The name of a port, such as `a:rdma_en2`
    pub(super) fn port(&self, port: u32) -> String {
        match self.ports.get(port as usize) {
            Some(PortName { host, device, .. }) => format!("{}:{device}", self.host(*host)),
            None => format!("port {port}"),
        }
    }

    /// The name of the device of a port
    pub(super) fn device(&self, port: u64) -> &str {
        self.ports.get(port as usize).map_or("?", |port| port.device.as_str())
    }

    /// The name of a queue pair, such as `a:rdma_en2 qp 0x0900`
    pub(super) fn qp(&self, subject: u32) -> String {
        format!("{} qp {:#06x}", self.port(port_of(subject)), qpn_of(subject))
    }

    pub(super) fn host(&self, host: u32) -> &str {
        self.hosts.get(host as usize).map_or("?", String::as_str)
    }

    /// The name of a cable, by the ports at its ends: `a:rdma_en2 – b:rdma_en2`
    pub(super) fn cable(&self, cable: u32) -> String {
        let ends = (0..self.ports.len()).filter(|port| self.ports[*port].cable == Some(cable));
        ends.map(|port| self.port(port as u32)).collect::<Vec<_>>().join(" – ")
    }

    pub(super) fn fault(&self, number: u32) -> String {
        self.faults.get(number as usize).map_or_else(|| number.to_string(), Fault::to_string)
    }

    /// What a record is about, such as `a:rdma_en2 qp 0x0900`
    pub(super) fn subject(&self, record: &Record) -> String {
        let subject = record.subject;
        match record.kind {
            RecordKind::Fault => self.fault(subject),
            RecordKind::Calm => String::new(),
            RecordKind::Process => self.host(subject).to_owned(),
            RecordKind::Cable => self.cable(subject),
            RecordKind::Plugged | RecordKind::Port | RecordKind::Moved | RecordKind::Renamed => {
                self.port(subject)
            }
            _ => self.qp(subject),
        }
    }

    /// Changes the names as a record says
    pub(super) fn follow(&mut self, first: &Self, record: &Record) {
        let Some(port) = self.ports.get_mut(record.subject as usize) else { return };
        match record.kind {
            RecordKind::Renamed => {
                if let Some(named) = first.ports.get(record.value as usize) {
                    port.device.clone_from(&named.device);
                }
            }
            RecordKind::Moved => port.cable = u32::try_from(record.value >> 1).ok(),
            _ => (),
        }
    }
}

/// The position of the port of a queue pair
pub(super) fn port_of(subject: u32) -> u32 {
    subject >> 20
}

/// The number of a queue pair
pub(super) fn qpn_of(subject: u32) -> u32 {
    subject & 0xf_ffff
}
