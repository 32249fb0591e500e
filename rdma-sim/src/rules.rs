//! Switches of the simulated device
//!
//! [`Rules`] holds the switches; [`catalogue::rules`](crate::catalogue::rules) lists every rule with its source, switchable or
//! not.

use std::time::Duration;

/// How the simulated device decides where sources disagree, or where other hardware behaves otherwise
///
/// The default is Apple's RDMA over Thunderbolt 5. Each field names its rule in `MODEL.md`, which has the sources.
///
/// ```
/// use rdma_sim::Model;
/// use rdma_sim::rules::SendCompletion;
///
/// let mut model = Model::tb5();
/// model.rules.send_completion = SendCompletion::HandOff;
/// assert_eq!(Model::tb5().rules.send_completion, SendCompletion::Departure);
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Rules {
    /// `registration-alignment`: what the start of registered memory must be aligned to, in bytes
    pub alignment: usize,
    /// `four-gib-boundary`: whether data beyond a 4 GiB boundary inside a region is misplaced
    pub boundary: bool,
    /// `completion-channels`: whether completion channels report completions, or polling alone does
    pub completion_events: bool,
    /// `provider-crashes`: whether the simulated provider crashes the program where Apple's was seen to
    pub crashes: bool,
    /// `receives-before-rts`: from which state on receives can be posted
    pub early_receives: EarlyReceives,
    /// `error-state-keeps-mappings`: whether regions stay counted after a queue pair was set to the error state
    pub error_keeps_mappings: bool,
    /// `failed-rtr-wedges`: after how many failed transitions to RTR a port refuses all of them until a reboot
    pub failed_rtr_wedges: Option<u32>,
    /// `frame-match`: how a message and its receive must fit
    pub frame_match: FrameMatch,
    /// `gid-moves`: whether the IPv4 entry of the GID table moves, and leaves a hole, each time a link comes up again
    pub gids_move: bool,
    /// `idle-death`: how long a queue pair can be idle before it is dead
    pub idle_death: Option<Duration>,
    /// `idle-death-spoils`: whether a queue pair that died of idleness spoils its port until a reboot
    pub idle_death_spoils: bool,
    /// `ipv4-gid-index`: where the IPv4 entry stands in the GID table of a port with the addresses that it has by itself, 1 or 2
    pub ipv4_gid_index: usize,
    /// `late-registration`: whether receives reach memory that was registered after the queue pair was ready to receive
    pub late_registration: bool,
    /// `link-local-source`: whether an IPv4 address of 169.254.0.0/16 is valid as the source
    ///
    /// Where it is not, ports have an address of 192.168.0.0/16 in place of the one that they give themselves.
    pub link_local_source: bool,
    /// `large-mtu`: whether a path MTU of 4096 works
    pub large_mtu: bool,
    /// `gid-table-length`: whether programs in C see 1024 entries of the GID table, of which unset ones cannot be read, rather than 16,
    /// of which unset ones are zeros
    pub large_gid_table: bool,
    /// `registration-access`: whether memory can be registered for local writing alone
    pub local_write_alone: bool,
    /// `multi-sge`: how a send with several elements is treated
    pub multi_sge: MultiSge,
    /// `process-end`: protection domains that each end of a process leaks on each device where it had any
    pub process_end_leaks_pds: u32,
    /// `process-end-qps`: queue pairs that each end of a process leaks on each device where it had any
    pub process_end_leaks_qps: u32,
    /// `queue-grant`: how much a queue accepts
    pub queue_grant: QueueGrant,
    /// `queue-read-back`: the depth that a queue pair reports
    pub queue_read_back: QueueReadBack,
    /// `queue-frames`: the unit in which queues count
    pub queue_unit: QueueUnit,
    /// `reboot-addresses`: whether a Mac has other IPv4 addresses after a reboot; no report tells of its IPv6 addresses, which stay
    pub reboot_readdresses: bool,
    /// `replug-leaks-pd`: protection domains that each replugging leaks
    pub replug_leaks_pds: u32,
    /// `key-reuse`: whether a region gets the key of one that was deregistered before
    pub reuses_keys: bool,
    /// `ring-overflow`: how requests beyond the capacity of the queue are treated
    pub ring_overflow: RingOverflow,
    /// `send-completion`: when a send completes
    pub send_completion: SendCompletion,
    /// `source-gid`: which entries of the GID table are valid as the source
    pub source_gid: SourceGid,
    /// `spoiled-rtr`: how the transition to RTR fails on a port that idle death has spoiled
    pub spoiled_rtr: SpoiledRtr,
    /// `surplus-region`: whether registering a memory region too many is one of the calls in which the provider
    /// [crashes](Self::crashes)
    pub surplus_region_crashes: bool,
    /// `tb4-devices`: whether ports of 40 Gb/s have devices
    pub tb4_devices: bool,
    /// `rtr-unresolved`: how the transition to RTR fails if the peer is not among the neighbours
    pub unresolved: Unresolved,
    /// `uc-write`: how an RDMA WRITE is treated
    pub uc_write: UcWrite,
}

/// From which state on receives can be posted
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum EarlyReceives {
    /// From [`QpState::Init`](rdma_core::QpState::Init)
    FromInit,
    /// From [`QpState::ReadyToReceive`](rdma_core::QpState::ReadyToReceive)
    FromReadyToReceive,
    /// From [`QpState::ReadyToSend`](rdma_core::QpState::ReadyToSend)
    FromReadyToSend,
}

/// How a message and its receive must fit
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum FrameMatch {
    /// They span the same number of frames
    Exact,
    /// The message is no longer than the receive
    Fits,
}

/// How a send with several scatter-gather elements is treated
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum MultiSge {
    /// It is refused
    Refused,
    /// Each element becomes a message and a completion of its own
    Split,
}

/// How many frames a queue accepts, by how many were asked for; never more than the device's limit
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum QueueGrant {
    /// A ring of a power of two, of which one entry stays free: at least what was asked for, and at least this many
    AtLeast(u32),
    /// As many as were asked for
    Exact,
    /// This many, whatever was asked for
    Fixed(u32),
}

impl QueueGrant {
    /// What a queue accepts for which `asked` frames were asked, on a device whose queues have at most `max`
    pub(crate) fn accepts(self, asked: u32, max: u32) -> u32 {
        let accepted = match self {
            Self::AtLeast(least) => ((asked + 1).next_power_of_two() - 1).max(least),
            Self::Exact => asked,
            Self::Fixed(frames) => frames,
        };
        accepted.min(max)
    }
}

/// The depth that a queue pair reports when it is created or queried
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum QueueReadBack {
    /// What the queue accepts
    Accepted,
    /// What the program asked for
    Asked,
    /// The limit of the device
    Limit,
}

/// The unit in which queues count
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum QueueUnit {
    /// Frames of 4 KiB
    Frames,
    /// Requests, however long
    Requests,
}

/// How requests beyond the capacity of a queue are treated
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum RingOverflow {
    /// They are accepted, and their data is damaged
    Corrupts,
    /// They are refused
    Refused,
}

/// When a send completes
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum SendCompletion {
    /// When its last byte has left
    Departure,
    /// When the transmitter begins with it
    HandOff,
}

/// Which entries of the GID table are valid as the source
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum SourceGid {
    /// Every entry that is set
    Any,
    /// Entries that map an IPv4 address
    Ipv4,
}

/// How the transition to RTR fails on a port that idle death has spoiled
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum SpoiledRtr {
    /// With 96, `ENODATA`, as if the GID table were empty
    GidTableEmpty,
    /// With 22, `EINVAL`, as if the source were not usable
    NoUsableGid,
}

/// How the transition to RTR fails if the peer is not among the neighbours of the port
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Unresolved {
    /// With 1, `EPERM`
    NotPermitted,
    /// With 60, `ETIMEDOUT`
    TimedOut,
}

/// How an RDMA WRITE is treated on an unreliable queue pair of a device without one-sided operations
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum UcWrite {
    /// It travels like a SEND and completes a receive
    AsSend,
    /// It is refused
    Refused,
}

impl Default for Rules {
    fn default() -> Self {
        Self::tb5()
    }
}

impl Rules {
    /// Apple's RDMA over Thunderbolt 5, macOS 26.3 and later
    pub const fn tb5() -> Self {
        Self {
            alignment: 16 * 1024,
            boundary: true,
            completion_events: true,
            crashes: false,
            early_receives: EarlyReceives::FromInit,
            error_keeps_mappings: true,
            failed_rtr_wedges: None,
            frame_match: FrameMatch::Exact,
            gids_move: true,
            idle_death: Some(Duration::from_mins(23)),
            idle_death_spoils: false,
            ipv4_gid_index: 1,
            late_registration: false,
            link_local_source: true,
            large_mtu: true,
            large_gid_table: false,
            local_write_alone: true,
            multi_sge: MultiSge::Refused,
            process_end_leaks_pds: 0,
            process_end_leaks_qps: 0,
            queue_grant: QueueGrant::AtLeast(1023),
            queue_read_back: QueueReadBack::Accepted,
            queue_unit: QueueUnit::Frames,
            reboot_readdresses: false,
            replug_leaks_pds: 1,
            reuses_keys: false,
            ring_overflow: RingOverflow::Refused,
            send_completion: SendCompletion::Departure,
            source_gid: SourceGid::Ipv4,
            spoiled_rtr: SpoiledRtr::NoUsableGid,
            surplus_region_crashes: false,
            tb4_devices: true,
            unresolved: Unresolved::TimedOut,
            uc_write: UcWrite::AsSend,
        }
    }

    /// As [`tb5`](Self::tb5) on the strict side of every rule that is disputed, or whose extent is not known
    ///
    /// Where neither side is stricter, it takes the side that fewer programs expect.
    pub const fn tb5_strict() -> Self {
        Self {
            completion_events: false,
            crashes: true,
            early_receives: EarlyReceives::FromReadyToSend,
            failed_rtr_wedges: Some(8),
            idle_death_spoils: true,
            ipv4_gid_index: 2,
            link_local_source: false,
            large_mtu: false,
            large_gid_table: true,
            local_write_alone: false,
            process_end_leaks_pds: 1,
            process_end_leaks_qps: 1,
            queue_grant: QueueGrant::Exact,
            queue_read_back: QueueReadBack::Limit,
            reboot_readdresses: true,
            ring_overflow: RingOverflow::Corrupts,
            send_completion: SendCompletion::HandOff,
            spoiled_rtr: SpoiledRtr::GidTableEmpty,
            surplus_region_crashes: true,
            tb4_devices: false,
            unresolved: Unresolved::NotPermitted,
            uc_write: UcWrite::Refused,
            ..Self::tb5()
        }
    }

    /// A network adapter that speaks RoCE
    pub const fn roce() -> Self {
        Self {
            alignment: 1,
            boundary: false,
            error_keeps_mappings: false,
            frame_match: FrameMatch::Fits,
            gids_move: false,
            idle_death: None,
            late_registration: true,
            queue_grant: QueueGrant::AtLeast(0),
            queue_unit: QueueUnit::Requests,
            replug_leaks_pds: 0,
            source_gid: SourceGid::Any,
            ..Self::tb5()
        }
    }
}
