//! When a stream expects messages: less often after wrong guesses

/// The greatest level: a stream backs off for at most 2^5 long messages.
const MAX_LEVEL: u32 = 5;
/// What a wrong guess adds to the level, of which a right one takes 1 away: a wrong guess costs more than a right one saves.
const STEP: u32 = 2;

/// What a stream has learned from its guesses
#[derive(Debug, Default)]
pub(super) struct Backoff {
    /// Long messages that must be announced before the stream expects others again.
    left: u32,
    /// The binary logarithm of their number after the next wrong guess.
    level: u32,
    /// Whether the stream is granted nothing ahead before a long message is announced: the peer had nothing to send.
    is_resting: bool,
}

impl Backoff {
    /// Whether the stream may expect messages
    pub(super) fn is_over(&self) -> bool {
        self.left == 0
    }

    /// Whether the stream may be granted parts ahead
    pub(super) fn may_grant(&self) -> bool {
        self.is_over() && !self.is_resting
    }

    /// A long message was announced
    pub(super) fn announced(&mut self) {
        self.left = self.left.saturating_sub(1);
        self.is_resting = false;
    }

    /// A message came that was granted ahead
    pub(super) fn was_right(&mut self) {
        self.level = self.level.saturating_sub(1);
    }

    /// Parts were granted in vain, which others waited for
    pub(super) fn was_wrong(&mut self) {
        // Several parts of one guess count once.
        if self.is_over() {
            self.left = 1 << self.level;
            self.level = MAX_LEVEL.min(self.level + STEP);
        }
    }

    /// The peer had nothing to send
    pub(super) fn rest(&mut self) {
        self.is_resting = true;
    }

    /// The application expects messages anew
    pub(super) fn go_on(&mut self) {
        self.is_resting = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many announcements a wrong guess costs
    fn pause(backoff: &mut Backoff) -> u32 {
        backoff.was_wrong();
        let mut count = 0;
        while !backoff.is_over() {
            backoff.was_wrong();
            backoff.announced();
            count += 1;
        }
        count
    }

    /// Catches one wrong guess that costs as much as many, and many that cost as little as one.
    #[test]
    fn guesses_that_are_wrong_again_and_again_become_rare() {
        let mut backoff = Backoff::default();
        assert_eq!([(); 5].map(|()| pause(&mut backoff)), [1, 4, 16, 32, 32]);
        (0..5).for_each(|_| backoff.was_right());
        assert_eq!(pause(&mut backoff), 1);
        // One right guess for each wrong one does not pay.
        let pauses = [(); 6].map(|()| {
            backoff.was_right();
            pause(&mut backoff)
        });
        assert_eq!(pauses, [2, 4, 8, 16, 16, 16]);
    }
}
