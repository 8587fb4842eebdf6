//! The lengths of the pieces of one put or get: at most what a port takes at once, and where several
//! ports share a transfer (`GASNET_PUT_STRIPE_SZ`, `GASNET_GET_STRIPE_SZ`) at most a stripe. Pure.

/// Cuts transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cutter {
    /// Up to here a transfer is one piece.
    threshold: u32,
    /// Longest piece that the port takes.
    most: u32,
}

impl Cutter {
    /// `stripe` in bytes; 0: the longest piece. `most` is at least 1.
    pub(super) fn new(stripe: u64, most: u32) -> Self {
        let stripe = u32::try_from(stripe).unwrap_or(u32::MAX);
        let threshold = if stripe == 0 { most } else { stripe.min(most) };
        Self { threshold, most }
    }

    /// Bytes of the next piece where so many are left. What is little longer than a stripe becomes
    /// two pieces of about the same length, not a stripe and a crumb.
    pub(super) fn next(self, left: usize) -> u32 {
        let Self { threshold, most } = self;
        match u32::try_from(left) {
            Ok(left) if left <= threshold => left,
            Ok(left) if left <= threshold.saturating_mul(2).min(most) => left / 2,
            _ => threshold,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cut(cutter: Cutter, len: usize) -> Vec<usize> {
        let mut left = len;
        let mut pieces = Vec::new();
        while left > 0 {
            let piece = cutter.next(left) as usize;
            assert!(piece > 0 && piece <= left, "{piece} of {left}");
            pieces.push(piece);
            left -= piece;
        }
        pieces
    }

    #[test]
    fn transfers_are_cut_as_documented() {
        let striped = Cutter::new(4096, 1 << 30);
        assert_eq!(cut(striped, 4096), [4096]);
        assert_eq!(cut(striped, 4097), [2048, 2049]);
        assert_eq!(cut(striped, 8192), [4096, 4096]);
        assert_eq!(cut(striped, 10_000), [4096, 2952, 2952]);
        let plain = Cutter::new(0, 1000);
        assert_eq!(cut(plain, 2001), [1000, 1000, 1]);
        assert_eq!(Cutter::new(u64::MAX, 1000), plain, "more than a port takes");
        assert_eq!(Cutter::new(1 << 40, 1 << 30).next(usize::MAX), 1 << 30);
    }

    proptest! {
        #[test]
        fn pieces_are_the_whole_and_no_longer_than_allowed(
            stripe in 0u64..20_000,
            most in 1u32..40_000,
            len in 1usize..1_000_000,
        ) {
            let pieces = cut(Cutter::new(stripe, most), len);
            prop_assert_eq!(pieces.iter().sum::<usize>(), len);
            let longest = if stripe == 0 { most } else { most.min(u32::try_from(stripe).unwrap()) };
            prop_assert!(pieces.iter().all(|piece| *piece <= longest as usize));
            prop_assert!(pieces.len() <= len.div_ceil(longest as usize));
        }

        #[test]
        fn stripes_are_at_least_half(stripe in 4096u64..100_000, len in 1usize..4_000_000) {
            let pieces = cut(Cutter::new(stripe, 1 << 30), len);
            let half = usize::try_from(stripe / 2).unwrap();
            prop_assert!(pieces.len() == 1 || pieces.iter().all(|piece| *piece >= half));
        }
    }
}
