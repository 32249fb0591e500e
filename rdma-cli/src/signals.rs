//! Being told to stop

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether somebody has asked the program to stop: Ctrl-C, a termination signal, a closed terminal
#[derive(Clone, Debug)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Notes such signals from now on, instead of dying of them
    pub(crate) fn listen() -> io::Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::clone(&flag))?;
        signal_hook::flag::register(signal_hook::consts::SIGTERM, Arc::clone(&flag))?;
        #[cfg(unix)]
        signal_hook::flag::register(signal_hook::consts::SIGHUP, Arc::clone(&flag))?;
        // A file that outgrows its limit is then a failed write, which can be cleaned up after.
        #[cfg(target_os = "linux")]
        signal_hook::flag::register(25, Arc::default())?;
        Ok(Self(flag))
    }

    /// Whether the program was asked to stop
    pub(crate) fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
