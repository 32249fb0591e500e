use std::fmt;

use crate::plan::PlanFile;
use crate::{Cable, Cabling, Certificate, HostCap, Operation, Plan, Price, Resource};

/// What the first line of a plan says: the format and its version.
pub(crate) const HEADER: [&str; 2] = ["rdma-plan", "1"];

/// The names of the operations, as they are written
pub(crate) mod word {
    pub(crate) const ALL_GATHER: &str = "all_gather";
    pub(crate) const ALL_REDUCE: &str = "all_reduce";
    pub(crate) const ALL_REDUCE_AMONG: &str = "all_reduce_among";
    pub(crate) const ALL_TO_ALL: &str = "all_to_all";
    pub(crate) const BROADCAST: &str = "broadcast";
    pub(crate) const GATHER: &str = "gather";
    pub(crate) const REDUCE: &str = "reduce";
    pub(crate) const REDUCE_SCATTER: &str = "reduce_scatter";
    pub(crate) const SCATTER: &str = "scatter";
}

/// A plan as a file: `rdma-plan 1`, the hosts and the operation, time and bound in seconds per byte, the certificate, and a line
/// for each tree
///
/// Lines that begin with `#` are for readers, and are skipped.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, None)
    }
}

/// A plan as a file, with a line for each cable behind that of the hosts: its ends as `a>b`, and bytes per second there and back; then one for
/// each cap: the host, and bytes per second that it sends and receives, or `-`
impl fmt::Display for PlanFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.plan.write(f, self.cabling.as_ref())
    }
}

impl Plan {
    fn write(&self, f: &mut fmt::Formatter<'_>, cabling: Option<&Cabling>) -> fmt::Result {
        // A plan may be wrong, and can be printed then, too.
        let name = |host: usize| self.hosts.get(host).map_or("?", String::as_str);
        let row = |amounts: &[u64]| amounts.iter().map(|amount| format!(" {amount}")).collect::<String>();
        writeln!(f, "{} {}", HEADER[0], HEADER[1])?;
        writeln!(f, "cabling {}", self.cabling)?;
        writeln!(f, "hosts {}", self.hosts.join(" "))?;
        if let Some(cabling) = cabling {
            for &Cable { ends: [left, right], rates: [there, back], .. } in cabling.cables() {
                writeln!(f, "cable {}>{} {there} {back}", name(left), name(right))?;
            }
            for (host, HostCap { send, receive }) in cabling.caps() {
                let [send, receive] =
                    [send, receive].map(|rate| rate.map_or_else(|| "-".to_owned(), |rate| rate.to_string()));
                writeln!(f, "cap {} {send} {receive}", name(host))?;
            }
        }
        match &self.operation {
            Operation::AllGather { amounts } => writeln!(f, "operation {}{}", word::ALL_GATHER, row(amounts)),
            Operation::AllReduce => writeln!(f, "operation {}", word::ALL_REDUCE),
            Operation::AllReduceAmong { members } => {
                let members = members.iter().map(|&member| format!(" {}", name(member)));
                writeln!(f, "operation {}{}", word::ALL_REDUCE_AMONG, members.collect::<String>())
            }
            Operation::AllToAll { amounts } => {
                let rows: Vec<_> = amounts.iter().map(|amounts| row(amounts)).collect();
                writeln!(f, "operation {}{}", word::ALL_TO_ALL, rows.join(" |"))
            }
            Operation::Broadcast { root } => writeln!(f, "operation {} {}", word::BROADCAST, name(*root)),
            Operation::Gather { root, amounts } => {
                writeln!(f, "operation {} {}{}", word::GATHER, name(*root), row(amounts))
            }
            Operation::Reduce { root } => writeln!(f, "operation {} {}", word::REDUCE, name(*root)),
            Operation::ReduceScatter { amounts } => {
                writeln!(f, "operation {}{}", word::REDUCE_SCATTER, row(amounts))
            }
            Operation::Scatter { root, amounts } => {
                writeln!(f, "operation {} {}{}", word::SCATTER, name(*root), row(amounts))
            }
        }?;
        writeln!(f, "# seconds per byte of the payload")?;
        writeln!(f, "time {}", self.time)?;
        writeln!(f, "bound {}", self.bound)?;
        let names =
            |hosts: &[usize]| hosts.iter().map(|&host| format!(" {}", name(host))).collect::<String>();
        match &self.certificate {
            Certificate::Cut(inside) => writeln!(f, "cut{}", names(inside)),
            Certificate::Partition(parts) => {
                let parts: Vec<_> = parts.iter().map(|part| names(part)).collect();
                writeln!(f, "partition{}", parts.join(" |"))
            }
            Certificate::Prices(prices) => {
                write!(f, "prices")?;
                for &Price { of, price } in prices {
                    match of {
                        Resource::Cables { from, to } => write!(f, " {}>{}", name(from), name(to)),
                        Resource::Receive { host } => write!(f, " >{}", name(host)),
                        Resource::Send { host } => write!(f, " {}>", name(host)),
                    }?;
                    write!(f, " {price}")?;
                }
                writeln!(f)
            }
        }?;
        for tree in &self.trees {
            write!(f, "tree {} {}", tree.share, name(tree.root))?;
            for &(parent, child) in &tree.arcs {
                write!(f, " {}>{}", name(parent), name(child))?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
