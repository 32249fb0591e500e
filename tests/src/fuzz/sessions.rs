//! Messages of a session under faults, where the bytes decide on faults, orders, delays and lengths

use std::time::Duration;

use futures::future::join;
use rdma_async::Session;
use rdma_async::time::timeout;
use rdma_core::{Time, state};
use rdma_sim::{Check, Net, RandomFaults, SimDevice, check};

use super::transcript::{Transcript, log};
use crate::{DEVICE, message, options, try_connected};

/// How long both sides may take to find each other
const PATIENCE: Duration = Duration::from_secs(30);

/// Sends messages of these lengths, and closes; whether the peer has everything
async fn send(net: &Net, session: &Session<SimDevice>, lens: &[usize]) -> bool {
    for (number, len) in lens.iter().enumerate() {
        net.sleep(Duration::from_micros(1 << net.pick(10))).await;
        if session.send_bytes(&message(number, *len)).await.is_err() {
            state!("a send fails", number as u32);
            return false;
        }
    }
    session.close().await.is_ok()
}

/// Expects the messages in order and once, until the end or a failure
async fn receive(net: &Net, session: &Session<SimDevice>, lens: &[usize]) -> bool {
    for (number, len) in lens.iter().enumerate() {
        if net.pick(4) == 3 {
            net.sleep(Duration::from_micros(1 << net.pick(10))).await;
        }
        match session.recv().await {
            Ok(Some(got)) => assert!(*got == message(number, *len), "message {number} is another one"),
            Ok(None) => panic!("message {number} is missing, and the session was closed as if it were not"),
            Err(_) => return false,
        }
    }
    matches!(session.recv().await, Ok(None))
}

async fn exchange(net: Net) {
    let connected = timeout(&*net.runtime(), PATIENCE, try_connected(&net, &[DEVICE], &options())).await;
    // A host that was killed accepts nothing.
    let Some(Ok(pair)) = connected else {
        assert!(!net.faults().is_empty(), "without a fault, no session was made: {connected:?}");
        return;
    };
    let lens: Vec<_> = (0..1 + net.pick(8)).map(|_| (1 << net.pick(18)) + net.pick(4096) as usize).collect();
    let ended = join(send(&net, &pair.ab, &lens), receive(&net, &pair.ba, &lens)).await;
    assert!(
        ended == (true, true) || !net.faults().is_empty(),
        "without a fault, a session failed: {ended:?}"
    );
}

/// Sends messages over a session in a run that is [made of the bytes](Check::from_bytes): whatever the faults, none may be lost or repeated
pub fn sessions(data: &[u8]) {
    let _transcript = Transcript::begin();
    let settings = Check::new().random_faults(RandomFaults::up_to(4).within(Duration::from_millis(5)));
    let settings = settings.name("sessions").time_limit(Time::ZERO + Duration::from_hours(1));
    let run = settings.from_bytes(data);
    log(&run.line());
    check(settings.replay(run), exchange);
}
