//! How deep queues are and how many buffers there are: a pure function of settings, job and device limits, with the same
//! result on every rank that has the same of each. All totals are for one rank.

use bootstrap::Rank;
use fabric::Caps;

use super::{ConnectWays, DepthSettings, Error, SharedReceive, Total};

/// Documented default of `GASNET_AM_CREDITS_TOTAL` in large jobs.
const DEFAULT_CREDITS: u64 = 256;
/// Bounce buffers that puts and replies have to themselves with shared receive queues, at most.
const PUT_BUFFERS: u64 = 64;
/// Bounce buffer kept aside for a reply with shared receive queues.
const KEPT_ASIDE: u64 = 1;
/// Bytes that a queue entry takes in a driver, roughly: for estimates.
#[cfg(test)]
const ENTRY: u64 = 64;
/// Bytes of this library and the driver for a queue pair without its entries, roughly: for estimates.
#[cfg(test)]
const QUEUE_PAIR: u64 = 2048;

/// What all devices of all ranks can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Entries of a completion queue.
    pub max_cqe: u32,
    /// Requests in one direction of a queue pair.
    pub max_qp_wr: u32,
    /// Entries of a shared receive queue; 0: there are none.
    pub max_srq_wr: u32,
}

impl Limits {
    /// No limits: the start of a fold.
    pub(crate) const NONE: Self =
        Self { max_cqe: u32::MAX, max_qp_wr: u32::MAX, max_srq_wr: u32::MAX };
    /// Bytes of [`Limits::to_bytes`].
    pub(crate) const BYTES: usize = 12;

    /// Of a device.
    pub(crate) const fn of(caps: &Caps) -> Self {
        Self { max_cqe: caps.max_cqe, max_qp_wr: caps.max_qp_wr, max_srq_wr: caps.max_srq_wr }
    }

    /// What both can do.
    pub(crate) fn least(self, other: Self) -> Self {
        Self {
            max_cqe: self.max_cqe.min(other.max_cqe),
            max_qp_wr: self.max_qp_wr.min(other.max_qp_wr),
            max_srq_wr: self.max_srq_wr.min(other.max_srq_wr),
        }
    }

    /// For the exchange between ranks.
    pub(crate) fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        for (chunk, value) in
            bytes.chunks_exact_mut(4).zip([self.max_cqe, self.max_qp_wr, self.max_srq_wr])
        {
            chunk.copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }

    /// From the exchange between ranks.
    pub(crate) fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = bytes;
        Self {
            max_cqe: u32::from_le_bytes([a, b, c, d]),
            max_qp_wr: u32::from_le_bytes([e, f, g, h]),
            max_srq_wr: u32::from_le_bytes([i, j, k, l]),
        }
    }
}

/// What the job is like. All but `spares` and `connect_receives` must be the same on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    /// Ranks of the job.
    pub ranks: u32,
    /// Ports that each rank uses, at least 1.
    pub rails: u32,
    /// Queue pairs for each peer, at least `rails`.
    pub queue_pairs: u32,
    /// Receive buffers and send slots of each queue pair, and completion queue entries for all queue pairs of one number,
    /// that are kept for messages of the library.
    pub reserve: u32,
    /// Default of `GASNET_RBUF_SPARES`: handlers that may run at once.
    pub spares: u32,
    /// Datagram receives that end in the first rail's receive completion queue.
    pub connect_receives: u32,
}

/// Shared receive queues, two for each rail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SharedQueues {
    /// Buffers of a rail's queue for requests.
    pub requests: u32,
    /// Buffers of a rail's queue for replies, and most requests in flight on a rail.
    pub replies: u32,
}

/// The result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Queue pairs for each peer; with shared receive queues the upper half carries requests.
    pub queue_pairs: u32,
    /// Operations in flight on a queue pair: depth of its send queue without the reserve.
    pub ops_per_pair: u32,
    /// Operations in flight on all queue pairs of one number.
    pub ops_per_column: u32,
    /// Operations in flight.
    pub ops: u32,
    /// Credits of a queue pair.
    pub credits_per_pair: u32,
    /// Requests without a reply.
    pub credits: u32,
    /// Credits that may be banked for a queue pair.
    pub slack: u32,
    /// Entries of a send queue.
    pub send_depth: u32,
    /// Entries of the send queue of a queue pair for requests, with shared receive queues.
    pub request_send_depth: u32,
    /// Buffers posted to a queue pair; 0 with shared receive queues.
    pub receive_depth: u32,
    /// Shared receive queues, if they are used.
    pub srq: Option<SharedQueues>,
    /// Bounce buffers.
    pub bounce: u32,
    /// Spare receive buffers.
    pub spares: u32,
    /// Entries of a rail's send completion queue.
    pub send_cq: u32,
    /// Entries of a rail's receive completion queue.
    pub receive_cq: u32,
    /// What was cut, for rank 0 to print.
    pub warnings: Vec<String>,
}

/// What must be the same on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Agreement {
    /// Ports.
    pub rails: u16,
    /// [`Sizes::queue_pairs`].
    pub queue_pairs: u16,
    /// [`Sizes::credits_per_pair`].
    pub credits: u32,
    /// Whether receive queues are shared.
    pub srq: bool,
    /// How ranks are connected; not of the sizes.
    pub ways: ConnectWays,
}

impl Agreement {
    /// Bytes of [`Agreement::to_bytes`].
    pub(crate) const BYTES: usize = 10;

    /// For the exchange between ranks.
    pub(crate) fn to_bytes(self) -> [u8; Self::BYTES] {
        let ([a, b], [c, d]) = (self.rails.to_le_bytes(), self.queue_pairs.to_le_bytes());
        let [e, f, g, h] = self.credits.to_le_bytes();
        [a, b, c, d, e, f, g, h, u8::from(self.srq), self.ways.to_byte()]
    }

    /// From the exchange between ranks.
    pub(crate) fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let [a, b, c, d, e, f, g, h, srq, ways] = bytes;
        Self {
            rails: u16::from_le_bytes([a, b]),
            queue_pairs: u16::from_le_bytes([c, d]),
            credits: u32::from_le_bytes([e, f, g, h]),
            srq: srq != 0,
            ways: ConnectWays::from_byte(ways),
        }
    }

    /// In what another rank differs from this one, `me`, and what to set. `None`: they fit.
    pub(crate) fn differs(self, me: Rank, other: Self) -> Option<String> {
        let text = |what: &str, theirs: u32, mine: u32, remedy: &str| {
            Some(format!("has {theirs} {what}, rank {me} {mine}: {remedy}"))
        };
        if self.rails != other.rails {
            let remedy = "use the same number of ports on all hosts (GASNET_IBV_PORTS, GASNET_NUM_QPS; GASNET_IBV_LIST_PORTS=1 lists them)";
            return text("ports", other.rails.into(), self.rails.into(), remedy);
        }
        if self.srq != other.srq {
            let remedy = "set GASNET_USE_SRQ, GASNET_RBUF_COUNT and GASNET_RBUF_SPARES to the same on all ranks, or GASNET_USE_SRQ=0";
            return text("shared receive queues", other.srq.into(), self.srq.into(), remedy);
        }
        if self.queue_pairs != other.queue_pairs {
            let remedy = "set GASNET_NUM_QPS to the same on all ranks";
            return text(
                "queue pairs for each peer",
                other.queue_pairs.into(),
                self.queue_pairs.into(),
                remedy,
            );
        }
        if self.credits != other.credits {
            let remedy = "set GASNET_AM_CREDITS_PP to the same on all ranks";
            return text("credits for each queue pair", other.credits, self.credits, remedy);
        }
        self.ways.differs(me, other.ways)
    }
}

/// For lengths that were made small enough before.
fn narrow(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn refused(name: &'static str, problem: String) -> Error {
    Error::Variable { name, problem }
}

/// Numbers on the way to [`Sizes`]; 64 bits, so that no product of two settings overflows.
struct Plan {
    depths: DepthSettings,
    limits: Limits,
    peers: u64,
    ranks: u64,
    /// Queue pairs of a peer in the lower half.
    columns: u64,
    /// Of them, those on one rail (the fullest).
    per_rail: u64,
    rails: u64,
    reserve: u64,
    spares: u64,
    connect_receives: u64,
    warnings: Vec<String>,
}

impl Plan {
    fn of(depths: &DepthSettings, job: &Job, limits: Limits) -> Self {
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
            connect_receives: job.connect_receives.into(),
            warnings: Vec::new(),
        }
    }

    fn credits_per_pair(&self) -> u64 {
        u64::from(self.depths.credits_per_peer).div_ceil(self.columns)
    }

    /// Requests in flight that credits allow on all queue pairs of one number.
    fn requests(&self) -> u64 {
        self.credits_per_pair().saturating_mul(self.peers)
    }

    fn receive_depth(&self) -> u64 {
        2 * self.credits_per_pair() + self.reserve
    }

    /// Receive completions without shared queues.
    fn receive_cq(&self) -> u64 {
        (self.per_rail * self.receive_depth()).saturating_mul(self.peers)
            + self.spares
            + self.connect_receives
    }

    /// Requests in flight on the queue pairs of one number with shared queues; as many buffers are kept for replies. Depends on
    /// the number of peers only when the user sets no bound: queues are as deep as they will ever be, and are filled as peers
    /// are connected.
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
        let queue = (u64::from(self.limits.max_cqe))
            .saturating_sub(self.spares + self.connect_receives + 2 * self.reserve)
            / (2 * self.per_rail);
        (buffers / 2).max(1).min(hardware).min(queue).max(1)
    }

    /// Requests in flight per column when queues are shared; `None` when they are not.
    fn sharing(&mut self) -> Result<Option<u64>, Error> {
        let least = 2 * self.per_rail + self.reserve + self.spares + self.connect_receives;
        let possible = self.per_rail + self.reserve <= self.limits.max_srq_wr.into()
            && least <= self.limits.max_cqe.into();
        let fits = self.receive_cq() <= self.limits.max_cqe.into()
            && self.receive_depth() <= self.limits.max_qp_wr.into();
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

    fn too_many_credits(&self, shared_would_do: bool) -> Error {
        let per_rail = self.per_rail * self.peers;
        let room =
            u64::from(self.limits.max_cqe).saturating_sub(self.spares + self.connect_receives);
        let depth = (room / per_rail).min(self.limits.max_qp_wr.into());
        let most = depth.saturating_sub(self.reserve) / 2 * self.columns;
        let advice = match (most, shared_would_do) {
            (0, true) => "set GASNET_USE_SRQ=-1, so that peers share buffers".to_owned(),
            (0, false) => "and shared receive queues, which would help, are missing: use fewer ranks on this network".to_owned(),
            (most, true) => format!("set it to at most {most}, or GASNET_USE_SRQ=-1"),
            (most, false) => format!("set it to at most {most}"),
        };
        refused(
            "GASNET_AM_CREDITS_PP",
            format!(
                "{} credits for each of {} peers need queue pairs of {} receives and a completion queue of {} entries, devices of this job allow {} and {}; {advice}",
                self.depths.credits_per_peer,
                self.peers,
                self.receive_depth(),
                self.receive_cq(),
                self.limits.max_qp_wr,
                self.limits.max_cqe
            ),
        )
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
            return Err(refused("GASNET_NETWORKDEPTH_PP", problem));
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
            return Err(refused("GASNET_NETWORKDEPTH_TOTAL", problem));
        }
        Ok((pair, column))
    }

    /// Requests without a reply.
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
            return Err(refused("GASNET_AM_CREDITS_TOTAL", problem));
        }
        Ok(wanted)
    }

    fn finish(mut self) -> Result<Sizes, Error> {
        let shared = self.sharing()?;
        let in_flight = shared.unwrap_or_else(|| self.requests());
        let (ops_per_pair, ops_per_column) = self.ops(shared.unwrap_or(0))?;
        let ops = self.columns * ops_per_column;
        let credits = self.credits(ops, in_flight)?;
        let pair = self.credits_per_pair();
        let plain = match self.depths.bounce_buffers {
            0 => ops,
            count => u64::from(count).min(ops),
        };
        let bounce = match shared {
            None => plain,
            Some(_) => plain.max(ops.min(PUT_BUFFERS) + credits) + KEPT_ASIDE,
        };
        let queue = |_| SharedQueues {
            requests: narrow(self.per_rail * in_flight + self.reserve),
            replies: narrow(self.per_rail * in_flight),
        };
        let receive_cq = match shared {
            None => self.receive_cq(),
            Some(_) => {
                2 * self.per_rail * in_flight + self.reserve + self.spares + self.connect_receives
            }
        };
        let send_cq = self.per_rail * (ops_per_column + shared.unwrap_or(0) + self.reserve);
        let slack = u64::from(self.depths.slack).min(pair - 1);
        Ok(Sizes {
            queue_pairs: narrow(self.columns * if shared.is_some() { 2 } else { 1 }),
            ops_per_pair: narrow(ops_per_pair),
            ops_per_column: narrow(ops_per_column),
            ops: narrow(ops),
            credits_per_pair: narrow(pair),
            credits: narrow(credits),
            slack: if shared.is_some() { 0 } else { narrow(slack) },
            send_depth: narrow(ops_per_pair + self.reserve),
            request_send_depth: if shared.is_some() { narrow(pair + self.reserve) } else { 0 },
            receive_depth: if shared.is_some() { 0 } else { narrow(self.receive_depth()) },
            srq: shared.map(queue),
            bounce: narrow(bounce),
            spares: narrow(self.spares),
            send_cq: narrow(send_cq),
            receive_cq: narrow(receive_cq),
            warnings: std::mem::take(&mut self.warnings),
        })
    }
}

impl Sizes {
    /// Computes them.
    ///
    /// # Errors
    /// Settings that the devices cannot hold; the text names the variable to change and to what.
    pub(crate) fn of(depths: &DepthSettings, job: &Job, limits: Limits) -> Result<Self, Error> {
        Plan::of(depths, job, limits).finish()
    }

    /// What must be the same on all ranks.
    pub(crate) fn agreement(&self, job: &Job) -> Agreement {
        let short = |number| u16::try_from(number).unwrap_or(u16::MAX);
        Agreement {
            rails: short(job.rails),
            queue_pairs: short(self.queue_pairs),
            credits: self.credits_per_pair,
            srq: self.srq.is_some(),
            ways: ConnectWays::default(),
        }
    }
}

/// Estimates.
#[cfg(test)]
impl Sizes {
    /// Bytes of message buffers of `buffer` bytes in a rank that is connected to `connected` peers (as `recv_buffers.rs` makes them).
    pub(crate) fn buffer_bytes(&self, job: &Job, connected: u32, buffer: u32) -> u64 {
        let wide = u64::from;
        let rails = wide(job.rails.max(1));
        let lanes = wide(self.queue_pairs) / if self.srq.is_some() { 2 } else { 1 };
        let credits = wide(connected) * lanes * wide(self.credits_per_pair);
        let received = match self.srq {
            Some(queues) => {
                credits.min(rails * wide(queues.requests))
                    + credits.min(rails * wide(queues.replies))
            }
            None => wide(connected) * lanes * wide(self.receive_depth) + rails * wide(self.spares),
        };
        let lane = wide(self.ops_per_pair) + wide(self.credits_per_pair);
        let bounce = (lane * (1 + wide(connected) * lanes)).min(wide(self.bounce));
        (received + bounce) * wide(buffer)
    }

    /// Bytes that a rank takes with `connected` peers of a job, roughly: buffers, queues, and the table of peers, of which an
    /// unconnected one has 9 bytes.
    pub(crate) fn memory(&self, job: &Job, connected: u32, buffer: u32) -> u64 {
        let depth = u64::from(self.send_depth) + u64::from(self.receive_depth);
        let pairs = u64::from(connected) * u64::from(self.queue_pairs);
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
