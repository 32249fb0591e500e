//! Valid and stale handles of one kind

use std::ffi::c_int;
use std::ptr::{null_mut, with_exposed_provenance_mut};

use super::{EBUSY, EINVAL};

/// Handles, each with data of type `A`
pub(super) struct Handles<T, A = ()> {
    live: Vec<(*mut T, A)>,
    stale: Vec<*mut T>,
}

impl<T, A> Handles<T, A> {
    pub(super) fn new() -> Self {
        Self { live: Vec::new(), stale: Vec::new() }
    }

    pub(super) fn add(&mut self, handle: *mut T, about: A) {
        handle.expose_provenance();
        assert!(self.about(handle).is_none(), "two objects have one address");
        self.stale.retain(|other| *other != handle);
        self.live.push((handle, about));
    }

    /// The data of a valid handle
    pub(super) fn about(&self, handle: *mut T) -> Option<&A> {
        self.live.iter().find(|(known, _)| *known == handle).map(|(_, about)| about)
    }

    /// The data of one of the valid handles
    pub(super) fn one(&self, number: u8) -> Option<&A> {
        self.live.get(usize::from(number) % self.live.len().max(1)).map(|(_, about)| about)
    }

    /// The address of a valid or stale handle
    pub(super) fn any(&self, number: u8) -> usize {
        let all: Vec<_> =
            self.live.iter().map(|(handle, _)| *handle).chain(self.stale.iter().copied()).collect();
        all.get(usize::from(number) % all.len().max(1)).map_or(0, |handle| handle.addr())
    }

    /// A handle, mostly a valid one
    pub(super) fn pick(&self, choice: u8, stranger: usize) -> *mut T {
        let number = usize::from(choice);
        match choice {
            250.. => with_exposed_provenance_mut(stranger),
            245..250 => null_mut(),
            230..245 => self.stale.get(number % self.stale.len().max(1)).copied().unwrap_or(null_mut()),
            _ => self.live.get(number % self.live.len().max(1)).map_or(null_mut(), |(handle, _)| *handle),
        }
    }

    /// Destroys a handle that may be invalid or still in use
    pub(super) fn destroy(&mut self, handle: *mut T, destroy: impl FnOnce(*mut T) -> c_int) {
        let position = self.live.iter().position(|(known, _)| *known == handle);
        match (position, destroy(handle)) {
            (Some(position), 0) => {
                self.live.swap_remove(position);
                self.stale.push(handle);
            }
            (Some(_), EBUSY) | (None, EINVAL) => (),
            (position, answer) => panic!("{answer} for {position:?}"),
        }
    }

    /// Destroys all valid handles; destroying them again must fail
    pub(super) fn destroy_all(&mut self, destroy: impl Fn(*mut T) -> c_int) {
        for (handle, _) in self.live.drain(..) {
            assert_eq!(destroy(handle), 0);
            self.stale.push(handle);
        }
        for handle in &self.stale {
            assert_eq!(destroy(*handle), EINVAL);
        }
    }
}
