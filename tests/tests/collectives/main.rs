//! Collective operations of simulated Macs over sessions

mod beside;
mod cluster;
mod deaths;
mod failures;
mod figures;
mod following;
mod growing;
mod joins;
mod limits;
mod oracle;
mod shrinking;
mod varying;

mod processors;
mod protocol;
