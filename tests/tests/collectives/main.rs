//! Collective operations of simulated Macs over sessions

mod cluster;
mod failures;
mod figures;
mod oracle;
