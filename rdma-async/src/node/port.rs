//! A device of a node, opened again when it is gone

use std::error::Error;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use rdma_core::session::LinkId;
use rdma_core::{Cause, Device, PortState};

use super::link_trust::LinkTrust;
use super::port_monitor::PortMonitor;
use super::port_watch::PortWatch;
use crate::blocked_call::{BlockedCall, DeviceCall};
use crate::device_calls::DeviceCalls;
use crate::error::ConnectError;
use crate::peering::lanes::DeviceHandle;
use crate::sync::{AtomicBool, Mutex, Ordering};

/// Opens a device
pub(super) type Opener<D> = Box<dyn Fn() -> Result<D, Box<dyn Error + Send + Sync>> + Send + Sync>;

/// Returns the name of the cable that is in a port now, if it is known
pub(super) type LinkOf = Box<dyn Fn() -> Option<LinkId> + Send + Sync>;

/// How a device is opened, and its cable named
pub(super) struct PortSource<D> {
    pub(super) open: Opener<D>,
    pub(super) link_of: Option<LinkOf>,
}

/// A device, opened or not
pub(super) struct Port<D: Device> {
    source: PortSource<D>,
    pub(super) calls: Arc<DeviceCalls>,
    current: Mutex<Option<Arc<OpenPort<D>>>>,
    /// How often the device was opened and let go of
    changes: AtomicU32,
    /// The longest message of the device in bytes, when it was last opened; 0 before that
    max_message: AtomicU32,
    pub(super) trust: LinkTrust,
    /// Whether the port was active when it was last asked.
    was_active: AtomicBool,
}

/// An open device, and the queue where everything on it completes; closed off the executor
pub(super) struct OpenPort<D: Device> {
    /// The queue goes first. `None` only while it is dropped.
    opened: Option<(D::Cq, D)>,
    calls: Arc<DeviceCalls>,
    /// The most frames that a queue has been found to take
    depth: AtomicU32,
    monitor: Arc<PortMonitor>,
}

impl<D: Device> OpenPort<D> {
    #[inline]
    fn opened(&self) -> &(D::Cq, D) {
        self.opened.as_ref().expect("it was not dropped")
    }

    #[inline]
    pub(super) fn cq(&self) -> &D::Cq {
        &self.opened().0
    }

    pub(super) fn device(&self) -> &D {
        &self.opened().1
    }
}

impl<D: Device> DeviceHandle<D> for OpenPort<D> {
    fn device(&self) -> &D {
        self.device()
    }

    fn calls(&self) -> &Arc<DeviceCalls> {
        &self.calls
    }

    fn note_depth(&self, frames: NonZeroU32) {
        let before = self.depth.fetch_min(frames.get(), Ordering::Relaxed);
        if frames.get() < before {
            tracing::debug!(device = self.device().name(), frames, "a queue takes less than it reports");
        }
    }
}

impl<D: Device> Drop for OpenPort<D> {
    fn drop(&mut self) {
        let opened = self.opened.take();
        self.calls.discard(DeviceCall::Close, opened);
    }
}

impl<D: Device> Port<D> {
    pub(super) fn new(source: PortSource<D>, calls: DeviceCalls) -> Self {
        Self {
            source,
            calls: Arc::new(calls),
            current: Mutex::new(None),
            changes: AtomicU32::new(0),
            max_message: AtomicU32::new(0),
            trust: LinkTrust::default(),
            was_active: AtomicBool::new(true),
        }
    }

    /// The cable, if its name is known
    pub(super) fn link(&self) -> Option<LinkId> {
        self.source.link_of.as_ref().and_then(|link_of| link_of())
    }

    /// The name of the device, or its number in the node if it is not open
    pub(super) fn name(&self, index: usize) -> String {
        self.current().map_or_else(|| format!("device {index}"), |open| open.device().name().to_owned())
    }

    /// Whether the port was active when it was last asked, and the control tasks are woken when that may have changed
    pub(super) fn needs_no_look(&self) -> bool {
        self.current().is_some_and(|open| open.monitor.is_watched())
            && self.was_active.load(Ordering::Relaxed)
    }

    /// The longest message of the device in bytes, if it was ever open
    pub(super) fn max_message(&self) -> Option<u32> {
        Some(self.max_message.load(Ordering::Relaxed)).filter(|max| *max > 0)
    }

    /// The most frames that a queue of the device has been found to take since it was opened; any number if it has refused none
    pub(super) fn depth(&self) -> u32 {
        self.current().map_or(u32::MAX, |open| open.depth.load(Ordering::Relaxed))
    }

    /// The device, if it is open
    pub(super) fn current(&self) -> Option<Arc<OpenPort<D>>> {
        self.current.lock().clone()
    }

    /// A number that changes whenever [`current`](Self::current) does
    pub(super) fn changes(&self) -> u32 {
        self.changes.load(Ordering::Acquire)
    }

    /// Opens the device, unless it is open, and lets it report changes of its port to `watch`; may block
    pub(super) fn open(&self, watch: &Arc<PortWatch>) -> Result<Arc<OpenPort<D>>, ConnectError> {
        if let Some(current) = self.current() {
            return Ok(current);
        }
        let device = (self.source.open)().map_err(ConnectError::Open)?;
        let cq = device.create_cq(device.caps().max_cqe)?;
        self.max_message.store(device.caps().max_message, Ordering::Relaxed);
        let monitor = PortMonitor::new(watch, device.watch_port(Arc::clone(watch).into()));
        let (calls, depth) = (Arc::clone(&self.calls), AtomicU32::new(u32::MAX));
        let opened = Arc::new(OpenPort { opened: Some((cq, device)), calls, depth, monitor });
        // Another task may have opened the device meanwhile: all paths share one queue, which the reactor polls.
        let mut current = self.current.lock();
        if current.is_none() {
            // Before a query can find out that it is not.
            self.was_active.store(true, Ordering::Relaxed);
            self.changes.fetch_add(1, Ordering::Release);
        }
        Ok(Arc::clone(current.get_or_insert_with(|| Arc::clone(&opened))))
    }

    /// Lets go of a device after `error`, if only a new handle can help; returns whether it has
    ///
    /// After a cable was plugged in again, handles from before are dead on Apple's device (field reports).
    pub(super) fn forget_if_gone(&self, error: &ConnectError) -> bool {
        let is_gone = |error: &rdma_core::Error| error.cause == Cause::DeviceGone;
        let is_gone = match error {
            ConnectError::Device(error) => is_gone(error),
            ConnectError::Pool(crate::error::PoolError::Register(error)) => is_gone(error),
            _ => false,
        };
        if is_gone {
            self.forget();
        }
        is_gone
    }

    /// Lets go of the device
    fn forget(&self) {
        let before = self.current.lock().take();
        before.iter().for_each(|open| open.monitor.end());
        self.changes.fetch_add(1, Ordering::Release);
        drop(before);
    }

    /// Lets go of `open`; false if it is not the device of this port
    pub(super) fn forget_open(&self, open: &Arc<OpenPort<D>>) -> bool {
        let before = self.current.lock().take_if(|current| Arc::ptr_eq(current, open));
        open.monitor.end();
        self.changes.fetch_add(1, Ordering::Release);
        before.is_some()
    }

    /// Whether the port can carry traffic; a device that is gone is let go of; may block
    pub(super) fn is_active(&self) -> bool {
        let Some(open) = self.current() else { return false };
        let is_active = match open.device().port() {
            Ok(port) => port.state == PortState::Active,
            Err(error) => {
                self.forget_if_gone(&error.into());
                false
            }
        };
        if self.was_active.swap(is_active, Ordering::Relaxed) && !is_active {
            // Another cable may be plugged in.
            self.trust.forget();
        }
        let monitored = Arc::downgrade(&open);
        open.monitor.start(&self.calls, is_active, move || {
            let port = monitored.upgrade()?.device().port();
            Some(port.is_ok_and(|port| port.state == PortState::Active))
        });
        is_active
    }

    /// Whether the device [reports](Device::blocked) a post or a poll that does not return
    pub(super) fn is_blocked_in_traffic(&self) -> bool {
        self.current().is_some_and(|open| open.device().blocked().is_some())
    }

    /// The call that the device has not returned from in time
    pub(super) fn blocked(&self) -> Option<BlockedCall> {
        self.calls.blocked()
    }
}
