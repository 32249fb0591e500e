//! The best cabling of the ports of some Macs, with the proof

use anyhow::Result;
use rdma_collectives::{AdviceError, Cabling, Limit, Operation, Ratio, Recommendation, recommend_for};
use rdma_sim::LineRate;
use rdma_sim::topology::Topology;
use serde::Serialize;

use super::cabling::{bytes_per_second, cable};
use super::moves::{Move, move_cables};
use crate::report::{line_rate, plain, rate, table};

/// The best cabling as JSON
#[derive(Debug, Serialize)]
pub(super) struct BestCabling {
    bits_per_second: u64,
    bound_seconds_per_byte: f64,
    /// Host and device at both ends of each cable
    edges: Vec<[[String; 2]; 2]>,
    least_seconds_per_byte: f64,
    moves: Vec<Move>,
    optimal: bool,
    proof: String,
}

/// The best cabling, and the cables to move for it
#[derive(Debug)]
pub(super) struct Best {
    pub(super) topology: Topology,
    recommendation: Recommendation,
    line_rate: LineRate,
    moves: Vec<Move>,
}

impl Best {
    /// The best cabling of hosts with these numbers of ports, called a, b, c and so on
    pub(super) fn of_ports(ports: &[usize], operation: &Operation) -> Result<Self, AdviceError> {
        let line_rate = LineRate::TB5;
        let recommendation = recommend_for(ports, bytes_per_second(line_rate), operation)?;
        let mut free = Topology::new();
        for (name, ports) in recommendation.cabling.hosts().iter().zip(ports) {
            free.add_host(name, *ports).expect("numbers of ports and names are those of Macs");
        }
        let (topology, _) = move_cables(&free, &recommendation.cabling, line_rate)
            .expect("a recommended cabling fits into the ports");
        Ok(Self { topology, recommendation, line_rate, moves: Vec::new() })
    }

    /// The best cabling of the Macs of a topology; `None` if some Macs have faster ports than others
    ///
    /// `present` is the time of the topology's own cabling, in seconds per byte.
    pub(super) fn of_macs(
        topology: &Topology,
        cabling: &Cabling,
        operation: &Operation,
        present: Ratio,
    ) -> Result<Option<Self>> {
        let mut speeds = topology.hosts().iter().map(|host| host.mac().line_rate());
        let speed = speeds.next();
        let Some(fastest) = topology.links().map(|link| link.rate).max_by_key(|rate| rate.bits_per_second)
        else {
            return Ok(None);
        };
        if speeds.any(|other| Some(other) != speed) {
            return Ok(None);
        }
        let ports: Vec<_> = topology.hosts().iter().map(|host| host.ports().len()).collect();
        let found = recommend_for(&ports, bytes_per_second(fastest), operation)?;
        if present <= found.time {
            let recommendation = Recommendation { cabling: cabling.clone(), time: present, ..found };
            let (topology, moves) = (topology.clone(), Vec::new());
            return Ok(Some(Self { topology, recommendation, line_rate: fastest, moves }));
        }
        let recommendation = found.nearest_to(cabling);
        let (topology, moves) = move_cables(topology, &recommendation.cabling, fastest)?;
        Ok(Some(Self { topology, recommendation, line_rate: fastest, moves }))
    }

    /// The cabling
    pub(super) fn cabling(&self) -> &Cabling {
        &self.recommendation.cabling
    }

    /// Seconds per byte of the payload
    pub(super) fn time(&self) -> Ratio {
        self.recommendation.time
    }

    /// Whether no cables need to be moved
    pub(super) fn is_present(&self) -> bool {
        self.moves.is_empty()
    }

    /// How good the cabling is among those of the same ports, in words
    pub(super) fn verdict(&self) -> String {
        let Recommendation { time, least, .. } = &self.recommendation;
        if self.recommendation.is_optimal() {
            "no cabling of these ports is faster".to_owned()
        } else {
            format!("at most {:.3} × as long as the best", time.to_f64() / least.to_f64())
        }
    }

    /// The time of the operation in words, without the verdict
    pub(super) fn takes(&self) -> String {
        let seconds = self.time().to_f64();
        format!(
            "{:.3} × the time of one 80 Gb/s cable ({} of the payload)",
            seconds * LineRate::TB5.ceiling_bytes_per_second(),
            rate(1.0 / seconds)
        )
    }

    /// Why no cabling is faster than the limit, in words
    pub(super) fn because(&self) -> String {
        let Recommendation { ports, limit, cabling, .. } = &self.recommendation;
        let (hosts, cables) = (ports.len(), self.recommendation.most_cables());
        match limit {
            Limit::Cables => format!(
                "{hosts} hosts with {} have at most {cables} cables, and each byte crosses between hosts at least {} times, over both \
                 directions of all cables",
                ports_in_words(ports),
                2 * (hosts - 1)
            ),
            Limit::Distances => format!(
                "with so few ports most pairs of hosts are several hops apart: each byte crosses several of at most {cables} cables"
            ),
            Limit::Ports { host } => format!(
                "all that {} needs, or others need from it, crosses the cables of its own ports, at most {}",
                cabling.hosts()[*host],
                ports[*host]
            ),
            other => unreachable!("{other:?} is a limit that this tool does not know"),
        }
    }

    /// The cables to move, as a table
    pub(super) fn moves_text(&self) -> String {
        let place =
            |ends: &[[String; 2]; 2]| cable(ends.each_ref().map(|end| end.each_ref().map(String::as_str)));
        let mut rows = vec![["cable to move", "to"].map(str::to_owned)];
        rows.extend(self.moves.iter().map(|moved| {
            let further = || format!("a further cable of {}", line_rate(self.line_rate.bits_per_second));
            let to = moved.to.as_ref().map_or_else(|| "nowhere: remove it".to_owned(), place);
            [moved.from.as_ref().map_or_else(further, place), to]
        }));
        table(rows)
    }

    pub(super) fn into_report(self) -> BestCabling {
        let names = |end: rdma_sim::topology::LinkEnd<'_>| [end.host, end.device].map(str::to_owned);
        BestCabling {
            bits_per_second: self.line_rate.bits_per_second,
            bound_seconds_per_byte: self.time().to_f64(),
            edges: self.topology.links().map(|link| link.ends.map(names)).collect(),
            least_seconds_per_byte: self.recommendation.least.to_f64(),
            optimal: self.recommendation.is_optimal(),
            proof: plain(&self.because()),
            moves: self.moves,
        }
    }
}

/// How many ports hosts have, in words
fn ports_in_words(ports: &[usize]) -> String {
    match ports {
        [first, others @ ..] if others.iter().all(|other| other == first) => format!("{first} ports each"),
        _ => format!("{} ports together", ports.iter().sum::<usize>()),
    }
}
