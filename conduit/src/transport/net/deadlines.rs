//! Every bound on waiting in the network, by name. (Connections have theirs in the settings; queue pairs have the device's.)

use std::time::Duration;

/// How long closing waits for the network's own threads.
pub(super) const NET_THREADS: Duration = Duration::from_millis(500);

/// How long closing waits for completions of what was posted: peers that are stopped or gone never send them.
pub(super) const NET_DRAIN: Duration = Duration::from_millis(200);

/// Longest single sleep while closing waits: threads and devices usually need less than this.
pub(super) const NET_CLOSE_SLICE: Duration = Duration::from_micros(50);

/// How long the payload of an unpacked Long may stand still before the sender goes back to polling.
pub(super) const NET_STALL: Duration = Duration::from_millis(20);

/// How long a rank waits for another one of its host to make or connect what both share, and the time between looks.
pub(super) const NET_SHARED: Duration = Duration::from_secs(10);
pub(super) const NET_SHARED_LOOK: Duration = Duration::from_micros(50);

/// How long a receive buffer is offered to a device that says it is full.
pub(super) const NET_REPOST: Duration = Duration::from_secs(2);

/// Time between tries of an ack that has no room yet, where the client need not poll.
pub(super) const NET_ACK_RETRY: Duration = Duration::from_millis(1);
