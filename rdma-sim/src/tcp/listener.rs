//! TCP between simulated hosts: listening, dialing, and what becomes of both when processes die

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rdma_core::probe;

use super::listening::Backlog;
use super::pipe::Pipes;
use super::{ONE_WAY, SimStream};
use crate::fabric::Process;
use crate::host::SimHost;
use crate::sync::replace;

/// How long a host is looked for that does not answer, as the address resolution of a local network does. Assumed.
const UNREACHABLE: Duration = Duration::from_secs(3);

/// A TCP port at which a process of a simulated host listens; closed when it is dropped, as when its process dies
///
/// ```
/// use rdma_sim::Sim;
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
///
/// let run = Sim::new().run(async |net| {
///     net.host("b").start(async |host| {
///         let listener = host.listen(7000).expect("nothing else listens there");
///         while let Ok((mut stream, from)) = listener.accept().await {
///             assert_eq!(from, "a");
///             stream.write_all(b"hello").await.expect("the peer reads");
///         }
///     });
///     // The process may need a moment to listen.
///     net.sleep(std::time::Duration::from_micros(1)).await;
///     let mut received = [0; 5];
///     net.host("a").dial("b", 7000).await?.read_exact(&mut received).await?;
///     std::io::Result::Ok(received)
/// });
/// assert_eq!(run.value.unwrap(), *b"hello");
/// ```
#[derive(Debug)]
pub struct SimListener {
    host: SimHost,
    port: u16,
}

impl SimHost {
    /// Listens at a TCP port of the host
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::AddrInUse`] if a listener of the host has the port.
    pub fn listen(&self, port: u16) -> io::Result<SimListener> {
        self.net().sim_runtime().share();
        let listening = &mut *self.net().listening().lock();
        match listening.entry((self.index(), port)) {
            std::collections::btree_map::Entry::Occupied(_) => Err(io::ErrorKind::AddrInUse.into()),
            std::collections::btree_map::Entry::Vacant(entry) => {
                entry.insert(Backlog::default());
                Ok(SimListener { host: self.clone(), port })
            }
        }
    }

    /// Connects to a port of another host: takes a round trip, 300 µs
    ///
    /// # Errors
    ///
    /// * [`io::ErrorKind::ConnectionRefused`] if no process listens there;
    /// * [`io::ErrorKind::HostUnreachable`], after 3 s, if the host sleeps or is down;
    /// * [`io::ErrorKind::NotFound`] if there is no such host.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect but that the peer may accept a stream that ends at once.
    pub async fn dial(&self, host: &str, port: u16) -> io::Result<SimStream> {
        let net = self.net();
        net.sim_runtime().share();
        let to = net.find_host(host).map_err(|error| io::Error::new(io::ErrorKind::NotFound, error))?;
        net.sleep(ONE_WAY).await;
        if !net.shared().lock().fabric.world.answers(to) {
            net.sleep(UNREACHABLE).await;
            return Err(io::ErrorKind::HostUnreachable.into());
        }
        let [mine, theirs] = Pipes::pair();
        let offered = self.offer(to, port, theirs);
        net.sleep(ONE_WAY).await;
        offered.map(|()| SimStream::new(net, mine))
    }

    /// Puts a stream into the backlog of a listener
    fn offer(&self, to: u32, port: u16, stream: Pipes) -> io::Result<()> {
        let net = self.net();
        let (process, from) = {
            let world = &net.shared().lock().fabric.world;
            (world.process(to).0, world.host_name(self.index()).to_owned())
        };
        let mut listening = net.listening().lock();
        let backlog = listening.get_mut(&(to, port)).filter(|_| process != Process::Dead);
        let Some(backlog) = backlog else {
            // The stream closes, which wakes tasks: not under the lock.
            drop(listening);
            return Err(io::ErrorKind::ConnectionRefused.into());
        };
        backlog.streams.push_back((stream, from));
        let waker = backlog.waker.take();
        drop(listening);
        waker.into_iter().for_each(Waker::wake);
        Ok(())
    }
}

impl SimListener {
    /// The next connection, and the name of the host that has dialed
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotConnected`] if the port was closed, which only dropping the listener does.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no connection.
    pub async fn accept(&self) -> io::Result<(SimStream, String)> {
        poll_fn(|cx| self.poll_accept(cx)).await
    }

    fn poll_accept(&self, cx: &Context<'_>) -> Poll<io::Result<(SimStream, String)>> {
        let mut listening = self.host.net().listening().lock();
        let Some(backlog) = listening.get_mut(&(self.host.index(), self.port)) else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        if let Some((pipes, from)) = backlog.streams.pop_front() {
            drop(listening);
            return Poll::Ready(Ok((SimStream::new(self.host.net(), pipes), from)));
        }
        let replaced = replace(&mut backlog.waker, cx.waker());
        drop(listening);
        drop(replaced);
        probe::waits_for(format_args!("a TCP connection to {self}"));
        Poll::Pending
    }
}

impl fmt::Display for SimListener {
    /// `HOST:PORT`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let world = &self.host.net().shared().lock().fabric.world;
        write!(f, "{}:{}", world.host_name(self.host.index()), self.port)
    }
}

impl Drop for SimListener {
    fn drop(&mut self) {
        let removed = self.host.net().listening().lock().remove(&(self.host.index(), self.port));
        drop(removed);
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::{Net, Sim};

    /// Answers each connection with the number of its process
    fn serve(net: &Net) {
        let mut starts = 0;
        net.host("b").start(move |host| {
            starts += 1;
            let number = starts;
            async move {
                let listener = host.listen(80).expect("the listener of the process before is gone");
                while let Ok((mut stream, _)) = listener.accept().await {
                    stream.write_u8(number).await.expect("the peer waits");
                }
            }
        });
    }

    async fn ask(net: &Net) -> io::Result<u8> {
        net.host("a").dial("b", 80).await?.read_u8().await
    }

    #[test]
    fn a_host_is_reached_while_its_process_lives() {
        Sim::new().run(async |net| {
            serve(&net);
            net.sleep(Duration::from_micros(1)).await;
            assert_eq!(ask(&net).await.unwrap(), 1);
            assert_eq!(net.now().as_nanos(), 301_002, "the answer is right behind the acceptance");
            let fault = |text: &str| net.inject(format!("at 0s {text}").parse().unwrap());
            fault("b kill");
            net.sleep(Duration::from_micros(1)).await;
            assert_eq!(ask(&net).await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
            fault("b restart");
            net.sleep(Duration::from_micros(1)).await;
            assert_eq!(ask(&net).await.unwrap(), 2);
            fault("b sleep");
            net.sleep(Duration::from_micros(1)).await;
            let start = net.now();
            assert_eq!(ask(&net).await.unwrap_err().kind(), ErrorKind::HostUnreachable);
            assert_eq!(net.now() - start, ONE_WAY + UNREACHABLE);
        });
    }

    #[test]
    fn wrong_ports_and_hosts_are_refused() {
        Sim::new().run(async |net| {
            let host = net.host("a");
            let listener = host.listen(80).unwrap();
            assert_eq!(host.listen(80).unwrap_err().kind(), ErrorKind::AddrInUse);
            assert_eq!(net.host("b").dial("a", 81).await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
            assert_eq!(net.host("b").dial("c", 80).await.unwrap_err().kind(), ErrorKind::NotFound);
            assert_eq!(listener.to_string(), "a:80");
            // A stream that was not accepted ends with the listener.
            let mut stream = net.host("b").dial("a", 80).await.unwrap();
            drop(listener);
            assert_eq!(stream.read_u8().await.unwrap_err().kind(), ErrorKind::UnexpectedEof);
            assert!(host.listen(80).is_ok());
        });
    }
}
