//! The bytes of a fuzz input, read one by one

/// The bytes of the input, followed by zeros
pub(super) struct Input<'a>(pub(super) &'a [u8]);

impl<'a> Input<'a> {
    pub(super) fn next(&mut self) -> Option<u8> {
        self.0.split_off_first().copied()
    }

    pub(super) fn byte(&mut self) -> u8 {
        self.next().unwrap_or(0)
    }

    /// A length up to `max`, mostly short
    pub(super) fn length(&mut self, max: usize) -> usize {
        (usize::from(self.byte()) << (self.byte() % 9)).min(max)
    }

    /// A few bytes that are left
    pub(super) fn bytes(&mut self) -> &'a [u8] {
        let len = usize::from(self.byte()) << (self.byte() % 3);
        self.0.split_off(..len.min(self.0.len())).unwrap_or_default()
    }
}
