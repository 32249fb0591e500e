//! The kinds of faults: one table, from which reading, writing and `MODEL.md` follow

use std::fmt;
use std::time::Duration;

use super::argument::{COUNT, DEVICE, INDEX, PERCENT, TIME, VERB, VERB_TIME};
use super::error::FaultReason;
use super::verb::{SlowVerb, SlowableVerb};

/// Whether a fault happens to a host or to one of its ports
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum TargetKind {
    /// To a host
    Host,
    /// To a port, and with it the cable in it
    Port,
}

/// A kind of fault, for people
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct FaultInfo {
    /// Its name in a plan
    pub name: &'static str,
    /// What it happens to
    pub target: TargetKind,
    /// What follows the name: `N`, `TIME`, `PERCENT`, `DEVICE`, `VERB`, `VERB=TIME`, or `–` for nothing
    pub argument: &'static str,
    /// What happens
    pub description: &'static str,
    /// The test that shows it
    pub test: &'static str,
}

/// Makes [`FaultKind`] and everything that depends on the list of its variants
macro_rules! fault_kinds {
    ($(
        $(#[doc = $description:literal])+
        $kind:ident $({ $field:ident: $type:ty as $argument:ident, $meaning:literal })?
        = $name:literal on $target:ident, shown by $test:ident;
    )+) => {
        /// What happens
        #[derive(Clone, Debug, Eq, PartialEq)]
        #[non_exhaustive]
        pub enum FaultKind {
            $($(#[doc = $description])+ $kind $({ #[doc = $meaning] $field: $type })?,)+
        }

        /// All kinds of faults, by name
        pub const FAULTS: &[FaultInfo] = &[$(FaultInfo {
            name: $name,
            target: TargetKind::$target,
            argument: [$($argument.placeholder,)? "–"][0],
            description: concat!($($description),+).trim_ascii_start(),
            test: stringify!($test),
        }),+];

        impl FaultKind {
            /// Its name, as plans write it
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$kind { .. } => $name,)+
                }
            }

            /// What it happens to
            pub fn target(&self) -> TargetKind {
                match self {
                    $(Self::$kind { .. } => TargetKind::$target,)+
                }
            }

            /// Reads the argument of the fault called `name` from `words`
            pub(super) fn parse<'a>(
                name: &str,
                mut words: impl Iterator<Item = &'a str>,
            ) -> Result<Self, FaultReason> {
                Ok(match name {
                    $($name => Self::$kind $({ $field: {
                        let argument = $argument.placeholder;
                        let missing = || FaultReason::MissingArgument { kind: $name, argument };
                        ($argument.parse)(words.next().ok_or_else(missing)?)?
                    } })?,)+
                    _ => {
                        let known = FAULTS.iter().map(|info| info.name).collect();
                        return Err(FaultReason::UnknownKind { name: name.to_owned(), known });
                    }
                })
            }
        }

        impl fmt::Display for FaultKind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())?;
                match self {
                    $($(Self::$kind { $field } => {
                        f.write_str(" ")?;
                        ($argument.write)($field, f)
                    })?)+
                    _ => Ok(()),
                }
            }
        }
    };
}

impl FaultKind {
    /// The duration that is its argument, if it has one
    pub(crate) fn duration_mut(&mut self) -> Option<&mut Duration> {
        match self {
            Self::Delay { by: time } | Self::Flap { down: time } | Self::Reboot { down: time } => Some(time),
            Self::SlowVerb { slow } => Some(&mut slow.time),
            _ => None,
        }
    }

    /// The fault that ends this one, if it lasts until another does
    pub fn end(&self) -> Option<Self> {
        match self {
            Self::Delay { by } if !by.is_zero() => Some(Self::Delay { by: Duration::ZERO }),
            Self::Hang { verb } => Some(Self::SlowVerb { slow: SlowVerb::none(*verb) }),
            Self::InterfaceDown | Self::Unresolvable => Some(Self::Resolvable),
            Self::Kill => Some(Self::Restart),
            Self::Pause => Some(Self::Resume),
            Self::RdmaOff => Some(Self::RdmaOn),
            Self::Sleep => Some(Self::Wake),
            Self::Slow { percent } | Self::Storm { percent } if *percent < 100 => {
                Some(Self::Slow { percent: 100 })
            }
            Self::SlowVerb { slow } if !slow.time.is_zero() => {
                Some(Self::SlowVerb { slow: SlowVerb::none(slow.verb) })
            }
            Self::Unplug => Some(Self::Replug),
            _ => None,
        }
    }
}

fault_kinds! {
    /// The next region that is registered at the port lies across a 4 GiB boundary.
    Boundary = "boundary" on Port, shown by data_beyond_a_4_gib_boundary_is_lost_or_not;

    /// The receive queue of the port is taken: the transition to RTR fails with 16 until a reboot.
    Busy = "busy" on Port, shown by a_taken_receive_queue_refuses_the_step;

    /// The Thunderbolt Bridge captures the port: of its GID table only the first entry stays.
    Captured = "captured" on Port, shown by a_captured_port_may_keep_its_first_entry;

    /// The next N frames that the port sends into receives arrive damaged.
    Corrupt { frames: u32 as COUNT, "How many frames" } = "corrupt" on Port, shown by a_damaged_frame_fails_its_receive;

    /// The remote ends of this cable and of the one in DEVICE of the same host trade places. Queue pairs that were
    /// connected over either are stale.
    Cross { with: String as DEVICE, "The device at the other cable" } = "cross" on Port, shown by crossed_cables_lead_elsewhere;

    /// Completions at the port come later by TIME from now on.
    Delay { by: Duration as TIME, "By how much" } = "delay" on Port, shown by a_late_port_reports_later;

    /// The cable is pulled and, after TIME, plugged in again.
    Flap { down: Duration as TIME, "How long the cable is out" } = "flap" on Port, shown by old_objects_are_useless_after_a_replug;

    /// The IPv4 entry of the port moves to index N of the GID table.
    GidAt { index: u8 as INDEX, "The index" } = "gid-at" on Port, shown by the_ipv4_entry_may_be_anywhere;

    /// Calls of VERB at the port do not return from now on, and have no effect, until `slow-verb` says otherwise or the host
    /// reboots. A call that hangs never returns.
    Hang { verb: SlowableVerb as VERB, "The verb" } = "hang" on Port, shown by a_verb_that_hangs_stops_its_task_alone;

    /// The queue pairs of both ends die as if they had been idle for too long.
    IdleDeath = "idle-death" on Port, shown by a_dead_queue_pair_takes_posts_and_completes_nothing;

    /// Neither end can resolve the other's address. Connected queue pairs keep working.
    InterfaceDown = "interface-down" on Port, shown by an_interface_that_is_down_stops_only_new_connections;

    /// The processes of the host die, and the kernel reclaims their objects.
    Kill = "kill" on Host, shown by a_killed_host_is_silent_until_its_processes_start_anew;

    /// N completion queues of the port stay allocated without an owner until a reboot.
    LeakCqs { count: u32 as COUNT, "How many" } = "leak-cqs" on Port, shown by every_failing_verb_has_its_errno;

    /// N memory regions of the port stay allocated without an owner until a reboot.
    LeakMrs { count: u32 as COUNT, "How many" } = "leak-mrs" on Port, shown by every_failing_verb_has_its_errno;

    /// N protection domains of the port stay allocated without an owner until a reboot.
    LeakPds { count: u32 as COUNT, "How many" } = "leak-pds" on Port, shown by every_failing_verb_has_its_errno;

    /// N queue pairs of the port stay allocated without an owner until a reboot.
    LeakQps { count: u32 as COUNT, "How many" } = "leak-qps" on Port, shown by every_failing_verb_has_its_errno;

    /// The IPv4 entries of the port disappear from the GID table.
    LinkLocalGids = "link-local-gids" on Port, shown by a_port_without_an_address_has_no_usable_gid;

    /// The next messages that the port sends are lost, up to N frames; their sends complete successfully.
    Lose { frames: u32 as COUNT, "How many frames" } = "lose" on Port, shown by lost_messages_take_no_receive;

    /// The GID table of the port is empty, as when a bridge has captured the port.
    NoGids = "no-gids" on Port, shown by a_captured_port_has_no_gids;

    /// The port allocates no protection domain until its cable is plugged in again or the host reboots.
    NoPds = "no-pds" on Port, shown by a_link_that_looks_up_may_have_no_protection_domains;

    /// The receive queues of the port accept more than they hold; data of the excess receives is damaged.
    Overflow = "overflow" on Port, shown by an_overflowing_ring_damages_the_excess;

    /// The processes of the host stop; the hardware continues.
    Pause = "pause" on Host, shown by a_stopped_peer_continues_without_damage;

    /// RDMA is disabled on the host: both ends of its cables go down.
    RdmaOff = "rdma-off" on Host, shown by a_port_is_active_while_rdma_is_enabled_at_both_ends;

    /// RDMA is enabled on the host.
    RdmaOn = "rdma-on" on Host, shown by a_port_is_active_while_rdma_is_enabled_at_both_ends;

    /// The host goes down and is back after TIME: its kernel has freed every object, and its processes start anew.
    Reboot { down: Duration as TIME, "How long the host is down" } = "reboot" on Host, shown by only_a_reboot_frees_leaked_objects;

    /// The devices of the host trade names, as after a restart.
    Renumber = "renumber" on Host, shown by devices_trade_names_after_a_restart;

    /// The cable is plugged in again.
    Replug = "replug" on Port, shown by a_port_is_active_while_rdma_is_enabled_at_both_ends;

    /// Both ends can resolve each other's address again.
    Resolvable = "resolvable" on Port, shown by an_interface_that_is_down_stops_only_new_connections;

    /// The processes of the host die, if they are alive, and start anew.
    Restart = "restart" on Host, shown by a_killed_host_is_silent_until_its_processes_start_anew;

    /// The stopped processes of the host continue.
    Resume = "resume" on Host, shown by a_stopped_peer_continues_without_damage;

    /// The host sleeps: its processes stop, and both ends of its cables go down.
    Sleep = "sleep" on Host, shown by a_sleeping_mac_takes_its_ports_along;

    /// The cable carries PERCENT of its rate from now on.
    Slow { percent: u32 as PERCENT, "The share of the rate" } = "slow" on Port, shown by a_slow_cable_carries_less;

    /// The port reports completed receives once a second.
    SlowReceive = "slow-receive" on Port, shown by a_slow_receiver_looks_once_a_second;

    /// Calls of a verb at the port take TIME longer from now on; `0ns` ends it, and `hang`, for later calls.
    SlowVerb { slow: SlowVerb as VERB_TIME, "The verb, and how long" } = "slow-verb" on Port, shown by a_slow_verb_takes_its_time;

    /// Frames circle through a bridge and leave PERCENT of the cable.
    Storm { percent: u32 as PERCENT, "The share that is left" } = "storm" on Port, shown by a_slow_cable_carries_less;

    /// The cable is pulled.
    Unplug = "unplug" on Port, shown by after_unplugging_everything_is_refused;

    /// Neither end can resolve the other's address.
    Unresolvable = "unresolvable" on Port, shown by a_failed_step_cannot_be_repeated;

    /// The host wakes: its ports come up, and its processes continue.
    Wake = "wake" on Host, shown by a_sleeping_mac_takes_its_ports_along;

    /// The driver of the port creates no object until a reboot.
    Wedge = "wedge" on Port, shown by a_wedged_driver_creates_nothing;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: the README counted the faults of an earlier version.
    #[test]
    fn the_readme_counts_the_kinds_of_faults() {
        let named = ["unplug", "lose", "corrupt", "kill", "pause"];
        assert!(named.iter().all(|name| FAULTS.iter().any(|info| info.name == *name)));
        let text = format!("killed and stopped processes, and {} others", FAULTS.len() - named.len());
        assert!(include_str!("../../README.md").contains(&text), "the README does not say \"{text}\"");
    }

    /// Catches a kind with a duration that shrinking does not round.
    #[test]
    fn every_fault_with_a_time_has_a_duration() {
        for info in FAULTS {
            let argument = match info.argument {
                "TIME" => "5ms",
                "VERB" => "create_qp",
                "VERB=TIME" => "create_qp=5ms",
                _ => "7",
            };
            let mut kind = FaultKind::parse(info.name, [argument].into_iter()).expect("the argument fits");
            assert_eq!(kind.duration_mut().is_some(), info.argument.ends_with("TIME"), "{}", info.name);
        }
    }
}
