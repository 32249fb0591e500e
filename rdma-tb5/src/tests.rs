//! Unit tests of the files that `tests/loom.rs` compiles against loom, and that therefore have none of their own

mod posted_frames {
    use proptest::prelude::*;

    use crate::posted_frames::PostedFrames;

    proptest! {
        #[test]
        fn frames_are_counted_as_by_a_queue_of_requests(
            capacity in 1u32..40,
            ops in prop::collection::vec(prop::option::of((1u32..12, any::<bool>())), 0..200),
        ) {
            let frames_in_flight = PostedFrames::new(capacity);
            let mut queue = std::collections::VecDeque::new();
            for op in ops {
                match op {
                    Some((frames, is_signaled)) => {
                        let fits = queue.iter().map(|(frames, _)| frames).sum::<u32>() + frames <= capacity;
                        prop_assert_eq!(frames_in_flight.fits(frames), fits);
                        if fits {
                            frames_in_flight.post(frames, is_signaled);
                            queue.push_back((frames, is_signaled));
                            if frames == 11 {
                                frames_in_flight.withdraw(frames);
                                queue.pop_back();
                            }
                        }
                    }
                    // The oldest signaled request completes, and the unsignaled ones before it end with it.
                    None => if let Some(at) = queue.iter().position(|(_, is_signaled)| *is_signaled) {
                        frames_in_flight.complete();
                        queue.drain(..=at);
                    }
                }
            }
        }
    }
}

mod port_watch {
    use rdma_core::{Cause, Error, Verb};

    use crate::port_watch::PortWatch;

    fn not_queried() -> Option<Result<bool, Error>> {
        panic!("the port is queried although it is known to be up")
    }

    fn cause(result: Result<(), Error>) -> Option<Cause> {
        result.err().map(|error| error.cause)
    }

    #[test]
    fn only_the_first_post_queries_the_port() {
        let watch = PortWatch::new(true);
        assert_eq!(watch.check(Verb::PostSend, || Some(Ok(true))), Ok(()));
        assert_eq!(watch.check(Verb::PostRecv, not_queried), Ok(()));
    }

    #[test]
    fn a_completion_replaces_a_query() {
        let watch = PortWatch::new(true);
        watch.completed();
        assert_eq!(watch.check(Verb::PostSend, not_queried), Ok(()));
        watch.suspect();
        watch.completed();
        assert_eq!(watch.check(Verb::PostSend, not_queried), Ok(()));
    }

    #[test]
    fn on_apples_device_a_port_that_was_down_stays_gone() {
        for answer in [Ok(false), Err(Error::new(Verb::QueryPort, Cause::Os(5)))] {
            let watch = PortWatch::new(true);
            assert_eq!(cause(watch.check(Verb::PostSend, || Some(answer))), Some(Cause::DeviceGone));
            watch.completed();
            assert_eq!(cause(watch.check(Verb::PostRecv, not_queried)), Some(Cause::DeviceGone));
        }
    }

    /// Catches a device without an answer that counts as gone, and an error of a driver that counts as no answer.
    #[test]
    fn a_device_that_does_not_answer_takes_nothing_and_is_not_gone() {
        let watch = PortWatch::new(true);
        assert_eq!(cause(watch.check(Verb::PostSend, || None)), Some(Cause::Busy));
        assert_eq!(watch.check(Verb::PostSend, || Some(Ok(true))), Ok(()));
        watch.suspect();
        let busy = Err(Error::new(Verb::QueryPort, Cause::Busy));
        assert_eq!(cause(watch.check(Verb::PostSend, || Some(busy))), Some(Cause::DeviceGone));
    }

    #[test]
    fn on_other_devices_a_port_comes_back() {
        let watch = PortWatch::new(false);
        assert_eq!(cause(watch.check(Verb::PostSend, || Some(Ok(false)))), Some(Cause::PortDown));
        let failed = Err(Error::new(Verb::QueryPort, Cause::DeviceGone));
        assert_eq!(cause(watch.check(Verb::PostSend, || Some(failed))), Some(Cause::DeviceGone));
        assert_eq!(watch.check(Verb::PostSend, || Some(Ok(true))), Ok(()));
        watch.suspect();
        assert_eq!(cause(watch.check(Verb::PostSend, || Some(Ok(false)))), Some(Cause::PortDown));
    }
}
