//! Every bound on waiting in this crate, by name. (The exit protocol has its own table in `exit`.)

use std::time::Duration;

/// First time slice of a sleep on the doorbell. Short, because a peer's put into this rank's segment rings nothing.
pub(crate) const SLEEP_FIRST: Duration = Duration::from_millis(1);

/// Longest time slice of a sleep on the doorbell: every wait looks around at least this often.
pub(crate) const SLEEP_MOST: Duration = Duration::from_millis(200);

/// First time slice of a sleep while waiting for room at a peer, which rings nothing when it has made room.
pub(crate) const ROOM_FIRST: Duration = Duration::from_micros(100);

/// Longest time slice of such a sleep.
pub(crate) const ROOM_MOST: Duration = Duration::from_millis(10);

/// At the end of the job: how long a rank waits for the lists of used connections of all others
/// (`GASNET_CONNECTFILE_OUT` without `%`).
pub(crate) const CONNECTION_LIST: Duration = Duration::from_secs(5);

/// After a connection has failed: how long a rank waits for who knows better why (its peer has died, say) before it names
/// the connection as what ends the job.
pub(crate) const LOST_PEER: Duration = Duration::from_secs(2);
