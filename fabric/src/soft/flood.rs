//! Whether a stream brings a flood of large messages. A receiver that keeps up with it gets them in many small
//! pieces, and each read takes the lock of the socket from the sender's system. It gets them sooner by fewer reads.

/// A message of at least so many bytes is a large one: there is rarely a whole one in the socket.
const LARGE: usize = 32 << 10;
/// So many large messages without a post are a flood. In a ping-pong there is a post for each.
const MANY: u32 = 2;

/// What one stream has brought.
#[derive(Debug, Default)]
pub(super) struct Flood {
    /// Large messages since the device posted last.
    unanswered: u32,
    /// Posts of the device at the last large message.
    posts: u64,
}

impl Flood {
    /// A request is whole. `len`: its bytes if it is a message; `posts` counts those of the device.
    pub(super) fn count(&mut self, len: usize, posts: impl FnOnce() -> u64) {
        if len < LARGE {
            self.unanswered = 0;
            return;
        }
        let posts = posts();
        let answered = posts != std::mem::replace(&mut self.posts, posts);
        self.unanswered = if answered { 1 } else { self.unanswered.saturating_add(1) };
    }

    /// Whether the next message is likely to be one more of a flood.
    pub(super) const fn goes_on(&self) -> bool {
        self.unanswered >= MANY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_that_are_answered_are_no_flood() {
        let mut flood = Flood::default();
        for posts in 1..100 {
            flood.count(LARGE, || posts);
            assert!(!flood.goes_on());
        }
    }

    #[test]
    fn a_flood_begins_with_the_second_and_ends_with_a_post_or_a_small_one() {
        let mut flood = Flood::default();
        for (len, posts, goes_on) in [
            (LARGE, 7, false),
            (LARGE, 7, true),
            (LARGE * 2, 7, true),
            (LARGE, 8, false),
            (LARGE, 8, true),
            (LARGE - 1, 8, false),
            (LARGE, 8, false),
            (LARGE, 8, true),
            (0, 8, false),
        ] {
            flood.count(len, || posts);
            assert_eq!(flood.goes_on(), goes_on, "{len} bytes, {posts} posts");
        }
    }
}
