//! Atomic domains of Rust programs: typed, blocking.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bootstrap::Rank;

use crate::atomics::domain::Domain;
use crate::atomics::offload::Favor;
use crate::atomics::pending::ResultPlace;
use crate::atomics::remote::RemoteAtomic;
use crate::atomics::semantics::AtomicType;
use crate::atomics::types::{AtomicOp, AtomicOps};
use crate::atomics::word::AtomicCall;
use crate::client::Client;
use crate::coll::Group;
use crate::endpoint::Team;
use crate::error::Error;
use crate::mode::Mode;
use crate::trace::{self, TransferKind};

/// What an operation gave: the old value of its word, if it fetches.
#[derive(Clone, Debug)]
pub struct Fetched<T>(Value<T>);

#[derive(Clone, Debug)]
enum Value<T> {
    Here(T),
    /// The operation that writes it is complete when somebody has it.
    Cell(Arc<AtomicU64>),
}

impl<T: AtomicType> Fetched<T> {
    pub(crate) const fn here(value: T) -> Self {
        Self(Value::Here(value))
    }

    /// A value to come, and where it goes.
    pub(crate) fn to_come(op: AtomicOp) -> (Self, ResultPlace) {
        if !op.fetches() {
            return (Self::here(T::default()), ResultPlace::Nowhere);
        }
        let cell = Arc::default();
        (Self(Value::Cell(Arc::clone(&cell))), ResultPlace::Cell(cell))
    }

    /// The value; zero for an operation that does not fetch.
    #[must_use]
    pub fn value(&self) -> T {
        match &self.0 {
            Value::Here(value) => *value,
            Value::Cell(cell) => T::from_word(cell.load(Ordering::Relaxed)),
        }
    }
}

/// Operations on words of one type, atomic to each other on whatever rank and thread they start;
/// made by [`Team::atomic_domain`].
///
/// A word is named by its rank in the team and its offset in that rank's segment, a multiple of its
/// size. The domain stays usable when its team is dropped. While
/// a domain operates on a word nothing else may write it: no put, no other domain, no plain store.
/// Between such phases all who were concerned wait for their operations and meet in a barrier.
///
/// Every operation is complete when its call returns; [`Scope::atomic_nb`](crate::Scope::atomic_nb)
/// and its neighbours start some that are not. A word of a neighbour is operated on directly, by an
/// instruction of the processor where there is one.
///
/// ```no_run
/// # use gasnet_ibv::{AtomicOps, Client, Error, Rank, Seq};
/// # fn f(client: &Client<Seq>) -> Result<(), Error> {
/// let team = client.team();
/// let counters = team.atomic_domain::<u64>(AtomicOps::FADD | AtomicOps::GET)?;
/// let ticket = counters.fetch_add(Rank(0), 64, 1)?;
/// // Of a team that was split off: its rank 0 is another one.
/// if let Some(pair) = team.split(Some(team.rank().0 / 2), 0)? {
///     let sums = pair.atomic_domain::<f64>(AtomicOps::ADD)?;
///     sums.add(Rank(0), 128, 0.5)?;
/// }
/// # let _ = ticket;
/// # Ok(())
/// # }
/// ```
pub struct AtomicDomain<'c, T: AtomicType, M: Mode> {
    client: &'c Client<M>,
    /// Whose ranks operations name; `None` for the team of all.
    group: Option<Arc<Group>>,
    pub(crate) domain: Domain,
    words: PhantomData<T>,
}

impl<T: AtomicType, M: Mode> fmt::Debug for AtomicDomain<'_, T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AtomicDomain({}, {:?})", T::DATA_TYPE, self.domain.operations())
    }
}

impl<'c, M: Mode> Team<'c, M> {
    /// A domain for `operations` on words of type `T`. Collective over the team by intent: every
    /// rank that starts operations makes it alike. Talks to nobody, does not wait.
    ///
    /// # Errors
    /// An operation that does not exist for the type: the bitwise ones for floating point.
    pub fn atomic_domain<T: AtomicType>(
        &self,
        operations: AtomicOps,
    ) -> Result<AtomicDomain<'c, T, M>, Error> {
        self.atomic_domain_for(operations, Favor::Any)
    }

    /// As [`Team::atomic_domain`], with a hint where most operations will go, the same on all
    /// ranks. Adapters do the operations of a domain when they can do each of them: get, add,
    /// subtract, increment, decrement and compare-and-swap of 64 bits, of floating point get and
    /// compare-and-swap. Where they are atomic only to themselves, operations on near words go
    /// through the adapter, too, unless [`Favor::Near`] keeps the domain off it.
    ///
    /// # Errors
    /// As [`Team::atomic_domain`].
    pub fn atomic_domain_for<T: AtomicType>(
        &self,
        operations: AtomicOps,
        favor: Favor,
    ) -> Result<AtomicDomain<'c, T, M>, Error> {
        let domain = Domain::new("atomic_domain", T::DATA_TYPE, operations)?;
        let context = &self.client.context;
        let group = self.group.clone();
        let together = group.as_ref().unwrap_or(&context.collectives.whole).is_together();
        let of = (T::DATA_TYPE, operations);
        let domain = domain.offloaded(context.offload(of, favor, together));
        Ok(AtomicDomain { client: self.client, group, domain, words: PhantomData })
    }
}

impl<T: AtomicType, M: Mode> AtomicDomain<'_, T, M> {
    /// Operations that it was made for.
    #[must_use]
    pub const fn operations(&self) -> AtomicOps {
        self.domain.operations()
    }

    /// Does `op` on the word at `offset` of `rank`'s segment; operands that it does not have are
    /// ignored. The old value, if it fetches.
    ///
    /// # Errors
    /// An operation that the domain was not made for, a rank outside the team, an offset that is
    /// outside the segment or no multiple of the word's size, a call inside a handler, the end of
    /// the job.
    #[inline]
    pub fn apply(
        &self,
        rank: Rank,
        offset: u64,
        op: AtomicOp,
        operands: [T; 2],
    ) -> Result<Option<T>, Error> {
        let old = self.apply_as("apply", (rank, offset), op, operands)?;
        Ok(op.fetches().then_some(old))
    }

    /// The rank of the job that `rank` of the team is.
    #[inline]
    pub(crate) fn target(&self, call: &'static str, rank: Rank) -> Result<usize, Error> {
        let job = match &self.group {
            None => rank,
            Some(group) => Rank(group.job_rank(rank.0).ok_or_else(|| {
                let size = group.size();
                Error::RankOutOfRange { call, rank, size }
            })?),
        };
        self.client.context.rma_target::<M>(call, job)
    }

    #[inline]
    fn apply_as(
        &self,
        call: &'static str,
        (rank, offset): (Rank, u64),
        op: AtomicOp,
        operands: [T; 2],
    ) -> Result<T, Error> {
        self.domain.check(call, op)?;
        let context = &self.client.context;
        let target = self.target(call, rank)?;
        let _span = trace::transfer(TransferKind::Atomic, rank, T::DATA_TYPE.size());
        let atomic =
            AtomicCall { data_type: T::DATA_TYPE, op, operands: operands.map(T::into_word) };
        let done = context.atomic_by_adapter::<M>(call, (target, offset), &self.domain, atomic);
        if let Some(done) = done {
            return done.map(T::from_word);
        }
        let word = context.atomic_word(call, (target, offset), &self.domain)?;
        if let Some(old) = word.and_then(|word| word.operate(op, operands)) {
            return Ok(old);
        }
        self.remote(call, target, offset, op, operands)
    }

    /// What another rank is asked to do.
    pub(crate) fn request(
        (call, target, offset): (&'static str, usize, u64),
        op: AtomicOp,
        operands: [T; 2],
        immediate: bool,
    ) -> RemoteAtomic {
        let operands = operands.map(T::into_word);
        let atomic = AtomicCall { data_type: T::DATA_TYPE, op, operands };
        let word = Some(offset);
        RemoteAtomic { call, target, endpoint: 0, place: offset, word, atomic, immediate }
    }

    #[inline(never)]
    fn remote(
        &self,
        call: &'static str,
        target: usize,
        offset: u64,
        op: AtomicOp,
        operands: [T; 2],
    ) -> Result<T, Error> {
        let context = &self.client.context;
        let remote = Self::request((call, target, offset), op, operands, false);
        let (number, row) = context.begin(call)?;
        let (fetched, place) = Fetched::to_come(op);
        let sent = context.atomic_counted::<M>(&self.domain, &remote, &row, place);
        let done = sent.and_then(|_sent| context.wait_atomics::<M>(call, &row));
        context.operations.forget(number);
        done.map(|()| fetched.value())
    }
}

/// Calls that differ in their operation and operands only.
macro_rules! calls {
    ($($(#[$doc:meta])* $name:ident($($operand:ident),*) $op:ident $(-> $old:ident)?;)*) => {
        impl<T: AtomicType, M: Mode> AtomicDomain<'_, T, M> {$(
            $(#[$doc])*
            ///
            /// # Errors
            /// As [`AtomicDomain::apply`].
            #[inline]
            pub fn $name(&self, rank: Rank, offset: u64 $(, $operand: T)*) -> Result<calls!(= $($old)?), Error> {
                let operands = calls!(@ $($operand)*);
                let old = self.apply_as(stringify!($name), (rank, offset), AtomicOp::$op, operands)?;
                calls!(! old $($old)?)
            }
        )*}
    };
    (@) => { [T::default(); 2] };
    (@ $one:ident) => { [$one, T::default()] };
    (@ $one:ident $two:ident) => { [$one, $two] };
    (=) => { () };
    (= $old:ident) => { T };
    (! $value:ident) => {{ let _not_fetched = $value; Ok(()) }};
    (! $value:ident $old:ident) => { Ok($value) };
}

calls! {
    /// The value of the word.
    get() Get -> old;
    /// Replaces the word.
    set(value) Set;
    /// Replaces the word; its old value.
    swap(value) Swap -> old;
    /// Replaces the word by `new` where it is `expected`, compared by bits.
    compare_and_set(expected, new) Cas;
    /// As [`AtomicDomain::compare_and_set`]; the old value, which is `expected` when it was
    /// replaced.
    compare_and_swap(expected, new) FCas -> old;
    /// Adds, wrapping.
    add(value) Add;
    /// Adds, wrapping; the old value.
    fetch_add(value) FAdd -> old;
    /// Subtracts, wrapping.
    sub(value) Sub;
    /// Subtracts, wrapping; the old value.
    fetch_sub(value) FSub -> old;
    /// Multiplies, wrapping.
    mult(value) Mult;
    /// Multiplies, wrapping; the old value.
    fetch_mult(value) FMult -> old;
    /// Keeps the smaller value.
    min(value) Min;
    /// Keeps the smaller value; the old value.
    fetch_min(value) FMin -> old;
    /// Keeps the larger value.
    max(value) Max;
    /// Keeps the larger value; the old value.
    fetch_max(value) FMax -> old;
    /// Adds 1, wrapping.
    inc() Inc;
    /// Adds 1, wrapping; the old value.
    fetch_inc() FInc -> old;
    /// Subtracts 1, wrapping.
    dec() Dec;
    /// Subtracts 1, wrapping; the old value.
    fetch_dec() FDec -> old;
    /// Bitwise and; integers only.
    and(bits) And;
    /// Bitwise and; the old value. Integers only.
    fetch_and(bits) FAnd -> old;
    /// Bitwise or; integers only.
    or(bits) Or;
    /// Bitwise or; the old value. Integers only.
    fetch_or(bits) FOr -> old;
    /// Bitwise exclusive or; integers only.
    xor(bits) Xor;
    /// Bitwise exclusive or; the old value. Integers only.
    fetch_xor(bits) FXor -> old;
}
