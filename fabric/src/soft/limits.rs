//! Sizes and counts of the software adapter. No number of this kind stands anywhere else; its
//! deadlines are those of `settings::deadlines::soft`.

use std::time::Duration;

/// Devices of one fabric.
pub(super) const MAX_DEVICES: u8 = 8;
/// Ports of one device.
pub(super) const MAX_PORTS: u8 = 8;
/// Largest message, bytes (as InfiniBand: 2^31 would not fit every length field).
pub(super) const MAX_MESSAGE: u32 = 1 << 30;
/// Queue pairs of one device; a power of two, the low bits of a queue pair number.
pub(super) const MAX_QP: u32 = 1 << 14;
/// Work requests in one direction of a queue pair, and receives of a shared receive queue.
pub(super) const MAX_WR: u32 = 1 << 15;
/// Gather entries of a request.
pub(super) const MAX_SGE: u32 = 16;
/// Entries that every request has room for; room for more is made when the first has more.
pub(super) const FEW_SGE: usize = 2;
/// Entries of a completion queue.
pub(super) const MAX_CQE: u32 = 1 << 20;
/// Reads and atomics in flight in one direction of a queue pair.
pub(super) const MAX_RD_ATOM: u8 = 16;
/// Inline bytes of a request: the largest Medium with its header.
pub(super) const MAX_INLINE: u32 = 68 << 10;
/// Bytes of inline requests that may wait, per queue pair, when the socket takes no more.
pub(super) const MAX_BACKLOG: usize = 16 << 20;

/// Inline bytes of a request that wait in any case; larger ones only behind a stream that takes
/// bytes.
pub(super) const INLINE_COPY_MAX: usize = 8 << 10;

/// Requests of a queue pair that follow each other faster may share a system call.
pub(super) const BURST_GAP: Duration = Duration::from_micros(5);
/// So many small requests share a system call.
pub(super) const BURST_COUNT: u32 = 16;
/// Bytes of such requests.
pub(super) const BURST_BYTES: usize = 8 << 10;
/// Passes over a device without a post that end a burst: between two posts there are up to two.
pub(super) const BURST_REST: u32 = 3;
/// Passes that a deferred request waits while others are posted.
pub(super) const BURST_PASSES: u32 = 32;
/// Greatest message on the reverse path.
pub(super) const REVERSE_MAX: usize = 4 << 10;
/// Messages that may be done without an acknowledgement on its way, for a turn of their stream and
/// at all.
pub(super) const ACK_COUNT: u64 = 16;
pub(super) const ACK_MOST: u64 = 2 * ACK_COUNT;
/// Bytes that may have arrived without an acknowledgement on its way.
pub(super) const ACK_BYTES: u64 = 512 << 10;
/// Turns without data after which an acknowledgement goes out.
pub(super) const ACK_IDLE: u32 = 6;
/// Bytes of one read from a socket into the shared buffer.
pub(super) const SCRATCH: usize = 64 << 10;
/// Bytes of an encrypted stream that are read at once, when little comes and when much does.
pub(super) const RAW_SMALL: usize = 4 << 10;
pub(super) const RAW_LARGE: usize = 64 << 10;
/// Bytes that are encrypted for one system call.
pub(super) const SEAL_AT_ONCE: usize = 64 << 10;
/// A message body of at least so many missing bytes is read straight into its place.
pub(super) const DIRECT: usize = 2 << 10;
/// So long passes leave a hot stream alone after a turn that took all there was of a flood.
pub(super) const FLOOD_REST: Duration = Duration::from_micros(2);
/// Turns without data after which they do so no more.
pub(super) const FLOOD_MISSES: u32 = 8;
/// Reads from one stream before others get their turn.
pub(super) const READS_PER_TURN: u32 = 16;
/// Hot streams: every pass reads them without asking the system which are ready.
pub(super) const HOT: usize = 4;
/// Turns without data after which a stream is no longer hot.
pub(super) const HOT_MISSES: u32 = 200;
/// Turns with data after which a hot stream may leave the epoll.
pub(super) const UNWATCH: u32 = 64;
/// One pass in so many of a thread that polls looks for hot streams that are so no more.
pub(super) const COOL_EVERY: u32 = 8;
/// One pass in so many asks the system which other streams are ready.
pub(super) const ASK_EVERY: u32 = 16;
/// One in so many of the descriptors that the process may have is for connections that have not
/// proved the job key, over all devices; the oldest goes when there are more.
pub(super) const UNPROVEN_SHARE: u64 = 8;
/// Most such connections of a device.
pub(super) const MAX_ACCEPTING: usize = 512;
/// Such connections that a device has room for in any case.
pub(super) const MIN_ACCEPTING: usize = 4;
/// Soft limits on descriptors from which on there is room enough for the program and connections.
pub(super) const MOVE_BELOW: i32 = 1 << 14;

/// Bytes of datagrams that may wait in a device's socket.
pub(super) const UDP_BUFFER: usize = 1 << 20;
/// Datagrams that are taken before streams get their turn.
pub(super) const DATAGRAMS_PER_TURN: u32 = 64;
/// Datagrams that a fault script holds back at once; more are lost.
pub(super) const MAX_DELAYED: usize = 4096;

/// One pass in so many reads the clock.
pub(super) const TICK_EVERY: u32 = 256;
/// Tries for a lock before that.
pub(super) const LOCK_SPINS: u32 = 200;

/// Wait before a send to a receiver without a buffer is tried again, by index (InfiniBand
/// specification, table of the RNR NAK timer), in hundredths of a millisecond.
const RNR_TIMERS: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

pub(super) fn rnr_timer(index: u8) -> Duration {
    let hundredths = RNR_TIMERS.get(usize::from(index & 31)).copied().unwrap_or(65536);
    Duration::from_micros(u64::from(hundredths) * 10)
}

/// How long a request may stay unanswered: 4.096 µs × 2^timeout for the first try and each retry.
/// `None`: for ever.
pub(super) fn retry_timeout(timeout: u8, count: u8) -> Option<Duration> {
    let timeout = u32::from(timeout.min(31));
    (timeout != 0).then(|| Duration::from_nanos(4096 << timeout) * (u32::from(count.min(7)) + 1))
}
