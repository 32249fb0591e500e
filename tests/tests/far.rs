//! One host alone, and what it tells the others and believes of them

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rdma_core::{Access, QpCapacity, QpInit, QpType, Qpn, QueuePair as _, SendOp};
use rdma_sim::far::{Carrier, QpName, Signal};
use rdma_sim::{Driver, Sim, Topology};
use rdma_tests::{DEVICE, Raw};

/// What was told: the name of the signal, and a length
type Told = Arc<Mutex<Vec<(&'static str, usize)>>>;

struct Ears(Told);

impl Carrier for Ears {
    fn room(&mut self, _host: u32) -> usize {
        1 << 20
    }

    fn tell(&mut self, host: u32, signal: &Signal<'_>) {
        assert_eq!(host, 1);
        let told = match *signal {
            Signal::Ready { .. } => ("ready", 0),
            Signal::Gone { .. } => ("gone", 0),
            Signal::Receive { len, .. } => ("receive", len as usize),
            Signal::Data { bytes, .. } => ("data", bytes.len()),
            Signal::Filled { len, .. } => ("filled", len as usize),
            _ => ("other", 0),
        };
        self.0.lock().unwrap().push(told);
    }

    fn flush(&mut self) {}
}

/// Catches receives that a process has announced and its successor does not have, and a successor that is not told of those here.
#[test]
fn a_process_that_is_new_has_no_receives_of_the_old_one_and_is_told_of_all_here() {
    let driver = Driver::new(Sim::new().topology(Topology::pair()), drop).unwrap();
    let told = Told::default();
    driver.stay_at("a", Box::new(Ears(Arc::clone(&told))));
    let raw = |host| {
        let capacity = QpCapacity { recv_frames: 16, send_frames: 16 };
        let init = QpInit { capacity, ..QpInit::default() };
        Raw::new(driver.net().open(host, DEVICE).unwrap(), &init, Access::LOCAL_WRITE, 1 << 16)
    };
    let here = raw("a");
    // Only its address is of interest: the process is elsewhere.
    let there = raw("b");
    let peer = there.qp.address();
    drop(there);
    here.qp.connect(&peer).unwrap();
    here.recv(1, &[here.sge(0..4096)]).unwrap();
    let heard = || {
        driver.advance_to(driver.now() + Duration::from_millis(1));
        std::mem::take(&mut *told.lock().unwrap())
    };
    assert_eq!(heard(), [("ready", 0), ("receive", 4096)]);

    let of = QpName { device: 3, qpn: peer.qpn };
    let announce = |qpn: Qpn| {
        let mut hearing = driver.hearing();
        hearing.hear(1, &Signal::Ready { of, peer: qpn, qp_type: QpType::Uc });
        hearing.hear(1, &Signal::Receive { of, len: 4096 });
    };
    announce(here.qp.address().qpn);
    driver.hearing().introduce_to(1);
    assert_eq!(heard(), [("ready", 0), ("receive", 4096)]);
    here.post(2, SendOp::Send, &[here.sge(8192..8192 + 100)]).unwrap();
    assert_eq!(heard(), [], "the receive was another's");
    announce(here.qp.address().qpn);
    assert_eq!(heard(), [("data", 100), ("filled", 100)]);

    // What comes without having been asked for leaves no trace.
    let to = QpName { device: 0, qpn: here.qp.address().qpn };
    let mut hearing = driver.hearing();
    let status = rdma_core::Status::Success;
    for from in [Qpn(peer.qpn.0 + 1), peer.qpn] {
        hearing.hear(1, &Signal::Data { to, from, bytes: &[7; 4096] });
        hearing.hear(1, &Signal::Filled { to, from, len: 4096, status, at: rdma_core::Time::ZERO });
    }
    drop(hearing);
    assert_eq!(heard(), []);
    assert_eq!(here.read(0..4096), [7; 4096], "the peer's only");
    let ids: Vec<_> = std::iter::from_fn(|| here.poll()).map(|completion| completion.id.0).collect();
    assert_eq!(ids, [2, 1]);
    driver.hearing().hear(1, &Signal::Data { to, from: peer.qpn, bytes: &[9; 4096] });
    assert_eq!(here.read(0..4096), [7; 4096], "there is no receive");
}
