//! What the body of a test returns

use std::error::Error;

/// What the body of a checked test returns: nothing, or a [`Result`], so that it can use `?`
///
/// ```
/// use rdma_sim::{Check, check};
///
/// check(Check::new().runs(3), async |net| {
///     let device = net.open("a", "rdma_en2")?;
///     assert_eq!(rdma_core::Device::caps(&device).max_qp, 10);
///     Ok::<(), rdma_sim::OpenError>(())
/// });
/// ```
pub trait Outcome {
    /// The error as text, with those that have caused it
    ///
    /// # Errors
    ///
    /// [`String`] with the text, if the body has failed.
    fn into_text(self) -> Result<(), String>;
}

impl Outcome for () {
    fn into_text(self) -> Result<(), String> {
        Ok(())
    }
}

impl<E: Into<Box<dyn Error>>> Outcome for Result<(), E> {
    fn into_text(self) -> Result<(), String> {
        self.map_err(|error| {
            let error = error.into();
            let mut text = error.to_string();
            let mut source = error.source();
            while let Some(cause) = source {
                let cause_text = cause.to_string();
                // Many errors have the text of their cause in their own.
                if !text.contains(&cause_text) {
                    text += ": ";
                    text += &cause_text;
                }
                source = cause.source();
            }
            text
        })
    }
}
