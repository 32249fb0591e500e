//! Errors that are the same text to people, whether a program prints them or a test unwraps them

/// Implements `Debug` of each error as its `Display`: a test that returns an error, or unwraps it, prints the former
macro_rules! debug_as_display {
    ($($error:ty),+ $(,)?) => {$(
        impl std::fmt::Debug for $error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, f)
            }
        }
    )+};
}

debug_as_display! {
    crate::FaultError,
    crate::fault::FaultReason,
    crate::profile::ProfileError,
    crate::ReplayError,
    crate::SchedulerError,
    crate::TopologyError,
}

#[cfg(test)]
mod tests {
    use std::fmt::{Debug, Display};

    use crate::{FaultPlan, Replay, Scheduler, Topology};

    /// Regression: a test that returned the error of a line printed `Version { theirs: "1" }`.
    #[test]
    fn a_test_that_unwraps_an_error_prints_its_text() {
        fn check<T>(result: Result<T, impl Debug + Display>) {
            let Err(error) = result else { panic!("no error") };
            assert_eq!(format!("{error:?}"), error.to_string());
        }
        check("1 seed=7".parse::<Replay>());
        check("2 seed=7 faults=at noon".parse::<Replay>());
        check("at 5ms a:rdma_en2 explode".parse::<FaultPlan>());
        check("at 5ms a:rdma_en2 explode".parse::<FaultPlan>().map_err(|error| error.reason));
        check("lifo".parse::<Scheduler>());
        check(Topology::ring(2, 4));
    }
}
