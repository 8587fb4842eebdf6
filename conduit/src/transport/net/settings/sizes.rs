//! How deep queues are and how many buffers there are: a pure function of settings, job and device
//! limits, with the same result on every rank that has the same of each. All totals are for one
//! rank.

use fabric::Caps;
use serde::{Deserialize, Serialize};

use super::Error;
use super::depths::{DepthSettings, FlowControl, SharedReceive, Total};
use crate::transport::net::am::header::{BUFFER_LEN, PREFIX};
use crate::transport::net::connect::MAX_NUMBERS;
use crate::transport::net::flow::Limits;
use crate::transport::net::flow::volume::{Geometry, NUMBERS};

/// Documented default of `GASNET_AM_CREDITS_TOTAL` in large jobs.
const DEFAULT_CREDITS: u64 = 256;
/// Bounce buffers that puts and replies have to themselves with shared receive queues, at most.
const PUT_BUFFERS: u64 = 64;
/// Bounce buffer reserved for a reply with shared receive queues.
const RESERVED_BOUNCE: u64 = 1;
/// Bytes that a queue entry takes in a driver, roughly: for estimates.
#[cfg(test)]
const ENTRY: u64 = 64;
/// Bytes of this library and the driver for a queue pair without its entries, roughly: for
/// estimates.
#[cfg(test)]
const QUEUE_PAIR: u64 = 2048;

/// Bytes of the longest request in a ring.
pub(crate) const LONGEST: u64 = BUFFER_LEN as u64 + PREFIX as u64;
/// Most queue pairs of a peer where requests are written into rings: the handshake names no more.
const MOST_RINGS: u64 = (MAX_NUMBERS / (2 + NUMBERS)) as u64;

/// What all devices of all ranks can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeviceLimits {
    pub max_cqe: u32,
    /// Requests in one direction of a queue pair.
    pub max_qp_wr: u32,
    /// Entries of a shared receive queue; 0: there are none.
    pub max_srq_wr: u32,
}

impl DeviceLimits {
    /// No limits: the start of a fold.
    pub(crate) const NONE: Self =
        Self { max_cqe: u32::MAX, max_qp_wr: u32::MAX, max_srq_wr: u32::MAX };

    pub(crate) const fn of(caps: &Caps) -> Self {
        Self { max_cqe: caps.max_cqe, max_qp_wr: caps.max_qp_wr, max_srq_wr: caps.max_srq_wr }
    }

    pub(crate) fn least(self, other: Self) -> Self {
        Self {
            max_cqe: self.max_cqe.min(other.max_cqe),
            max_qp_wr: self.max_qp_wr.min(other.max_qp_wr),
            max_srq_wr: self.max_srq_wr.min(other.max_srq_wr),
        }
    }
}

/// What the job is like. All but `spares` must be the same on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    pub ranks: u32,
    /// Ports that each rank uses, at least 1.
    pub rails: u32,
    /// Queue pairs for each peer, at least `rails`.
    pub queue_pairs: u32,
    /// Receive buffers and send slots of each queue pair, and completion queue entries for all
    /// queue pairs of one number, that are reserved for messages of the library.
    pub reserve: u32,
    /// Default of `GASNET_RBUF_SPARES`: handlers that may run at once.
    pub spares: u32,
}

/// Buffers of the shared receive queues of a rail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SrqSizes {
    pub requests: u32,
    /// For replies: as many as requests may be in flight on a rail.
    pub replies: u32,
}

/// Buffers for replies that a connection, or the rail where queues are shared, has before there are
/// requests.
pub(crate) const FIRST_REPLIES: u32 = 2;
/// Send queue entries of a connection that only replies, acks and messages of the library may use.
pub(crate) const RESERVED_SQ_SLOTS: u32 = 2;
/// Entries of a shared queue for requests from where one buffer more or less does not matter.
const LEAST_SHARED_TO_WAIT: u32 = 64;

/// Receive buffers of a connection for messages of the library: [`Job::reserve`] of every job.
pub(crate) const INTERNAL_RECEIVES: u32 = 4;

/// Depths of queues and numbers of buffers. A *connection* is one of those that a pair of ranks
/// has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    pub connections: u32,
    pub ops_per_connection: u32,
    pub ops: u32,
    pub credits_per_connection: u32,
    pub credits: u32,
    /// Credits of a connection that may be banked.
    pub slack: u32,
    /// Receive buffers of a connection, or of a shared queue, for messages of the library.
    pub reserve: u32,
    /// Receive buffers of a connection, or of a shared queue for requests, that may wait to be posted
    /// (`recv_buffers.rs`): one, where there is room for it.
    pub waiting: u32,
    pub srq: Option<SrqSizes>,
    /// Where credits move: the bounds, and the credits of a rail to be lent beyond the least.
    pub flow: Option<(Limits, u32)>,
    /// Where requests are written into rings: that of a connection.
    pub volume: Option<Geometry>,
    pub bounce: u32,
    pub spares: u32,
    pub send_cq: u32,
    pub receive_cq: u32,
}

/// For lengths that were made small enough before.
fn narrow(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Numbers on the way to [`Sizes`]; 64 bits, so that no product of two settings overflows.
struct Plan {
    depths: DepthSettings,
    limits: DeviceLimits,
    peers: u64,
    ranks: u64,
    /// Queue pairs of a peer in the lower half.
    columns: u64,
    /// Of them, those on one rail (the fullest).
    per_rail: u64,
    rails: u64,
    reserve: u64,
    spares: u64,
    warnings: Vec<String>,
}

impl Plan {
    fn of(depths: &DepthSettings, job: &Job, limits: DeviceLimits) -> Self {
        let rails = u64::from(job.rails.max(1));
        let columns = u64::from(job.queue_pairs).max(rails);
        Self {
            depths: *depths,
            limits,
            peers: u64::from(job.ranks.max(2)) - 1,
            ranks: u64::from(job.ranks.max(2)),
            columns,
            per_rail: columns.div_ceil(rails),
            rails,
            reserve: job.reserve.into(),
            spares: depths.spares.unwrap_or(job.spares).max(1).into(),
            warnings: Vec::new(),
        }
    }

    fn credits_per_connection(&self) -> u64 {
        u64::from(self.depths.credits_per_peer).div_ceil(self.columns)
    }

    /// Requests in flight that credits allow on all queue pairs of one number.
    fn requests(&self) -> u64 {
        self.credits_per_connection().saturating_mul(self.peers)
    }

    fn receive_depth(&self) -> u64 {
        2 * self.credits_per_connection() + self.reserve
    }

    /// Receive completions without shared queues.
    fn receive_cq(&self) -> u64 {
        (self.per_rail * self.receive_depth()).saturating_mul(self.peers) + self.spares
    }

    /// Requests in flight on the queue pairs of one number with shared queues; as many buffers are
    /// kept for replies. Depends on the number of peers only when the user sets no bound: queues
    /// are as deep as they will ever be, and are filled as peers are connected.
    fn shared_requests(&mut self) -> u64 {
        let count = u64::from(self.depths.receive_buffers);
        let hardware =
            u64::from(self.limits.max_srq_wr).saturating_sub(self.reserve) / self.per_rail;
        let buffers = match count {
            0 => self.requests().saturating_mul(2),
            _ => count.saturating_sub(self.rails * self.spares) / self.columns,
        };
        if buffers < 2 {
            self.warnings.push(format!(
                "GASNET_RBUF_COUNT={count} gives less than 2 buffers for each of {} queue pairs: {} are used",
                self.columns,
                2 * self.columns + self.rails * self.spares
            ));
        }
        let queue = (u64::from(self.limits.max_cqe)).saturating_sub(self.spares + 2 * self.reserve)
            / (2 * self.per_rail);
        (buffers / 2).max(1).min(hardware).min(queue).max(1)
    }

    /// Requests in flight per column when queues are shared; `None` when they are not.
    fn sharing(&mut self) -> Result<Option<u64>, Error> {
        let least = 2 * self.per_rail + self.reserve + self.spares;
        let possible = self.per_rail + self.reserve <= self.limits.max_srq_wr.into()
            && least <= self.limits.max_cqe.into();
        let fits = self.receive_cq() <= self.limits.max_cqe.into()
            && self.receive_depth() <= self.limits.max_qp_wr.into();
        if self.depths.flow != FlowControl::Static {
            return match (self.depths.srq, possible) {
                (SharedReceive::Never, _) => Err(self.unshared("GASNET_USE_SRQ=0 rules them out")),
                (_, false) => {
                    Err(self.unshared("a device of this job has none, or too short ones"))
                }
                _ => Ok(Some(self.shared_requests())),
            };
        }
        let from = match self.depths.srq {
            SharedReceive::From(ranks) if u64::from(ranks) > self.ranks => SharedReceive::Never,
            other => other,
        };
        match from {
            SharedReceive::From(_) if possible => return Ok(Some(self.shared_requests())),
            SharedReceive::From(ranks) => self.warnings.push(format!(
                "GASNET_USE_SRQ={ranks}: a device of this job has no shared receive queues, or too short ones: every peer has buffers of its own"
            )),
            SharedReceive::Automatic if possible => {
                let before = self.warnings.len();
                let shared = self.shared_requests();
                if !fits || shared < self.requests() {
                    return Ok(Some(shared));
                }
                self.warnings.truncate(before);
            }
            SharedReceive::Automatic | SharedReceive::Never => {}
        }
        if fits { Ok(None) } else { Err(self.too_many_credits(possible)) }
    }

    fn unshared(&self, why: &str) -> Error {
        let what = match self.depths.flow {
            FlowControl::Volume { .. } => "requests that are written into rings",
            _ => "credits that move between peers",
        };
        let problem = format!("{what} need shared receive queues, and {why}; set it to static");
        Error::Variable { name: "GASNET_AM_FLOW_CONTROL", problem }
    }

    /// Bounds of credits that move, and how many there are on a rail: buffers that a queue of
    /// `queue` entries has room for beyond the least of each peer.
    fn flow(&mut self, queue: u64) -> Result<Option<(Limits, u32)>, Error> {
        let FlowControl::Dynamic { least, most, banked, epoch } = self.depths.flow else {
            return Ok(None);
        };
        let all = u64::from(least).saturating_mul(self.peers).saturating_mul(self.per_rail);
        if all > queue {
            let problem = format!(
                "{least} credits that each of {} peers keeps need a shared queue of {all} receive buffers, and it has {queue}; lower it, or raise GASNET_RBUF_COUNT",
                self.peers
            );
            return Err(Error::Variable { name: "GASNET_AM_CREDITS_MIN", problem });
        }
        let banked = u64::from(banked).min(queue - all);
        let most = u64::from(most.max(least)).min(u64::from(least) + banked);
        Ok(Some((Limits::of(least, narrow(most), narrow(banked), epoch), narrow(banked))))
    }

    /// The ring of a connection.
    fn volume(&self) -> Result<Option<Geometry>, Error> {
        let FlowControl::Volume { space } = self.depths.flow else { return Ok(None) };
        if self.columns > MOST_RINGS {
            let problem = format!(
                "GASNET_AM_FLOW_CONTROL=volume allows {MOST_RINGS} queue pairs for each peer, not {}; lower it",
                self.columns
            );
            return Err(Error::Variable { name: "GASNET_NUM_QPS", problem });
        }
        Ok(Some(Geometry::of(space.div_ceil(self.columns), LONGEST)))
    }

    fn too_many_credits(&self, shared_would_do: bool) -> Error {
        let per_rail = self.per_rail * self.peers;
        let room = u64::from(self.limits.max_cqe).saturating_sub(self.spares);
        let depth = (room / per_rail).min(self.limits.max_qp_wr.into());
        let most = depth.saturating_sub(self.reserve) / 2 * self.columns;
        let advice = match (most, shared_would_do) {
            (0, true) => "set GASNET_USE_SRQ=-1, so that peers share buffers".to_owned(),
            (0, false) => "and shared receive queues, which would help, are missing: use fewer ranks on this network".to_owned(),
            (most, true) => format!("set it to at most {most}, or GASNET_USE_SRQ=-1"),
            (most, false) => format!("set it to at most {most}"),
        };
        Error::Variable {
            name: "GASNET_AM_CREDITS_PP",
            problem: format!(
                "{} credits for each of {} peers need queue pairs of {} receives and a completion queue of {} entries, devices of this job allow {} and {}; {advice}",
                self.depths.credits_per_peer,
                self.peers,
                self.receive_depth(),
                self.receive_cq(),
                self.limits.max_qp_wr,
                self.limits.max_cqe
            ),
        }
    }

    /// Operations in flight: on a queue pair, on all of one number.
    fn ops(&self, requests: u64) -> Result<(u64, u64), Error> {
        let pair = u64::from(self.depths.ops_per_peer).div_ceil(self.columns);
        let most = u64::from(self.limits.max_qp_wr);
        if pair + self.reserve > most {
            let allowed = most.saturating_sub(self.reserve) * self.columns;
            let problem = format!(
                "{} operations for each peer need a send queue of {} entries, devices of this job allow {most}; set it to at most {allowed}",
                self.depths.ops_per_peer,
                pair + self.reserve
            );
            return Err(Error::Variable { name: "GASNET_NETWORKDEPTH_PP", problem });
        }
        let by_peers = pair.saturating_mul(self.ranks);
        let entries = u64::from(self.limits.max_cqe) / self.per_rail;
        let room = entries.saturating_sub(requests + self.reserve);
        let (column, wished) = match self.depths.ops {
            Total::Is(total) => (u64::from(total).div_ceil(self.columns).min(by_peers), true),
            Total::Default | Total::Most => (by_peers.min(room), false),
        };
        if column > room || room == 0 {
            let problem = format!(
                "{column} operations in flight on each of {} queue pairs of a port need more completion queue entries than the {} that devices of this job allow; set it to at most {}{}",
                self.per_rail,
                self.limits.max_cqe,
                room * self.columns,
                if wished { ", or to 0 for as many as are possible" } else { "" }
            );
            return Err(Error::Variable { name: "GASNET_NETWORKDEPTH_TOTAL", problem });
        }
        Ok((pair, column))
    }

    fn credits(&self, ops: u64, in_flight: u64) -> Result<u64, Error> {
        let useful = u64::from(self.depths.credits_per_peer).saturating_mul(self.peers);
        let room = self.columns * in_flight;
        let wanted = match self.depths.credits {
            Total::Default => useful.min(DEFAULT_CREDITS).min(room),
            Total::Most => useful.min(room),
            Total::Is(total) => u64::from(total).min(useful),
        };
        let wanted = wanted.min(ops);
        if wanted > room {
            let problem = format!(
                "{wanted} requests in flight need as many receive buffers for replies, and GASNET_RBUF_COUNT={} leaves {room}; lower the one or raise the other",
                self.depths.receive_buffers
            );
            return Err(Error::Variable { name: "GASNET_AM_CREDITS_TOTAL", problem });
        }
        Ok(wanted)
    }

    fn finish(mut self) -> Result<(Sizes, Vec<String>), Error> {
        let shared = self.sharing()?;
        let in_flight = shared.unwrap_or_else(|| self.requests());
        let (ops_per_connection, ops_per_column) = self.ops(shared.unwrap_or(0))?;
        let ops = self.columns * ops_per_column;
        let credits = self.credits(ops, in_flight)?;
        let plain = match self.depths.bounce_buffers {
            0 => ops,
            count => u64::from(count).min(ops),
        };
        let queue = narrow(self.per_rail * in_flight);
        let flow = self.flow(queue.into())?;
        let volume = self.volume()?;
        let waiting = u64::from(match shared {
            None => self.has_room_to_wait(),
            // Where credits move each stands for a buffer; written into rings, requests have none.
            Some(_) => flow.is_none() && volume.is_none() && queue >= LEAST_SHARED_TO_WAIT,
        });
        let sizes = Sizes {
            connections: narrow(self.columns),
            ops_per_connection: narrow(ops_per_connection),
            ops: narrow(ops),
            credits_per_connection: narrow(self.credits_per_connection()),
            credits: narrow(credits),
            slack: if shared.is_some() { 0 } else { narrow(self.slack(credits)) },
            reserve: narrow(self.reserve),
            waiting: narrow(waiting),
            srq: shared.map(|_| SrqSizes { requests: queue, replies: queue }),
            flow,
            volume,
            bounce: narrow(match shared {
                None => plain,
                Some(_) => plain.max(ops.min(PUT_BUFFERS) + credits) + RESERVED_BOUNCE,
            }),
            spares: narrow(self.spares),
            send_cq: narrow(self.per_rail * (ops_per_column + shared.unwrap_or(0) + self.reserve)),
            receive_cq: narrow(match shared {
                None => self.receive_cq() + waiting * self.per_rail * self.peers,
                Some(_) => {
                    let queues = 2 * self.per_rail * in_flight;
                    queues + self.reserve + self.spares
                }
            }),
        };
        Ok((sizes, self.warnings))
    }

    /// Whether there may be one receive more on each connection without shared queues.
    fn has_room_to_wait(&self) -> bool {
        let all = (self.per_rail * self.peers).saturating_add(self.receive_cq());
        self.receive_depth() < self.limits.max_qp_wr.into() && all <= self.limits.max_cqe.into()
    }

    /// Below the credits of a connection, and so small that what lies banked at all peers leaves
    /// one credit to be used.
    fn slack(&mut self, credits: u64) -> u64 {
        let most = (credits - 1) / self.columns.saturating_mul(self.peers);
        let own = self.credits_per_connection();
        let usual = (own / 2).saturating_sub(1);
        let wanted = self.depths.slack.map_or(usual, u64::from);
        let used = wanted.min(own - 1).min(most);
        if wanted >= own {
            self.warnings.push(format!(
                "GASNET_AM_CREDITS_SLACK={wanted} is not below the {own} credits of a connection: {used} is used"
            ));
        }
        used
    }
}

impl Sizes {
    /// Computes them; also what was cut, for rank 0 to print.
    pub(crate) fn of(
        depths: &DepthSettings,
        job: &Job,
        limits: DeviceLimits,
    ) -> Result<(Self, Vec<String>), Error> {
        Plan::of(depths, job, limits).finish()
    }

    /// Queue pairs of a pair of ranks; with shared receive queues the upper half carries requests.
    pub(crate) const fn queue_pairs(&self) -> u32 {
        if self.srq.is_some() { 2 * self.connections } else { self.connections }
    }

    /// Most receive buffers of a connection: its share of the peer's requests, of replies to its
    /// own, of the library's messages, and of what may wait.
    pub(crate) const fn receives(&self) -> u32 {
        match self.srq {
            Some(_) => 0,
            None => 2 * self.credits_per_connection + self.reserve + self.waiting,
        }
    }

    /// Whether [`Sizes::credits`] bind a rank of a job of so many ranks: those of all its connections
    /// are more.
    pub(crate) fn binds_all(&self, ranks: u32) -> bool {
        let connections = u64::from(self.connections) * u64::from(ranks.max(2) - 1);
        let all = u64::from(self.credits_per_connection) * connections;
        self.flow.is_some() || u64::from(self.credits) < all
    }

    /// Credits of a connection that may be used from the start, and of all. With shared queues all:
    /// there the rail has the buffers for replies.
    pub(crate) fn first_credits(&self) -> (u32, u32) {
        if let Some((limits, _)) = self.flow {
            return (limits.least, limits.least);
        }
        let all = self.credits_per_connection;
        (if self.srq.is_some() { all } else { FIRST_REPLIES.min(all) }, all)
    }

    /// Receive buffers of a connection that is new: [`Sizes::receives`] without those for replies
    /// to requests that were not sent yet.
    pub(crate) fn first_receives(&self) -> u32 {
        let (first, all) = self.first_credits();
        self.receives().saturating_sub(all - first)
    }

    /// Buffers that a new connection adds to a rail's shared queue for requests, which has `posted`.
    pub(crate) fn more_shared(&self, queues: SrqSizes, posted: u32) -> u32 {
        match self.flow {
            Some((limits, banked)) if posted == 0 => (limits.least + banked).min(queues.requests),
            Some((limits, _)) => limits.least.min(queues.requests.saturating_sub(posted)),
            None => {
                let room = self.shared_requests(queues).saturating_sub(posted);
                self.credits_per_connection.max(1).min(room)
            }
        }
    }

    /// Buffers of a rail's shared queue for requests. A few of its room stand for the first replies
    /// and the library's messages, so that an idle rank has half of what it may have.
    pub(crate) fn shared_requests(&self, queues: SrqSizes) -> u32 {
        queues.requests - (FIRST_REPLIES + self.reserve).min(queues.requests / 32)
    }

    pub(crate) const fn sends(&self) -> u32 {
        self.ops_per_connection + RESERVED_SQ_SLOTS
    }

    /// Entries of the send queue for requests, where they have a queue pair of their own: one for
    /// each credit. Where credits move, for as many as a peer may come to hold, but no more than there
    /// may be operations in flight: a sender that comes to the end of its queue takes the ends of
    /// many at once, one that comes to the end of its credits goes on with each that comes back.
    pub(crate) fn request_sends(&self) -> u32 {
        let moving = self.flow.map_or(0, |(limits, _)| limits.most.min(self.ops_per_connection));
        self.credits_per_connection.max(moving).max(1)
    }

    /// Send buffers that a connection can use.
    pub(crate) const fn bounce_per_connection(&self) -> u32 {
        self.ops_per_connection.saturating_add(self.credits_per_connection)
    }
}

/// Estimates.
#[cfg(test)]
impl Sizes {
    /// Receive buffers of a rank that is connected to `connected` peers (as `recv_buffers.rs` makes
    /// them) and has sent no requests.
    pub(crate) fn receive_buffers(&self, job: &Job, connected: u32) -> u64 {
        let wide = u64::from;
        let rails = wide(job.rails.max(1));
        let connections = wide(connected) * wide(self.connections);
        match self.srq {
            Some(_) if connected == 0 => 0,
            Some(queues) if self.volume.is_some() => {
                rails * wide(FIRST_REPLIES.min(queues.replies) + self.reserve)
            }
            Some(queues) if self.flow.is_some() => {
                let more = |posted, _| posted + self.more_shared(queues, posted);
                let requests = (0..connections).fold(0, more);
                wide(requests) + rails * wide(FIRST_REPLIES.min(queues.replies) + self.reserve)
            }
            Some(queues) => {
                let credits = connections * wide(self.credits_per_connection);
                let first = wide(FIRST_REPLIES.min(queues.replies) + self.reserve);
                credits.min(rails * wide(self.shared_requests(queues))) + rails * first
            }
            None => connections * wide(self.first_receives()) + rails * wide(self.spares),
        }
    }

    /// Bytes of message buffers of `buffer` bytes in such a rank.
    pub(crate) fn buffer_bytes(&self, job: &Job, connected: u32, buffer: u32) -> u64 {
        let wide = u64::from;
        let connections = wide(connected) * wide(self.connections);
        let bounce = wide(self.bounce_per_connection()) * (1 + connections);
        let rings = connections * self.volume.map_or(0, |ring| wide(ring.bytes()));
        let buffers = self.receive_buffers(job, connected) + bounce.min(wide(self.bounce));
        buffers * wide(buffer) + rings
    }

    /// Bytes that a rank takes with `connected` peers of a job, roughly: buffers, queues, and the
    /// table of peers, of which an unconnected one has 9 bytes at most.
    pub(crate) fn memory(&self, job: &Job, connected: u32, buffer: u32) -> u64 {
        let depth = u64::from(self.sends()) + u64::from(self.receives());
        let pairs = u64::from(connected) * u64::from(self.queue_pairs());
        let rails = u64::from(job.rails.max(1));
        let queues = rails * (u64::from(self.send_cq) + u64::from(self.receive_cq)) * ENTRY;
        let table = u64::from(job.ranks) * 9;
        self.buffer_bytes(job, connected, buffer)
            + pairs * (QUEUE_PAIR + depth * ENTRY)
            + queues
            + table
    }
}

#[cfg(test)]
#[path = "sizes_tests.rs"]
mod tests;
