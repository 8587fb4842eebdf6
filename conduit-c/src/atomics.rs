//! Atomic domains and their operations: `gasnet_ratomic.h`. The header does on mapped memory what
//! it can without a call; all else, and every error, is here.

use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use gasnet_ibv::inner::{
    AtomicCall, AtomicWord, Domain, Group, Offload, Place, Refusal, RemoteAtomic, ResultPlace,
};
use gasnet_ibv::inner::{TransferKind, transfer};
use gasnet_ibv::{AtomicOp, AtomicOps, AtomicType, DataType, Favor, Rank};

use crate::M;
use crate::arguments::{answer, check_place};
use crate::fail::{Fail, ensure, must};
use crate::query::answers;
use crate::rma::{self, Answer, Injection};
use crate::state::{self, Object, Published, State, Target};
use crate::transfer::{Access, locate};
use crate::types::{EventValue, Flags, Handle, IMMEDIATE};

/// Flags of creation: hints where most operations will go.
const FAVOR_NEAR: Flags = 1 | 2;
const FAVOR_REMOTE: Flags = 4;
const FAVOR: Flags = FAVOR_NEAR | FAVOR_REMOTE;
/// Flags of operations.
const RELEASE: Flags = 1 << 1;
const ACQUIRE: Flags = 1 << 2;
const MY_RANK: Flags = 1 << 11;
const MY_NEIGHBOURHOOD: Flags = 1 << 12;
const RANK_IS_JOBRANK: Flags = 1 << 13;
/// What every target is: a place by address in the bound segment, found by the library.
const SEGMENT_HINTS: Flags = 1 << 3 | 1 << 4 | 1 << 5 | 1 << 7 | 1 << 8 | 1 << 9;
const OPERATION_FLAGS: Flags =
    IMMEDIATE | RELEASE | ACQUIRE | MY_RANK | MY_NEIGHBOURHOOD | RANK_IS_JOBRANK | SEGMENT_HINTS;

/// `struct gexi_ad_s`, which the header reads; never freed.
#[repr(C)]
pub struct Shown {
    object: Object,
    /// `GEXI_AD_DIRECT` of the operations that the header may do by itself: none of a team that it
    /// cannot translate, none that only adapters do, none once the domain is destroyed.
    direct: AtomicU64,
}

/// An atomic domain.
#[repr(C)]
struct Created {
    shown: Shown,
    tm: AtomicPtr<c_void>,
    /// Whose ranks operations name; `None` for the team of all.
    group: Option<Arc<Group>>,
    flags: Flags,
    domain: Domain,
}

impl Created {
    fn handle(&self) -> *mut c_void {
        self.shown.object.handle()
    }

    /// Whose word an operation is for.
    #[inline]
    fn target(&self, state: &State, rank: u32, is_job_rank: bool) -> Result<Target, Fail> {
        let size = self.group.as_ref().map_or(state.size, |group| group.size());
        let found = match &self.group {
            None => Some(rank).filter(|rank| *rank < size),
            Some(group) if is_job_rank => group.rank_of(rank).map(|_| rank),
            Some(group) => group.job_rank(rank),
        };
        let Some(rank) = found else {
            let of = if is_job_rank { " of the job" } else { "" };
            return Err(Fail::bad(format!("rank {rank}{of} is not in the team of {size} ranks")));
        };
        Ok(Target { rank, endpoint: 0, from: 0 })
    }
}

/// Domains by handle; those that were destroyed have none any more.
type Domains = HashMap<usize, Option<&'static Created>>;

fn domains() -> MutexGuard<'static, Domains> {
    static DOMAINS: OnceLock<Mutex<Domains>> = OnceLock::new();
    DOMAINS.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// The domain that was named last, unless it was destroyed since: most programs have one.
static LAST: AtomicPtr<Created> = AtomicPtr::new(null_mut());

#[inline]
fn domain(ad: Handle) -> Result<&'static Created, Fail> {
    let last = LAST.load(Ordering::Acquire);
    if !last.is_null() && std::ptr::eq(last.cast_const().cast(), ad) {
        // SAFETY: of a domain that was created, which is never freed.
        return Ok(unsafe { &*last });
    }
    find(ad)
}

#[cold]
fn find(ad: Handle) -> Result<&'static Created, Fail> {
    state::open()?;
    ensure!(!ad.is_null(), "the atomic domain is GEX_AD_INVALID");
    let domains = domains();
    match domains.get(&ad.addr()) {
        None => Err(Fail::bad(format!("{ad:p} is not an atomic domain of this process"))),
        Some(None) => Err(Fail::bad("the atomic domain was destroyed")),
        Some(Some(found)) => {
            // Under the lock, as its end is.
            LAST.store(std::ptr::from_ref(*found).cast_mut(), Ordering::Release);
            Ok(found)
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gex_AD_Create(
    ad_p: *mut *mut c_void,
    tm: Handle,
    dt: u32,
    ops: u32,
    flags: Flags,
) {
    let call = "gex_AD_Create";
    must(call, || {
        let team = state::team(tm)?;
        let state = team.state;
        check_place(ad_p)?;
        state.inner.check_running(call)?;
        state.inner.check_outside::<M>(call)?;
        ensure!(
            flags & !FAVOR == 0,
            "flags {flags:#x}: the creation knows GEX_FLAG_AD_FAVOR_MY_RANK, _MY_NBRHD and _REMOTE"
        );
        let Some(data_type) = DataType::from_bit(dt) else {
            return Err(Fail::bad(format!(
                "type {dt:#x} is none of GEX_DT_I32, U32, I64, U64, FLT and DBL"
            )));
        };
        let unknown = ops & !AtomicOps::all().bits();
        ensure!(unknown == 0, "operations {ops:#x}: bits {unknown:#x} are none that atomics have");
        let ops = AtomicOps::from_bits_truncate(ops);
        let domain = Domain::new("atomic domain", data_type, ops)?;
        team.begins(call, || format!("dt {dt:#x}, ops {:#x}", ops.bits()))?;
        let favor = match flags {
            0 => Favor::Any,
            flags if flags & FAVOR_REMOTE != 0 => Favor::Remote,
            _ => Favor::Near,
        };
        let offload = state.inner.offload((data_type, ops), favor, team.group().is_together());
        let domain = domain.offloaded(offload);
        let direct = u64::from(dt) << 32 | u64::from(ops.bits());
        let group = team.object.as_ref().map(|_| Arc::clone(team.group()));
        let by_header = group.is_none() && offload != Offload::All;
        let direct = AtomicU64::new(if by_header { direct } else { 0 });
        let (shown, tm) = (Shown { object: Object::new(), direct }, AtomicPtr::new(tm.cast_mut()));
        let created: &Created = Box::leak(Box::new(Created { shown, tm, group, flags, domain }));
        domains().insert(created.handle().addr(), Some(created));
        answer(ad_p, created.handle());
        Ok(())
    });
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_AD_Destroy(ad: Handle) {
    let call = "gex_AD_Destroy";
    must(call, || {
        let created = domain(ad)?;
        state::open()?.inner.check_outside::<M>(call)?;
        let left = created.domain.in_flight();
        ensure!(
            left == 0,
            "{left} operations of the domain are in flight from this rank: all ranks wait for theirs \
             and meet in a barrier before they destroy it"
        );
        created.shown.direct.store(0, Ordering::Release);
        let mut domains = domains();
        domains.insert(ad.addr(), None);
        LAST.store(null_mut(), Ordering::Release);
        Ok(())
    });
}

answers! {
    domain:
    gex_AD_QueryFlags -> Flags, 0, |found| found.flags;
    gex_AD_QueryTM -> *mut c_void, null_mut(), |found| found.tm.load(Ordering::Relaxed);
    gex_AD_QueryDT -> u32, 0, |found| found.domain.data_type().bit();
    gex_AD_QueryOps -> u32, 0, |found| found.domain.operations().bits();
    gex_AD_QueryCData -> *mut c_void, null_mut(),
        |found| found.shown.object.cdata.load(Ordering::Relaxed);
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_AD_SetCData(ad: Handle, cdata: *const c_void) {
    must("gex_AD_SetCData", || {
        domain(ad)?.shown.object.cdata.store(cdata.cast_mut(), Ordering::Relaxed);
        Ok(())
    });
}

/// The word at an address of this process.
///
/// # Safety
/// `size` bytes at `at` are mapped for as long as the word is used, and whoever else accesses them
/// meanwhile does so by atomics, or breaks the rules of domains.
unsafe fn word_at<'a>(at: *mut u8, size: usize) -> Option<AtomicWord<'a>> {
    if !at.addr().is_multiple_of(size) {
        return None;
    }
    Some(if size == 4 {
        // SAFETY: aligned (checked above); the rest is the caller's promise.
        AtomicWord::Bits32(unsafe { AtomicU32::from_ptr(at.cast()) })
    } else {
        // SAFETY: as above.
        AtomicWord::Bits64(unsafe { AtomicU64::from_ptr(at.cast()) })
    })
}

/// A word of this rank that another one asks for by its address here.
pub fn own_word(endpoint: u16, address: u64, size: usize) -> Result<AtomicWord<'static>, Refusal> {
    let address = usize::try_from(address).map_err(|_| Refusal::Outside)?;
    let state = state::get().ok_or(Refusal::Outside)?;
    let attached = if endpoint == 0 { state.reach(state.rank, address, size) } else { None };
    let at = attached.or_else(|| {
        let segment = state.bound(state.rank, endpoint)?;
        let offset = address.wrapping_sub(segment.address);
        let inside = offset < segment.size && size <= segment.size - offset;
        inside.then(|| std::ptr::with_exposed_provenance_mut(address))
    });
    let at = at.ok_or(Refusal::Outside)?;
    // SAFETY: in a segment that is bound (checked above), which stays mapped.
    unsafe { word_at(at, size) }.ok_or(Refusal::Misaligned)
}

/// An operation as a program asks for it.
struct Operation<T> {
    call: &'static str,
    ad: Handle,
    result: *mut T,
    rank: u32,
    address: usize,
    op: u32,
    operands: [T; 2],
    flags: Flags,
}

impl<T: AtomicType> Operation<T> {
    /// Checks all but the place; the operation and whom it is for.
    fn check(&self, state: &State, created: &Created) -> Result<(AtomicOp, Target), Fail> {
        let Self { op, flags, .. } = *self;
        let (has, is) = (created.domain.data_type(), T::DATA_TYPE);
        ensure!(has == is, "the domain has type {has}, the call is for {is}");
        let Some(op) = AtomicOp::from_bit(op) else {
            return Err(Fail::bad(format!("{op:#x} is not one operation that atomics have")));
        };
        created.domain.check("atomic domain", op)?;
        let unknown = flags & !OPERATION_FLAGS;
        ensure!(unknown == 0, "flags {flags:#x}: bits {unknown:#x} are none that atomics have");
        ensure!(!op.fetches() || !self.result.is_null(), "result_p is null");
        state.inner.check_open(self.call)?;
        state.inner.check_outside::<M>(self.call)?;
        Ok((op, self.target(state, created)?))
    }

    fn target(&self, state: &State, created: &Created) -> Result<Target, Fail> {
        let target = created.target(state, self.rank, self.flags & RANK_IS_JOBRANK != 0)?;
        let (rank, me) = (target.rank, state.rank);
        ensure!(
            self.flags & MY_RANK == 0 || rank == me,
            "GEX_FLAG_AD_MY_RANK for rank {rank} of the job, which is not this one ({me})"
        );
        ensure!(
            self.flags & MY_NEIGHBOURHOOD == 0 || state.inner.local_of(Rank(rank)).is_some(),
            "GEX_FLAG_AD_MY_NBRHD for rank {rank} of the job, which shares no memory with this one ({me})"
        );
        Ok(target)
    }

    fn start(&self, implicit: bool) -> Result<Injection, Fail> {
        let state = state::open()?;
        let created = domain(self.ad)?;
        let (op, target) = self.check(state, created)?;
        let (address, size) = (self.address, T::DATA_TYPE.size());
        ensure!(address.is_multiple_of(size), "address {address:#x} is not a multiple of {size}");
        if self.flags & RELEASE != 0 {
            fence(Ordering::Release);
        }
        let offload = created.domain.offload();
        let _span = transfer(TransferKind::Atomic, Rank(target.rank), size);
        match locate(state, (target.rank, target.endpoint), address, size)? {
            Access::Mapped(at) if offload != Offload::All => {
                // SAFETY: in a segment that is mapped (`locate`), and stays so.
                let word = unsafe { word_at(at, size) };
                let old = word.and_then(|word| word.operate(op, self.operands));
                if let (true, Some(old)) = (op.fetches(), old) {
                    answer(self.result, old);
                }
                if self.flags & ACQUIRE != 0 {
                    fence(Ordering::Acquire);
                }
                Ok(Injection::Complete)
            }
            Access::Network(word) => {
                self.elsewhere(state, created, (op, target, Some(word)), implicit)
            }
            // A neighbour's or an own word, which is the adapter's.
            _ if offload == Offload::All => {
                let word = self.word(state, target)?;
                self.elsewhere(state, created, (op, target, Some(word)), implicit)
            }
            _ => self.elsewhere(state, created, (op, target, None), implicit),
        }
    }

    /// Where adapters find a word of a bound segment that `locate` has checked.
    fn word(&self, state: &State, Target { rank, endpoint, .. }: Target) -> Result<u64, Fail> {
        let offset = |segment: Published| self.address.wrapping_sub(segment.address) as u64;
        let offset = state.bound(rank, endpoint).map(offset);
        let word = offset.and_then(|offset| Place { endpoint, offset }.word());
        word.ok_or_else(|| Fail::bad("the word is not in a segment of less than 2^48 bytes"))
    }

    /// Only the owner or an adapter may reach the word. The owner's reply has acquired what the
    /// word's writers released, and every wait for it ends with a fence.
    #[cold]
    fn elsewhere(
        &self,
        state: &State,
        created: &Created,
        (op, Target { rank, endpoint, .. }, word): (AtomicOp, Target, Option<u64>),
        implicit: bool,
    ) -> Result<Injection, Fail> {
        let (inner, call) = (state.inner, self.call);
        let target = inner.target(call, Rank(rank))?;
        let (place, immediate) = (self.address as u64, self.flags & IMMEDIATE != 0);
        let operands = self.operands.map(T::into_word);
        let atomic = AtomicCall { data_type: T::DATA_TYPE, op, operands };
        let remote = RemoteAtomic { call, target, endpoint, place, word, atomic, immediate };
        let event = (!implicit).then_some(null_mut());
        rma::start(inner, call, event, |row| {
            inner.atomic_counted::<M>(&created.domain, &remote, row, self.place(op))
        })
    }

    /// Where the owner's reply goes.
    fn place(&self, op: AtomicOp) -> ResultPlace {
        if !op.fetches() {
            return ResultPlace::Nowhere;
        }
        let write = |at: *mut (), bits: u64| answer(at.cast::<T>(), T::from_word(bits));
        ResultPlace::Foreign(AtomicPtr::new(self.result.cast()), write)
    }
}

macro_rules! operations {
    ($($nb:ident $nbi:ident $type:ty: $nb_call:literal $nbi_call:literal;)*) => {$(
        operations!(@ $nb $type, $nb_call, false, EventValue);
        operations!(@ $nbi $type, $nbi_call, true, std::ffi::c_int);
    )*};
    (@ $name:ident $type:ty, $call:literal, $implicit:literal, $answer:ty) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            ad: Handle,
            result: *mut $type,
            rank: u32,
            address: *mut c_void,
            op: u32,
            operand1: $type,
            operand2: $type,
            flags: Flags,
        ) -> $answer {
            let (address, operands) = (address.addr(), [operand1, operand2]);
            let operation =
                Operation { call: $call, ad, result, rank, address, op, operands, flags };
            Answer::of($call, || operation.start($implicit))
        }
    };
}

operations! {
    gexi_AD_OpNB_I32 gexi_AD_OpNBI_I32 i32: "gex_AD_OpNB_I32" "gex_AD_OpNBI_I32";
    gexi_AD_OpNB_U32 gexi_AD_OpNBI_U32 u32: "gex_AD_OpNB_U32" "gex_AD_OpNBI_U32";
    gexi_AD_OpNB_I64 gexi_AD_OpNBI_I64 i64: "gex_AD_OpNB_I64" "gex_AD_OpNBI_I64";
    gexi_AD_OpNB_U64 gexi_AD_OpNBI_U64 u64: "gex_AD_OpNB_U64" "gex_AD_OpNBI_U64";
    gexi_AD_OpNB_FLT gexi_AD_OpNBI_FLT f32: "gex_AD_OpNB_FLT" "gex_AD_OpNBI_FLT";
    gexi_AD_OpNB_DBL gexi_AD_OpNBI_DBL f64: "gex_AD_OpNB_DBL" "gex_AD_OpNBI_DBL";
}
