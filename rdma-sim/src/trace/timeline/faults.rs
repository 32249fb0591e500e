//! How long faults last, followed through the records

use crate::fault::{Fault, FaultKind, Target};
use crate::trace::history::Names;

/// The time during which a fault lasts
#[derive(Clone, Copy, Debug)]
pub(in crate::trace) struct FaultSpan {
    pub(in crate::trace) number: u32,
    pub(in crate::trace) start: u64,
    /// `None` if it lasts to the end of the run, and its start if it does not last
    pub(in crate::trace) end: Option<u64>,
}

/// The faults that have fired
#[derive(Debug)]
pub(super) struct Faults<'a> {
    plan: &'a [Fault],
    pub(super) spans: Vec<FaultSpan>,
    /// Those that last.
    open: Vec<Open>,
}

/// A fault that lasts
#[derive(Clone, Copy, Debug)]
struct Open {
    /// Its position among the spans.
    span: usize,
    number: u32,
    lasts: Lasts,
    host: Option<u32>,
    port: Option<u32>,
    cable: Option<u32>,
}

/// What a fault lasts for
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Lasts {
    /// It is over at once, or has an effect that no record shows to end
    Moment,
    /// Until the cable is plugged in
    Cable,
    /// Until the cable has its rate again
    Rate,
    /// Until addresses are resolved over the cable
    Resolution,
    /// Until so many frames are lost
    Losses,
    /// Until so many frames are damaged
    Damage,
    /// Until the processes of the host run
    Process,
    /// Until the opposite fault
    Rdma,
    /// Until the next delay of the port, or a reboot
    Receives,
    /// Until a reboot of the host
    Boot,
}

fn lasts(kind: &FaultKind) -> Lasts {
    match kind {
        FaultKind::Unplug | FaultKind::Flap { .. } => Lasts::Cable,
        FaultKind::Slow { percent: 1..=99 } | FaultKind::Storm { percent: 1..=99 } => Lasts::Rate,
        FaultKind::InterfaceDown | FaultKind::Unresolvable => Lasts::Resolution,
        FaultKind::Lose { .. } => Lasts::Losses,
        FaultKind::Corrupt { .. } => Lasts::Damage,
        FaultKind::Kill | FaultKind::Pause | FaultKind::Reboot { .. } | FaultKind::Sleep => Lasts::Process,
        FaultKind::RdmaOff => Lasts::Rdma,
        FaultKind::Delay { by } if !by.is_zero() => Lasts::Receives,
        FaultKind::SlowReceive => Lasts::Receives,
        FaultKind::Busy
        | FaultKind::Captured
        | FaultKind::Hang { .. }
        | FaultKind::LeakCqs { .. }
        | FaultKind::LeakMrs { .. }
        | FaultKind::LeakPds { .. }
        | FaultKind::LeakQps { .. }
        | FaultKind::LinkLocalGids
        | FaultKind::NoGids
        | FaultKind::NoPds
        | FaultKind::Overflow
        | FaultKind::SlowVerb { .. }
        | FaultKind::Wedge => Lasts::Boot,
        _ => Lasts::Moment,
    }
}

impl<'a> Faults<'a> {
    pub(super) fn new(plan: &'a [Fault]) -> Self {
        Self { plan, spans: Vec::new(), open: Vec::new() }
    }

    /// Whether no fault lasts now
    pub(super) fn is_quiet(&self) -> bool {
        self.open.is_empty()
    }

    /// A fault fires
    pub(super) fn fire(&mut self, names: &Names, number: u32, now: u64) {
        let span = self.spans.len();
        self.spans.push(FaultSpan { number, start: now, end: Some(now) });
        let Some(Fault { target, kind, .. }) = self.plan.get(number as usize) else { return };
        let host = names.hosts.iter().position(|host| host == target.host()).map(|host| host as u32);
        let port = match target {
            Target::Port { device, .. } => {
                let is_it = |(_, port): &(usize, &crate::trace::PortName)| {
                    Some(port.host) == host && port.device == *device
                };
                names.ports.iter().enumerate().find(is_it)
            }
            Target::Host(_) => None,
        };
        let cable = port.and_then(|(_, port)| port.cable);
        let port = port.map(|(position, _)| position as u32);
        match kind {
            FaultKind::RdmaOn => self.close(now, |open| open.lasts == Lasts::Rdma && open.host == host),
            FaultKind::Delay { .. } => {
                self.close(now, |open| open.lasts == Lasts::Receives && open.port == port);
            }
            _ => (),
        }
        let lasts = lasts(kind);
        if lasts != Lasts::Moment {
            self.spans[span].end = None;
            self.open.push(Open { span, number, lasts, host, port, cable });
        }
    }

    /// All faults end that do not last until a reboot
    pub(super) fn calm(&mut self, now: u64) {
        self.close(now, |open| open.lasts != Lasts::Boot);
    }

    fn close(&mut self, now: u64, is_over: impl Fn(&Open) -> bool) {
        let spans = &mut self.spans;
        self.open.retain(|open| {
            let is_over = is_over(open);
            if is_over {
                spans[open.span].end = Some(now);
            }
            !is_over
        });
    }

    fn find(&self, is_it: impl Fn(&Open) -> bool) -> Option<u32> {
        self.open.iter().rev().find(|open| is_it(open)).map(|open| open.number)
    }

    /// The fault that fired last, if that was now
    pub(super) fn last_at(&self, now: u64) -> Option<u32> {
        self.spans.last().filter(|span| span.start == now).map(|span| span.number)
    }

    // ─── What records say of them ───

    /// The processes of a host die (0), run (1) or stop (2)
    pub(super) fn process(&mut self, host: u32, value: u64, now: u64) {
        if value != 1 {
            return;
        }
        let plan = self.plan;
        let is_reboot = |open: &Open| {
            matches!(plan.get(open.number as usize), Some(Fault { kind: FaultKind::Reboot { .. }, .. }))
        };
        let of_host = |open: &Open| open.host == Some(host);
        let has_rebooted = self.open.iter().any(|open| of_host(open) && is_reboot(open));
        self.close(now, |open| {
            of_host(open)
                && (open.lasts == Lasts::Process
                    || has_rebooted && matches!(open.lasts, Lasts::Boot | Lasts::Receives))
        });
    }

    /// A cable has another state
    pub(super) fn cable(&mut self, cable: u32, value: u64, now: u64) {
        let [is_out, is_unresolvable] = [value & 256 != 0, value & 512 != 0];
        let is_slow = value & 0xff != 100;
        self.close(now, |open| {
            open.cable == Some(cable)
                && match open.lasts {
                    Lasts::Cable => !is_out,
                    Lasts::Resolution => !is_unresolvable,
                    Lasts::Rate => !is_slow,
                    _ => false,
                }
        });
    }

    /// A message was lost at a port; the fault, which is over if it loses no more
    pub(super) fn lose(&mut self, port: u32, now: u64, is_over: bool) -> Option<u32> {
        self.use_up(Lasts::Losses, port, now, is_over)
    }

    /// A frame of a port was damaged
    pub(super) fn damage(&mut self, port: u32, now: u64, is_over: bool) -> Option<u32> {
        self.use_up(Lasts::Damage, port, now, is_over)
    }

    fn use_up(&mut self, lasts: Lasts, port: u32, now: u64, is_over: bool) -> Option<u32> {
        let is_it = |open: &Open| open.lasts == lasts && open.port == Some(port);
        let found = self.find(is_it);
        if is_over {
            self.close(now, is_it);
        }
        found
    }

    // ─── Causes ───

    /// The fault because of which the processes of a host do not run
    pub(super) fn of_host(&self, host: u32) -> Option<u32> {
        self.find(|open| open.lasts == Lasts::Process && open.host == Some(host))
    }

    /// The fault because of which a cable is out
    pub(super) fn of_cable(&self, cable: u32) -> Option<u32> {
        self.find(|open| open.lasts == Lasts::Cable && open.cable == Some(cable))
    }

    /// The fault because of which a cable is slow
    pub(super) fn of_rate(&self, cable: u32) -> Option<u32> {
        self.find(|open| open.lasts == Lasts::Rate && open.cable == Some(cable))
    }

    /// The fault because of which completions of a port come late
    pub(super) fn of_receives(&self, port: u32) -> Option<u32> {
        self.find(|open| open.lasts == Lasts::Receives && open.port == Some(port))
    }
}
