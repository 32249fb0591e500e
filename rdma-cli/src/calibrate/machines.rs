//! A calibration of two machines with a cable between them

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use indicatif::ProgressBar;
use rdma_async::TokioRuntime;
use rdma_calibrate::{
    CalibrateError, Calls, Expectations, Findings, Greeted, Machine, Path, Simulation, ViewOfC,
    calibrate_watched, conform, serve_watched,
};
use rdma_core::{AnyDevice, Cause, Error, Runtime, Verb};
use rdma_tb5::{OpenError, OpenOptions, PollPolicy, Provider, VerbsDevice};
use serde::Serialize;
use tokio::net::TcpStream;

use super::args::Arguments;
use super::conformance;
use super::record::{Files, Record};
use crate::failure::Failure;
use crate::mac;
use crate::machines::{
    self, Attempt, Attempts, CHECK_INTERVAL, Host, Refused, connect, require_port, runtime,
    unless_interrupted,
};
use crate::report::{Output, note, with_sources};
use crate::signals::{Interrupt, Interrupted};
use crate::{progress, recorded};

/// The longest time of a verb. A transition to RTR without a neighbour takes a second.
const LONGEST_VERB: Duration = Duration::from_secs(15);

/// The backend in JSON output
const BACKEND: &str = "rdma";

/// How long each stream lasts that measures a rate, of which there are thirty, and three for each cable and for all
const STREAM_TIME: Duration = Duration::from_millis(200);

/// A device of this machine
struct RealDevice {
    provider: Arc<Provider>,
    /// The first is calibrated.
    names: Vec<String>,
    runtime: Arc<TokioRuntime>,
    progress: ProgressBar,
    record: Record,
}

impl Machine for RealDevice {
    fn open(&self, path: Path) -> Result<AnyDevice, Error> {
        self.open_at(0, path)
    }

    fn cables(&self) -> usize {
        self.names.len()
    }

    fn open_cable(&self, cable: usize) -> Result<AnyDevice, Error> {
        self.open_at(cable, Path::default())
    }

    fn runtime(&self) -> Arc<dyn Runtime> {
        Arc::clone(&self.runtime) as Arc<dyn Runtime>
    }

    fn is_polling(&self) -> bool {
        true
    }

    fn cores(&self) -> Option<usize> {
        std::thread::available_parallelism().ok().map(usize::from)
    }

    fn begins(&self, name: &'static str, number: usize, count: usize) {
        progress::step(&self.progress, name, number, count);
    }

    fn found(&self, findings: &Findings) {
        self.record.update(findings);
    }

    fn expectations(&self) -> Option<Expectations> {
        let is_adapter = match self.provider.simulated_profile() {
            Some(profile) => mac::model(&profile).is_ok_and(|model| model.caps.one_sided),
            None => !self.names[0].starts_with("rdma_en"),
        };
        is_adapter.then_some(Expectations::ADAPTER)
    }

    fn open_for_c(&self) -> Option<Result<ViewOfC, Error>> {
        let options = options(Path::default());
        let (device, lacking) = match self.open_verbs(0, options.clone().completion_channel()) {
            Ok(device) => (Ok(device), Error::new(Verb::CreateCq, Cause::Unsupported)),
            Err(error) => (self.open_verbs(0, options), error),
        };
        Some(device.and_then(|device| {
            let events = device.completion_events().ok_or(lacking);
            Ok(ViewOfC {
                gid_table_len: device.gid_table_len()?,
                device: AnyDevice::new(device),
                completion_events: events.map(|events| Box::new(move || events.take()) as _),
            })
        }))
    }
}

fn options(path: Path) -> OpenOptions {
    let options = OpenOptions::new().path_mtu(path.mtu).poll(PollPolicy::SPIN).unguarded();
    match path.source_index {
        Some(index) => options.source_index(index),
        None => options,
    }
}

impl RealDevice {
    fn open_at(&self, cable: usize, path: Path) -> Result<AnyDevice, Error> {
        self.open_verbs(cable, options(path)).map(AnyDevice::new)
    }

    fn open_verbs(&self, cable: usize, options: OpenOptions) -> Result<VerbsDevice, Error> {
        VerbsDevice::open(&self.provider, &self.names[cable], options).map_err(|error| match error {
            OpenError::Verbs(error) => error,
            // The device was listed a moment ago.
            _ => Error::new(Verb::OpenDevice, Cause::DeviceGone),
        })
    }
}

#[derive(Debug, Serialize)]
struct Served {
    backend: &'static str,
    role: &'static str,
    device: String,
    peer: String,
}

/// Asks the machine `host`
pub(super) fn ask(args: &Arguments, host: &Host, output: Output) -> Result<()> {
    require_port(args.port(), Arguments::PORT)?;
    let options = args.options().with_stream_time(STREAM_TIME);
    if args.conformance {
        let asked = with_peer(args, host, output, None, async |machine, stream, calls| {
            conform(machine, stream, &options, calls).await
        })?;
        let simulated = asked.record.simulated_profile();
        return conformance::print(asked.found, BACKEND, &asked.device, simulated, output);
    }
    let files = Files::require_writable(&args.out, None)?;
    let asked = with_peer(args, host, output, Some(files), async |machine, stream, calls| {
        calibrate_watched(machine, stream, &options, calls).await
    })?;
    asked.record.write(asked.found, BACKEND, output)
}

/// What came of it, and on which device
struct Asked<T> {
    found: T,
    device: String,
    record: Record,
}

/// Does `work` with the device of this machine, and the machine `host` that answers; if that ends early, `files` get what was found
fn with_peer<T>(
    args: &Arguments,
    host: &Host,
    output: Output,
    files: Option<Files>,
    work: impl AsyncFnOnce(&RealDevice, TcpStream, &Arc<Calls>) -> Result<T, CalibrateError>,
) -> Result<Asked<T>> {
    let (provider, names) = devices(&args.device)?;
    let interrupt = Interrupt::listen()?;
    let device = names[0].clone();
    // A fabric of processes is simulated in real time.
    let simulation = |profile| Simulation { profile, is_in_real_time: true };
    let record = Record::new(files, provider.simulated_profile().map(simulation));
    let found = runtime()?.block_on(async {
        let remedy =
            "run `tb5 calibrate --listen` there first, unless it answers another machine now: a second one is refused";
        let connecting = connect(host, args.port(), remedy);
        let stream = unless_interrupted(&interrupt, connecting).await?;
        stream.set_nodelay(true)?;
        output.announce(&format!("backend: {}; {} answers", names.join(", "), stream.peer_addr()?))?;
        let progress = progress::steps(1);
        let runtime = Arc::new(TokioRuntime::current());
        let machine =
            RealDevice { provider, names, runtime, progress: progress.clone(), record: record.clone() };
        let calls = Arc::new(Calls::new(machine.runtime()));
        let work = work(&machine, stream, &calls);
        let early = record.clone();
        let found = watched(&interrupt, &calls, work, move |why| early.write_early(why)).await;
        progress.finish_and_clear();
        found.inspect_err(|error| record.write_early(&with_sources(error)))
    })?;
    Ok(Asked { found, device, record })
}

/// Answers one machine
pub(super) fn listen(args: &Arguments, output: Output) -> Result<()> {
    let (provider, names) = devices(&args.device)?;
    let interrupt = Interrupt::listen()?;
    let peer = runtime()?.block_on(async {
        output.announce(&format!("backend: {}", names.join(", ")))?;
        let listener = machines::listen(args.bind, args.port(), output).await?;
        let runtime = Arc::new(TokioRuntime::current());
        // The side that asks knows how far it is.
        let (progress, record) = (ProgressBar::hidden(), Record::new(None, None));
        let machine = RealDevice { provider, names: names.clone(), runtime, progress, record };
        let calls = Arc::new(Calls::new(machine.runtime()));
        let mut attempts = Attempts::new();
        let accepting = async { Ok(attempts.accept(&listener, greet).await) };
        let (greeted, peer) = unless_interrupted(&interrupt, accepting).await.map_err(in_order)?;
        // One calibration: the next side is refused, and waits for nothing.
        drop((attempts, listener));
        let serving = serve_watched(&machine, greeted, &calls);
        watched(&interrupt, &calls, serving, |_| ()).await.with_context(|| peer)?;
        anyhow::Ok(peer)
    })?;
    let name = names.join(", ");
    let served = Served { backend: BACKEND, role: "server", device: name.clone(), peer: peer.to_string() };
    output.outcome(&served, [("device", name), ("answered", peer.to_string())])
}

/// Begins to greet what has connected
fn greet(stream: TcpStream, peer: SocketAddr) -> Result<Attempt<'static, (Greeted<'static>, SocketAddr)>> {
    stream.set_nodelay(true)?;
    Ok(Box::pin(async move {
        let refused = |error| {
            let error = match error {
                // Another program has connected, such as a port scanner.
                CalibrateError::NotAsking => anyhow!("this is no tb5 calibrate"),
                error => error.into(),
            };
            Refused { peer, error }
        };
        let greeted = Greeted::greet(stream, &TokioRuntime::current()).await.map_err(refused)?;
        Ok((greeted, peer))
    }))
}

/// Result of `work`, unless the user asks to stop; ends the process if a verb hangs, after `early` with the reason
async fn watched<T>(
    interrupt: &Interrupt,
    calls: &Arc<Calls>,
    work: impl Future<Output = Result<T, CalibrateError>>,
    early: impl FnOnce(&str) + Send + 'static,
) -> Result<T> {
    let calls = Arc::clone(calls);
    let watching = tokio::spawn(async move {
        let (verb, time) = calls.hangs(LONGEST_VERB, CHECK_INTERVAL).await;
        let why = format!("{verb} has not returned for {:.0} s", time.as_secs_f64());
        // This message is printed with --quiet, too: the user has to restart this Mac.
        crate::report::error(&anyhow!(
            "{why}: the driver hangs, and its objects stay. End nothing by force: restart this Mac, and send the output of \
             `tb5 doctor` with the name of the verb"
        ));
        early(&why);
        // The thread of the verb cannot be ended, and the process would wait for it.
        std::process::exit(1);
    });
    let done = unless_interrupted(interrupt, async { Ok(work.await?) }).await;
    watching.abort();
    done.map_err(in_order)
}

/// The error; notes after an interrupt that nothing is left behind
fn in_order(error: anyhow::Error) -> anyhow::Error {
    if error.is::<Interrupted>() {
        note("all objects of the device are destroyed");
    }
    error
}

/// The devices that `names` lists; without a name, the only device whose port is active
fn devices(names: &[String]) -> Result<(Arc<Provider>, Vec<String>)> {
    let (provider, first) = device(names.first().map(String::as_str))?;
    let mut found = vec![first];
    for name in names.iter().skip(1) {
        if found.contains(name) {
            bail!(Failure::Usage(format!("--device {name} is written twice: write each device once")));
        }
        found.push(device(Some(name))?.1);
    }
    Ok((provider, found))
}

/// The device called `name`, or the only one whose port is active
///
/// They are listed by another process, because a wedged driver hangs or crashes the one that asks.
fn device(name: Option<&str>) -> Result<(Arc<Provider>, String)> {
    let host = recorded::this_machine()?;
    let listed =
        host.report.devices.as_deref().context("the RDMA devices could not be listed: try `tb5 doctor`")?;
    let active: Vec<_> = listed
        .iter()
        .filter(|device| device.active_ports().next().is_some())
        .map(|device| device.name.clone())
        .filter(|known| name.is_none_or(|name| name == known))
        .collect();
    match (&active[..], name) {
        ([device], _) => Ok((Provider::load()?, device.clone())),
        (_, Some(name)) if listed.iter().any(|device| device.name == name) => {
            bail!("no port of the device {name} is active: `tb5 devices` lists them")
        }
        (_, Some(name)) => {
            bail!(Failure::Usage(format!(
                "there is no device {name}: `tb5 devices` lists those of this machine"
            )))
        }
        ([], None) if listed.is_empty() => bail!("this machine has no RDMA device: try `tb5 doctor`"),
        ([], None) => bail!("no port of an RDMA device of this machine is active: try `tb5 doctor`"),
        (several, None) => {
            bail!(
                "several ports are active: write --device with the one whose cable leads to the other machine: {}",
                several.join(", ")
            )
        }
    }
}
