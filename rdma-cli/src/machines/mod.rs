//! Helpers of commands between two machines: one serves, the other one asks

mod acceptor;
mod attempts;
mod carriers;
mod connect;
mod host;
mod limits;
mod listen;
mod peer;
mod remote_path;
mod reset_code;
mod sides;

pub(crate) use self::acceptor::{Accepted, Acceptor};
pub(crate) use self::attempts::{Attempt, Attempts, Refused};
pub(crate) use self::carriers::{Carried, Carriers};
pub(crate) use self::connect::{connect, require_port};
pub(crate) use self::host::Host;
pub(crate) use self::limits::{CHECK_INTERVAL, MAX_MEASUREMENT, MAX_PEERS, MAX_SILENCE};
pub(crate) use self::listen::listen;
pub(crate) use self::peer::Peer;
pub(crate) use self::remote_path::{RemotePath, require_below};
pub(crate) use self::reset_code::{Declined, explain, lacks_room};
pub(crate) use self::sides::{
    end_session, in_session, interrupted, key_options, runtime, unless_interrupted, with_memory_for,
};
