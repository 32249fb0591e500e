//! A waker that panics

use std::sync::Arc;
use std::task::Wake;

/// Panics when it is woken
#[derive(Debug)]
pub struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("this waker panics");
    }
}
