//! The side that writes

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::Read as _;

use anyhow::{Context as _, Result, bail, ensure};
use indicatif::ProgressBar;
use rdma_async::{Device, Session};
use tokio::runtime::Handle;
use tokio::task::yield_now;

use super::agreed::{DIFFERS, PIECE, UNEXPECTED, next};
use super::destination::Destination;
use super::digest::Digest;
use super::entry::{END, Entry, Kind};
use crate::failure::at;
use crate::file::Replacement;
use crate::path_counts::retransmitted_bytes;
use crate::progress;
use crate::signals::Interrupt;

/// Result of a copy, at the receiver
pub(crate) struct Received {
    pub(crate) hash: blake3::Hash,
    pub(crate) bytes: u64,
    pub(crate) files: u64,
    pub(crate) directories: u64,
    pub(crate) links: u64,
    /// Bytes that were there before: of a copy that was interrupted, or of equal files.
    pub(crate) resumed: u64,
    /// Bytes of copies that were interrupted, whose source is another one now.
    pub(crate) discarded: u64,
}

/// What is there of a copy when it is stopped
#[derive(Default)]
pub(super) struct Arrived {
    /// The file that is being written
    pub(super) incomplete: RefCell<Option<Replacement>>,
    /// Whether everything is in its place, and verified
    pub(super) is_whole: Cell<bool>,
}

pub(super) struct Receiver<'a, D: Device> {
    session: &'a Session<D>,
    /// Outside, so that a file in a directory can be kept before the directory gets its mode.
    destination: &'a mut Destination,
    progress: &'a ProgressBar,
    interrupt: &'a Interrupt,
    /// Outside, so that it can be kept when the copy is stopped.
    arrived: &'a Arrived,
    digest: Digest,
    received: Received,
}

/// Part of a file that is there before it is copied
struct Present {
    len: u64,
    hasher: blake3::Hasher,
    /// Whether it is the destination itself, and not the rest of an earlier copy.
    is_destination: bool,
}

impl<'a, D: Device> Receiver<'a, D> {
    pub(super) fn new(
        session: &'a Session<D>,
        destination: &'a mut Destination,
        progress: &'a ProgressBar,
        interrupt: &'a Interrupt,
        arrived: &'a Arrived,
    ) -> Self {
        let digest = Digest::default();
        let received = Received {
            hash: digest.hash(),
            bytes: 0,
            files: 0,
            directories: 0,
            links: 0,
            resumed: 0,
            discarded: 0,
        };
        Self { session, destination, progress, interrupt, arrived, digest, received }
    }

    /// Writes everything, and confirms its hash
    pub(super) async fn receive(mut self) -> Result<Received> {
        loop {
            let message = next(self.session).await?;
            if *message == *END {
                break;
            }
            self.interrupt.check()?;
            let entry = Entry::from_bytes(&message)?;
            self.digest.entry(&message);
            drop(message);
            match &entry.kind {
                Kind::Directory => {
                    self.destination.directory(&entry)?;
                    self.received.directories += 1;
                }
                Kind::Link(target) => {
                    self.destination.link(&entry, target)?;
                    self.received.links += 1;
                }
                Kind::File(len) => self.receive_file(&entry, *len).await?,
            }
        }
        self.destination.finish()?;
        self.arrived.is_whole.set(true);
        self.received.hash = self.digest.hash();
        let again = retransmitted_bytes(&self.session.snapshot().paths);
        self.session.send_bytes(&[&self.received.hash.as_bytes()[..], &again.to_le_bytes()].concat()).await?;
        Ok(self.received)
    }

    async fn receive_file(&mut self, entry: &Entry, len: u64) -> Result<()> {
        let file = self.destination.file(entry)?;
        self.arrived.incomplete.replace(Some(file));
        progress::begin_check(self.progress, len);
        let Present { len: present, mut hasher, is_destination } = self.present(entry).await?;
        let mut answer = present.to_le_bytes().to_vec();
        answer.extend(hasher.finalize().as_bytes());
        self.session.send_bytes(&answer).await?;

        let start = next(self.session).await?;
        let start = u64::from_le_bytes(<[u8; 8]>::try_from(&*start).context(UNEXPECTED)?);
        ensure!(start == present || start == 0, UNEXPECTED);
        if start < present {
            hasher = blake3::Hasher::new();
            if !is_destination {
                self.received.discarded += present;
                self.write(Replacement::restart)?;
            }
        }
        self.received.resumed += start;
        progress::end_check(self.progress, len, start);
        let mut rest = len.checked_sub(start).context(UNEXPECTED)?;
        while rest > 0 {
            self.interrupt.check()?;
            let piece = next(self.session).await?;
            rest = rest.checked_sub(piece.len() as u64).context(UNEXPECTED)?;
            hasher.update(&piece);
            self.write(|file| file.write(&piece))?;
            self.progress.inc(piece.len() as u64);
        }
        let hash = hasher.finalize();
        ensure!(*next(self.session).await? == *hash.as_bytes(), DIFFERS);
        if is_destination && start == len {
            self.arrived.incomplete.take();
        } else {
            self.sync().await?;
            self.interrupt.check()?;
            self.arrived.incomplete.take().map_or_else(|| bail!(DIFFERS), Replacement::finish)?;
        }
        self.arrived.is_whole.set(self.destination.is_file());
        self.digest.file(&hash);
        self.received.bytes += len;
        self.received.files += 1;
        Ok(self.session.send_bytes(hash.as_bytes()).await?)
    }

    /// Waits until what was written is on the disk; a server answers its other peers meanwhile
    async fn sync(&self) -> Result<()> {
        // Simulated machines run without tokio, and virtual time does not pass meanwhile: finishing the file syncs it.
        let Ok(runtime) = Handle::try_current() else { return Ok(()) };
        let sync = self.write(|file| file.to_sync())?;
        runtime.spawn_blocking(sync).await?
    }

    /// Does something with the file that is being written
    fn write<T>(&self, write: impl FnOnce(&mut Replacement) -> Result<T>) -> Result<T> {
        self.arrived.incomplete.borrow_mut().as_mut().map_or_else(|| bail!(DIFFERS), write)
    }

    /// Hashes what is there of a file: the rest of a copy that was interrupted, else a file of the same length in its place
    async fn present(&self, entry: &Entry) -> Result<Present> {
        let len = self.write(Replacement::resume)?;
        if len > 0 {
            let hasher = self.hash(|into| self.write(|file| file.read_back(into))).await?;
            return Ok(Present { len, hasher, is_destination: false });
        }
        if let Some(path) = self.destination.existing(entry) {
            let read = || at(&path, "cannot be read");
            let mut file = File::open(&path).with_context(read)?;
            let hasher = self.hash(|into| file.read(into).with_context(read)).await?;
            return Ok(Present { len: entry.len(), hasher, is_destination: true });
        }
        Ok(Present { len: 0, hasher: blake3::Hasher::new(), is_destination: false })
    }

    /// Hashes what `read` returns, up to the end
    async fn hash(&self, mut read: impl FnMut(&mut [u8]) -> Result<usize>) -> Result<blake3::Hasher> {
        let (mut hasher, mut piece) = (blake3::Hasher::new(), vec![0; PIECE]);
        loop {
            self.interrupt.check()?;
            // A server answers its other peers meanwhile.
            yield_now().await;
            match read(&mut piece)? {
                0 => return Ok(hasher),
                len => hasher.update(&piece[..len]),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use futures::future::join;
    use rdma_async::NodeOptions;
    use rdma_sim::Sim;

    use super::*;
    use crate::mac;

    /// Catches a receiver that calls a copy incomplete which has replaced the file already, because the sender has gone meanwhile.
    #[test]
    fn a_file_in_its_place_is_whole_also_without_the_end() {
        for sends_hash in [true, false] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("file");
            let arrived = Arrived::default();
            let sim = Sim::new().topology(mac::topology(1));
            let (received, interrupt) = (&arrived, Interrupt::listen().unwrap());
            let place = path.clone();
            let error = sim.run(async move |net| {
                let [a, b] = mac::connect(&net, &NodeOptions::new(), 1).await.unwrap();
                let entry = Entry { path: "".into(), mode: 0o644, kind: Kind::File(3) };
                let mut destination = Destination::File(Some(Replacement::create(&place, 0o644).unwrap()));
                let bar = ProgressBar::hidden();
                let receiver = Receiver::new(&b, &mut destination, &bar, &interrupt, received);
                let sender = async {
                    a.send_bytes(&entry.to_bytes()).await.unwrap();
                    drop(a.recv().await.unwrap());
                    a.send_bytes(&0_u64.to_le_bytes()).await.unwrap();
                    a.send_bytes(b"new").await.unwrap();
                    if sends_hash {
                        a.send_bytes(blake3::hash(b"new").as_bytes()).await.unwrap();
                        drop(a.recv().await.unwrap());
                    }
                    a.close().await.unwrap();
                };
                join(receiver.receive(), sender).await.0.map(drop).unwrap_err()
            });
            assert!(error.value.to_string().contains("closed the session"), "{:#}", error.value);
            assert_eq!(arrived.is_whole.get(), sends_hash);
            assert_eq!(fs::read(&path).ok().as_deref(), sends_hash.then_some(&b"new"[..]));
        }
    }
}
