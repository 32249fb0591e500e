use rdma_core::{Caps, FRAME, Verb};

use crate::Rules;
use crate::rules::{QueueGrant, QueueUnit};

/// How a simulated device and its cables behave: numbers, no code
///
/// The default is Apple's RDMA over Thunderbolt 5 as publicly documented and measured by others; none of it was
/// observed on hardware by this project.
///
/// ```
/// use rdma_sim::{Model, Sim, Timing};
///
/// let mut model = Model::tb5();
/// model.caps.max_qp = 4;
/// model.timing = Timing::INSTANT;
/// Sim::new().model(model).run(async |_net| ());
/// assert!(Model::profile("roce").is_some_and(|roce| roce.caps.one_sided));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Model {
    /// Limits of each device
    pub caps: Caps,
    /// Decisions where sources disagree, or where other hardware behaves otherwise
    pub rules: Rules,
    /// How long things take
    pub timing: Timing,
}

impl Default for Model {
    fn default() -> Self {
        Self::tb5()
    }
}

impl Model {
    /// Apple's RDMA over Thunderbolt 5, macOS 26.3 and later
    pub fn tb5() -> Self {
        Self { caps: Caps::tb5(), rules: Rules::tb5(), timing: Timing::default() }
    }

    /// As [`tb5`](Self::tb5) under macOS 26.2, whose messages are at most one frame (source: MLX's JACCL uses longer ones
    /// only from 26.3 on), and whose provider, if it [crashes](Rules::crashes), also does so for a memory region too many
    pub fn tb5_macos_26_2() -> Self {
        let mut model = Self::tb5();
        model.caps.max_message = FRAME as u32;
        model.rules.surplus_region_crashes = true;
        model
    }

    /// As [`tb5`](Self::tb5) with the room of other adapters: more objects, longer queues, which count requests, longer messages
    ///
    /// For programs that ask for more than Macs give, such as benchmarks of other adapters.
    pub fn tb5_lenient() -> Self {
        let mut model = Self::tb5();
        let mut caps = Caps::roce();
        caps.one_sided = model.caps.one_sided;
        caps.flush_on_error = model.caps.flush_on_error;
        caps.send_waits_for_receive = model.caps.send_waits_for_receive;
        model.caps = caps;
        model.rules.queue_unit = QueueUnit::Requests;
        model.rules.queue_grant = QueueGrant::AtLeast(0);
        model
    }

    /// Network adapters that speak RoCE: they drop what finds no receive, and have reliable queue pairs and one-sided
    /// operations
    pub fn roce() -> Self {
        Self { caps: Caps::roce(), rules: Rules::roce(), timing: Timing::default() }
    }

    /// As [`tb5`](Self::tb5) with processors: verbs, copies, reductions and wake-ups take time, see [`Timing::cpu`]
    ///
    /// For programs whose work on the bytes counts. Its costs are assumed or calibrated, where those of the wire are measured.
    pub fn tb5_cpu() -> Self {
        let mut model = Self::tb5();
        model.timing.cpu = true;
        model
    }

    /// [`tb5_macos_26_2`](Self::tb5_macos_26_2) with the strict side of each rule that is disputed, or of which no source says how far it goes
    ///
    /// For programs that are to meet no surprise on a Mac; sessions of `rdma-async` run on it. IPv4 addresses are of 192.168.0.0/16,
    /// because one program has reported that those of 169.254.0.0/16 are refused, and stand at index 2 of the GID table.
    pub fn tb5_strict() -> Self {
        Self { rules: Rules::tb5_strict(), ..Self::tb5_macos_26_2() }
    }

    /// The names of all profiles; the first is the default
    pub const PROFILES: [&'static str; 6] =
        ["tb5", "tb5-cpu", "tb5-strict", "tb5-macos-26.2", "tb5-lenient", "roce"];

    /// The profile called `name`, one of [`PROFILES`](Self::PROFILES)
    pub fn profile(name: &str) -> Option<Self> {
        match name {
            "tb5" => Some(Self::tb5()),
            "tb5-cpu" => Some(Self::tb5_cpu()),
            "tb5-strict" => Some(Self::tb5_strict()),
            "tb5-macos-26.2" => Some(Self::tb5_macos_26_2()),
            "tb5-lenient" => Some(Self::tb5_lenient()),
            "roce" => Some(Self::roce()),
            _ => None,
        }
    }
}

/// How long things take: the parts of a message's way, and, with [`cpu`](Self::cpu), what programs do
///
/// ```
/// let timing = rdma_sim::Timing::default();
/// assert_eq!(timing.doorbell_ns + timing.propagation_ns + timing.delivery_ns, 5_800);
/// ```
///
/// The parts of the way are assumed, and their sum is calibrated: a ping of 8 bytes takes about 12 µs to return, between the 10 µs of
/// Apple's announcements and the 13 µs measured between two Macs by a process that polls (published field notes). The costs of
/// processors are assumed or calibrated. Each field belongs to a rule of the [catalogue](crate::catalogue), which has its source.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Timing {
    /// From the post to the first byte on the wire of an idle link
    pub doorbell_ns: u64,
    /// What each message occupies the transmitter for, beside its bytes
    pub per_message_ns: u64,
    /// From one controller to the other
    pub propagation_ns: u64,
    /// From the last byte's arrival to the visible completion of the receive
    pub delivery_ns: u64,
    /// Upper bound of what the choices add to a delivery
    pub jitter_ns: u32,
    /// From the last byte's departure to the visible completion of the send
    pub send_completion_ns: u64,
    /// Whether bytes take as long as the line rate says, rather than no time
    pub line_rate: bool,
    /// How long a full frame occupies a cable of 80 Gb/s; other cables and shorter frames are in proportion
    ///
    /// The default is [`DEFAULT_FRAME_NS`](Self::DEFAULT_FRAME_NS): with it, the time of each frame is [`LineRate::frame_ns`].
    pub frame_ns: u64,
    /// What a transition to RTR takes that finds no neighbour: a program in C waits for it
    pub unresolved_rtr_ns: u64,
    /// Whether a transition to RTR that finds no neighbour also takes [`unresolved_rtr_ns`](Self::unresolved_rtr_ns) in a simulation
    ///
    /// Off: a node finds by trial which cable leads where, and a mesh of which the pairs are connected one after another takes many seconds.
    pub verbs_block_tasks: bool,
    /// Whether verbs that open, create, register, connect and destroy take as long as the fields below say, also without
    /// [`cpu`](Self::cpu)
    ///
    /// Off, because no source has figures for them; a calibration measures them and sets it. The task or the thread that calls such a verb
    /// waits. Posts and polls are costs of the processor.
    pub verbs_take_time: bool,
    /// Whether processors take time: verbs, copies, reductions and wake-ups last as long as the fields below say
    ///
    /// Off: only the wire takes time, and a program runs infinitely fast between two verbs. It has an effect on the tasks of a
    /// [`Sim`](crate::Sim), not on those of another executor ([`Driver`](crate::Driver)), whose processor is a real one.
    pub cpu: bool,
    /// Opening a device with its protection domain
    pub open_ns: u64,
    /// Creating a completion queue or a queue pair
    pub create_ns: u64,
    /// Registering memory, whatever its size
    pub register_ns: u64,
    /// What each page of 16 KiB adds to a registration
    pub register_page_ns: u64,
    /// A transition of a queue pair
    pub modify_ns: u64,
    /// Destroying an object, or deregistering memory
    pub teardown_ns: u64,
    /// Posting a request
    pub post_ns: u64,
    /// Polling a completion queue once, whether or not it finds something
    pub poll_ns: u64,
    /// How many bytes one core copies in a microsecond; zero: copies take no time
    pub copy_bytes_per_us: u64,
    /// How many bytes of a vector one core combines with those of another in a microsecond; zero: that takes no time
    pub reduce_bytes_per_us: u64,
    /// From the event that a task waits for until the task runs
    pub wake_ns: u64,
    /// Once in so many times a wake-up takes longer; zero: never
    pub wake_tail_one_in: u32,
    /// Upper bound of what such a wake-up takes in addition
    pub wake_tail_ns: u32,
    /// How many tasks of one host run at once, those that wait for completions included, as they poll; zero: each has a core of its own
    pub cores: u32,
    /// Most bytes of payload that all ports of a Mac send together in a microsecond; zero: as much as their cables carry
    pub mac_bytes_per_us: u64,
    /// The part of each cable's rate that Thunderbolt networking takes, in percent below 100
    pub ip_percent: u32,
    /// How many frames in a row the first queue pair of a port sends when others wait, which send one; one is fair
    pub turns: u32,
}

impl Timing {
    /// What a full frame takes at 80 Gb/s by its bytes and the overhead of its packets
    pub const DEFAULT_FRAME_NS: u64 = LineRate::TB5.frame_ns(FRAME);

    /// Nothing takes any time: for programs that run on the clock on the wall, as fast as they can
    pub const INSTANT: Self = Self {
        doorbell_ns: 0,
        per_message_ns: 0,
        propagation_ns: 0,
        delivery_ns: 0,
        jitter_ns: 0,
        send_completion_ns: 0,
        line_rate: false,
        frame_ns: Self::DEFAULT_FRAME_NS,
        unresolved_rtr_ns: 0,
        verbs_block_tasks: false,
        verbs_take_time: false,
        cpu: false,
        open_ns: 0,
        create_ns: 0,
        register_ns: 0,
        register_page_ns: 0,
        modify_ns: 0,
        teardown_ns: 0,
        post_ns: 0,
        poll_ns: 0,
        copy_bytes_per_us: 0,
        reduce_bytes_per_us: 0,
        wake_ns: 0,
        wake_tail_one_in: 0,
        wake_tail_ns: 0,
        cores: 0,
        mac_bytes_per_us: 0,
        ip_percent: 0,
        turns: 1,
    };

    /// As these, but only the wire takes time: no verb does, no processor, and no transition that fails
    ///
    /// For the profile of a calibrated device, which has all of them on, where the work of the program is not the question.
    ///
    /// ```
    /// use rdma_sim::Model;
    ///
    /// let mut model = Model::tb5_cpu();
    /// model.timing = model.timing.wire_alone();
    /// assert_eq!(model, Model::tb5());
    /// ```
    #[must_use]
    pub fn wire_alone(self) -> Self {
        Self { verbs_block_tasks: false, verbs_take_time: false, cpu: false, ..self }
    }

    /// How long a frame of `len` bytes of payload occupies a cable of `rate` on which nothing else travels
    pub(crate) fn line_ns(&self, rate: LineRate, len: usize) -> u64 {
        match rate.frame_ns(len) {
            _ if !self.line_rate => 0,
            ns if self.frame_ns == Self::DEFAULT_FRAME_NS => ns,
            ns => {
                let scaled = u128::from(ns) * u128::from(self.frame_ns);
                u64::try_from(scaled.div_ceil(Self::DEFAULT_FRAME_NS.into())).unwrap_or(u64::MAX)
            }
        }
    }

    /// What a verb takes of the processor, posts, polls and pages aside
    pub(crate) fn verb_ns(&self, verb: Verb) -> u64 {
        match verb {
            Verb::AllocPd => self.open_ns,
            Verb::CreateCq | Verb::CreateQp => self.create_ns,
            Verb::DeallocPd | Verb::DeregMr | Verb::DestroyCq | Verb::DestroyQp => self.teardown_ns,
            Verb::ModifyQp => self.modify_ns,
            Verb::RegMr => self.register_ns,
            _ => 0,
        }
    }
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            doorbell_ns: 1_400,
            per_message_ns: 60,
            propagation_ns: 2_900,
            delivery_ns: 1_500,
            jitter_ns: 200,
            send_completion_ns: 300,
            line_rate: true,
            frame_ns: Self::DEFAULT_FRAME_NS,
            unresolved_rtr_ns: 1_000_000_000,
            verbs_block_tasks: false,
            verbs_take_time: false,
            cpu: false,
            open_ns: 100_000,
            create_ns: 50_000,
            register_ns: 20_000,
            register_page_ns: 500,
            modify_ns: 20_000,
            teardown_ns: 20_000,
            post_ns: 100,
            poll_ns: 30,
            copy_bytes_per_us: 25_000,
            reduce_bytes_per_us: 25_000,
            wake_ns: 100,
            wake_tail_one_in: 1_000,
            wake_tail_ns: 20_000,
            cores: 0,
            mac_bytes_per_us: 0,
            ip_percent: 0,
            turns: 1,
        }
    }
}

/// A cable's line rate and framing
///
/// ```
/// use rdma_sim::LineRate;
///
/// assert_eq!(LineRate::TB5.frame_ns(4096), 445);
/// assert_eq!(LineRate::TB4.frame_ns(4096), 890);
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LineRate {
    /// Raw bits per second, each way
    pub bits_per_second: u64,
}

/// Bytes of payload in a Thunderbolt packet (frames travel as packets of 256 bytes, according to a published
/// reverse-engineered driver).
const PACKET: u64 = 256;
/// Header, checksum and coding of a packet, in bytes at the line rate. Assumed, from the measured ceiling: 4096 bytes
/// take 445 ns at 80 Gb/s, which is 9.2 GB/s.
const PACKET_OVERHEAD: u64 = 22;

impl LineRate {
    /// Thunderbolt 5: 80 Gb/s each way
    pub const TB5: Self = Self { bits_per_second: 80_000_000_000 };
    /// Thunderbolt 3 and 4, or their cables: 40 Gb/s each way
    pub const TB4: Self = Self { bits_per_second: 40_000_000_000 };

    /// Bytes on the wire for a frame of `len` bytes of payload; [`u64::MAX`] if they are more
    pub const fn wire_bytes(self, len: usize) -> u64 {
        let packets = (len as u64).saturating_sub(1) / PACKET + 1;
        // The packets of any length fit with their overhead.
        (len as u64).saturating_add(packets * PACKET_OVERHEAD)
    }

    /// How long a frame of `len` bytes of payload occupies the line, in whole nanoseconds; [`u64::MAX`] for a line of 0 bit/s
    ///
    /// A topology refuses a cable of 0 bit/s: [`TopologyError::UnusableRate`](crate::TopologyError::UnusableRate).
    pub const fn frame_ns(self, len: usize) -> u64 {
        if self.bits_per_second == 0 {
            return u64::MAX;
        }
        self.wire_bytes(len).saturating_mul(8 * 1_000_000_000).div_ceil(self.bits_per_second)
    }

    /// The most payload that full frames carry, in bytes per second
    pub fn ceiling_bytes_per_second(self) -> f64 {
        FRAME as f64 * 1e9 / self.frame_ns(FRAME) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tb5_cable_carries_9_2_gb_per_second() {
        assert_eq!(LineRate::TB5.frame_ns(FRAME), 445);
        let ceiling = LineRate::TB5.ceiling_bytes_per_second();
        assert!((9.2e9..9.24e9).contains(&ceiling), "{ceiling}");
        assert_eq!(LineRate::TB4.frame_ns(FRAME), 890);
        assert_eq!(LineRate::TB5.frame_ns(8), 3);
        assert_eq!(LineRate { bits_per_second: 0 }.frame_ns(8), u64::MAX, "it never ends");
    }

    /// Regression: the sum of the payload and its packets overflowed.
    #[test]
    fn the_bytes_on_the_wire_do_not_overflow() {
        assert_eq!(LineRate::TB5.wire_bytes(0), 22);
        assert_eq!(LineRate::TB5.wire_bytes(FRAME), 4096 + 16 * 22);
        if cfg!(target_pointer_width = "64") {
            assert_eq!(LineRate::TB5.wire_bytes(usize::MAX), u64::MAX);
        }
    }
}
