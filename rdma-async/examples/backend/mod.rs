//! Picks the devices of an example from its command line
//!
//! * `--sim`, the default: two simulated Macs with a cable between them, in this process and in virtual time;
//! * `--device NAME` with `--listen ADDRESS` or `--connect ADDRESS`: a device of this machine, and TCP to the process at the
//!   other end of the cable.

use std::cell::RefCell;
use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;

use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures::{StreamExt as _, future};
use rdma_async::{AnyDevice, Runtime, TokioRuntime};
use rdma_sim::{Net, Sim};
use rdma_tb5::{OpenOptions, Provider, VerbsDevice};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, duplex};
use tokio::net::{TcpListener, TcpStream};

pub(crate) type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

/// A byte stream to the process at the other end, over which two nodes make and keep their paths
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Opens a device: at first, and again after its cable was pulled
pub(crate) type Open =
    Box<dyn Fn() -> std::result::Result<AnyDevice, Box<dyn Error + Send + Sync>> + Send + Sync>;

/// One end of a cable
pub(crate) enum End {
    Sim { net: Net, host: &'static str, streams: Streams },
    Real { provider: Arc<Provider>, name: String, peer: Peer },
}

/// The streams between two simulated Macs
pub(crate) enum Streams {
    Accepting(RefCell<UnboundedReceiver<DuplexStream>>),
    Connecting(UnboundedSender<DuplexStream>),
}

/// Where the process at the other end of a real cable is
pub(crate) enum Peer {
    Accepting(TcpListener),
    Connecting(String),
}

impl End {
    /// What opens the device
    pub(crate) fn opener(&self) -> Open {
        match self {
            Self::Sim { net, host, .. } => {
                let open = net.opener(host, "rdma_en2");
                Box::new(move || Ok(AnyDevice::new(open()?)))
            }
            Self::Real { provider, name, .. } => {
                let (provider, name) = (Arc::clone(provider), name.clone());
                Box::new(move || Ok(AnyDevice::new(VerbsDevice::open(&provider, &name, OpenOptions::new())?)))
            }
        }
    }

    /// A new stream to the other end
    pub(crate) async fn stream(&self) -> Result<Box<dyn Stream>> {
        Ok(match self {
            Self::Sim { streams: Streams::Accepting(streams), .. } => Box::new(
                future::poll_fn(|cx| streams.borrow_mut().poll_next_unpin(cx)).await.ok_or("no peer")?,
            ),
            Self::Sim { streams: Streams::Connecting(streams), .. } => {
                let (here, there) = duplex(64 << 10);
                streams.unbounded_send(there)?;
                Box::new(here)
            }
            Self::Real { peer: Peer::Accepting(listener), .. } => Box::new(listener.accept().await?.0),
            Self::Real { peer: Peer::Connecting(address), .. } => {
                Box::new(TcpStream::connect(address).await?)
            }
        })
    }

    /// The clock, timers and tasks: virtual in the simulator
    pub(crate) fn runtime(&self) -> Arc<dyn Runtime> {
        match self {
            Self::Sim { net, .. } => net.runtime(),
            Self::Real { .. } => Arc::new(TokioRuntime::current()),
        }
    }
}

/// Runs `accept` at one end of a cable and `connect` at the other, in the simulator with `faults`
#[allow(dead_code, reason = "each example has its own copy of this module")]
pub(crate) fn run(
    faults: &str,
    accept: impl AsyncFnOnce(End) -> Result + Copy,
    connect: impl AsyncFnOnce(End) -> Result + Copy,
) -> ExitCode {
    run_or(|| simulate(faults, accept, connect), accept, connect)
}

/// Runs `simulation`, or `accept` or `connect` at this end of a real cable
pub(crate) fn run_or(
    simulation: impl FnOnce() -> Result,
    accept: impl AsyncFnOnce(End) -> Result,
    connect: impl AsyncFnOnce(End) -> Result,
) -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let result = match &*args.iter().map(String::as_str).collect::<Vec<_>>() {
        [] | ["--sim"] => simulation(),
        ["--device", name, "--listen", address] => real(async || {
            let listener = TcpListener::bind(address).await?;
            println!("listening on {}", listener.local_addr()?);
            accept(end(name, Peer::Accepting(listener))?).await
        }),
        ["--device", name, "--connect", address] => {
            real(async || connect(end(name, Peer::Connecting((*address).to_owned()))?).await)
        }
        words => {
            if words.first() == Some(&"--device") {
                eprintln!("--device needs --listen ADDRESS or --connect ADDRESS");
            }
            eprintln!("usage: [--sim | --device NAME (--listen ADDRESS | --connect ADDRESS)]");
            return ExitCode::from(2);
        }
    };
    exit(result)
}

/// Prints an error in one line
pub(crate) fn exit(result: Result) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn simulate(
    faults: &str,
    accept: impl AsyncFnOnce(End) -> Result,
    connect: impl AsyncFnOnce(End) -> Result,
) -> Result {
    Sim::new()
        .faults(faults.parse()?)
        .run(async |net| {
            let (to_a, from_b) = unbounded();
            let a =
                End::Sim { net: net.clone(), host: "a", streams: Streams::Accepting(RefCell::new(from_b)) };
            let b = End::Sim { net, host: "b", streams: Streams::Connecting(to_a) };
            future::try_join(accept(a), connect(b)).await.map(drop)
        })
        .value
}

fn real(main: impl AsyncFnOnce() -> Result) -> Result {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(main())
}

fn end(name: &str, peer: Peer) -> Result<End> {
    Ok(End::Real { provider: Provider::load()?, name: name.to_owned(), peer })
}
