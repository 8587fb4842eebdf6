//! The rank around its small reductions to all ([`super::meeting`]): begins them, goes on from polls,
//! waits; and what ranks say about mailboxes.

use std::marker::PhantomData;
use std::sync::Arc;

use bootstrap::Rank;

use super::drive::GiveUp;
use super::group::Group;
use super::lend::Stage;
use super::letter::{Kind, halves, joined};
use super::machine::Others;
use super::mailboxes::{self, Mailboxes};
use super::meeting::{self, Letter, Progress};
use super::memory::Buffers;
use super::places::Places;
use super::table::{Key, Table};
use super::task::{Reduction, Task};
use super::ways::Ways;
use crate::am::internal::MAILBOXES;
use crate::error::Error;
use crate::mode::Mode;
use crate::rank::RankContext;
use crate::rma::operations::{Op, OpCounters};
use crate::settings::Settings;
use crate::trace::{self, Cause};
use crate::transport::Transport;
use crate::transport::net::RemoteInbox;
use crate::wait::Waiter;

/// First word of a message that says where its sender's mailboxes are.
const INBOX: i32 = 0;
/// First word of a message that asks for the operand of a turn as a message.
const WANT: i32 = 1;

impl Mailboxes {
    /// Those of a rank, where each is a neighbourhood of its own: on adapters, and where barriers are
    /// to write. All ranks have some, or none has.
    pub(crate) fn open(
        (rank, size): (u32, u32),
        places: &Places,
        (transport, settings): (&Transport, &Settings),
    ) -> Option<Self> {
        let net = transport.net().filter(|_| size > 1 && places.count() == size)?;
        let writes = net.is_adapter() || settings.barrier_writes == Some(true);
        // A rank that cannot have the memory gets messages.
        writes.then(|| Self::new(rank, size, |words| net.inbox(words).ok()))
    }
}

impl RankContext {
    /// Whether one can go on. Loads only.
    pub(crate) fn may_meet(&self) -> bool {
        match &self.collectives.mailboxes {
            Some(boxes) => boxes.is_ready(),
            None => meeting::is_ready(self.shm(), &self.collectives.whole),
        }
    }

    pub(super) fn advance_meetings<M: Mode>(&self, table: &mut Table) {
        let run = |calls_program, advance: &mut dyn FnMut()| {
            if calls_program { self.calls.run_handler::<M>(advance) } else { advance() }
        };
        let (group, Table { meetings, stage, .. }) = (&self.collectives.whole, table);
        let advanced = if let Some(boxes) = &self.collectives.mailboxes {
            let send = |letter: Letter<'_>| self.send_letter::<M>(boxes, letter, stage);
            meetings.advance_by_mail(group, send, run)
        } else {
            let done = meetings.advance(self.shm(), group, run);
            done.map(|done| Progress { done, no_room: false })
        };
        let progress = advanced.unwrap_or_else(|problem| self.no_agreement(&problem));
        if progress.no_room {
            self.calls.stir();
        }
        if M::THREADED && progress.done {
            // Another thread may sleep for it.
            self.shm().wake_own();
        }
    }

    /// Leaves an operand in a mailbox, or sends it as a message; `false`: not now.
    fn send_letter<M: Mode>(
        &self,
        boxes: &Mailboxes,
        letter: Letter<'_>,
        stage: &mut Stage,
    ) -> bool {
        let Letter { number, turn, signature, packet } = letter;
        if let Some(net) = self.transport.net()
            && let Some((inbox, place)) = boxes.aim(turn, packet.to, packet.place.tag)
        {
            let (words, count) = mailboxes::encode(turn, signature, packet.bytes);
            let to = Rank(packet.to);
            if let Some(sent) = net.write_inbox(to, inbox, place, &words[..count]) {
                return sent;
            }
        }
        let (group, mode) = (&*self.collectives.whole, PhantomData::<M>);
        Ways { context: self, group, number, signature, stage, mode }.send(packet)
    }

    /// Tells the others where this rank's mailboxes are.
    fn announce_mailboxes(&self) {
        if let Some(boxes) = &self.collectives.mailboxes {
            boxes.announce(|rank, RemoteInbox { base, rkey }| {
                let [low, high] = halves(base);
                let words = [INBOX, low, high, rkey.cast_signed()];
                self.send_internal(Rank(rank), MAILBOXES, &words)
            });
        }
    }

    /// Before a sleep: asks for the operand that is waited for as a message, because no write ends
    /// the sleep. One that is under way as a write is found after a short sleep.
    #[cold]
    pub(crate) fn want_operand(&self) {
        if let Some(boxes) = &self.collectives.mailboxes {
            boxes.ask(|rank, turn| {
                self.send_internal(Rank(rank), MAILBOXES, &[WANT, turn.cast_signed()])
            });
        }
    }

    /// What another rank says about mailboxes; `false` for what none says.
    pub(crate) fn mailbox_words(&self, source: Rank, words: &[i32]) -> bool {
        let Some(boxes) = &self.collectives.mailboxes else { return false };
        match *words {
            [INBOX, low, high, rkey] => {
                let (base, rkey) = (joined(low, high), rkey.cast_unsigned());
                boxes.learn(source.0, RemoteInbox { base, rkey })
            }
            [WANT, turn] => boxes.want(source.0, turn.cast_unsigned()),
            _ => false,
        }
    }

    /// Begins one on the team of all ranks, which has turns; its own. What the buffers name
    /// is its own until the turn is seen.
    fn meet_to_reduce<M: Mode>(
        &self,
        call: &'static str,
        reduction: Reduction,
        buffers: Buffers,
        counters: Option<Arc<OpCounters>>,
    ) -> Result<(Key, u32), Error> {
        self.check_open(call)?;
        self.check_outside::<M>(call)?;
        trace::collective();
        let (group, signature) =
            (&self.collectives.whole, reduction.signature(Kind::ReduceToAll, 0));
        let mut table = self.collectives.lock();
        let key = (group.id, group.next());
        let what = (key.1, signature);
        let turn = table.meetings.begin(group, what, (buffers, reduction.combine), counters);
        if let Err(problem) = table.take_early(key) {
            self.no_agreement(&problem);
        }
        self.announce_mailboxes();
        self.advance_meetings::<M>(&mut table);
        // Left so until a poll finds none.
        if !table.meetings.is_empty() && !self.calls.meets() {
            self.calls.set_meets(true);
        }
        Ok((key, turn))
    }

    /// Begins a reduction to all: its turn, for a team that has turns of so many bytes
    /// ([`Group::has_turns`]).
    ///
    /// # Errors
    /// A call inside a handler; the end of the job.
    pub fn start_meeting<M: Mode>(
        &self,
        call: &'static str,
        reduction: Reduction,
        buffers: Buffers,
    ) -> Result<u32, Error> {
        Ok(self.meet_to_reduce::<M>(call, reduction, buffers, None)?.1)
    }

    /// Waits (and polls) until the result of a turn is there.
    ///
    /// # Errors
    /// The end of the job.
    pub fn pass_meeting<M: Mode>(&self, call: &'static str, turn: u32) -> Result<(), Error> {
        let is_seen = || self.collectives.whole.has_seen(turn) != Some(false);
        let passed = || {
            if !is_seen() && self.may_meet() {
                self.drive_collectives::<M>();
            }
            is_seen()
        };
        if passed() || self.yield_until(|| Ok::<_, Error>(passed()))? {
            return Ok(());
        }
        let mut waiter = Waiter::for_cause(Cause::Collective);
        while !passed() {
            if waiter.poll::<M>(self, call, || is_seen() || self.may_meet())? > 0 {
                waiter.progressed();
            } else {
                waiter.idle(self, || self.has_work() || is_seen());
            }
        }
        Ok(())
    }

    /// Combines elements of all to the results of all.
    pub(crate) fn reduce_to_all<M: Mode>(
        &self,
        call: &'static str,
        group: &Arc<Group>,
        reduction: Reduction,
        buffers: Buffers,
    ) -> Result<(), Error> {
        if !group.has_turns(reduction.len) {
            let task = Task::reduce_to_all(group, reduction, buffers);
            return self.run_collective::<M>(call, group, task);
        }
        let (key, turn) = self.meet_to_reduce::<M>(call, reduction, buffers, None)?;
        let guard = GiveUp(self, key);
        self.pass_meeting::<M>(call, turn)?;
        std::mem::forget(guard);
        Ok(())
    }

    /// As `reduce_to_all`, as an operation.
    ///
    /// # Errors
    /// A call inside a handler; the end of the job.
    pub fn start_reduction<M: Mode>(
        &self,
        call: &'static str,
        group: &Arc<Group>,
        reduction: Reduction,
        buffers: Buffers,
    ) -> Result<Op, Error> {
        if !group.has_turns(reduction.len) {
            let task = Task::reduce_to_all(group, reduction, buffers);
            return self.start_collective::<M>(call, group, task);
        }
        // Nothing has a row that cannot begin.
        self.check_open(call)?;
        self.check_outside::<M>(call)?;
        let (op, row) = self.begin(call)?;
        row.gets.begin(false);
        self.meet_to_reduce::<M>(call, reduction, buffers, Some(row))?;
        Ok(op)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::coll::schedule::Step;
    use crate::{Client, ReduceOp, Seq};

    /// Runs ranks over the software adapter, each a neighbourhood of its own; what `rank` says.
    fn ranks<T: Send>(size: u32, rank: impl Fn(&Client<Seq>) -> T + Sync) -> Vec<T> {
        let services = bootstrap::memory::job(size).expect("a job");
        let network = vec![("GASNET_IBV_FABRIC".to_owned(), "soft".to_owned())];
        let settings = Settings {
            neighbourhood_max: 1,
            barrier_writes: Some(true),
            network,
            ..Settings::default()
        };
        std::thread::scope(|scope| {
            let ranks = services.into_iter().map(|services| {
                let (settings, rank) = (settings.clone(), &rank);
                scope.spawn(move || {
                    let client = Client::<Seq>::with_bootstrap("TEST", services, settings);
                    rank(&client.expect("init"))
                })
            });
            let ranks: Vec<_> = ranks.collect();
            ranks.into_iter().map(|rank| rank.join().expect("a rank")).collect()
        })
    }

    /// Whether the oldest mailboxes of the last turns were written.
    fn was_written_to(client: &Client<Seq>, turns: std::ops::Range<u32>) -> bool {
        let boxes = client.context.collectives.mailboxes.as_deref().expect("mailboxes");
        let tag_of = |step: &Step| match *step {
            Step::Receive { tag, .. } => Some(tag),
            _ => None,
        };
        let tags: Vec<_> = boxes.steps.iter().filter_map(tag_of).collect();
        turns.into_iter().any(|turn| tags.iter().any(|tag| boxes.heard(turn, *tag).is_some()))
    }

    #[test]
    fn operands_are_left_in_mailboxes() {
        for size in [2, 3, 6] {
            let written = ranks(size, |client| {
                let (team, me) = (client.team(), u64::from(client.rank().0));
                let n = u64::from(size);
                for turn in 0..200_u64 {
                    // With words, without a whole one, too much for a mailbox.
                    let mut sums = [me + turn, turn, 1];
                    team.reduce_to_all(&mut sums, ReduceOp::Add).expect("sums");
                    assert_eq!(sums, [n * (n - 1) / 2 + n * turn, n * turn, n]);
                    let mut least = [u32::try_from(me + turn).expect("small")];
                    team.reduce_to_all(&mut least, ReduceOp::Min).expect("least");
                    assert_eq!(u64::from(least[0]), turn);
                    if turn % 16 == 3 {
                        let mut many = [me; 40];
                        team.reduce_to_all(&mut many, ReduceOp::Max).expect("many");
                        assert_eq!(many, [n - 1; 40]);
                    }
                    // A run of ranks, in their order: the first one and the last one.
                    let join = |left: u32, right: u32| {
                        assert_eq!((left & 0xff) + 1, right >> 8, "out of order");
                        (left & !0xff) | (right & 0xff)
                    };
                    let mut run = [u32::try_from(me << 8 | me).expect("few")];
                    team.reduce_to_all_with(&mut run, join).expect("a run");
                    assert_eq!(run, [size - 1]);
                }
                was_written_to(client, 596..600)
            });
            // One that a rank wanted as a message, because it slept, may be missing.
            assert!(written.contains(&true), "{size} ranks");
        }
    }

    #[test]
    fn many_in_flight_complete_in_order() {
        ranks(4, |client| {
            let (team, me) = (client.team(), u64::from(client.rank().0));
            for turn in 0..20_u64 {
                if turn % 4 == me {
                    // The others sleep, and ask for messages.
                    std::thread::sleep(Duration::from_millis(5));
                }
                let mut sums: Vec<[u64; 5]> = (0..30).map(|of| [me * of + turn; 5]).collect();
                let done = client.scope(|scope| {
                    let mut events = Vec::new();
                    for sums in &mut sums {
                        events.push(scope.reduce_to_all_nb(&team, sums, ReduceOp::Add)?);
                    }
                    events.into_iter().rev().try_for_each(|event| event.wait().map(|_| ()))
                });
                done.expect("in flight").expect("sums");
                let expected = |of: usize| [6 * of as u64 + 4 * turn; 5];
                assert!(sums.iter().enumerate().all(|(of, sums)| *sums == expected(of)));
            }
        });
    }

    #[test]
    fn what_nobody_says_about_mailboxes_is_refused() {
        ranks(3, |client| {
            let context = &client.context;
            let me = context.rank_info.rank;
            let said = |source: Rank, words: &[i32]| context.mailbox_words(source, words);
            assert!(!said(me, &[INBOX, 0, 0, 0]), "of this rank itself");
            assert!(!said(Rank(7), &[INBOX, 0, 0, 0]) && !said(Rank(7), &[WANT, 1]));
            assert!(
                !said(Rank(1), &[]) && !said(Rank(1), &[5, 0, 0, 0]) && !said(Rank(1), &[INBOX])
            );
            client.barrier(1, crate::BarrierFlags::NAMED).expect("a barrier");
        });
    }
}
