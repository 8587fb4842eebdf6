//! The rank's half of the services, the same for every provider that is driven by a
//! [`Collective`](crate::collective::Collective): argument checks, numbering, answers to results.
//! What differs is the [`Channel`].

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::collective::next_seq;
use crate::frame::{Frame, Kind, MAX_TOTAL};
use crate::node_shm::{NodeShm, ShmCollectives};
use crate::service::{Bootstrap, Error, ExitNotifier, Rank, RankInfo, Shared, call_name};

/// Answer to one call.
#[derive(Debug, strum::Display)]
pub enum Reply {
    /// The call is complete; nothing comes back.
    #[strum(to_string = "a release")]
    Release,
    /// The result of an exchange.
    #[strum(to_string = "a mapped result")]
    Mapped(Shared),
    /// The result of a broadcast or an all-to-all.
    #[strum(to_string = "data")]
    Data(Vec<u8>),
    /// Memory of the host.
    #[strum(to_string = "memory")]
    Memory(OwnedFd),
}

impl Reply {
    /// The same for another rank of this process.
    pub(crate) fn try_clone(&self) -> std::io::Result<Self> {
        Ok(match self {
            Self::Release => Self::Release,
            Self::Mapped(shared) => Self::Mapped(shared.clone()),
            Self::Data(bytes) => Self::Data(bytes.clone()),
            Self::Memory(fd) => Self::Memory(fd.try_clone()?),
        })
    }
}

/// What a provider inside this process says to one of its ranks: a reply, or why there is none.
#[derive(Debug)]
pub struct Answer {
    /// Its call; 0 is the farewell.
    pub seq: u32,
    /// One line for people in place of a refused reply.
    pub reply: Result<Reply, Arc<str>>,
}

impl Answer {
    /// The reply to call `seq`, of the service `during`.
    ///
    /// # Errors
    /// The call is refused, or it is the answer to another one.
    pub fn to_call(self, seq: u32, during: &'static str) -> Result<Reply, Error> {
        match self.reply {
            Err(reason) => Err(Error::Refused { during, reason: reason.to_string() }),
            Ok(reply) if self.seq == seq => Ok(reply),
            Ok(_) => {
                Err(Error::Protocol { during, seen: format!("an answer to call {}", self.seq) })
            }
        }
    }
}

/// One collective call as a rank makes it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Everything but the payload; `total` is the length that the rank states.
    pub head: Frame<'static>,
    /// What the rank gives; empty or `total` bytes.
    pub data: &'a [u8],
    /// Bytes that a result must have.
    pub expect: usize,
}

impl Request<'_> {
    /// The frames that carry this request.
    pub fn frames(&self) -> impl Iterator<Item = Frame<'_>> {
        let total = self.head.total;
        // A rank that gives nothing still states the length.
        Frame::pieces(self.head, self.data).map(move |frame| Frame { total, ..frame })
    }

    /// Whether this call is made on the collectives, where there is one: the same on all ranks that
    /// make it.
    #[must_use]
    pub const fn fits_shm(&self) -> bool {
        matches!(self.head.kind, Kind::Barrier | Kind::Exchange)
            && ShmCollectives::has_room(self.data.len(), self.expect)
    }
}

/// How requests reach the machine and answers come back.
pub trait Channel: Send {
    /// Makes one call.
    ///
    /// # Errors
    /// As [`Bootstrap::exchange`].
    fn call(&mut self, request: &Request<'_>, page: &Arc<NodeShm>) -> Result<Reply, Error>;

    /// As [`Bootstrap::fini`].
    ///
    /// # Errors
    /// As there.
    fn fini(&mut self, code: i32, page: &NodeShm) -> Result<(), Error>;

    /// As [`Bootstrap::cleanup`].
    fn cleanup(&mut self) {}

    /// As [`Bootstrap::exit_notifier`].
    fn exit_notifier(&self) -> ExitNotifier;
}

/// The provider over a channel.
#[derive(Debug)]
pub struct Client<C> {
    channel: C,
    place: RankInfo,
    page: Arc<NodeShm>,
    seq: u32,
}

impl<C: Channel> Client<C> {
    /// The services of the rank at `place`.
    #[must_use]
    pub const fn new(channel: C, place: RankInfo, page: Arc<NodeShm>) -> Self {
        Self { channel, place, page, seq: 0 }
    }

    fn call(
        &mut self,
        kind: Kind,
        arg: u32,
        len: u64,
        data: &[u8],
        expect: usize,
    ) -> Result<Reply, Error> {
        self.seq = next_seq(self.seq);
        let head = Frame::bare(kind, self.seq, self.place.rank.0, arg).with_len(len);
        self.channel.call(&Request { head, data, expect }, &self.page)
    }

    fn spread(&mut self, kind: Kind, root: Rank, data: &mut [u8]) -> Result<(), Error> {
        let during = call_name(kind);
        if root.0 >= self.place.size {
            let problem = format!("root {root} is outside the job of {} ranks", self.place.size);
            return Err(Error::Argument { during, problem });
        }
        if kind != Kind::Broadcast && self.page.local_of(root).is_none() {
            let problem = format!("root {root} is not on the host of rank {}", self.place.rank);
            return Err(Error::Argument { during, problem });
        }
        let len = check_len(during, data.len(), 1)?;
        let gives: &[u8] = if root == self.place.rank { data } else { &[] };
        match self.call(kind, root.0, len, gives, data.len())? {
            Reply::Release if root == self.place.rank => Ok(()),
            Reply::Data(bytes) if root != self.place.rank && bytes.len() == data.len() => {
                data.copy_from_slice(&bytes);
                Ok(())
            }
            other => Err(wrong(during, &other)),
        }
    }
}

fn wrong(during: &'static str, reply: &Reply) -> Error {
    Error::Protocol { during, seen: format!("{reply} in answer") }
}

/// `len` as wire length, when `len * times` is within the limit of one result.
fn check_len(during: &'static str, len: usize, times: u32) -> Result<u64, Error> {
    match len.checked_mul(times as usize) {
        Some(whole) if whole <= MAX_TOTAL => Ok(len as u64),
        _ => {
            let problem =
                format!("{len} bytes for each of {times} ranks, at most {MAX_TOTAL} bytes in all");
            Err(Error::Argument { during, problem })
        }
    }
}

impl<C: Channel> Bootstrap for Client<C> {
    fn rank_info(&self) -> RankInfo {
        self.place
    }

    fn node_shm(&self) -> &Arc<NodeShm> {
        &self.page
    }

    fn exit_notifier(&self) -> ExitNotifier {
        self.channel.exit_notifier()
    }

    fn barrier(&mut self) -> Result<(), Error> {
        match self.call(Kind::Barrier, 0, 0, &[], 0)? {
            Reply::Release => Ok(()),
            other => Err(wrong("barrier", &other)),
        }
    }

    fn exchange(&mut self, mine: &[u8]) -> Result<Shared, Error> {
        let len = check_len("exchange", mine.len(), self.place.size)?;
        let whole = mine.len() * self.place.size as usize;
        match self.call(Kind::Exchange, 0, len, mine, whole)? {
            Reply::Mapped(shared) if shared.len() == whole => Ok(shared),
            other => Err(wrong("exchange", &other)),
        }
    }

    fn alltoall(&mut self, rows: &[u8], len: usize) -> Result<Vec<u8>, Error> {
        let during = "alltoall";
        if len.checked_mul(self.place.size as usize) != Some(rows.len()) {
            let size = self.place.size;
            let problem = format!("{} bytes are not {size} rows of {len} bytes", rows.len());
            return Err(Error::Argument { during, problem });
        }
        let whole = check_len(during, rows.len(), self.place.size)?;
        match self.call(Kind::Alltoall, 0, whole, rows, rows.len())? {
            Reply::Data(bytes) if bytes.len() == rows.len() => Ok(bytes),
            other => Err(wrong(during, &other)),
        }
    }

    fn broadcast(&mut self, root: Rank, data: &mut [u8]) -> Result<(), Error> {
        self.spread(Kind::Broadcast, root, data)
    }

    fn neighbourhood_broadcast(&mut self, root: Rank, data: &mut [u8]) -> Result<(), Error> {
        self.spread(Kind::NbrhdBroadcast, root, data)
    }

    fn host_broadcast(&mut self, root: Rank, data: &mut [u8]) -> Result<(), Error> {
        self.spread(Kind::HostBroadcast, root, data)
    }

    fn host_memory(&mut self, len: usize) -> Result<OwnedFd, Error> {
        match self.call(Kind::HostMemory, 0, len as u64, &[], len)? {
            Reply::Memory(fd) => Ok(fd),
            other => Err(wrong("host memory", &other)),
        }
    }

    fn cleanup(&mut self) {
        self.channel.cleanup();
    }

    fn fini(&mut self, code: i32) -> Result<(), Error> {
        self.channel.fini(code, &self.page)
    }

    fn abort(&mut self, code: i32) -> ! {
        self.channel.exit_notifier().abort(code);
        crate::sys::end_process(code)
    }
}
