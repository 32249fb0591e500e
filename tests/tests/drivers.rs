//! The simulator under other clocks and executors: a paused tokio, turmoil from outside and inside, threads in real time

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join;
use rdma_async::{Node, RecvError, SendError, Session, SessionError};
use rdma_core::{PortState, Time};
use rdma_sim::{Driver, Fault, FaultKind, Net, Sim, SimDevice};
use rdma_tests::{DEVICE, Pair, connected, node, options};

async fn ping(ab: &Session<SimDevice>, ba: &Session<SimDevice>) {
    let there = async {
        ab.send_bytes(b"ping").await.unwrap();
        assert_eq!(*ab.recv().await.unwrap().unwrap(), *b"pong");
    };
    let back = async {
        assert_eq!(*ba.recv().await.unwrap().unwrap(), *b"ping");
        ba.send_bytes(b"pong").await.unwrap();
    };
    join(there, back).await;
}

#[tokio::test(start_paused = true)]
async fn a_paused_tokio_sees_microseconds_as_milliseconds() {
    let net = rdma_sim::driver::tokio::start(Sim::new().seed(1)).unwrap();
    let Pair { ab, ba, .. } = connected(&net, &options()).await;
    let start = (net.now(), tokio::time::Instant::now());
    ping(&ab, &ba).await;
    let rtt = net.now() - start.0;
    assert!((12..=16).contains(&rtt.as_micros()), "{rtt:?}");
    assert_eq!(start.1.elapsed().as_millis(), rtt.as_micros());
    // The test's own timers go on meanwhile.
    tokio::time::sleep(Duration::from_millis(50)).await;
    ab.close().await.unwrap();
}

/// Regression: what a program states was kept under a `Sim` alone.
#[tokio::test(start_paused = true)]
async fn a_history_has_the_statements_of_a_program_under_a_driver() {
    let net = rdma_sim::driver::tokio::start(Sim::new().keep_records()).unwrap();
    let observation = net.observe();
    net.sleep(Duration::from_micros(3)).await;
    rdma_sim::state!("leader");
    drop(observation);
    rdma_sim::state!("follower");
    let page = net.history().to_html("states");
    assert!(page.contains("state leader") && !page.contains("state follower"), "{page}");
}

#[test]
fn equal_seeds_give_equal_runs_under_a_paused_tokio() {
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.unwrap().block_on(async {
            let net = rdma_sim::driver::tokio::start(Sim::new().seed(9)).unwrap();
            let Pair { ab, ba, .. } = connected(&net, &options()).await;
            for _ in 0..20 {
                ping(&ab, &ba).await;
            }
            (net.now(), net.cable_stats("a", DEVICE))
        })
    };
    assert_eq!(run(), run());
}

// ─── turmoil ───

/// A turmoil simulation with a latency of one to two ticks
fn turmoil(seed: u64) -> turmoil::Sim<'static> {
    let tick = Duration::from_millis(1);
    turmoil::Builder::new()
        .rng_seed(seed)
        .tick_duration(tick)
        .min_message_latency(tick)
        .max_message_latency(2 * tick)
        .simulation_duration(Duration::from_secs(120))
        .build()
}

/// The cable between `a` and `b` together with turmoil's network between them
struct Links {
    net: Net,
}

impl Links {
    fn partition(&self, sim: &turmoil::Sim<'_>) {
        sim.partition("a", "b");
        self.net.inject(Fault::at_port(Time::ZERO, "a", DEVICE, FaultKind::Unplug));
    }

    fn repair(&self, sim: &turmoil::Sim<'_>) {
        sim.repair("a", "b");
        self.net.inject(Fault::at_port(Time::ZERO, "a", DEVICE, FaultKind::Replug));
    }
}

fn spawn_locally(task: rdma_sim::driver::Task) {
    drop(tokio::spawn(task));
}

/// Serves peers over turmoil's TCP and answers what comes, for ever
async fn serve(net: Net) -> turmoil::Result {
    while net.port("b", DEVICE)?.state != PortState::Active {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let node = node(&net, "b", &options());
    let served = node.clone();
    tokio::spawn(async move {
        while let Some(session) = served.accept().await {
            tokio::spawn(async move {
                while let Ok(Some(message)) = session.recv().await {
                    if session.send_bytes(&message).await.is_err() {
                        break;
                    }
                }
            });
        }
    });
    let listener = turmoil::net::TcpListener::bind("0.0.0.0:9000").await?;
    loop {
        let (stream, _) = listener.accept().await?;
        let node = node.clone();
        tokio::spawn(async move { drop(node.serve(stream).await) });
    }
}

async fn connect(node: &Node<SimDevice>) -> Option<Session<SimDevice>> {
    let stream = turmoil::net::TcpStream::connect("b:9000").await.ok()?;
    node.connect(stream).await.ok()
}

async fn echo(session: &Session<SimDevice>, message: &[u8]) -> Result<(), SessionError> {
    match session.send_bytes(message).await {
        Ok(()) => (),
        Err(SendError::Lost(error)) => return Err(error),
        Err(error) => panic!("{error}"),
    }
    match session.recv().await {
        Ok(answer) => assert_eq!(*answer.expect("the server does not close"), *message),
        Err(RecvError::Lost(error)) => return Err(error),
        Err(error) => panic!("{error}"),
    }
    Ok(())
}

/// Sends messages of `len` bytes until so many came back, over one session after another; counts those and the lost sessions
async fn echoes(
    node: Node<SimDevice>,
    count: u32,
    len: usize,
    [echoes, losses]: [Rc<Cell<u32>>; 2],
) -> turmoil::Result {
    while echoes.get() < count {
        let Some(session) = connect(&node).await else {
            tokio::time::sleep(Duration::from_millis(300)).await;
            continue;
        };
        while echoes.get() < count {
            if echo(&session, &vec![7; len]).await.is_err() {
                losses.set(losses.get() + 1);
                break;
            }
            echoes.set(echoes.get() + 1);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    Ok(())
}

/// The harness owns the loop. Catches a partition of both networks that is not noticed, and nodes that are of no use after it.
#[test]
fn turmoil_outside_partitions_cable_and_network_at_once() {
    let driver = Driver::new(Sim::new().seed(3), spawn_locally).unwrap();
    let links = Links { net: driver.net().clone() };
    let mut sim = turmoil(3);
    let net = driver.net().clone();
    sim.host("b", move || serve(net.clone()));
    let counts = <[Rc<Cell<u32>>; 2]>::default();
    let (net, counted) = (driver.net().clone(), counts.clone());
    sim.client("a", async move { echoes(node(&net, "a", &options()), 40, 5, counted).await });
    let (mut since, mut is_repaired) = (None, false);
    while !sim.step().unwrap() {
        driver.advance_to(driver.now() + Duration::from_millis(1));
        if since.is_none() && counts[0].get() == 10 {
            links.partition(&sim);
            since = Some(sim.elapsed());
        }
        if since.is_some_and(|at| sim.elapsed() - at > Duration::from_secs(3)) && !is_repaired {
            is_repaired = true;
            links.repair(&sim);
        }
    }
    assert!(links.net.findings().is_empty());
    assert_eq!(counts.map(|count| count.get()), [40, 1]);
}

/// Lets the fabric follow the clock of the turmoil host that this runs on
async fn pump(driver: Arc<Driver>) {
    loop {
        tokio::time::sleep(Duration::from_millis(1)).await;
        driver.advance_to(Time::ZERO + turmoil::sim_elapsed().unwrap_or_default());
    }
}

/// Each host drives its devices: a crash drops its objects, and after a bounce it connects again.
#[test]
fn turmoil_inside_crashes_and_bounces_a_host() {
    let driver = Arc::new(Driver::new(Sim::new().seed(4), spawn_locally).unwrap());
    let mut sim = turmoil(4);
    let pumped = Arc::clone(&driver);
    sim.host("b", move || {
        tokio_spawn_pump(&pumped);
        serve(pumped.net().clone())
    });
    let counts = <[Rc<Cell<u32>>; 2]>::default();
    let (net, counted) = (driver.net().clone(), counts.clone());
    let pumped = Arc::clone(&driver);
    sim.client("a", async move {
        tokio_spawn_pump(&pumped);
        echoes(node(&net, "a", &options()), 30, 200_000, counted).await
    });
    let mut has_crashed = false;
    while !sim.step().unwrap() {
        if !has_crashed && counts[0].get() == 10 {
            has_crashed = true;
            sim.crash("b");
            sim.bounce("b");
        }
    }
    assert_eq!(counts.map(|count| count.get()), [30, 1], "the silence of the crashed host was noticed");
}

fn tokio_spawn_pump(driver: &Arc<Driver>) {
    drop(tokio::spawn(pump(Arc::clone(driver))));
}

// ─── Real time ───

#[test]
fn threads_in_real_time_exchange_messages() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
    let handle = runtime.handle().clone();
    let running =
        rdma_sim::driver::realtime::start(Sim::new(), move |task| drop(handle.spawn(task))).unwrap();
    let net = running.net().clone();
    runtime.block_on(async move {
        let Pair { ab, ba, .. } = connected(&net, &options()).await;
        let echo = tokio::spawn(async move {
            while let Some(message) = ba.recv().await.unwrap() {
                ba.send_bytes(&message).await.unwrap();
            }
        });
        for number in 0..200_usize {
            let message = vec![number as u8; number * 311];
            let (sent, answer) = join(ab.send_bytes(&message), ab.recv()).await;
            sent.unwrap();
            assert_eq!(*answer.unwrap().unwrap(), *message);
        }
        ab.close().await.unwrap();
        echo.await.unwrap();
    });
}

/// Catches a time that was read before the fabric's lock, while another thread went on.
#[test]
fn threads_that_look_at_different_clocks_do_not_turn_time_back() {
    let driver = Driver::new(Sim::new().seed(1), drop).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..2_u64 {
            let driver = &driver;
            scope.spawn(move || {
                for number in 0..20_000 {
                    driver.advance_to(Time::from_nanos(number * 10 + thread));
                }
            });
        }
    });
    assert!(driver.now() >= Time::from_nanos(199_990));
}
