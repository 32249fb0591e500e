//! Arguments of `tb5 topo`

use std::path::PathBuf;

use clap::Subcommand;
use rdma_collectives::MAX_PORTS;

use super::operation::OperationName;

#[derive(Debug, Subcommand)]
pub(crate) enum TopoCommand {
    /// Verify a plan file, made by `topo plan --out` or by another program, and print how far it is from the bound
    #[command(
        after_help = "A plan that topo plan has written is checked alone: it has the cables that it is for. With a cabling, it has to be for that one.\n\n\
                      Examples: tb5 topo plan ring:4 --out all-reduce.plan && tb5 topo check all-reduce.plan; \
                      tb5 topo check macs.toml all-reduce.plan.\n\n\
                      Exit codes: 0 the plan is right, 1 it is not, or is for another cabling, 2 usage."
    )]
    Check(TopoCheck),
    /// Write a cabling in another format
    #[command(
        after_help = "A hostfile is that of mlx.launch, for JACCL; the address of its first host is to be added. Formats of MLX have \
                      neither models, unused ports nor rates.\n\n\
                      Examples: tb5 topo convert hosts.json; tb5 topo convert macs.toml --to hostfile --out hosts.json; \
                      tb5 topo convert mesh:4 --to matrix.\n\n\
                      Exit codes: 0 done, 1 a file is wrong or cannot be written, 2 usage."
    )]
    Convert(TopoConvert),
    /// Find the cables between Macs, from the reports of `tb5 doctor --record` of each
    #[command(
        after_help = "A cable is found by the identifiers of its ends: both Macs must have been recorded. Hosts are called as the files.\n\n\
                      Examples: tb5 topo discover studio.json mini.json; tb5 topo discover studio.json mini.json --to hostfile.\n\n\
                      Exit codes: 0 done, 1 a report cannot be read or has no names for its ports, 2 usage."
    )]
    Discover(TopoDiscover),
    /// Draw a cabling, with its ports and cables
    #[command(
        after_help = "Examples: tb5 topo draw ring:4; tb5 topo draw macs.toml --format svg --out macs.svg; \
                      tb5 topo draw mesh:4 --format dot | dot -Tpdf -o mesh.pdf.\n\n\
                      Exit codes: 0 done, 1 a file is wrong or cannot be written, 2 usage."
    )]
    Draw(TopoDraw),
    /// Find the best plan of an operation, what each cable is worth for it, and the best cabling of the ports
    #[command(
        after_help = "Times are for data so large that latency does not count, as multiples of the time that one 80 Gb/s cable takes \
                      for the payload: the vector of one host for all-reduce, broadcast and reduce, else all data of all hosts.\n\n\
                      With --ports instead of a cabling, only the best cabling that was found is printed, with the proof, or with how far it may be \
                      from the best one; its Macs are called a, b, c and so on. Of a cabling, the cables to move for it are printed. The best cabling has cables as fast as the fastest one \
                      of the cabling, or of 80 Gb/s.\n\n\
                      Examples: tb5 topo plan ring:4; tb5 topo plan --ports 3 --hosts 5; tb5 topo plan --ports 6,3,3 --write-cabling best.toml; \
                      tb5 topo plan macs.toml --operation broadcast --root studio; \
                      tb5 topo plan macs.toml --out all-reduce.plan && tb5 topo check macs.toml all-reduce.plan.\n\n\
                      Exit codes: 0 done, 1 there is no plan, or a file is wrong or cannot be written, 2 usage."
    )]
    Plan(TopoPlan),
}

/// Which cabling
#[derive(Debug, clap::Args)]
pub(crate) struct Topology {
    #[arg(help = super::names::cabling(), value_name = "SHAPE|FILE")]
    pub(crate) topology: String,
    /// Number of hosts; by default that of the topology, or 2
    #[arg(long, value_name = "N", value_parser = super::number::within(1..=64usize), allow_negative_numbers = true)]
    pub(crate) hosts: Option<usize>,
}

#[derive(Debug, clap::Args)]
#[command(allow_missing_positional = true)]
pub(crate) struct TopoCheck {
    #[arg(help = super::names::cabling(), value_name = "SHAPE|FILE")]
    pub(crate) topology: Option<String>,
    /// Number of hosts; by default that of the topology, or 2
    #[arg(long, value_name = "N", value_parser = super::number::within(2..=64usize), allow_negative_numbers = true, requires = "topology")]
    pub(crate) hosts: Option<usize>,
    /// The plan; `-` is standard input
    pub(crate) plan: PathBuf,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TopoPlan {
    #[arg(help = super::names::cabling(), value_name = "SHAPE|FILE", required_unless_present = "ports", conflicts_with = "ports")]
    pub(crate) topology: Option<String>,
    /// Number of hosts; by default that of the topology, or of the numbers of --ports
    #[arg(long, value_name = "N", value_parser = super::number::within(1..=64usize), allow_negative_numbers = true)]
    pub(crate) hosts: Option<usize>,
    /// Thunderbolt ports of each host, instead of a cabling: one number for all of --hosts, or one for each host
    #[arg(long, value_name = "P[,P...]", value_delimiter = ',', value_parser = super::number::within(1..=MAX_PORTS),
          allow_negative_numbers = true)]
    pub(crate) ports: Vec<usize>,
    /// The operation, of equal amounts of data from each host
    #[arg(long, value_enum, default_value_t)]
    pub(crate) operation: OperationName,
    /// The host that a broadcast or scatter begins at, or a reduce or gather ends at; by default the first
    #[arg(long, value_name = "HOST")]
    pub(crate) root: Option<String>,
    /// Also write the plan to a file, which replaces an existing one; `-` is standard output, and the figures go to standard error then
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Also write the best cabling to a file (TOML), as --out writes the plan
    #[arg(long, value_name = "FILE")]
    pub(crate) write_cabling: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TopoDraw {
    #[command(flatten)]
    pub(crate) topology: Topology,
    /// Form of the drawing
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: Drawing,
    /// Write the drawing to a file, which replaces an existing one; `-` is standard output
    #[arg(long, value_name = "FILE", default_value = "-")]
    pub(crate) out: PathBuf,
}

/// Form of a drawing
#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
pub(crate) enum Drawing {
    /// A list of ports for the terminal
    #[default]
    Text,
    /// The language of Graphviz
    Dot,
    /// A picture for browsers and documents
    Svg,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TopoConvert {
    #[command(flatten)]
    pub(crate) topology: Topology,
    #[command(flatten)]
    pub(crate) written: Written,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TopoDiscover {
    /// The reports, one of each Mac; `-` is standard input
    #[arg(required = true, value_name = "REPORT")]
    pub(crate) reports: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) written: Written,
}

/// Format and file of a cabling that is written
#[derive(Debug, clap::Args)]
pub(crate) struct Written {
    /// Format
    #[arg(long, value_enum, default_value_t)]
    pub(crate) to: Format,
    /// Write to a file, which replaces an existing one; `-` is standard output
    #[arg(long, value_name = "FILE", default_value = "-")]
    pub(crate) out: PathBuf,
}

/// Format of a cabling
#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
pub(crate) enum Format {
    /// A hostfile of mlx.launch, in JSON
    Hostfile,
    /// A device matrix of MLX, in JSON
    Matrix,
    /// A topology with names, ports and rates
    #[default]
    Toml,
}
