//! The registered memory of all devices, and what devices do in it

mod region;

use std::ptr::NonNull;

use rdma_core::{Access, Cause, Error, Invalid, Lkey, Rkey, SendOp, Sge, Status, Verb, crosses_boundary};
use slotmap::SlotMap;

use self::region::{BOUNDARY, Region, copy};
use super::ids::{DeviceIndex, RegionKey, Span};
use crate::rules::Rules;
use crate::trace::BEGINNING;

/// The registered memory of all devices
pub(crate) struct Memory {
    regions: SlotMap<RegionKey, Region>,
    devices: Vec<PerDevice>,
    /// Devices find no data beyond a 4 GiB boundary.
    boundary: bool,
    /// There was a region with such a boundary inside.
    has_boundary: bool,
    /// Regions get keys that were given back.
    reuses_keys: bool,
    /// Regions have the addresses of their memory, as programs in C expect, instead of invented ones.
    real_addresses: bool,
}

struct PerDevice {
    regions: Vec<RegionKey>,
    next_lkey: u32,
    /// Keys that were given back and may be given again
    free_lkeys: Vec<Lkey>,
    next_base: u64,
}

/// A region as the program knows it
#[derive(Clone, Copy, Debug)]
pub(crate) struct Registered {
    pub(crate) key: RegionKey,
    pub(crate) base: u64,
    pub(crate) lkey: Lkey,
    pub(crate) rkey: Option<Rkey>,
}

/// What became of the bytes of a piece
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Moved {
    Done,
    /// The region of the send was deregistered.
    NoSource,
    /// The region of the receive was deregistered.
    NoTarget,
    /// The receive had failed before.
    Refused,
}

/// The first key that Apple's provider was seen to give.
const FIRST_LKEY: u32 = 0x101;
const LKEY_STEP: u32 = 0x100;

impl Memory {
    pub(super) fn new(devices: usize, rules: &Rules, real_addresses: bool) -> Self {
        let Rules { boundary, reuses_keys, .. } = *rules;
        let per_device = || PerDevice {
            regions: Vec::new(),
            next_lkey: FIRST_LKEY,
            free_lkeys: Vec::new(),
            next_base: BOUNDARY,
        };
        let devices = std::iter::repeat_with(per_device).take(devices).collect();
        let regions = SlotMap::with_key();
        Self { regions, devices, boundary, has_boundary: false, reuses_keys, real_addresses }
    }

    // ─── Registering ───

    /// Registers `memory`; with `straddles`, across a 4 GiB boundary
    pub(super) fn register(
        &mut self,
        device: DeviceIndex,
        memory: NonNull<[u8]>,
        access: Access,
        is_remote: bool,
        straddles: bool,
        step: u64,
    ) -> Registered {
        let owner = &mut self.devices[device.position()];
        let mut base = owner.next_base;
        owner.next_base += (memory.len() as u64).next_multiple_of(BOUNDARY);
        let lkey = owner.free_lkeys.pop().unwrap_or_else(|| {
            let next = owner.next_lkey + LKEY_STEP;
            Lkey(std::mem::replace(&mut owner.next_lkey, next))
        });
        if self.real_addresses {
            base = memory.cast::<u8>().addr().get() as u64;
        } else if straddles {
            // Half of it, in whole pages, lies below the boundary.
            owner.next_base += BOUNDARY;
            base += BOUNDARY - (memory.len() as u64 / 2).next_multiple_of(16 * 1024).min(BOUNDARY);
        }
        let rkey = is_remote.then_some(Rkey(lkey.0));
        self.has_boundary |= self.boundary && crosses_boundary(base, memory.len() as u64);
        let key = self.regions.insert(Region::new(device, base, lkey, rkey, access, step, memory));
        owner.regions.push(key);
        Registered { key, base, lkey, rkey }
    }

    /// Takes a region away, and returns the device that it belonged to
    pub(super) fn deregister(&mut self, key: RegionKey) -> Option<DeviceIndex> {
        let Region { device, lkey, .. } = self.regions.remove(key)?;
        let owner = &mut self.devices[device.position()];
        owner.regions.retain(|other| *other != key);
        if self.reuses_keys {
            owner.free_lkeys.push(lkey);
        }
        Some(device)
    }

    /// Whether the next region of a device gets a key that another region had
    pub(super) fn gives_key_again(&self, device: DeviceIndex) -> bool {
        !self.devices[device.position()].free_lkeys.is_empty()
    }

    /// How many regions a device has
    pub(super) fn count(&self, device: DeviceIndex) -> u32 {
        self.devices[device.position()].regions.len() as u32
    }

    pub(super) fn deregister_all(&mut self, device: DeviceIndex) {
        for region in self.devices[device.position()].regions.clone() {
            self.deregister(region);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.regions.len()
    }

    // ─── Posted ranges ───

    /// The memory that an element of a request of `device` names
    pub(super) fn resolve(
        &self,
        device: DeviceIndex,
        sge: &Sge,
        max: u32,
        verb: Verb,
    ) -> Result<Span, Error> {
        self.find(device, sge, max).ok_or_else(|| self.refusal(device, sge, max, verb))
    }

    /// The memory that an element of a request of `device` names, unless there is a [refusal](Self::refusal)
    ///
    /// Apart from the refusal: a span that comes out of a result is copied right after it was written, for which processors wait.
    #[inline(always)]
    pub(super) fn find(&self, device: DeviceIndex, sge: &Sge, max: u32) -> Option<Span> {
        let (key, region) = self.find_region(device, sge)?;
        let len = sge.len as usize;
        if sge.len > max {
            return None;
        }
        Some(Span { region: key, offset: region.offset(sge.addr, len)?, len })
    }

    #[inline(always)]
    fn find_region(&self, device: DeviceIndex, sge: &Sge) -> Option<(RegionKey, &Region)> {
        for key in &self.devices[device.position()].regions {
            let region = &self.regions[*key];
            if region.lkey == sge.lkey {
                return Some((*key, region));
            }
        }
        None
    }

    /// Why an element of a request of `device` names no memory
    #[cold]
    pub(super) fn refusal(&self, device: DeviceIndex, sge: &Sge, max: u32, verb: Verb) -> Error {
        let why: Cause = match self.find_region(device, sge) {
            None => Invalid::Lkey { lkey: sge.lkey }.into(),
            Some(_) if sge.len > max => Cause::MessageTooLong { len: sge.len.into(), max: max.into() },
            Some(_) => Invalid::OutsideRegion { addr: sge.addr, len: sge.len }.into(),
        };
        Error::new(verb, why)
    }

    /// The status with which a receive into `span` will end if no frame fails
    ///
    /// A queue pair that became ready to receive in the step `ready_at` of set-up does not see regions that were registered
    /// later, unless `late` ones are allowed.
    pub(super) fn initial_status(&self, span: Span, ready_at: Option<u64>, late: bool) -> Status {
        let region = &self.regions[span.region];
        match !late && region.is_later_than(ready_at) || !region.access.contains(Access::LOCAL_WRITE) {
            true => Status::LocalProtection,
            false => Status::Success,
        }
    }

    /// Whether a queue pair that became ready to receive in the step `ready_at` of set-up does not know the region of `span`
    pub(super) fn is_late(&self, span: Span, ready_at: Option<u64>) -> bool {
        self.regions[span.region].is_later_than(ready_at)
    }

    /// Whether the device finds no data in a part of `span`
    pub(super) fn is_beyond_boundary(&self, span: Span) -> bool {
        let regions = if self.has_boundary { self.regions.get(span.region) } else { None };
        regions.is_some_and(|region| region.reachable(span.offset, span.len) < span.len)
    }

    /// Overwrites `span` with `byte`
    pub(super) fn fill(&self, span: Span, byte: u8) {
        if let Some(region) = self.regions.get(span.region) {
            region.fill(span.offset, span.len, byte);
        }
    }

    // ─── Messages ───

    /// Copies the beginning of `from` to `into`, unless its receive has been `refused`
    pub(super) fn deliver(&self, from: Span, into: Span, is_refused: bool) -> Moved {
        match (self.regions.get(from.region), self.regions.get(into.region)) {
            (None, _) => Moved::NoSource,
            (_, None) => Moved::NoTarget,
            _ if is_refused => Moved::Refused,
            (Some(source), Some(target)) => {
                let copied = copy(source, from.offset, target, into.offset, into.len, self.boundary);
                debug_assert!(copied, "posted memory was checked to be inside its region");
                Moved::Done
            }
        }
    }

    /// Shows the bytes of `span` to `send` instead of copying them
    pub(super) fn deliver_to(&self, span: Span, send: impl FnOnce(&[u8])) -> Moved {
        let Some(source) = self.regions.get(span.region) else { return Moved::NoSource };
        let shown = source.show(span.offset, span.len, self.boundary, send);
        debug_assert!(shown.is_some(), "posted memory was checked to be inside its region");
        Moved::Done
    }

    /// Writes bytes that came from elsewhere to `into`, unless its receive has been `refused`
    pub(super) fn deliver_from(&self, bytes: &[u8], into: Span, is_refused: bool) -> Moved {
        match self.regions.get(into.region) {
            None => Moved::NoTarget,
            Some(_) if is_refused => Moved::Refused,
            Some(target) => {
                target.write_reachable(into.offset, &bytes[..into.len], self.boundary);
                Moved::Done
            }
        }
    }

    /// Damages a byte of `span`, if there is one
    pub(super) fn damage(&self, span: Option<Span>) {
        if let Some(span) = span
            && let Some(region) = self.regions.get(span.region)
        {
            region.damage(span.offset);
        }
    }

    // ─── One-sided operations ───

    /// Does what `op` asks for between `local` memory and that of `device`; false if the memory is not there or not for this
    pub(super) fn apply(&self, op: SendOp, local: Span, device: DeviceIndex) -> bool {
        let Some((there, offset)) = self.target(device, op, local.len) else { return false };
        let Some(here) = self.regions.get(local.region) else { return false };
        match op {
            SendOp::Write { .. } => copy(here, local.offset, there, offset, local.len, false),
            SendOp::Read { .. } => copy(there, offset, here, local.offset, local.len, false),
            _ => {
                here.write(local.offset, &exchange(op, there, offset));
                true
            }
        }
    }

    /// Does what a peer in another process asks for, and returns the bytes of the answer; `None` as [`apply`](Self::apply)
    pub(super) fn serve(&self, op: SendOp, len: usize, device: DeviceIndex, bytes: &[u8]) -> Option<Vec<u8>> {
        let (region, offset) = self.target(device, op, len)?;
        match op {
            SendOp::Write { .. } => {
                region.write(offset, bytes);
                Some(Vec::new())
            }
            SendOp::Read { .. } => Some(region.bytes(offset, len)),
            _ => Some(exchange(op, region, offset)),
        }
    }

    /// Shows the bytes of `span`, wherever boundaries are; `None` if its region is gone
    pub(super) fn show<T>(&self, span: Span, f: impl FnOnce(&[u8]) -> T) -> Option<T> {
        self.regions.get(span.region)?.show(span.offset, span.len, false, f)
    }

    /// How the message of a send begins that was just posted; operations that fill `span` have no bytes yet
    #[cold]
    pub(super) fn beginning(&self, op: SendOp, span: Span) -> Box<[u8]> {
        let has_bytes = matches!(op, SendOp::Send | SendOp::Write { .. });
        let span = Span { len: if has_bytes { span.len.min(BEGINNING) } else { 0 }, ..span };
        self.show(span, |bytes| bytes.into()).unwrap_or_default()
    }

    /// Writes the beginning of `bytes` to `span`, wherever boundaries are
    pub(super) fn write(&self, span: Span, bytes: &[u8]) {
        if let Some(region) = self.regions.get(span.region) {
            region.write(span.offset, &bytes[..bytes.len().min(span.len)]);
        }
    }

    /// The memory of `device` that an operation of `len` bytes names, if it exists and permits the operation
    fn target(&self, device: DeviceIndex, op: SendOp, len: usize) -> Option<(&Region, usize)> {
        let (addr, rkey, len, access) = match op {
            SendOp::Write { remote_addr, rkey } => (remote_addr, rkey, len, Access::REMOTE_WRITE),
            SendOp::Read { remote_addr, rkey } => (remote_addr, rkey, len, Access::REMOTE_READ),
            SendOp::FetchAdd { remote_addr, rkey, .. } | SendOp::CompareSwap { remote_addr, rkey, .. }
                if len >= 8 && remote_addr.is_multiple_of(8) =>
            {
                (remote_addr, rkey, 8, Access::REMOTE_ATOMIC)
            }
            _ => return None,
        };
        let mut regions = self.devices[device.position()].regions.iter().map(|key| &self.regions[*key]);
        let region = regions.find(|region| region.rkey == Some(rkey))?;
        let offset = region.offset(addr, len)?;
        region.access.contains(access).then_some((region, offset))
    }
}

/// Does an atomic operation on the eight bytes at `offset`, and returns the previous ones
fn exchange(op: SendOp, region: &Region, offset: usize) -> Vec<u8> {
    let old = region.bytes(offset, 8);
    let previous = old.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let new = match op {
        SendOp::FetchAdd { add, .. } => Some(previous.wrapping_add(add)),
        SendOp::CompareSwap { compare, swap, .. } if previous == compare => Some(swap),
        _ => None,
    };
    if let Some(new) = new {
        region.write(offset, &new.to_le_bytes());
    }
    old
}
