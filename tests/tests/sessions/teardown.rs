//! Devices whose destroyed queue pairs prove nothing, as Apple's by default

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::future::join;
use rdma_core::Teardown;
use rdma_sim::{Model, Sim};
use rdma_tests::{Hooks, connect, hooked_node, message, options};

/// A device that does not know whether a destroyed queue pair has stopped
#[derive(Default)]
struct Unproven {
    destroyed: AtomicU32,
}

impl Hooks for Unproven {
    fn destroy(&self, _: u32) -> Option<Teardown> {
        self.destroyed.fetch_add(1, Ordering::Relaxed);
        Some(Teardown::Unknown)
    }
}

/// Catches memory that is quarantined although its deregistration proved that the device has stopped: it is used up after a few
/// reconnects.
#[test]
fn a_thousand_reconnects_leave_nothing_behind() {
    const RECONNECTS: usize = 1000;
    // Each replug costs a protection domain of eleven, until the machine is started again: that is not the library's.
    let mut model = Model::tb5();
    model.rules.replug_leaks_pds = 0;
    let run = Sim::new().model(model).run(async |net| {
        let hooks = Arc::<Unproven>::default();
        let [a, b] = ["a", "b"].map(|host| hooked_node(&net, host, &hooks, &options()));
        let (ab, ba) = connect(&a, &b).await.unwrap();
        for number in 0..RECONNECTS {
            for len in [100, 200_000] {
                let (sent, got) = join(ab.send_bytes(&message(number, len)), ba.recv()).await;
                sent.unwrap();
                assert!(*got.unwrap().unwrap() == message(number, len));
            }
            net.inject("at 0s b:rdma_en2 flap 5ms".parse().unwrap());
            net.sleep(Duration::from_millis(5)).await;
        }
        let destroyed = hooks.destroyed.load(Ordering::Relaxed) as usize;
        assert!(destroyed >= 4 * (RECONNECTS - 1), "each side had two queue pairs: {destroyed}");
        let (closed, end) = join(ab.close(), ba.recv()).await;
        closed.unwrap();
        assert!(end.unwrap().is_none());
        drop((ab, ba));
        net.sleep(Duration::from_millis(100)).await;
        assert!(a.pool_stats().is_whole() && b.pool_stats().is_whole());
    });
    assert_eq!(run.findings, []);
}
