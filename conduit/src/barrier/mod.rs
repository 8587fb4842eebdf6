//! Waiting for barriers: in shared memory, and between neighbourhoods by their leaders.

pub(crate) mod dissemination;
pub(crate) mod drive;
pub(crate) mod flags;

use crate::error::Error;
use crate::mode::Mode;
use crate::rank::RankContext;
use crate::trace::{self, Cause};
use crate::transport::net::NetTransport;
use crate::transport::shm::{BarrierName as Name, Which};
use crate::wait::Waiter;
use crate::wait_mode::WaitMode;

/// Times that a rank gives its processor away before it polls, where ranks share processors.
const YIELDS_BEFORE_POLL: u32 = 4;

impl RankContext {
    #[inline]
    pub(crate) fn pass<M: Mode>(&self, which: Which, call: &'static str) -> Result<Name, Error> {
        if let Some(name) = self.shm().try_pass(which) {
            return Ok(name);
        }
        let _span = trace::reaches();
        let mut passed = None;
        let pass = || {
            passed = self.shm().try_pass(which);
            Ok::<_, Error>(passed.is_some())
        };
        self.yield_until(pass)?;
        match passed {
            Some(name) => Ok(name),
            None => self.pass_slowly::<M>(which, call),
        }
    }

    /// This rank has come to a barrier. Where it is the leader, and the last of its neighbourhood,
    /// the other leaders are told at once.
    #[inline]
    pub(crate) fn arrive(&self, which: Which, name: Name) {
        self.shm().arrive(which, name);
        if self.may_disseminate(which) {
            self.drive_barriers();
        }
    }

    /// Where ranks share processors: gives this one away a few times, until `done`. Others need it
    /// to arrive, and have usually done so when it comes back: a poll in between would only fetch
    /// lines that they have pushed out. Not where a barrier goes on by polls of this rank.
    #[inline]
    pub fn yield_until<E>(&self, mut done: impl FnMut() -> Result<bool, E>) -> Result<bool, E> {
        if !self.waits.may_spin() && self.waits.mode() != WaitMode::Spin && !self.waits.wanted() {
            for _ in 0..YIELDS_BEFORE_POLL {
                if self.disseminates() {
                    break;
                }
                self.waits.give_way();
                if done()? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    #[inline(never)]
    fn pass_slowly<M: Mode>(&self, which: Which, call: &'static str) -> Result<Name, Error> {
        let mut waiter = Waiter::for_cause(Cause::Barrier);
        loop {
            if let Some(name) = self.shm().try_pass(which) {
                return Ok(name);
            }
            if waiter.poll::<M>(self, call, || self.shm().is_open(which))? > 0 {
                waiter.progressed();
            } else {
                waiter.idle(self, || self.has_work() || self.shm().is_open(which));
            }
        }
    }

    /// The library's own barrier (attach); serves messages while it waits.
    pub fn meet<M: Mode>(&self, call: &'static str) -> Result<(), Error> {
        self.arrive(Which::Inner, Name::Anonymous);
        self.pass::<M>(Which::Inner, call).map(|_| ())
    }

    /// As [`RankContext::meet`] before the client can send anything. Over several neighbourhoods
    /// the bootstrap services make it, so that a rank is connected to nobody when it starts to
    /// work.
    pub fn meet_at_start<M: Mode>(&self, call: &'static str) -> Result<(), Error> {
        if !self.networked() {
            return self.meet::<M>(call);
        }
        let met = self.services(|services| services.barrier());
        if met.is_err() {
            // Where the end of the job is decided, that is what the caller hears.
            self.check_open(call)?;
        }
        met?;
        Ok(self.transport.net().map_or(Ok(()), NetTransport::begin)?)
    }
}
