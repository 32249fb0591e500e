//! Memory that peers read and write by its name

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use rdma_core::{Access, Device, FRAME};
use tracing::Instrument as _;

use super::recv_into::RecvInto;
use super::region_message::{Answer, MAX_NAME, Request};
use super::{Session, Stream};
use crate::error::{RecvError, RequestError};
use crate::pool::{Adopted, Lease, RegionMemory};
use crate::sync::Mutex;

/// Memory that peers [get](Session::get) and [put](Session::put) by its name
///
/// Peers reach nothing else, and only what the rights of a region permit. Both sides take part: Apple's device has no RDMA write and no
/// RDMA read. An operation has the frames of 4 KiB that it touches to itself until its bytes are here or under way: operations on others go
/// on beside it, and those on the same frames wait, also for a [lease](Adopted::lease) of the application. So a peer that asks and
/// takes nothing keeps others from what it asked for, until its session ends. A write that its sender gives up may have written a
/// part.
///
/// Cheap to clone; all clones are the same regions.
///
/// ```
/// # use rdma_async::*;
/// # rdma_sim::Sim::new().run(async |net| {
/// # let node = |host| Node::builder(net.opener(host, "rdma_en2")).runtime(net.runtime()).build();
/// # let (a, b) = (node("a").unwrap(), node("b").unwrap());
/// # let (to_b, to_a) = tokio::io::duplex(1024);
/// # let (session, ()) = futures::future::try_join(a.connect(to_b), b.serve(to_a)).await.unwrap();
/// # let peer = b.accept().await.unwrap();
/// use std::sync::Arc;
///
/// let mut weights = MappedBytes::zeroed(1 << 20)?;
/// weights[5000..5005].copy_from_slice(b"hello");
/// let regions = Regions::new();
/// regions.open("weights", Arc::new(b.adopt(weights)?), Access::REMOTE_READ);
/// let serves = regions.serve(&peer);
///
/// let reads = async {
///     let message = session.get("weights", 5000, 5).await?;
///     session.close().await.unwrap();
///     Ok::<_, RemoteError>(message)
/// };
/// let (served, message) = futures::future::join(serves, reads).await;
/// assert_eq!((served, &*message?), (Ok(()), b"hello".as_slice()));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).value.unwrap();
/// ```
#[derive(Clone, Default)]
pub struct Regions(Arc<Mutex<BTreeMap<String, Region>>>);

#[derive(Clone)]
struct Region {
    memory: Arc<dyn RegionMemory>,
    rights: Access,
}

impl Regions {
    /// A table without regions: every name that a peer asks for is unknown until [`open`](Self::open) adds it
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets peers that are [served](Self::serve) use `memory` under a name, as far as [`Access::REMOTE_READ`] and
    /// [`Access::REMOTE_WRITE`] are among the `rights`; it takes the place of a region of the same name
    ///
    /// # Panics
    ///
    /// If the name has more than 255 bytes.
    pub fn open<T: 'static>(&self, name: impl Into<String>, memory: Arc<Adopted<T>>, rights: Access) {
        let name = name.into();
        assert!(
            name.len() <= MAX_NAME,
            "the name of a region has {} bytes; it must have at most {MAX_NAME}",
            name.len()
        );
        let before = self.0.lock().insert(name, Region { memory, rights });
        drop(before);
    }

    /// Lets no peer use a region any more; returns whether it was there
    ///
    /// Operations that have begun go on, and keep the memory until then.
    pub fn close(&self, name: &str) -> bool {
        let region = self.0.lock().remove(name);
        region.is_some()
    }

    /// Does what the peer asks of the regions on the streams of `session`, until it closes the session
    ///
    /// Takes all streams that the peer opens: give the peer a session for it.
    ///
    /// # Errors
    ///
    /// [`RecvError::Lost`] if the session is lost.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no stream; operations that have begun go on.
    pub async fn serve<D: Device>(&self, session: &Session<D>) -> Result<(), RecvError> {
        while let Some(stream) = session.accept_stream().await? {
            let regions = self.clone();
            let span = session.main_stream().handle.span().clone();
            let serving = async move {
                // An operation that fails is over: the peer learns it by the end of its stream.
                if let Err(error) = regions.serve_one(&stream).await {
                    tracing::debug!(%error, "operation on a region failed");
                }
            };
            session.runtime().spawn(Box::pin(serving.instrument(span)));
        }
        Ok(())
    }

    async fn serve_one<D: Device>(&self, stream: &Stream<D>) -> Result<(), RequestError> {
        let Some(message) = stream.recv().await? else { return Ok(()) };
        let answer = match Request::parse(&message) {
            Some(request) => match self.find(&request) {
                Ok(memory) if request.access == Access::REMOTE_READ => {
                    return read(stream, &*memory, &request).await;
                }
                Ok(memory) => write(stream, &*memory, &request).await?,
                Err(refusal) => refusal,
            },
            None => Answer::Malformed,
        };
        Ok(stream.send_bytes(&answer.to_bytes()).await?)
    }

    /// The memory that a request may use
    fn find(&self, request: &Request<'_>) -> Result<Arc<dyn RegionMemory>, Answer> {
        let Region { memory, rights } = self.0.lock().get(request.name).cloned().ok_or(Answer::NoRegion)?;
        if !rights.contains(request.access) {
            return Err(Answer::NotPermitted);
        }
        let size = memory.len() as u64;
        let is_inside = request.offset.checked_add(request.len).is_some_and(|end| end <= size);
        if is_inside { Ok(memory) } else { Err(Answer::OutOfBounds(size)) }
    }
}

/// The frames of a range that is not empty, and where it begins in them
fn frames_of(request: &Request<'_>) -> (std::ops::Range<usize>, usize) {
    let (start, len) = (request.offset as usize, request.len as usize);
    let inside = start % FRAME;
    (start - inside..start + len, inside)
}

/// The bytes of a request, when they are free, if a device of this session can read or write them in place
async fn in_place<D: Device>(
    stream: &Stream<D>,
    memory: &dyn RegionMemory,
    request: &Request<'_>,
) -> Option<Lease> {
    let (range, inside) = frames_of(request);
    if inside > 0 || range.is_empty() {
        return None;
    }
    // The region may be in memory of another node of this process.
    Some(memory.lease(range).await).filter(|lease| stream.handle.peering.pool.owns(lease))
}

async fn read<D: Device>(
    stream: &Stream<D>,
    memory: &dyn RegionMemory,
    request: &Request<'_>,
) -> Result<(), RequestError> {
    let len = request.len as usize;
    stream.send_bytes(&Answer::Done.to_bytes()).await?;
    if let Some(lease) = in_place(stream, memory, request).await {
        stream.send(lease).await.map_err(|failed| failed.error)?;
        return Ok(());
    }
    let mut copy = stream.alloc_copy(len).await?;
    if len > 0 {
        let (range, inside) = frames_of(request);
        copy.extend_from_slice(&memory.lease(range).await[inside..]);
    }
    Ok(stream.send_copy(copy).await?)
}

async fn write<D: Device>(
    stream: &Stream<D>,
    memory: &dyn RegionMemory,
    request: &Request<'_>,
) -> Result<Answer, RequestError> {
    let len = request.len as usize;
    let place = in_place(stream, memory, request).await;
    let is_in_place = place.is_some();
    let received = match place {
        // No more than the request names, also of a peer that sends more.
        Some(place) => RecvInto::new(&stream.handle, place, len).await?,
        None => stream.recv().await?,
    };
    let Some(message) = received.filter(|message| message.len() == len) else { return Ok(Answer::Malformed) };
    if !is_in_place && len > 0 {
        let (range, inside) = frames_of(request);
        memory.lease(range).await[inside..].copy_from_slice(&message);
    }
    Ok(Answer::Done)
}

impl fmt::Debug for Regions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.0.lock().keys().cloned().collect::<Vec<_>>();
        f.debug_set().entries(names).finish()
    }
}
