//! A stretch of network between a device and its peers, which a test can cut
//!
//! The device listens on 127.0.0.1 and advertises 127.0.0.2, where the proxy listens on the same port.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use rdma_tcp::{TcpDevice, TcpOptions};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

const INSIDE: Ipv4Addr = Ipv4Addr::LOCALHOST;
const OUTSIDE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// The proxies of a test
#[derive(Clone, Debug, Default)]
pub(crate) struct Network {
    listeners: Arc<Mutex<Vec<AbortHandle>>>,
    connections: Arc<Mutex<JoinSet<()>>>,
    is_down: Arc<AtomicBool>,
}

impl Network {
    /// Opens a device that peers reach over this network; called on tokio
    pub(crate) fn open(&self) -> TcpDevice {
        self.open_with(TcpOptions::new())
    }

    /// As [`open`](Self::open), with options
    pub(crate) fn open_with(&self, options: TcpOptions) -> TcpDevice {
        let device = TcpDevice::bind((INSIDE, 0).into(), options.advertise(OUTSIDE.into())).unwrap();
        let port = device.local_addr().port();
        let listener = std::net::TcpListener::bind((OUTSIDE, port)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let (connections, is_down) = (Arc::clone(&self.connections), Arc::clone(&self.is_down));
        let accept = async move {
            let listener = TcpListener::from_std(listener).unwrap();
            while let Ok((mut outside, _)) = listener.accept().await {
                let carry = async move {
                    let Ok(mut inside) = TcpStream::connect((INSIDE, port)).await else { return };
                    let _ = tokio::io::copy_bidirectional(&mut outside, &mut inside).await;
                };
                // Under the lock, so that `cut` reaches each that began before the network was down.
                let mut connections = connections.lock().unwrap();
                if !is_down.load(Ordering::Relaxed) {
                    connections.spawn(carry);
                }
            }
        };
        self.listeners.lock().unwrap().push(tokio::spawn(accept).abort_handle());
        device
    }

    /// Cuts every connection
    pub(crate) fn cut(&self) {
        self.connections.lock().unwrap().abort_all();
    }

    /// How many connections have been carried and not cut
    pub(crate) fn connections(&self) -> usize {
        let mut connections = self.connections.lock().unwrap();
        while connections.try_join_next().is_some() {}
        connections.len()
    }

    /// Whether connections end as soon as they are accepted
    pub(crate) fn set_down(&self, is_down: bool) {
        self.is_down.store(is_down, Ordering::Relaxed);
    }

    /// Refuses connections from now on
    pub(crate) fn close(&self) {
        self.listeners.lock().unwrap().drain(..).for_each(|listener| listener.abort());
        self.cut();
    }
}
