//! One host in this process, and others that only send and receive link messages

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rdma_core::{
    Access, Completion, FRAME, MemoryRegion as _, QpAddress, QpInit, QpType, Qpn, QueuePair as _, SendOp,
    Sge, Status, Time,
};
use rdma_sim::remote::{LinkMessage, ProcessName, QpName, Transport};
use rdma_sim::rules::FrameMatch;
use rdma_sim::{Driver, Model, Sim};
use rdma_tests::{DEVICE, Raw};

/// Sent messages: name and length
type Sent = Arc<Mutex<Vec<(&'static str, usize)>>>;

/// The first process of the other host
const THERE: ProcessName = ProcessName { host: 1, number: 0 };

struct Record(Sent);

impl Transport for Record {
    fn room(&mut self, _to: ProcessName) -> usize {
        1 << 20
    }

    fn send(&mut self, to: ProcessName, message: &LinkMessage<'_>) {
        assert_eq!(to, THERE);
        let entry = match *message {
            LinkMessage::Ready { .. } => ("ready", 0),
            LinkMessage::Closed { .. } => ("gone", 0),
            LinkMessage::ReceivePosted { len, .. } => ("receive", len as usize),
            LinkMessage::Data { bytes, .. } => ("data", bytes.len()),
            LinkMessage::Filled { len, .. } => ("filled", len as usize),
            _ => ("other", 0),
        };
        self.0.lock().unwrap().push(entry);
    }

    fn flush(&mut self) {}
}

/// A host in this process, what it has sent, its queue pair, and the address of the peer that this is connected to
fn one_host() -> (Driver, Sent, Raw, QpAddress) {
    let driver = Driver::new(Sim::new(), drop).unwrap();
    let sent = Sent::default();
    driver.simulate_only("a", Box::new(Record(Arc::clone(&sent))));
    let [here, there] = pair_of([&driver, &driver], QpType::Uc, Access::LOCAL_WRITE);
    // Only the address is used: the host is in another process.
    let peer = there.qp.address();
    drop(there);
    here.qp.connect(&peer).unwrap();
    (driver, sent, here, peer)
}

/// Catches receives of a process that are kept for its successor, and a successor that learns nothing of the receives here.
#[test]
fn a_restarted_process_starts_without_receives_and_gets_all_announcements() {
    let (driver, sent, here, peer) = one_host();
    here.recv(1, &[here.sge(0..4096)]).unwrap();
    let sent_since = || {
        driver.advance_to(driver.now() + Duration::from_millis(1));
        std::mem::take(&mut *sent.lock().unwrap())
    };
    assert_eq!(sent_since(), [("ready", 0), ("receive", 4096)]);

    let qp = QpName { device: 3, qpn: peer.qpn };
    let announce = |qpn: Qpn| {
        let mut remote_input = driver.remote_input();
        remote_input.apply(THERE, &LinkMessage::Ready { qp, peer: qpn, qp_type: QpType::Uc, at: Time::ZERO });
        remote_input.apply(THERE, &LinkMessage::ReceivePosted { qp, len: 4096, at: Time::ZERO });
    };
    announce(here.qp.address().qpn);
    driver.remote_input().announce_all_to(THERE);
    assert_eq!(sent_since(), [("ready", 0), ("receive", 4096)]);
    here.post(2, SendOp::Send, &[here.sge(8192..8192 + 100)]).unwrap();
    assert_eq!(sent_since(), [], "the receive belonged to the old process");
    announce(here.qp.address().qpn);
    assert_eq!(sent_since(), [("data", 100), ("filled", 100)]);

    // Unsolicited messages change nothing.
    let to = QpName { device: 0, qpn: here.qp.address().qpn };
    let mut remote_input = driver.remote_input();
    let status = rdma_core::Status::Success;
    for from in [Qpn(peer.qpn.0 + 1), peer.qpn] {
        remote_input.apply(THERE, &LinkMessage::Data { to, from, bytes: &[7; 4096] });
        remote_input.apply(THERE, &LinkMessage::Filled { to, from, len: 4096, status, at: Time::ZERO });
    }
    drop(remote_input);
    assert_eq!(sent_since(), []);
    assert_eq!(here.read(0..4096), [7; 4096], "only the bytes of the peer arrive");
    let ids: Vec<_> = std::iter::from_fn(|| here.poll()).map(|completion| completion.id.0).collect();
    assert_eq!(ids, [2, 1]);
    driver.remote_input().apply(THERE, &LinkMessage::Data { to, from: peer.qpn, bytes: &[9; 4096] });
    assert_eq!(here.read(0..4096), [7; 4096], "there is no receive");
}

/// Regression: a transmitter learned at once of the receives of another process, and one propagation later of those of its own process.
///
/// Catches that, and an announcement with another time.
#[test]
fn a_receive_of_another_process_is_known_one_propagation_after_its_post() {
    struct Announced(Arc<Mutex<Vec<Time>>>);

    impl Transport for Announced {
        fn room(&mut self, _to: ProcessName) -> usize {
            1 << 20
        }

        fn send(&mut self, _to: ProcessName, message: &LinkMessage<'_>) {
            if let LinkMessage::Ready { at, .. } | LinkMessage::ReceivePosted { at, .. } = *message {
                self.0.lock().unwrap().push(at);
            }
        }

        fn flush(&mut self) {}
    }

    let propagation = Duration::from_nanos(Model::tb5().timing.propagation_ns);
    let (driver, sent, here, peer) = one_host();
    let qp = QpName { device: 3, qpn: peer.qpn };
    let apply = |message: &LinkMessage<'_>| driver.remote_input().apply(THERE, message);
    let known = LinkMessage::Ready { qp, peer: here.qp.address().qpn, qp_type: QpType::Uc, at: Time::ZERO };
    apply(&known);
    for (id, after) in [(1, Duration::ZERO), (2, propagation)] {
        here.post(id, SendOp::Send, &[here.sge(0..8)]).unwrap();
        // It waits for a receive.
        driver.advance_to(driver.now() + Duration::from_millis(1));
        sent.lock().unwrap().clear();
        let posted = driver.now();
        apply(&LinkMessage::ReceivePosted { qp, len: 4096, at: posted + after });
        let is_filled = |after| {
            driver.advance_to(posted + after);
            sent.lock().unwrap().contains(&("filled", 8))
        };
        let before = propagation - Duration::from_nanos(1);
        assert_eq!(is_filled(before), id == 1, "{id}");
        assert!(is_filled(propagation + Duration::from_micros(1)), "{id}");
    }

    let announced = Arc::default();
    let both = Driver::new(Sim::new(), drop).unwrap();
    both.simulate_only("a", Box::new(Announced(Arc::clone(&announced))));
    let [here, there] = pair_of([&both, &both], QpType::Uc, Access::LOCAL_WRITE);
    here.qp.connect(&there.qp.address()).unwrap();
    let connected = both.now();
    both.advance_to(connected + Duration::from_micros(5));
    here.recv(1, &[here.sge(0..4096)]).unwrap();
    assert_eq!(*announced.lock().unwrap(), [connected + propagation, both.now() + propagation]);
}

/// Catches a process that announces, closes or forgets a queue pair of another process of its host.
#[test]
fn no_process_speaks_for_the_queue_pairs_of_another_one() {
    let (driver, sent, here, peer) = one_host();
    let qp = QpName { device: 3, qpn: peer.qpn };
    let other = ProcessName { number: 1, ..THERE };
    let ready = LinkMessage::Ready { qp, peer: here.qp.address().qpn, qp_type: QpType::Uc, at: Time::ZERO };
    let receive = LinkMessage::ReceivePosted { qp, len: 4096, at: Time::ZERO };
    let apply = |from, message: &LinkMessage<'_>| driver.remote_input().apply(from, message);
    let filled = || {
        driver.advance_to(driver.now() + Duration::from_millis(1));
        let sent = std::mem::take(&mut *sent.lock().unwrap());
        sent.into_iter().filter(|(message, _)| *message == "filled").count()
    };
    here.post(1, SendOp::Send, &[here.sge(0..100)]).unwrap();
    here.post(2, SendOp::Send, &[here.sge(0..100)]).unwrap();
    [&ready, &receive].into_iter().for_each(|message| apply(other, message));
    assert_eq!(filled(), 0);
    [&ready, &receive].into_iter().for_each(|message| apply(THERE, message));
    assert_eq!(filled(), 1);
    apply(other, &LinkMessage::Closed { qp });
    driver.remote_input().announce_all_to(other);
    apply(other, &receive);
    assert_eq!(filled(), 0);
    apply(THERE, &receive);
    assert_eq!(filled(), 1);
}

/// Messages in flight, with copies of their bytes
type Link = Arc<Mutex<Vec<(LinkMessage<'static>, Vec<u8>)>>>;

struct Queue(Link);

/// What a link takes of one message
const ROOM: usize = 8192;

impl Transport for Queue {
    fn room(&mut self, _to: ProcessName) -> usize {
        ROOM
    }

    fn send(&mut self, _to: ProcessName, message: &LinkMessage<'_>) {
        let bytes = match *message {
            LinkMessage::Data { bytes, .. } => {
                assert!(bytes.len() <= ROOM, "{} bytes are more than there is room for", bytes.len());
                bytes
            }
            LinkMessage::Request { bytes, .. } | LinkMessage::Response { bytes, .. } => bytes,
            _ => &[],
        };
        self.0.lock().unwrap().push((with_bytes(message, &[]), bytes.to_vec()));
    }

    fn flush(&mut self) {}
}

/// A message with other bytes, which may live longer or shorter
fn with_bytes<'a>(message: &LinkMessage<'_>, bytes: &'a [u8]) -> LinkMessage<'a> {
    match *message {
        LinkMessage::Ready { qp, peer, qp_type, at } => LinkMessage::Ready { qp, peer, qp_type, at },
        LinkMessage::Closed { qp } => LinkMessage::Closed { qp },
        LinkMessage::ReceivePosted { qp, len, at } => LinkMessage::ReceivePosted { qp, len, at },
        LinkMessage::Data { to, from, .. } => LinkMessage::Data { to, from, bytes },
        LinkMessage::Filled { to, from, len, status, at } => {
            LinkMessage::Filled { to, from, len, status, at }
        }
        LinkMessage::Request { to, from, op, len, .. } => LinkMessage::Request { to, from, op, len, bytes },
        LinkMessage::Response { to, from, is_ok, .. } => LinkMessage::Response { to, from, is_ok, bytes },
    }
}

/// Two simulations, each of one host, that exchange link messages
struct TwoSimulations {
    drivers: [Driver; 2],
    links: [Link; 2],
}

impl TwoSimulations {
    fn new(model: &Model) -> Self {
        let links = [Link::default(), Link::default()];
        let drivers = [("a", &links[0]), ("b", &links[1])].map(|(host, link)| {
            let driver = Driver::new(Sim::new().model(model.clone()), drop).unwrap();
            driver.simulate_only(host, Box::new(Queue(Arc::clone(link))));
            driver
        });
        Self { drivers, links }
    }

    /// Advances both, and delivers their messages, until there are none
    fn settle(&self) {
        for _ in 0..1_000 {
            let mut is_quiet = true;
            for from in 0..2 {
                self.drivers[from].advance_to(self.drivers[from].now() + Duration::from_millis(1));
                for (message, bytes) in std::mem::take(&mut *self.links[from].lock().unwrap()) {
                    is_quiet = false;
                    let mut input = self.drivers[1 - from].remote_input();
                    input.apply(ProcessName { host: from as u32, number: 0 }, &with_bytes(&message, &bytes));
                }
                self.drivers[1 - from].remote_input().resume();
            }
            if is_quiet {
                return;
            }
        }
        panic!("the simulations do not stop exchanging messages");
    }

    fn pair(&self, qp_type: QpType, access: Access) -> [Raw; 2] {
        let [a, b] = pair_of(self.drivers.each_ref(), qp_type, access);
        a.connect(&b);
        self.settle();
        [a, b]
    }
}

fn pair_of(drivers: [&Driver; 2], qp_type: QpType, access: Access) -> [Raw; 2] {
    let init = QpInit { qp_type, ..QpInit::with_frames(16) };
    [0, 1].map(|at| Raw::new(drivers[at].net().open(["a", "b"][at], DEVICE).unwrap(), &init, access, 1 << 20))
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ seed).collect()
}

/// Catches an outcome of the sender that replaces a failure here, a length that no receive has and that passes, receives that end
/// before their time or before the one in front of them, and an announcement of a receive that is filled.
#[test]
fn a_receive_ends_as_the_sender_says_unless_it_cannot() {
    let (driver, sent, here, peer) = one_host();
    // Memory that is registered late cannot be received into.
    let late = here.register_again(Access::LOCAL_WRITE).unwrap();
    let refused = Sge { addr: late.base(), len: 8, lkey: late.lkey() };
    here.recv(0, &[refused]).unwrap();
    for id in 1..=4 {
        here.recv(id, &[here.sge(id as usize * FRAME..id as usize * FRAME + 100)]).unwrap();
    }
    driver.advance_to(driver.now() + Duration::from_millis(1));
    let start = driver.now();
    let to = QpName { device: 0, qpn: here.qp.address().qpn };
    let filled = |len, status, after| {
        let at = start + Duration::from_millis(after);
        driver.remote_input().apply(THERE, &LinkMessage::Filled { to, from: peer.qpn, len, status, at });
    };
    filled(8, Status::Success, 2);
    filled(101, Status::Success, 1);
    filled(101, Status::BadResponse, 1);
    filled(100, Status::Success, 3);
    let ended_after = |after| {
        driver.advance_to(start + Duration::from_millis(after));
        let ended = std::iter::from_fn(|| here.poll()).map(|completion| (completion.id.0, completion.status));
        ended.collect::<Vec<_>>()
    };
    sent.lock().unwrap().clear();
    driver.remote_input().announce_all_to(THERE);
    assert_eq!(*sent.lock().unwrap(), [("ready", 0), ("receive", 100)], "the others are filled");
    assert_eq!(ended_after(1), []);
    let first = [(0, Status::LocalProtection), (1, Status::LocalLength), (2, Status::BadResponse)];
    assert_eq!(ended_after(2), first);
    assert_eq!(ended_after(3), [(3, Status::Success)]);
}

/// Catches pieces at wrong addresses, operations that overtake each other, and access without a right.
#[test]
fn one_sided_operations_access_memory_of_another_process() {
    let all = [Access::LOCAL_WRITE, Access::REMOTE_WRITE, Access::REMOTE_READ, Access::REMOTE_ATOMIC];
    let all = all.into_iter().fold(Access::NONE, Access::union);
    let sims = TwoSimulations::new(&Model::roce());
    let [a, b] = sims.pair(QpType::Rc, all);
    let (base, rkey) = (b.region().base(), b.region().rkey().unwrap());
    let remote = |at: u64| (base + at, rkey);
    // Longer than a piece, and not a multiple of one.
    let len = 100_003;
    a.write(0, &pattern(len, 1));
    let (remote_addr, rkey) = remote(5);
    a.post(1, SendOp::Write { remote_addr, rkey }, &[a.sge(0..len)]).unwrap();
    a.post(2, SendOp::Read { remote_addr, rkey }, &[a.sge(200_000..200_000 + len)]).unwrap();
    let (counter, _) = remote(800_000);
    b.write(800_000, &40_u64.to_le_bytes());
    let word = |at: usize| [a.sge(at..at + 8)];
    a.post(3, SendOp::FetchAdd { remote_addr: counter, rkey, add: 2 }, &word(400_000)).unwrap();
    a.post(4, SendOp::CompareSwap { remote_addr: counter, rkey, compare: 42, swap: 7 }, &word(400_008))
        .unwrap();
    a.post(5, SendOp::CompareSwap { remote_addr: counter, rkey, compare: 42, swap: 8 }, &word(400_016))
        .unwrap();
    sims.settle();
    let done: Vec<_> = std::iter::from_fn(|| a.poll()).collect();
    assert!(done.iter().all(|completion| completion.status == Status::Success), "{done:?}");
    assert_eq!(done.iter().map(|completion| completion.id.0).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    assert_eq!(b.read(5..5 + len), pattern(len, 1));
    assert_eq!(b.read(0..5), [0; 5]);
    assert_eq!(a.read(200_000..200_000 + len), pattern(len, 1));
    let number = |raw: &Raw, at: usize| u64::from_le_bytes(raw.read(at..at + 8).try_into().unwrap());
    assert_eq!([400_000, 400_008, 400_016].map(|at| number(&a, at)), [40, 42, 7]);
    assert_eq!(number(&b, 800_000), 7);
    // An address beyond the region, and an unknown key: both move the queue pair to the error state.
    for (addr, key) in [(base + (1 << 20) - 4, rkey), (base, rdma_core::Rkey(rkey.0 + 1))] {
        let [a, b] = sims.pair(QpType::Rc, all);
        a.post(6, SendOp::Write { remote_addr: addr, rkey: key }, &[a.sge(0..8)]).unwrap();
        sims.settle();
        let ended: Option<Completion> = a.poll();
        assert_eq!(ended.map(|completion| completion.status), Some(Status::RemoteAccess));
        drop(b);
    }
}

/// Catches requests that wait for the retry timer, or for ever, although the other process has become ready.
#[test]
fn one_sided_operations_that_are_early_take_place_when_the_other_process_is_ready() {
    let sims = TwoSimulations::new(&Model::roce());
    let access = Access::LOCAL_WRITE.union(Access::REMOTE_WRITE);
    let [a, b] = pair_of(sims.drivers.each_ref(), QpType::Rc, access);
    a.connect_to(&b);
    let (remote_addr, rkey) = (b.region().base(), b.region().rkey().unwrap());
    for id in [1, 2] {
        a.post(id, SendOp::Write { remote_addr, rkey }, &[a.sge(0..8)]).unwrap();
    }
    sims.settle();
    assert_eq!(a.poll(), None);
    b.connect_to(&a);
    sims.settle();
    let done: Vec<_> = std::iter::from_fn(|| a.poll()).map(|done| (done.id.0, done.status)).collect();
    assert_eq!(done, [(1, Status::Success), (2, Status::Success)]);
}

/// Catches a sender that waits for the response of a process that has ended.
#[test]
fn a_one_sided_operation_fails_when_the_other_process_ends() {
    let sims = TwoSimulations::new(&Model::roce());
    let [a, b] = sims.pair(QpType::Rc, Access::LOCAL_WRITE.union(Access::REMOTE_WRITE));
    let (remote_addr, rkey) = (b.region().base(), b.region().rkey().unwrap());
    a.post(1, SendOp::Write { remote_addr, rkey }, &[a.sge(0..8)]).unwrap();
    sims.drivers[0].advance_to(sims.drivers[0].now() + Duration::from_millis(1));
    sims.drivers[0].remote_input().forget(THERE);
    sims.drivers[0].advance_to(sims.drivers[0].now() + Duration::from_secs(10));
    assert_eq!(a.poll().map(|completion| completion.status), Some(Status::RetryExceeded));
}

/// Messages, the receives that they find, and what goes wrong before
struct Case {
    messages: &'static [usize],
    receives: &'static [usize],
    fault: Option<&'static str>,
    /// Where the messages and the receives begin in the memory.
    start: usize,
}

impl Case {
    const fn new(messages: &'static [usize], receives: &'static [usize]) -> Self {
        Self { messages, receives, fault: None, start: 0 }
    }

    const fn after(self, fault: &'static str, start: usize) -> Self {
        Self { fault: Some(fault), start, ..self }
    }

    fn inject(&self, driver: &Driver) {
        if let Some(fault) = self.fault {
            driver.net().inject(format!("at 0s {fault}").parse().unwrap());
            driver.advance_to(driver.now() + Duration::from_millis(1));
        }
    }

    /// What both programs see: the completions of `a` and of `b`, and the memory of `b`
    fn run(&self, [a, b]: [Raw; 2], settle: impl Fn()) -> (Vec<Completion>, Vec<Completion>, Vec<u8>) {
        let ends = |lens: &[usize]| {
            let end =
                |at: &mut usize, len: &usize| Some(std::mem::replace(at, *at + len.next_multiple_of(FRAME)));
            lens.iter().scan(self.start, end).zip(lens.to_vec()).enumerate().collect::<Vec<_>>()
        };
        b.write(0, &vec![0xaa; 1 << 20]);
        for (id, (at, len)) in ends(self.receives) {
            b.recv(id as u64, &[b.sge(at..at + len)]).unwrap();
        }
        a.write(0, &pattern(1 << 20, 3));
        for (id, (at, len)) in ends(self.messages) {
            a.post(id as u64, SendOp::Send, &[a.sge(at..at + len)]).unwrap();
            settle();
        }
        let [sent, received] = [&a, &b].map(|raw| {
            let unnumbered = |completion| Completion { qpn: Qpn(0), ..completion };
            std::iter::from_fn(|| raw.poll()).map(unnumbered).collect()
        });
        (sent, received, b.read(0..1 << 20))
    }
}

/// Catches a receive whose process fills or ends it otherwise than the rule does inside of one process: its length, its frames,
/// damaged bytes, and the end of what the device finds on either side.
#[test]
fn a_receive_in_another_process_ends_as_one_in_the_same() {
    const HALF: usize = 1 << 19;
    let cases = [
        Case::new(&[4 * FRAME, 8], &[4 * FRAME, 8]),
        Case::new(&[4 * FRAME, 8], &[FRAME, FRAME, FRAME, FRAME, 8]),
        Case::new(&[4 * FRAME, 8], &[FRAME, 2 * FRAME, 3 * FRAME, 8]),
        Case::new(&[5 * FRAME, 8], &[3 * FRAME, 3 * FRAME, 8]),
        Case::new(&[3 * FRAME - 5, 8], &[3 * FRAME, 8]),
        Case::new(&[3 * FRAME, 8], &[3 * FRAME - 5, 8]),
        Case::new(&[FRAME, 3 * FRAME, 8], &[3 * FRAME, FRAME, 8]),
        Case::new(&[0, 0, 8], &[1, 2 * FRAME, 8]),
        Case::new(&[100, 3 * FRAME, 200], &[100, 3 * FRAME, 200]).after("a:rdma_en2 corrupt 2", 0),
        Case::new(&[0, 200], &[100, 200]).after("a:rdma_en2 corrupt 1", 0),
        Case::new(&[5 * FRAME, 8], &[5 * FRAME, 8]).after("a:rdma_en2 lose 1", 0),
        Case::new(&[31 * FRAME, 8, 0], &[31 * FRAME, 8, 8]).after("b:rdma_en2 overflow", 0),
        Case::new(&[4 * FRAME, 8], &[4 * FRAME, 8]).after("a:rdma_en2 boundary", HALF - FRAME - 7),
        Case::new(&[4 * FRAME, 8], &[4 * FRAME, 8]).after("b:rdma_en2 boundary", HALF - FRAME - 7),
    ];
    for frame_match in [FrameMatch::Exact, FrameMatch::Fits] {
        for case in &cases {
            let mut model = Model::tb5();
            model.rules.frame_match = frame_match;
            let driver = Driver::new(Sim::new().model(model.clone()), drop).unwrap();
            case.inject(&driver);
            let here = pair_of([&driver, &driver], QpType::Uc, Access::LOCAL_WRITE);
            here[0].connect(&here[1]);
            let in_one = case.run(here, || _ = driver.advance_to(driver.now() + Duration::from_millis(20)));

            let sims = TwoSimulations::new(&model);
            sims.drivers.iter().for_each(|driver| case.inject(driver));
            let in_two = case.run(sims.pair(QpType::Uc, Access::LOCAL_WRITE), || sims.settle());
            let Case { messages, receives, fault, .. } = case;
            let case = format!("{messages:?} into {receives:?} {fault:?} {frame_match:?}");
            assert_eq!((in_two.0, in_two.1), (in_one.0, in_one.1), "{case}");
            assert!(in_two.2 == in_one.2, "{case}: the bytes");
        }
    }
}
