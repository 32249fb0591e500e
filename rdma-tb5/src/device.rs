//! An open device of a verbs provider, behind the traits

#![allow(unsafe_code, reason = "calls the provider")]

use std::ffi::c_int;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use rdma_core::{
    Access, Caps, Cause, Device, Error, Gid, Lkey, MemoryRegion, PortState, PortStatus, Resource, Rkey, Verb,
};

use crate::queue::{PollPolicy, VerbsCompletionQueue};
use crate::verbs::{ListError, LoadError, Provider, cause, clear_errno, creation_cause, errno};
use crate::watch::Watch;
use rdma_verbs_abi::{Context, DeviceAttr, Mr, Pd, PollCq, PortAttr, PostRecv, PostSend, constants};

/// How a device is used
#[derive(Clone, Debug)]
#[must_use]
pub struct OpenOptions {
    path_mtu: u32,
    poll: PollPolicy,
    trust_destroy: Option<bool>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self { path_mtu: 1024, poll: PollPolicy::default(), trust_destroy: None }
    }
}

impl OpenOptions {
    /// The defaults
    pub fn new() -> Self {
        Self::default()
    }

    /// Path MTU, 1024 or 4096 bytes; 1024
    ///
    /// It changes nothing on the wire of Apple's device. 4096, which Apple's example uses, was reported to make connecting time
    /// out on some Macs; if 1024 does, try 4096 on fresh queue pairs.
    pub fn path_mtu(self, bytes: u32) -> Self {
        Self { path_mtu: bytes, ..self }
    }

    /// How completions are waited for
    pub fn poll(self, poll: PollPolicy) -> Self {
        Self { poll, ..self }
    }

    /// Whether destroying a queue pair is taken for proof that the device has stopped
    ///
    /// By default yes on Linux, where the verbs promise it, and no on macOS, where nobody has shown it: there the memory of what
    /// was posted is not used again.
    pub fn trust_destroy(self, trust: bool) -> Self {
        Self { trust_destroy: Some(trust), ..self }
    }
}

/// A device that cannot be opened
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The provider returned no list of devices
    #[error(transparent)]
    List(#[from] ListError),
    /// The provider cannot be used
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The provider has no device of that name
    #[error("there is no device {name:?}; there are: {}", known.join(", "))]
    NoSuchDevice {
        /// What was asked for
        name: String,
        /// What there is
        known: Vec<String>,
    },
    /// The device refused
    #[error(transparent)]
    Verbs(#[from] Error),
}

/// A device of a verbs provider with its protection domain: Apple's on macOS, any on Linux
pub struct VerbsDevice {
    open: Arc<Open>,
    name: String,
    caps: Caps,
    options: OpenOptions,
}

/// What everything on a device hangs on: closed when the last of it is gone
pub(crate) struct Open {
    pub(crate) provider: Arc<Provider>,
    pub(crate) pd: NonNull<Pd>,
    context: NonNull<Context>,
    pub(crate) post_send: PostSend,
    pub(crate) post_recv: PostRecv,
    pub(crate) poll_cq: PollCq,
    pub(crate) is_apple: bool,
    pub(crate) watch: Watch,
}

// SAFETY: verbs may be called from any thread; what must not happen at once is kept apart by the types of this crate.
unsafe impl Send for Open {}
// SAFETY: as above.
unsafe impl Sync for Open {}

/// GID entries that are looked at: providers claim tables of up to 1024, of which a few are set.
const GIDS: c_int = 32;

impl VerbsDevice {
    /// Opens the device called `name`
    ///
    /// # Errors
    ///
    /// There is no such device, its port is down, or the provider refuses.
    pub fn open(provider: &Arc<Provider>, name: &str, options: OpenOptions) -> Result<Self, OpenError> {
        let mut context = None;
        clear_errno();
        provider.each_device(|device, found| {
            if found != name {
                return true;
            }
            // SAFETY: the device is of the provider's list, which is not freed yet.
            context = Some(unsafe { (provider.ibv_open_device)(device) });
            false
        })?;
        let Some(context) = context else {
            return Err(OpenError::NoSuchDevice { name: name.to_owned(), known: provider.devices()? });
        };
        let Some(context) = NonNull::new(context) else {
            return Err(Error::new(Verb::OpenDevice, cause(errno())).into());
        };
        let closed = Closed { provider, context };
        // SAFETY: the provider returned a context of its own, which stays open.
        let ops = unsafe { &(*context.as_ptr()).ops };
        let (Some(post_send), Some(post_recv), Some(poll_cq)) = (ops.post_send, ops.post_recv, ops.poll_cq)
        else {
            return Err(provider.wrong_abi("its contexts have no calls where they are expected").into());
        };
        // A protection domain on a port that is down is NULL, and has crashed those who used it.
        let port = query_port(provider, context)?;
        if port.state != constants::PORT_ACTIVE {
            return Err(Error::new(Verb::AllocPd, Cause::PortDown).into());
        }
        let is_apple = cfg!(target_os = "macos") || name.starts_with("rdma_en");
        let caps = query_caps(provider, context, &port, is_apple);
        clear_errno();
        // SAFETY: the context is open.
        let pd = unsafe { (provider.ibv_alloc_pd)(context.as_ptr()) };
        let Some(pd) = NonNull::new(pd) else {
            let cause = creation_cause(errno(), Resource::ProtectionDomains, caps.max_pd);
            return Err(Error::new(Verb::AllocPd, cause).into());
        };
        std::mem::forget(closed);
        let provider = Arc::clone(provider);
        let watch = Watch::new(is_apple);
        let open = Open { provider, pd, context, post_send, post_recv, poll_cq, is_apple, watch };
        Ok(Self { open: Arc::new(open), name: name.to_owned(), caps, options })
    }
}

/// Closes a context that leads to nothing.
pub(crate) struct Closed<'a> {
    pub(crate) provider: &'a Provider,
    pub(crate) context: NonNull<Context>,
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        // SAFETY: nothing hangs on the context.
        unsafe { (self.provider.ibv_close_device)(self.context.as_ptr()) };
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // SAFETY: queue pairs, regions and completion queues hold this and are gone; then the protection domain goes, and then
        // the context. A protection domain that stays is leaked by the provider, not by us.
        unsafe {
            (self.provider.ibv_dealloc_pd)(self.pd.as_ptr());
        }
        // SAFETY: as above.
        unsafe {
            (self.provider.ibv_close_device)(self.context.as_ptr());
        }
    }
}

/// What `ibv_query_port` says of port 1
pub(crate) fn query_port(provider: &Provider, context: NonNull<Context>) -> Result<PortAttr, Error> {
    let mut port = PortAttr::default();
    // SAFETY: the context is open, and the structure is larger than what the exported call fills.
    let failed = unsafe { (provider.ibv_query_port)(context.as_ptr(), 1, &raw mut port) };
    if failed == 0 { Ok(port) } else { Err(Error::new(Verb::QueryPort, cause(failed))) }
}

/// What `ibv_query_device` says, where there is such a call
pub(crate) fn query_device(provider: &Provider, context: NonNull<Context>) -> Option<DeviceAttr> {
    let query = provider.ibv_query_device?;
    // SAFETY: zeros are a valid structure of numbers.
    let mut attr: DeviceAttr = unsafe { std::mem::zeroed() };
    // SAFETY: the context is open and the structure is of the size that the call fills.
    let failed = unsafe { query(context.as_ptr(), &raw mut attr) };
    (failed == 0).then_some(attr)
}

/// The GID table, without trailing unset entries
pub(crate) fn query_gids(provider: &Provider, context: NonNull<Context>) -> Vec<Gid> {
    let entries = query_port(provider, context).map_or(GIDS, |port| port.gid_tbl_len.clamp(0, GIDS));
    let mut gids: Vec<_> = (0..entries)
        .map(|index| {
            let mut gid = rdma_verbs_abi::RawGid::default();
            // SAFETY: the context is open and the place is for one entry.
            let failed = unsafe { (provider.ibv_query_gid)(context.as_ptr(), 1, index, &raw mut gid) };
            // Unset entries fail on some providers and are zero on others.
            if failed == 0 { Gid(gid.raw) } else { Gid::default() }
        })
        .collect();
    gids.truncate(gids.iter().rposition(|gid| !gid.is_zero()).map_or(0, |last| last + 1));
    gids
}

/// What the device can do: Apple's documented limits, or what a Linux device says
fn query_caps(provider: &Provider, context: NonNull<Context>, port: &PortAttr, is_apple: bool) -> Caps {
    let mut caps = if is_apple { Caps::tb5() } else { Caps::roce() };
    let Some(attr) = query_device(provider, context) else { return caps };
    let at_most = |cap: &mut u32, said: c_int| *cap = (*cap).min(u32::try_from(said).unwrap_or(0).max(1));
    if is_apple {
        // It advertises one queue pair more than it gives.
        return caps;
    }
    at_most(&mut caps.max_cq, attr.max_cq);
    at_most(&mut caps.max_cqe, attr.max_cqe);
    at_most(&mut caps.max_mr, attr.max_mr);
    at_most(&mut caps.max_pd, attr.max_pd);
    at_most(&mut caps.max_qp, attr.max_qp);
    at_most(&mut caps.max_queue_frames, attr.max_qp_wr.min(4095));
    if port.max_msg_sz > 0 {
        caps.max_message = caps.max_message.min(port.max_msg_sz);
    }
    caps
}

impl Open {
    /// State of the port, local identifier, speed
    pub(crate) fn port(&self) -> Result<PortAttr, Error> {
        query_port(&self.provider, self.context)
    }

    pub(crate) fn is_up(&self) -> Result<bool, Error> {
        self.port().map(|port| port.state == constants::PORT_ACTIVE)
    }

    pub(crate) fn context(&self) -> *mut Context {
        self.context.as_ptr()
    }

    pub(crate) fn gids(&self) -> Vec<Gid> {
        query_gids(&self.provider, self.context)
    }

    /// The entry to connect from: one that maps an IPv4 address, or else the first
    pub(crate) fn source_gid(&self) -> Option<(u8, Gid)> {
        let gids = self.gids();
        let ipv4 = gids.iter().position(|gid| gid.ipv4().is_some());
        let index = ipv4.or_else(|| gids.iter().position(|gid| !gid.is_zero()))?;
        Some((index as u8, gids[index]))
    }
}

// SAFETY: a queue pair says that it is quiesced only if the verbs promise that (`queue`); libibverbs and Apple's provider
// complete a request at most once and touch only posted memory, as the ABI says.
unsafe impl Device for VerbsDevice {
    type Mr = VerbsMemoryRegion;
    type Cq = VerbsCompletionQueue;

    fn name(&self) -> &str {
        &self.name
    }

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn port(&self) -> Result<PortStatus, Error> {
        let port = self.open.port()?;
        if port.state != constants::PORT_ACTIVE {
            return Ok(PortStatus::new(PortState::Down, 0));
        }
        Ok(PortStatus::new(PortState::Active, bits_per_second(port.active_width, port.active_speed)))
    }

    fn gids(&self) -> Result<Vec<Gid>, Error> {
        Ok(self.open.gids())
    }

    fn create_cq(&self, depth: u32) -> Result<VerbsCompletionQueue, Error> {
        if !self.open.is_up()? {
            return Err(Error::new(Verb::CreateCq, Cause::PortDown));
        }
        let OpenOptions { path_mtu, poll, trust_destroy } = self.options.clone();
        let trusts = trust_destroy.unwrap_or(!self.open.is_apple);
        VerbsCompletionQueue::new(Arc::clone(&self.open), &self.caps, depth, poll, path_mtu, trusts)
    }

    unsafe fn register(&self, mem: NonNull<[u8]>, access: Access) -> Result<VerbsMemoryRegion, Error> {
        let (addr, len) = (mem.cast::<u8>().as_ptr(), mem.len());
        let register = |access: u32| {
            clear_errno();
            // SAFETY: the caller promises that the memory is valid until the region is dropped.
            let mr = unsafe {
                (self.open.provider.ibv_reg_mr)(self.open.pd.as_ptr(), addr.cast(), len, access as c_int)
            };
            NonNull::new(mr).ok_or_else(errno)
        };
        // Reports disagree on whether Apple's device wants more rights than it uses: then it gets them.
        let all = access.union(Access::REMOTE_READ).union(Access::REMOTE_WRITE);
        let mr = register(access.bits())
            .or_else(|errno| if self.open.is_apple { register(all.bits()) } else { Err(errno) });
        match mr {
            Ok(mr) => Ok(VerbsMemoryRegion { open: Arc::clone(&self.open), mr }),
            Err(errno) => {
                let cause = creation_cause(errno, Resource::MemoryRegions, self.caps.max_mr);
                Err(Error::new(Verb::RegMr, cause))
            }
        }
    }
}

/// Lanes times the rate of a lane, as `ibv_port_attr` encodes them
fn bits_per_second(width: u8, speed: u8) -> u64 {
    let lanes = match width {
        2 => 4,
        4 => 8,
        8 => 12,
        16 => 2,
        _ => 1,
    };
    let lane = match speed {
        1 => 2_500,
        2 => 5_000,
        4 | 8 => 10_000,
        16 => 14_000,
        32 => 25_000,
        64 => 50_000,
        128 => 100_000,
        _ => 0,
    };
    lanes * lane * 1_000_000
}

impl fmt::Debug for VerbsDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerbsDevice").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Memory registered with a [`VerbsDevice`]
pub struct VerbsMemoryRegion {
    open: Arc<Open>,
    mr: NonNull<Mr>,
}

// SAFETY: nothing of the region changes after it was registered.
unsafe impl Send for VerbsMemoryRegion {}
// SAFETY: as above.
unsafe impl Sync for VerbsMemoryRegion {}

impl MemoryRegion for VerbsMemoryRegion {
    fn base(&self) -> u64 {
        // SAFETY: the region is registered as long as `self` lives.
        unsafe { (*self.mr.as_ptr()).addr as u64 }
    }

    fn lkey(&self) -> Lkey {
        // SAFETY: as above.
        Lkey(unsafe { (*self.mr.as_ptr()).lkey })
    }

    fn rkey(&self) -> Option<Rkey> {
        // SAFETY: as above.
        let rkey = unsafe { (*self.mr.as_ptr()).rkey };
        (!self.open.is_apple && rkey != 0).then_some(Rkey(rkey))
    }
}

impl Drop for VerbsMemoryRegion {
    fn drop(&mut self) {
        // SAFETY: the region is deregistered once, and before its protection domain, which `open` keeps.
        let failed = unsafe { (self.open.provider.ibv_dereg_mr)(self.mr.as_ptr()) };
        if failed != 0 {
            // The provider keeps the pages: what a device still writes goes nowhere else.
            tracing::warn!(errno = failed, "memory could not be deregistered");
        }
    }
}

impl fmt::Debug for VerbsMemoryRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerbsMemoryRegion").field("lkey", &self.lkey()).finish_non_exhaustive()
    }
}
