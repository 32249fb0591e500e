//! Collective operations of simulated Macs over sessions

mod cluster;
mod figures;
