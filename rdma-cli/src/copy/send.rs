//! The side that reads

use std::cell::Cell;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use futures::stream::{self, TryStreamExt};
use indicatif::ProgressBar;
use rdma_async::{Device, Session};

use super::agreed::{DIFFERS, PIECE, PIECES, UNEXPECTED, next};
use super::digest::Digest;
use super::entry::{END, Entry, Kind};
use super::source::Source;
use super::tree;
use crate::failure::{OwnFile, at, is_standard};
use crate::progress;
use crate::signals::Interrupt;

/// Source of a copy
pub(crate) enum Sources {
    File(Box<Source>),
    Directory { root: PathBuf, entries: Vec<Entry> },
}

impl Sources {
    /// Opens a file, reads the names in a directory, or reads standard input
    ///
    /// Call it before `Interrupt::listen`: a signal must end the process while it waits for standard input.
    pub(crate) fn open(path: &Path, is_recursive: bool) -> Result<Self> {
        if is_standard(path) {
            return Ok(Self::File(Box::new(Source::standard_input(&progress::reading())?)));
        }
        Self::of_path(path, is_recursive)
    }

    /// Opens a file, or reads the names in a directory
    pub(crate) fn of_path(path: &Path, is_recursive: bool) -> Result<Self> {
        if !path.is_dir() {
            return Ok(Self::File(Box::new(Source::open(path)?)));
        }
        if !is_recursive {
            bail!(at(path, "is a directory: copy it with -r"));
        }
        Ok(Self::Directory { root: path.to_owned(), entries: tree::read(path)? })
    }

    /// Bytes of all files
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::File(source) => source.len(),
            Self::Directory { entries, .. } => entries.iter().map(Entry::len).sum(),
        }
    }

    /// The number of files
    pub(crate) fn files(&self) -> u64 {
        let is_file = |entry: &&Entry| matches!(entry.kind, Kind::File(_));
        match self {
            Self::File(_) => 1,
            Self::Directory { entries, .. } => entries.iter().filter(is_file).count() as u64,
        }
    }
}

/// Result of a copy that the receiver has confirmed
pub(super) struct Sent {
    pub(super) hash: blake3::Hash,
    pub(super) bytes: u64,
    pub(super) files: u64,
    pub(super) directories: u64,
    pub(super) links: u64,
    /// Bytes that the receiver had before.
    pub(super) resumed: u64,
    /// Bytes that the receiver asked for again
    pub(super) asked_again: u64,
}

pub(super) struct Sender<'a, D: Device> {
    session: &'a Session<D>,
    progress: &'a ProgressBar,
    interrupt: &'a Interrupt,
    /// The number of files that the receiver may have: their hashes were sent. Outside, so that it is known of a copy that fails.
    hashes: &'a Cell<u64>,
    digest: Digest,
    sent: Sent,
}

impl<'a, D: Device> Sender<'a, D> {
    pub(super) fn new(
        session: &'a Session<D>,
        progress: &'a ProgressBar,
        interrupt: &'a Interrupt,
        hashes: &'a Cell<u64>,
    ) -> Self {
        let digest = Digest::default();
        let hash = digest.hash();
        let sent = Sent { hash, bytes: 0, files: 0, directories: 0, links: 0, resumed: 0, asked_again: 0 };
        Self { session, progress, interrupt, hashes, digest, sent }
    }

    /// Sends everything, and returns its hash once the receiver has confirmed it
    pub(super) async fn send(mut self, sources: Sources) -> Result<Sent> {
        match sources {
            Sources::File(source) => self.send_file(PathBuf::new(), *source).await?,
            Sources::Directory { root, entries } => {
                for entry in entries {
                    match &entry.kind {
                        Kind::Directory => self.sent.directories += 1,
                        Kind::Link(_) => self.sent.links += 1,
                        Kind::File(_) => {
                            let source = Source::open(&root.join(&entry.path)).map_err(OwnFile::from)?;
                            self.send_file(entry.path, source).await?;
                            continue;
                        }
                    }
                    self.announce(&entry).await?;
                }
            }
        }
        self.sent.hash = self.digest.hash();
        self.session.send_bytes(END).await?;
        let end = next(self.session).await?;
        let Some((hash, again)) = end.split_first_chunk() else { bail!(UNEXPECTED) };
        ensure!(*hash == *self.sent.hash.as_bytes(), DIFFERS);
        self.sent.asked_again = u64::from_le_bytes(again.try_into().context(UNEXPECTED)?);
        Ok(self.sent)
    }

    async fn announce(&mut self, entry: &Entry) -> Result<()> {
        let bytes = entry.to_bytes();
        self.digest.entry(&bytes);
        Ok(self.session.send_bytes(&bytes).await?)
    }

    /// Sends what the receiver does not have of a file, and its hash
    async fn send_file(&mut self, path: PathBuf, mut source: Source) -> Result<()> {
        let entry = Entry { path, mode: source.mode(), kind: Kind::File(source.len()) };
        self.announce(&entry).await?;
        self.sent.bytes += entry.len();
        self.sent.files += 1;
        let mut hasher = self.hash_of_present(&mut source).await?;
        let (session, progress) = (self.session, self.progress);
        let pieces = stream::try_unfold((&mut source, &mut hasher), async |(source, hasher)| {
            let len = source.rest().min(PIECE as u64) as usize;
            if len == 0 {
                source.check_end().map_err(OwnFile::from)?;
                return Ok(None);
            }
            let mut lease = session.alloc(len).await?;
            lease.resize(len, 0);
            source.read(&mut lease).map_err(OwnFile::from)?;
            hasher.update(&lease);
            progress.inc(len as u64);
            anyhow::Ok(Some((session.send(lease), (source, hasher))))
        });
        let sends = pieces.map_ok(async |send| Ok(send.await?));
        sends.try_buffered(PIECES).try_for_each(async |_lease| Ok(())).await?;

        let hash = hasher.finalize();
        self.digest.file(&hash);
        self.hashes.update(|hashes| hashes + 1);
        session.send_bytes(hash.as_bytes()).await?;
        ensure!(*next(session).await? == *hash.as_bytes(), DIFFERS);
        Ok(())
    }

    /// Says where the file begins, and returns the hash of everything before: what the receiver has, or nothing
    async fn hash_of_present(&mut self, source: &mut Source) -> Result<blake3::Hasher> {
        progress::begin_check(self.progress, source.len());
        let present = next(self.session).await?;
        let Some((len, hash)) = present.split_first_chunk() else { bail!(UNEXPECTED) };
        let mut start = u64::from_le_bytes(*len);
        let mut hasher = blake3::Hasher::new();
        if start > source.len() {
            start = 0;
        }
        let mut piece = vec![0; if start > 0 { PIECE } else { 0 }];
        let mut rest = start;
        while rest > 0 {
            self.interrupt.check()?;
            let len = rest.min(PIECE as u64) as usize;
            source.read(&mut piece[..len]).map_err(OwnFile::from)?;
            hasher.update(&piece[..len]);
            rest -= len as u64;
        }
        if start > 0 && *hash != *hasher.finalize().as_bytes() {
            source.rewind().map_err(OwnFile::from)?;
            (start, hasher) = (0, blake3::Hasher::new());
        }
        self.sent.resumed += start;
        progress::end_check(self.progress, source.len(), start);
        self.session.send_bytes(&start.to_le_bytes()).await?;
        Ok(hasher)
    }
}
