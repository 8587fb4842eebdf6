//! The rank around its collectives: begins them, keeps what comes, sends from polls, waits.

use std::marker::PhantomData;
use std::sync::Arc;

use bootstrap::Rank;

use super::group::Group;
use super::letter::{BRIEF_HANDLER, Brief, HANDLER, Head, WORDS};
use super::machine::State;
use super::memory::Buffers;
use super::table::{Key, Running, Table};
use super::task::Task;
use super::ways::Ways;
use crate::error::Error;
use crate::foreign::ANY_ARGS;
use crate::handler::{Function, Registered, Role};
use crate::mode::Mode;
use crate::rank::RankContext;
use crate::rma::operations::{Op, OpCounters, Part};
use crate::trace::{self, Cause};
use crate::wait::Waiter;

/// The handler of the messages of collectives.
pub(crate) fn handler() -> Registered {
    let take: Function = Function::Medium(Box::new(|token, bytes, args| {
        token.context.collective_message(token.source(), args, bytes);
    }));
    Registered::new(HANDLER, "collective".to_owned(), WORDS, Role::Request, take)
}

/// That of messages whose data is among their arguments.
pub(crate) fn brief_handler() -> Registered {
    let take: Function = Function::Short(Box::new(|token, args| {
        let (words, mut data) = Brief::of(args);
        token.context.collective_message(token.source(), words, data.bytes());
    }));
    Registered::new(BRIEF_HANDLER, "brief collective".to_owned(), ANY_ARGS, Role::Request, take)
}

/// Gives a collective up that is not waited for, because of an error or a panic.
pub(super) struct GiveUp<'a>(pub(super) &'a RankContext, pub(super) Key);

impl Drop for GiveUp<'_> {
    fn drop(&mut self) {
        self.0.collectives.give_up(self.1);
    }
}

impl RankContext {
    /// The handler: keeps the message for the next poll, which goes on with its collective.
    fn collective_message(&self, source: Rank, args: &[i32], bytes: &mut [u8]) {
        let Some(head) = Head::decode(args) else {
            self.fatal(&format!("rank {source} sent words of a collective that are none"));
        };
        match self.collectives.try_lock() {
            Some(mut table) => self.take_letter(&mut table, source.0, &head, bytes),
            // It sends, or another thread does.
            None => self.collectives.post((source.0, head, bytes.to_vec())),
        }
        self.calls.stir();
        // A thread of this rank that sleeps has to send.
        self.shm().wake_own();
    }

    fn take_letter(&self, table: &mut Table, source: u32, head: &Head, bytes: &mut [u8]) {
        if let Err(problem) = table.take(source, head, bytes) {
            self.no_agreement(&format!("rank {source} {problem}"));
        }
    }

    #[cold]
    pub(super) fn no_agreement(&self, problem: &str) -> ! {
        self.fatal(&format!(
            "rank {}: collectives differ: {problem}; all members of a team must begin the same ones \
             in the same order, with the same sizes",
            self.rank_info.rank,
        ))
    }

    /// Begins a collective, counted by a row.
    fn begin_counted<M: Mode>(
        &self,
        call: &'static str,
        group: &Arc<Group>,
        task: Task,
        row: &Arc<OpCounters>,
    ) -> Result<Key, Error> {
        self.check_open(call)?;
        self.check_outside::<M>(call)?;
        trace::collective();
        let mut table = self.collectives.lock();
        let key = self.enter_collective(&mut table, group, task, row, (false, false));
        self.advance_collectives::<M>(&mut table);
        Ok(key)
    }

    /// Puts a collective into the table, with its number; linked as [`Running::link`] says.
    #[inline]
    fn enter_collective(
        &self,
        table: &mut Table,
        group: &Arc<Group>,
        task: Task,
        row: &Arc<OpCounters>,
        (held, leads): (bool, bool),
    ) -> Key {
        row.gets.begin(false);
        // Nobody else gets a number meanwhile.
        let key = (group.id, group.next());
        let mut running = Box::new(Running::new(group, task, Arc::clone(row)));
        running.link(held, leads);
        if let Err(problem) = table.begin(key, running) {
            self.no_agreement(&problem);
        }
        key
    }

    /// Begins collectives, at least one, each when the one before is complete here.
    pub(super) fn begin_chain<M: Mode>(
        &self,
        call: &'static str,
        group: &Arc<Group>,
        tasks: impl Iterator<Item = Task>,
    ) -> Result<Op, Error> {
        self.check_open(call)?;
        self.check_outside::<M>(call)?;
        let (op, row) = self.begin(call)?;
        trace::collective();
        let mut table = self.collectives.lock();
        let (mut held, mut tasks) = (false, tasks.peekable());
        while let Some(task) = tasks.next() {
            let links = (held, tasks.peek().is_some());
            self.enter_collective(&mut table, group, task, &row, links);
            held = true;
        }
        self.advance_collectives::<M>(&mut table);
        Ok(op)
    }

    /// Begins a collective for who knows operations by number.
    pub fn start_collective<M: Mode>(
        &self,
        call: &'static str,
        group: &Arc<Group>,
        task: Task,
    ) -> Result<Op, Error> {
        let (op, row) = self.begin(call)?;
        let begun = self.begin_counted::<M>(call, group, task, &row);
        if begun.is_err() {
            self.operations.forget(op);
        }
        begun.map(|_key| op)
    }

    /// A collective that is complete on return.
    pub fn run_collective<M: Mode>(
        &self,
        call: &'static str,
        group: &Arc<Group>,
        task: Task,
    ) -> Result<(), Error> {
        if let Some(row) = self.operations.borrow() {
            let done = self.pass_collective::<M>(call, group, task, row);
            self.operations.take_back();
            return done;
        }
        let (op, row) = self.begin(call)?;
        let done = self.pass_collective::<M>(call, group, task, &row);
        self.operations.forget(op);
        done
    }

    /// Begins a collective and waits (and polls) until it is complete.
    fn pass_collective<M: Mode>(
        &self,
        call: &'static str,
        group: &Arc<Group>,
        task: Task,
        row: &Arc<OpCounters>,
    ) -> Result<(), Error> {
        let key = self.begin_counted::<M>(call, group, task, row)?;
        let guard = GiveUp(self, key);
        let mut waiter = Waiter::for_cause(Cause::Collective);
        let complete = || row.is_complete(Part::ALL);
        while !complete() {
            if waiter.poll::<M>(self, call, || self.calls.is_stirred() || complete())? > 0 {
                waiter.progressed();
                // A message that a poll for messages alone has brought.
                if self.calls.is_stirred() {
                    self.drive_collectives::<M>();
                }
            } else {
                waiter.idle(self, || self.has_work() || complete());
            }
        }
        std::mem::forget(guard);
        Ok(())
    }

    /// A row of bytes, of the same length on all, from each member to all; in the order of their
    /// ranks.
    pub fn gather_all<M: Mode>(
        &self,
        call: &'static str,
        group: &Arc<Group>,
        row: &[u8],
    ) -> Result<Vec<u8>, Error> {
        let mut rows = row.to_vec();
        rows.resize(row.len() * group.size() as usize, 0);
        let task = Task::gather_all(group, row.len(), Buffers::of(None, Some(&mut rows[..])));
        self.run_collective::<M>(call, group, task)?;
        rows.rotate_right(row.len() * group.rank() as usize);
        Ok(rows)
    }

    /// Goes on with the collectives that something has come for; what a poll does after handlers
    /// have run.
    #[cold]
    #[inline(never)]
    pub(crate) fn drive_collectives<M: Mode>(&self) {
        let stirred = self.calls.is_stirred();
        if self.is_closed() || !stirred && self.collectives.whole.meets() && !self.may_meet() {
            return;
        }
        // Another thread that has it does so, and comes back for what comes now.
        if let Some(mut table) = self.collectives.try_lock() {
            if stirred {
                self.advance_collectives::<M>(&mut table);
            }
            self.advance_meetings::<M>(&mut table);
            if self.calls.meets() && table.meetings.is_empty() {
                self.calls.set_meets(false);
            }
        }
    }

    fn advance_collectives<M: Mode>(&self, table: &mut Table) {
        loop {
            self.calls.settle();
            let letters = self.collectives.letters();
            for (source, head, mut bytes) in letters {
                self.take_letter(table, source, &head, &mut bytes);
            }
            if self.collectives.doubts() {
                self.ask_others::<M>(table);
            }
            let mut full = Vec::new();
            while let Some(key) = table.next_stirring() {
                if self.advance_one::<M>(table, key) == State::NoRoom {
                    full.push(key);
                }
            }
            if !full.is_empty() {
                full.into_iter().for_each(|key| table.again(key));
                self.calls.stir();
                self.waits.let_others_run();
                return;
            }
            if !self.calls.is_stirred() {
                return;
            }
        }
    }

    #[cold]
    fn ask_others<M: Mode>(&self, table: &mut Table) {
        for (key, running) in &mut table.running {
            let (group, mode) = (&Arc::clone(&running.group), PhantomData::<M>);
            let (number, signature, stage) = (key.1, running.signature, &mut table.stage);
            running.ask(&mut Ways { context: self, group, number, signature, stage, mode });
        }
        let (group, stage) = (&self.collectives.whole, &mut table.stage);
        for meeting in table.meetings.unasked() {
            let (number, signature, mode) = (meeting.number, meeting.signature, PhantomData::<M>);
            meeting.ask(group, &mut Ways { context: self, group, number, signature, stage, mode });
        }
    }

    fn advance_one<M: Mode>(&self, table: &mut Table, key: Key) -> State {
        let Some(running) = table.running.get_mut(&key) else { return State::Done };
        let mode = PhantomData;
        let group = Arc::clone(&running.group);
        let (number, signature, stage) = (key.1, running.signature, &mut table.stage);
        let mut others = Ways::<M> { context: self, group: &group, number, signature, stage, mode };
        let mut state = State::Waiting;
        if running.calls_program {
            // What its function may not call, it is told.
            self.calls.run_handler::<M>(|| state = running.advance(&mut others));
        } else {
            state = running.advance(&mut others);
        }
        if let State::NotThere(from) = state {
            self.no_agreement(&format!(
                "rank {from} of the team lends memory that it does not have"
            ));
        }
        if state == State::Done {
            table.end(key);
            if M::THREADED {
                // Another thread may sleep for it.
                self.shm().wake_own();
            }
        }
        state
    }
}
