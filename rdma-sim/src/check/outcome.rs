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
///
/// An error of several kinds is a `Box<dyn Error>`, with or without `Send + Sync`. The parameter is inferred: it distinguishes these two.
///
/// ```
/// use std::error::Error;
///
/// use rdma_sim::{Check, Net, check};
///
/// async fn begin(net: &Net) -> Result<(), Box<dyn Error + Send + Sync>> {
///     let stream = net.host("a").dial("b", "7000".parse()?).await;
///     assert!(stream.is_err(), "no process listens there");
///     Ok(())
/// }
///
/// check(Check::new().runs(3), async |net| begin(&net).await);
/// check(Check::new().runs(3), async |net| Ok::<(), Box<dyn Error>>(net.open("a", "rdma_en2").map(drop)?));
/// ```
///
/// A body may never return, as one that always panics; `!` is an outcome, too.
///
/// ```should_panic
/// # use rdma_sim::{Check, check};
/// check(Check::new().runs(1), async |_| panic!("not written yet"));
/// ```
pub trait Outcome<Kind = ()> {
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

/// The type `!`, which stable Rust names as the result of a function only
type Never = <fn() -> ! as Function>::Result;

/// A function, by what it returns
trait Function {
    type Result;
}

impl<R> Function for fn() -> R {
    type Result = R;
}

#[expect(private_interfaces, reason = "the trait only names the type")]
impl Outcome for Never {
    fn into_text(self) -> Result<(), String> {
        self
    }
}

/// The kind of an [`Outcome`] whose error can be sent to another thread
#[derive(Clone, Copy, Debug)]
pub enum Sendable {}

impl<E: Into<Box<dyn Error>>> Outcome for Result<(), E> {
    fn into_text(self) -> Result<(), String> {
        self.map_err(|error| text_of(&*error.into()))
    }
}

impl Outcome<Sendable> for Result<(), Box<dyn Error + Send + Sync>> {
    fn into_text(self) -> Result<(), String> {
        self.map_err(|error| text_of(&*error))
    }
}

fn text_of(error: &dyn Error) -> String {
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
}
