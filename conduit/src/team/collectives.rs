//! Collectives of a team, for programs in Rust.

use bootstrap::Rank;

use crate::coll::{
    Buffers, Combine, DataType, Plain, ReduceOp, Reduction, Task, elements, elements_mut, refused,
};
use crate::endpoint::Team;
use crate::error::Error;
use crate::mode::Mode;
use crate::rma::operations::Op;

/// Types of elements that reductions have operations for.
pub trait Element: Plain {
    /// The type.
    const DATA: DataType;
}

macro_rules! element {
    ($($type:ty => $data:ident)*) => {$(
        impl Element for $type {
            const DATA: DataType = DataType::$data;
        }
    )*};
}

element!(i32 => I32 u32 => U32 i64 => I64 u64 => U64 f32 => F32 f64 => F64);

impl<M: Mode> Team<'_, M> {
    /// Waits (and polls) until every member has called it. Collective over the team.
    ///
    /// # Errors
    /// A call inside a handler; the end of the job.
    pub fn barrier(&self) -> Result<(), Error> {
        let (call, context) = ("barrier", self.context());
        if self.group.is_some() {
            return self.run(call, Task::barrier(self.group()));
        }
        // All ranks meet in shared memory, and by their leaders.
        context.check_open(call)?;
        context.check_outside::<M>(call)?;
        context.meet::<M>(call)
    }

    pub(super) fn check_root(&self, call: &'static str, root: Rank) -> Result<(), Error> {
        if root.0 < self.size() {
            return Ok(());
        }
        Err(Error::RankOutOfRange { call, rank: root, size: self.size() })
    }

    /// Copies `data` of the rank `root` to `data` of all. Collective over the team, with the same
    /// root and length on all; no barrier.
    ///
    /// # Errors
    /// A root outside the team; a call inside a handler; the end of the job.
    pub fn broadcast<T: Plain>(&self, root: Rank, data: &mut [T]) -> Result<(), Error> {
        let call = "broadcast";
        self.run(call, self.broadcast_task(call, root, data)?)
    }

    /// `data` is the collective's until it is complete; so with all of these.
    pub(crate) fn broadcast_task<T: Plain>(
        &self,
        call: &'static str,
        root: Rank,
        data: &mut [T],
    ) -> Result<Task, Error> {
        self.check_root(call, root)?;
        let len = size_of_val(data);
        Ok(Task::broadcast(self.group(), root.0, len, Buffers::of(None, Some(data))))
    }

    pub(crate) fn reduce_to_one_task<T: Element>(
        &self,
        call: &'static str,
        root: Rank,
        data: &mut [T],
        op: ReduceOp,
    ) -> Result<Task, Error> {
        self.reduce_one(call, root, data, builtin::<T>(call, op)?)
    }

    pub(super) fn run(&self, call: &'static str, task: Task) -> Result<(), Error> {
        self.context().run_collective::<M>(call, self.group(), task)
    }

    /// Combines `data` of all, element by element, into `data` of the rank `root`; that of the
    /// others stays as it is. Collective over the team, with the same root, operation and length on
    /// all; no barrier.
    ///
    /// # Errors
    /// A root outside the team; an operation that the type does not have; a call inside a handler;
    /// the end of the job.
    pub fn reduce_to_one<T: Element>(
        &self,
        root: Rank,
        data: &mut [T],
        op: ReduceOp,
    ) -> Result<(), Error> {
        let call = "reduce_to_one";
        self.run(call, self.reduce_to_one_task(call, root, data, op)?)
    }

    /// Combines `data` of all, element by element, into `data` of all. Collective over the team,
    /// with the same operation and length on all; no barrier.
    ///
    /// ```no_run
    /// # use gasnet_ibv::{Client, Error, ReduceOp, Seq};
    /// # fn f(client: &Client<Seq>) -> Result<(), Error> {
    /// let mut data = [f64::from(client.rank().0), 1.0];
    /// client.team().reduce_to_all(&mut data, ReduceOp::Add)?;
    /// println!("the mean rank is {}", data[0] / data[1]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Team::reduce_to_one`].
    pub fn reduce_to_all<T: Element>(&self, data: &mut [T], op: ReduceOp) -> Result<(), Error> {
        let call = "reduce_to_all";
        self.reduce_all(call, data, builtin::<T>(call, op)?)
    }

    /// As [`Team::reduce_to_one`] with a function of the program, which is associative: the left
    /// operand, which belongs to lower ranks, and the right one. It may not call the library.
    ///
    /// # Errors
    /// As [`Team::reduce_to_one`].
    pub fn reduce_to_one_with<T: Plain>(
        &self,
        root: Rank,
        data: &mut [T],
        combine: impl Fn(T, T) -> T + Send + Sync + 'static,
    ) -> Result<(), Error> {
        let call = "reduce_to_one_with";
        self.run(call, self.reduce_one(call, root, data, own(combine))?)
    }

    /// As [`Team::reduce_to_all`] with a function as in [`Team::reduce_to_one_with`].
    ///
    /// # Errors
    /// As [`Team::reduce_to_all`].
    pub fn reduce_to_all_with<T: Plain>(
        &self,
        data: &mut [T],
        combine: impl Fn(T, T) -> T + Send + Sync + 'static,
    ) -> Result<(), Error> {
        self.reduce_all("reduce_to_all_with", data, own(combine))
    }

    fn reduce_one<T: Plain>(
        &self,
        call: &'static str,
        root: Rank,
        data: &mut [T],
        (combine, check): (Combine, u64),
    ) -> Result<Task, Error> {
        self.check_root(call, root)?;
        let reduction = reduction(data, combine, check);
        let buffers = if root == self.rank() {
            Buffers::of(None, Some(data))
        } else {
            Buffers::of(Some(&*data), None)
        };
        Ok(Task::reduce_to_one(self.group(), root.0, reduction, buffers))
    }

    fn reduce_all<T: Plain>(
        &self,
        call: &'static str,
        data: &mut [T],
        (combine, check): (Combine, u64),
    ) -> Result<(), Error> {
        let reduction = reduction(data, combine, check);
        let buffers = Buffers::of(None, Some(data));
        self.context().reduce_to_all::<M>(call, self.group(), reduction, buffers)
    }

    /// As [`Team::reduce_to_all`], as an operation.
    pub(crate) fn start_reduce_to_all<T: Element>(
        &self,
        call: &'static str,
        data: &mut [T],
        op: ReduceOp,
    ) -> Result<Op, Error> {
        let (combine, check) = builtin::<T>(call, op)?;
        let reduction = reduction(data, combine, check);
        let buffers = Buffers::of(None, Some(data));
        self.context().start_reduction::<M>(call, self.group(), reduction, buffers)
    }
}

pub(super) fn reduction<T: Plain>(data: &[T], combine: Combine, check: u64) -> Reduction {
    let ordered = matches!(combine, Combine::Function(_));
    Reduction { combine, ordered, element: size_of::<T>(), len: size_of_val(data), check }
}

/// An operation of the library, and what members compare of it.
pub(super) fn builtin<T: Element>(
    call: &'static str,
    op: ReduceOp,
) -> Result<(Combine, u64), Error> {
    let combine = Combine::builtin(T::DATA, op).ok_or_else(|| {
        refused(call, format!("elements of type {:?} have no operation {op:?}", T::DATA))
    })?;
    Ok((combine, (T::DATA as u64) << 8 | op as u64))
}

pub(super) fn own<T: Plain>(combine: impl Fn(T, T) -> T + Send + Sync + 'static) -> (Combine, u64) {
    let function = move |left: &[u8], right: &mut [u8]| {
        for (left, right) in elements::<T>(left).iter().zip(elements_mut::<T>(right)) {
            *right = combine(*left, *right);
        }
    };
    (Combine::Function(Box::new(function)), u64::MAX)
}
