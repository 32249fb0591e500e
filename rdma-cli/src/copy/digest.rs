/// The hash of a copy: of its file, or of all names, modes and files
#[derive(Default)]
pub(super) struct Digest {
    whole: blake3::Hasher,
    entries: u32,
    last_file: Option<blake3::Hash>,
}

impl Digest {
    pub(super) fn entry(&mut self, bytes: &[u8]) {
        self.whole.update(bytes);
        self.entries += 1;
    }

    pub(super) fn file(&mut self, hash: &blake3::Hash) {
        self.whole.update(hash.as_bytes());
        self.last_file = Some(*hash);
    }

    pub(super) fn hash(&self) -> blake3::Hash {
        match self.last_file {
            Some(file) if self.entries == 1 => file,
            _ => self.whole.finalize(),
        }
    }
}
