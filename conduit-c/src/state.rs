//! What the process has joined: one client, the objects that handles name, and the structure that
//! inline functions of the headers read.

use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use gasnet_ibv::inner::{self, Group, Inner};
use gasnet_ibv::{Client, Rank};

use crate::M;
use crate::checks::ON;
use crate::collectives::Collectives;
use crate::fail::{Fail, ensure};
use crate::teams::{Team, Teams};
use crate::types::{Flags, Handle};

/// An object without contents of its own: handle and client data.
#[repr(C, align(16))]
pub struct Object {
    pub cdata: AtomicPtr<c_void>,
}

impl Object {
    pub const fn new() -> Self {
        Self { cdata: AtomicPtr::new(null_mut()) }
    }

    pub const fn handle(&self) -> *mut c_void {
        std::ptr::from_ref(self).cast_mut().cast()
    }
}

pub static CLIENT: Object = Object::new();
pub static TM0: Object = Object::new();

pub struct Endpoint {
    pub object: Object,
    pub index: u16,
    /// Those that were bound are never freed.
    segment: OnceLock<&'static Segment>,
}

/// Objects that the program made.
pub struct Objects {
    /// At the place of their index; the first is there from init on.
    pub endpoints: Vec<&'static Endpoint>,
    pub segments: Vec<&'static Segment>,
}

impl Endpoint {
    /// A fresh one, never freed.
    pub fn new(index: u16) -> &'static Self {
        Box::leak(Box::new(Self { object: Object::new(), index, segment: OnceLock::new() }))
    }

    /// The segment bound to a local endpoint.
    pub fn segment(&self) -> Option<&'static Segment> {
        self.segment.get().copied()
    }

    /// Its handle, null without one.
    pub fn segment_handle(&self) -> *mut c_void {
        self.segment().map_or(null_mut(), |segment| segment.object.handle())
    }

    fn has_one(&self) -> Fail {
        Fail::bad(format!("endpoint {} has a segment already", self.index))
    }

    /// Whether a segment can be bound.
    pub fn check_free(&self) -> Result<(), Fail> {
        self.segment.get().map_or(Ok(()), |_| Err(self.has_one()))
    }

    /// Binds; the endpoint has none yet.
    pub fn bind(&self, segment: &'static Segment) -> Result<(), Fail> {
        self.segment.set(segment).map_err(|_| self.has_one())?;
        segment.bound.store(true, Ordering::Relaxed);
        Ok(())
    }
}

/// Whose the memory of a segment is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// The host's: made by attach, so that all its ranks map it.
    Attached,
    /// The library's, which frees it.
    Owned,
    /// The program's.
    Program,
}

/// A local segment.
pub struct Segment {
    pub object: Object,
    pub address: usize,
    pub size: usize,
    pub memory: Memory,
    pub bound: AtomicBool,
}

/// A segment of any rank, in its owner's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    pub address: usize,
    pub size: usize,
    pub process: i32,
}

/// `struct gexi_peer`.
#[repr(C)]
pub struct Peer {
    pub owner_base: AtomicUsize,
    pub size: AtomicUsize,
    pub local_base: AtomicUsize,
    reserved: AtomicUsize,
}

// The inline path finds an entry by a shift; a rank has one for each neighbour (docs/design/c-face.md).
const _: () = assert!(size_of::<Peer>() == 32);

impl Peer {
    pub const fn new() -> Self {
        Self {
            owner_base: AtomicUsize::new(0),
            size: AtomicUsize::new(0),
            local_base: AtomicUsize::new(0),
            reserved: AtomicUsize::new(0),
        }
    }
}

/// `struct gexi_world`.
#[repr(C, align(64))]
pub struct World {
    abi: AtomicU32,
    mode: AtomicU32,
    pub tm0: AtomicPtr<c_void>,
    pub rank: AtomicU32,
    pub size: AtomicU32,
    pub peers: AtomicPtr<Peer>,
    pub peer_first: AtomicU32,
    pub peer_count: AtomicU32,
    pub ep0: AtomicPtr<c_void>,
    pub client: AtomicPtr<c_void>,
    reserved: AtomicU64,
}

/// No peer: what `peers` shows until init.
static NOBODY: Peer = Peer::new();

/// `GEXI_MODE_NUMBER`.
const MODE: u32 = match (cfg!(feature = "seq"), cfg!(feature = "parsync")) {
    (true, _) => 1,
    (_, true) => 2,
    _ => 3,
};

#[unsafe(no_mangle)]
pub static gexi_world: World = World {
    abi: AtomicU32::new(1),
    mode: AtomicU32::new(MODE),
    tm0: AtomicPtr::new(std::ptr::without_provenance_mut(2)),
    rank: AtomicU32::new(0),
    size: AtomicU32::new(0),
    peers: AtomicPtr::new((&raw const NOBODY).cast_mut()),
    peer_first: AtomicU32::new(0),
    peer_count: AtomicU32::new(0),
    ep0: AtomicPtr::new(null_mut()),
    client: AtomicPtr::new(null_mut()),
    reserved: AtomicU64::new(0),
};

/// The process as a rank.
pub struct State {
    pub client: Client<M>,
    pub inner: Inner,
    pub name: CString,
    pub flags: Flags,
    pub rank: u32,
    pub size: u32,
    /// What is mapped here, by index among the neighbours.
    pub peers: &'static [Peer],
    /// Job ranks of the neighbourhood, and of the host, once a query has asked for the array.
    pub neighbours: OnceLock<Box<[u32]>>,
    pub host_ranks: OnceLock<Box<[u32]>>,
    pub ep0: &'static Endpoint,
    pub objects: Mutex<Objects>,
    /// Segments that were published, and are not in `peers`, by rank and endpoint.
    pub published: RwLock<HashMap<(u32, u16), Published>>,
    /// In the segment mode EVERYTHING: processes of the neighbours, 0 for one whose memory the
    /// system does not let this rank reach.
    pub across: OnceLock<Box<[i32]>>,
    pub collectives: Collectives,
    /// The team of all ranks.
    pub whole: Arc<Group>,
    /// The others.
    pub teams: Teams,
    /// `gex_System_QueryProgressThreads` was answered.
    pub threads_asked: AtomicBool,
}

static STATE: AtomicPtr<State> = AtomicPtr::new(null_mut());

/// The state, `None` before init.
#[inline]
pub fn get() -> Option<&'static State> {
    // SAFETY: null, or leaked by `set` and never changed again.
    unsafe { STATE.load(Ordering::Acquire).as_ref() }
}

/// The state, or the error of a call before init.
#[inline]
pub fn open() -> Result<&'static State, Fail> {
    get().ok_or_else(Fail::not_init)
}

pub fn set(state: State) -> &'static State {
    let state = Box::leak(Box::new(state));
    STATE.store(state, Ordering::Release);
    state
}

/// Whether a handle is the team of all ranks.
#[inline(always)]
pub fn is_whole_team(tm: Handle) -> bool {
    std::ptr::eq(tm, TM0.handle())
}

/// Where a point-to-point call goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    pub rank: u32,
    /// Index of the remote endpoint.
    pub endpoint: u16,
    /// Index of the local endpoint.
    pub from: u16,
}

impl State {
    pub fn objects(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resolves the `tm` and rank of a point-to-point call.
    #[inline]
    pub fn target(&self, tm: Handle, rank: u32) -> Result<Target, Fail> {
        if is_whole_team(tm) && rank < self.size {
            return Ok(Target { rank, endpoint: 0, from: 0 });
        }
        self.other_target(tm, rank)
    }

    /// As [`State::target`] for pairs, other teams, and ranks that there are not.
    fn other_target(&self, tm: Handle, rank: u32) -> Result<Target, Fail> {
        if is_whole_team(tm) {
            return Err(no_rank(rank, self.size));
        }
        if !is_pair(tm) {
            let job_rank = |team: &Arc<Team>| {
                team.group.job_rank(rank).ok_or_else(|| no_rank(rank, team.group.size()))
            };
            let rank = self.teams.with(tm, job_rank)??;
            return Ok(Target { rank, endpoint: 0, from: 0 });
        }
        if rank >= self.size {
            return Err(no_rank(rank, self.size));
        }
        let (endpoint, from) = self.pair(tm)?;
        Ok(Target { rank, endpoint, from })
    }

    /// As [`State::target`] for messages, which only first endpoints can send and receive; also the
    /// rank in the job.
    #[inline]
    pub fn message_target(&self, tm: Handle, rank: u32) -> Result<(inner::Target, u32), Fail> {
        let target = self.target(tm, rank)?;
        ensure!(
            target.endpoint == 0 && target.from == 0,
            "only endpoints of index 0 send and receive messages"
        );
        Ok((self.inner.target("message", Rank(target.rank))?, target.rank))
    }

    /// Remote and local index of a pair.
    fn pair(&self, tm: Handle) -> Result<(u16, u16), Fail> {
        let bits = tm.addr();
        ensure!(bits >> 32 == 0, "{tm:p} is not a pair");
        let index = |shift: u32| u16::try_from(bits >> shift & 0xfff).unwrap_or(u16::MAX);
        let (remote, local) = (index(20), index(8));
        ensure!(
            self.objects().endpoints.len() > usize::from(local),
            "pair with local endpoint {local}, which does not exist"
        );
        Ok((remote, local))
    }

    /// Local address of a range in the attached segment of a rank, `None` when it is not all in it.
    #[inline]
    pub fn reach(&self, rank: u32, address: usize, len: usize) -> Option<*mut u8> {
        let peer = self.peers.get(self.inner.local_of(Rank(rank))?)?;
        let size = peer.size.load(Ordering::Acquire);
        let offset = address.wrapping_sub(peer.owner_base.load(Ordering::Relaxed));
        if len == 0 || offset >= size || len > size - offset {
            return None;
        }
        let base = peer.local_base.load(Ordering::Relaxed);
        Some(std::ptr::with_exposed_provenance_mut(base + offset))
    }

    /// Whether a neighbour's memory, in the segment mode EVERYTHING, is reached by messages.
    pub fn goes_by_message(&self, target: inner::Target, endpoint: u16, process: i32) -> bool {
        process == 0 && endpoint == 0 && self.inner.goes_by_message(target, 0)
    }

    /// The segment bound to an endpoint, as far as this rank may know it.
    pub fn bound(&self, rank: u32, endpoint: u16) -> Option<Published> {
        if endpoint == 0 && self.inner.segment_mode().is_everything() {
            let local = self.inner.local_of(Rank(rank));
            let process = local.and_then(|local| self.across.get()?.get(local).copied());
            return Some(Published { address: 0, size: usize::MAX, process: process.unwrap_or(0) });
        }
        if rank == self.rank {
            let endpoint = self.objects().endpoints.get(usize::from(endpoint)).copied()?;
            let segment = endpoint.segment()?;
            let process = std::process::id().cast_signed();
            return Some(Published { address: segment.address, size: segment.size, process });
        }
        let attached = || {
            let found = self.inner.segment(self.inner.target("segment", Rank(rank)).ok()?)?;
            let (address, size) = (word(found.owner_base), word(found.len));
            Some(Published { address, size, process: 0 })
        };
        if endpoint == 0
            && let Some(segment) = attached()
        {
            return Some(segment);
        }
        let published = self.published.read().unwrap_or_else(PoisonError::into_inner);
        published.get(&(rank, endpoint)).copied()
    }
}

/// The state, when a handle is that of the client.
pub fn client(handle: Handle) -> Result<&'static State, Fail> {
    let state = open()?;
    find("client", handle, &[&CLIENT], |client| client).map(|_| state)
}

/// Whether a handle is a pair (local endpoint, index of the remote one).
#[inline]
fn is_pair(tm: Handle) -> bool {
    tm.addr() & 0xff == 1
}

#[cold]
fn no_rank(rank: u32, size: u32) -> Fail {
    Fail::bad(format!("rank {rank} is not in the team of {size} ranks"))
}

/// A team as collective calls and queries use it.
pub struct TeamRef {
    pub state: &'static State,
    /// What the program made; `None` for the team of all ranks.
    pub object: Option<Arc<Team>>,
}

impl TeamRef {
    pub fn group(&self) -> &Arc<Group> {
        self.object.as_ref().map_or(&self.state.whole, |team| &team.group)
    }

    /// Where the program's data about it is.
    pub fn data(&self) -> &Object {
        self.object.as_ref().map_or(&TM0, |team| &team.object)
    }

    /// This process's rank in it.
    pub fn rank(&self) -> u32 {
        self.group().rank()
    }

    pub fn size(&self) -> u32 {
        self.group().size()
    }

    /// The rank in the job of one of its ranks.
    pub fn job_rank(&self, rank: u32) -> Result<u32, Fail> {
        self.group().job_rank(rank).ok_or_else(|| no_rank(rank, self.size()))
    }

    /// A collective call begins. The debug library compares the order of such calls: members tell each
    /// other what they begin, and `alike`, what all of them must give alike.
    #[inline(always)]
    pub fn begins(&self, call: &'static str, alike: impl FnOnce() -> String) -> Result<(), Fail> {
        if ON {
            let text = format!("{call}({})", alike());
            self.state.inner.compare_order::<M>(call, self.group(), &text)?;
        }
        Ok(())
    }
}

/// The team of a handle, any but a pair.
pub fn team(tm: Handle) -> Result<TeamRef, Fail> {
    let state = open()?;
    if is_whole_team(tm) {
        return Ok(TeamRef { state, object: None });
    }
    ensure!(!is_pair(tm), "a pair names point-to-point traffic only, not a team");
    Ok(TeamRef { state, object: Some(state.teams.with(tm, Arc::clone)?) })
}

/// The state, when a handle is the team of all ranks, as some collective calls need it.
pub fn whole_team(tm: Handle) -> Result<&'static State, Fail> {
    let team = team(tm)?;
    ensure!(team.object.is_none(), "only the team of all ranks can do this");
    Ok(team.state)
}

pub fn endpoint(handle: Handle) -> Result<&'static Endpoint, Fail> {
    find("endpoint", handle, &open()?.objects().endpoints, |endpoint| &endpoint.object)
}

pub fn segment(handle: Handle) -> Result<&'static Segment, Fail> {
    find("segment", handle, &open()?.objects().segments, |segment| &segment.object)
}

/// An address or size from another rank.
pub fn word(word: u64) -> usize {
    usize::try_from(word).unwrap_or(0)
}

/// What has this handle.
fn find<T>(
    kind: &str,
    handle: Handle,
    all: &[&'static T],
    object: fn(&T) -> &Object,
) -> Result<&'static T, Fail> {
    let found = all.iter().find(|one| std::ptr::eq(handle, object(one).handle()));
    found.copied().ok_or_else(|| wrong(kind, handle))
}

#[cold]
fn wrong(kind: &str, handle: Handle) -> Fail {
    if handle.is_null() {
        return Fail::bad(format!("{kind} is null"));
    }
    Fail::bad(format!("{handle:p} is not a {kind} of this process"))
}
