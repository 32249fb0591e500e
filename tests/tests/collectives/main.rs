//! Collective operations of simulated Macs over sessions

mod beside;
mod cluster;
mod deaths;
mod drawn_faults;
mod each_frame;
mod failures;
mod figures;
mod following;
mod growing;
mod joins;
mod largest;
mod leaving;
mod limits;
mod oracle;
mod outages;
mod promised;
mod random_faults;
mod random_lives;
mod sending;
mod sending_faults;
mod shrinking;
mod shrinking_at_once;
mod varying;

mod processors;
mod protocol;
mod rejoining;
