//! The agent's loop: carries what the root decided to this host's ranks and down the tree, and what
//! happens up. An agent that has lost its parent decides for its own ranks; those below do so for
//! theirs.

use std::ffi::{OsStr, OsString};

use bootstrap::HostId;
use bootstrap::collective::{Bytes, depth};
use bootstrap::rank::MAX_DEPTH;
use nix::sys::signal::SigSet;
use settings::deadlines::tree::{FAREWELL, HOLD, PARENT_SILENT};
use settings::{log::LAUNCHER, say};
use spawner_ssh::diagnosis::{Class, Failure, Step};

use super::parent::Parent;
use super::relay::Relay;
use super::setup::{
    begin_staging, files_of, hash_of_parent, memory_of, missing_library, other, plan_of, setup,
    share_of, staging_of,
};
use super::{Origin, check};
use crate::agent::bootstrap_server::BootstrapServer;
use crate::agent::capture::Draining;
use crate::agent::local_ranks::{LocalRanks, no_pmix};
use crate::agent::machine::{Event, Machine, RankEvent, Rules};
use crate::agent::pmix::State;
use crate::agent::processes::LastDelay;
use crate::agent::{control, processes, record};
use crate::event_loop::{self, OsError, Poller, Ready, Role, Signals, Token, cannot, ms};
use crate::link::Links;
use crate::plan::JobPlan;
use crate::stage::Programs;
use crate::trace::Upload;
use crate::tree::aggregate::{Aggregate, Times};
use crate::tree::frames::Lane;
use crate::tree::hosts::HostStatus;
use crate::tree::message::{Common, Up, encode};
use crate::watch::questions::Seen;
use crate::watch::stacks::{Looks, Stack};

/// Times of ends that one message has.
const TIMES: usize = 1 << 16;

/// Life of the agent; never returns to the reaper's code.
pub(super) fn run(origin: Origin) -> ! {
    control::leave(work(origin), "node agent")
}

/// No launcher makes a tree of more levels than [`MAX_DEPTH`]: whatever says so is not believed.
fn check_depth(below: usize, degree: usize) -> Result<(), String> {
    let levels = depth(below, degree);
    if levels > MAX_DEPTH {
        return Err(format!("it was told a tree of {levels} levels, {MAX_DEPTH} are the most"));
    }
    Ok(())
}

fn work(origin: Origin) -> Result<(), OsError> {
    let Origin { input, output, reaper, mask, job, started } = origin;
    let poller = Poller::new(started).map_err(cannot("make an epoll set"))?;
    let signals = processes::supervise(&poller)?;
    let parent = Parent::new(&poller, input, output);
    let mut parent = parent.map_err(cannot("watch the parent"))?;
    let mut waiting = Vec::new();
    let (common, subtree) = setup(&mut parent, &mut waiting)?;
    let (words, host_of) = Common::decode(&common).map_err(other)?;
    let Some((index, own)) = subtree.first().cloned() else {
        return Err(other("it was told no host".to_owned()));
    };
    check_depth(subtree.len() - 1, words.ssh.out_degree as usize).map_err(other)?;
    // Logins take their time, so they come first.
    let mut below = Links::new(&poller, words.ssh.clone(), common);
    below.add_groups(&subtree[1..]);
    below.step();
    let mut plan = plan_of(&words, &own, host_of.len());
    // The launching host finds its address by that of another one.
    let several = words.hosts > 1 && !own.here;
    let stage = if own.here { "here" } else { words.ssh.stage.name() };
    let examine = words.doctor.then(|| (words.directory.clone(), plan.env.clone()));
    plan.session.clone_from(&job);
    let mut staging = staging_of(&words, own.here, job);
    let host_of: Vec<HostId> = host_of.into_iter().map(HostId).collect();
    let mut runs = files_of(&plan, index, &host_of);
    runs.extend(missing_library(&words));
    if staging.needs_hash(|file| runs.iter().any(|own| own == file)) {
        staging.learn(&hash_of_parent(&mut parent, &mut waiting)?);
    }
    let staged = begin_staging(&mut staging, &mut plan, &runs, words.pmi_library.as_deref());
    let (share, bound) = share_of(&words, &own.name, index, host_of, &mut parent);
    plan.trace = memory_of(&words, &share, &mut parent);
    let boot = BootstrapServer::node(&poller, share, Vec::new())
        .map_err(|error| other(error.to_string()))?;
    let mut driver = Driver {
        index,
        reaper,
        signals,
        ranks: LocalRanks::new(&plan, boot, false),
        plan: &plan,
        poller,
        parent,
        relay: Relay::default(),
        below,
        staging,
        identities: words.identities,
        describing: Vec::new(),
        aggregate: Aggregate::new(index),
        times: Times::new(),
        held: None,
        announced: false,
        clients_told: false,
        examines: examine.is_some(),
        starting: false,
        given: false,
        cleaning_up: false,
        told_left: None,
        bare: false,
        finishing: None,
        own: None,
        last_delay: None,
        over: false,
        leaving: None,
        gone: false,
        upload: Upload::new(plan.trace.clone()),
        looks: Looks::default(),
    };
    match examine {
        Some((directory, env)) => driver.examine((&directory, several, stage), &env),
        None => driver.begin(bound.and(staged), mask),
    }
    driver.link_events();
    for down in waiting {
        driver.down(down);
    }
    event_loop::run(&mut driver).map_err(cannot("wait for events"))
}

pub(super) struct Driver<'a> {
    pub(super) plan: &'a JobPlan,
    pub(super) index: u32,
    reaper: i32,
    pub(super) poller: Poller,
    signals: Signals,
    pub(super) parent: Parent,
    pub(super) relay: Relay,
    pub(super) ranks: LocalRanks<'a>,
    pub(super) below: Links,
    pub(super) staging: Programs,
    /// What programs must be that this host has itself.
    identities: Vec<(OsString, u64)>,
    /// Links whose agents wait for the programs' hashes, which our parent was asked for.
    pub(super) describing: Vec<usize>,
    /// What the parent does not know yet, of our ranks and those below.
    pub(super) aggregate: Aggregate,
    /// When ranks of the subtree ended that were told of together.
    pub(super) times: Times,
    /// Since when there has been output's end that can wait for more.
    held: Option<u64>,
    announced: bool,
    /// It was said which ssh client logs in to the hosts below.
    pub(super) clients_told: bool,
    /// For the doctor: there is no job.
    pub(super) examines: bool,
    pub(super) starting: bool,
    /// Our own ranks have the last piece of input.
    pub(super) given: bool,
    pub(super) cleaning_up: bool,
    pub(super) told_left: Option<bool>,
    /// All ranks of this host have ended and no process is left of them.
    pub(super) bare: bool,
    /// When pipes that unknown processes keep open are given up.
    pub(super) finishing: Option<Draining>,
    pub(super) own: Option<Machine>,
    last_delay: Option<LastDelay>,
    pub(super) over: bool,
    /// Until when what is left is waited for, once all is over.
    leaving: Option<u64>,
    gone: bool,
    /// What our ranks have recorded, on its way up.
    upload: Upload,
    /// Looks at stacks that are under way.
    pub(super) looks: Looks,
}

impl Driver<'_> {
    /// Sees whether the job can run here. When the program is still to come, that is known later.
    fn begin(&mut self, possible: Result<(), Failure>, mask: SigSet) {
        self.parent.heard = self.now();
        let prepared = possible.and_then(|()| {
            let prepared = self.ranks.prepare(mask);
            prepared.map_err(|unready| Failure::new(unready.class, unready.text))
        });
        match prepared {
            Ok(()) => self.settle_start(),
            Err(failure) => {
                self.staging.give_up();
                self.settled(Err(failure));
            }
        }
    }

    /// Looks at this host for the doctor, who starts no job.
    fn examine(
        &mut self,
        (directory, several, stage): (&OsStr, bool, &str),
        env: &[(OsString, OsString)],
    ) {
        self.parent.heard = self.now();
        let at = record::epoch_now();
        let findings = crate::doctor::findings(directory, several, stage, env);
        self.parent.send(&Up::Findings { host: self.index, at, findings });
        self.settled(Ok(()));
    }

    /// Looks at what ranks of this host will run: programs and, if there are, the wrappers.
    pub(super) fn check_program(&self) -> Result<(), Failure> {
        let programs = self.plan.all_programs();
        let here = self.plan.programs_of(&self.ranks.boot.share.ranks).into_iter();
        for program in here.filter_map(|at| programs.get(at)) {
            let env = program.environment(&self.plan.env);
            check::program(program.file.as_ref(), &env)?;
            if program.word > 0 {
                check::program(program.own_file().as_ref(), &env)?;
            }
            let told = self.identities.iter().find(|(path, _)| path == program.own_file());
            if let Some((path, there)) = told {
                check::same(path.as_ref(), *there)?;
            }
        }
        Ok(())
    }

    /// Says whether the job can run here, once its program and all that serves it are there.
    pub(super) fn settle_start(&mut self) {
        if self.staging.is_expected() {
            return;
        }
        match self.ranks.pmix_state() {
            State::Starting => {}
            State::Ready => self.settled(self.check_program()),
            State::Failed(why) => {
                self.settled(Err(Failure::new(Class::Program, no_pmix(&why))));
            }
        }
    }

    /// Does what may tell whether PMIx can be served, or no longer.
    fn with_pmix(&mut self, act: impl FnOnce(&mut Self)) {
        let starting = self.ranks.pmix_state() == State::Starting;
        act(self);
        self.happened();
        if starting {
            self.settle_start();
        }
    }

    pub(super) fn settled(&mut self, checked: Result<(), Failure>) {
        let status = match checked {
            Ok(()) => HostStatus::Reached(Step::Ready),
            Err(failure) => HostStatus::Failed(failure),
        };
        self.parent.queue(&Up::Host { host: self.index, status });
    }

    fn seen(&mut self, number: u32, stacks: Vec<Stack>) {
        self.parent.send(&Up::Seen { host: self.index, number, seen: Seen::Stacks(stacks) });
    }

    /// Sends what is left and waits for the processes below, which are at their end.
    fn leave(&mut self) {
        let now = self.now();
        let links = &mut self.below;
        let until = *self.leaving.get_or_insert_with(|| {
            links.part();
            now + FAREWELL.ms()
        });
        let (left, written) = (links.is_any_left(), self.parent.is_written());
        if left && now >= until {
            links.cut_all();
        }
        // A slow way up needs its time for the last output; a parent that reads nothing is dead.
        let dead = now >= self.parent.heard.saturating_add(PARENT_SILENT.ms());
        self.gone = if written { !left || now >= until } else { dead };
    }

    fn start_some(&mut self) -> bool {
        if !self.starting || self.own.is_some() {
            return false;
        }
        let more = self.ranks.start_some();
        self.happened();
        more
    }

    fn hear_parent(&mut self) {
        if self.parent.gone {
            return;
        }
        let mut came = Vec::new();
        let end = self.parent.read(&mut came);
        for down in came {
            self.down(down);
        }
        if let Err(problem) = end {
            self.orphaned(&problem);
        }
    }

    pub(super) fn happened(&mut self) {
        for happened in std::mem::take(&mut self.ranks.boot.events) {
            self.decide(Event::Rank(happened.clone()));
            self.aggregate.happened(self.poller.now(), happened);
        }
    }

    /// The parent is lost: from now on we decide for our own ranks, and those below for theirs.
    pub(super) fn orphaned(&mut self, why: &str) {
        if self.parent.gone {
            return;
        }
        if self.over {
            return self.parent.close();
        }
        let host = &self.plan.host;
        say!(ERROR, LAUNCHER, "node agent: {host}: lost its parent: {why}; its ranks are ended");
        self.last_delay = Some(LastDelay::begin());
        self.parent.close();
        self.relay.close();
        self.below.part();
        self.ranks.stop();
        self.cleaning_up = false;
        let rules = Rules { exit_bound: ms(self.plan.exit_bound), timeout_at: None };
        let mut machine = Machine::of_some(self.ranks.running().collect(), rules);
        for rank in self.ranks.running() {
            let started = RankEvent::Started { rank, pid: 0, at: 0.0 };
            machine.handle(self.now(), Event::Rank(started), &mut Vec::new());
        }
        self.own = Some(machine);
        self.decide(Event::LauncherLost);
    }

    pub(super) fn decide(&mut self, event: Event) {
        let (now, mut commands) = (self.now(), Vec::new());
        let Some(machine) = &mut self.own else { return };
        machine.handle(now, event, &mut commands);
        for command in commands {
            self.act(command);
        }
    }

    /// Whether there is nothing but news that nobody waits for: the end of a rank's output while
    /// others of this host run. For a moment it waits for more of its kind, because each write
    /// wakes four processes up to the root.
    fn can_wait(&mut self) -> bool {
        let now = self.now();
        let quiet = !self.relay.is_empty()
            && !self.relay.has_output()
            && !self.aggregate.is_due(now)
            && self.own.is_none()
            && self.finishing.is_none()
            && self.ranks.running().next().is_some();
        if !quiet {
            self.held = None;
            return false;
        }
        let waits = now < self.held.get_or_insert(now).saturating_add(HOLD.ms());
        if !waits {
            // One message less than a moment later.
            self.aggregate.flush(now);
        }
        waits
    }

    /// Everything that is known goes up, before something that may change what it means.
    pub(super) fn gather_all(&mut self) {
        self.aggregate.flush(self.poller.now());
        self.gather();
    }

    /// Puts what has come together in this turn in order.
    pub(super) fn gather(&mut self) {
        self.held = None;
        self.messages();
        for up in self.aggregate.take(self.poller.now()) {
            self.parent.queue(&up);
        }
        while let Some(message) = self.relay.next() {
            self.parent.queue_encoded(Lane::Bulk, message);
        }
        if self.relay.has_room_below() {
            self.below.settle_debts();
        }
    }

    fn step_input(&mut self) {
        let Some((waiting, below)) = &self.below.input else { return };
        self.given = self.given || self.ranks.readers.give();
        if self.given && waiting.is_empty() {
            let more = *below || !self.ranks.readers.is_empty();
            self.below.input = None;
            self.parent.send(&Up::InputTaken { more });
        }
    }

    fn step_parent(&mut self) {
        if !self.parent.gone {
            if self.parent.is_silent() {
                let seconds = PARENT_SILENT.limit.as_secs();
                self.orphaned(&format!("nothing was heard from it for {seconds} s"));
            } else if self.now() >= self.parent.ping_due() {
                self.parent.send(&Up::Ping);
            }
        }
    }

    /// Says once that nothing below is open any more.
    fn announce(&mut self) {
        if !self.announced && self.below.is_standing() {
            self.announced = true;
            self.parent.queue(&Up::Standing);
        }
    }

    /// Sends what the ranks have recorded, as the windows allow; whether all of it is on its way.
    fn send_traces(&mut self) -> bool {
        while self.relay.has_room_below() {
            let Some((slot, at, bytes)) = self.upload.next() else { return true };
            let (rank, bytes) = (self.ranks.boot.share.rank(slot), Bytes::from(bytes));
            self.relay.push(bytes.len(), encode(&Up::Trace { rank, at, bytes }));
            self.gather();
        }
        false
    }

    /// After everything was sent: whether this is the end.
    fn step_finish(&mut self) {
        let now = self.now();
        let ending = self.own.is_none() && !self.over;
        let Some(draining) = self.finishing.as_mut().filter(|_| ending) else { return };
        draining.step(now, &mut self.ranks.capture, &mut self.relay);
        if !self.ranks.capture.is_over() || !self.below.is_done() {
            return;
        }
        if !self.send_traces() {
            return;
        }
        self.below.part();
        if self.relay.is_empty() && !self.below.is_any_left() {
            if let Some(text) = self.ranks.given_up() {
                self.parent.send(&Up::Say(format!("{}: {text}", self.plan.host)));
            }
            self.gather_all();
            self.times.append(&mut self.aggregate.times);
            for times in std::mem::take(&mut self.times).chunks(TIMES) {
                self.parent.queue(&Up::Times(times.to_vec()));
            }
            let orphans = self.below.orphans.saturating_add(self.ranks.orphans());
            self.parent.queue(&Up::Done { orphans });
            self.over = true;
        }
    }
}

impl Role for Driver<'_> {
    fn sources(&self) -> (&Poller, &Signals) {
        (&self.poller, &self.signals)
    }

    fn is_over(&self) -> bool {
        self.gone
    }

    fn step(&mut self) -> bool {
        let mut more = false;
        if !self.over {
            more = self.start_some();
            self.announce();
            self.step_input();
            self.step_staging();
            self.step_leave();
            self.messages();
            self.sample_cpu_again();
            if !self.can_wait() {
                self.gather();
            }
            self.step_finish();
            self.parent.write();
        }
        if self.over {
            self.leave();
        }
        more
    }

    fn deadline(&self) -> Option<u64> {
        if let Some(until) = self.leaving {
            let silent = self.parent.heard.saturating_add(PARENT_SILENT.ms());
            return Some(if self.parent.is_written() { until } else { silent });
        }
        let parent = (!self.parent.gone).then(|| self.parent.next_look());
        let finish = self.finishing.as_ref().filter(|_| !self.ranks.capture.is_over());
        let finish = finish.map(|draining| draining.give_up);
        let held = self.held.map(|at| at.saturating_add(HOLD.ms()));
        let looks = self.looks.deadline();
        let pmix = self.ranks.pmix_due();
        let (below, told) = (self.below.deadline(), self.aggregate.deadline());
        let sample = self.below.cpu_look_due();
        let times = [self.decision_due(), parent, finish, held, looks, pmix, below, told, sample];
        times.into_iter().flatten().min()
    }

    fn serve(&mut self, ready: Ready) {
        match ready.token {
            Token::Signals => {
                let (child, orphan) = processes::read_signals(&mut self.signals, self.reaper);
                if orphan {
                    self.orphaned("its reaper was killed");
                }
                if child {
                    self.reap();
                }
            }
            Token::ParentIn => self.hear_parent(),
            Token::ParentOut => self.parent.write(),
            Token::Stacks(_) => self.looks.readable(),
            Token::Link(..) => {
                self.below.serve(ready);
                self.link_events();
            }
            Token::Pmix => self.with_pmix(|driver| driver.ranks.serve(ready, &mut driver.relay)),
            _ => {
                self.ranks.serve(ready, &mut self.relay);
                self.happened();
            }
        }
    }

    fn settle(&mut self) {
        if self.leaving.is_none() {
            self.ranks.capture.settle(&mut self.relay);
        }
        self.below.step();
        self.link_events();
        for (number, stacks) in self.looks.step(&self.poller) {
            self.seen(number, stacks);
        }
        if self.leaving.is_none() {
            self.step_parent();
        }
        if self.ranks.pmix_due().is_some_and(|at| self.now() >= at) {
            self.with_pmix(|driver| driver.ranks.look_at_pmix());
        }
    }

    fn decision_due(&self) -> Option<u64> {
        self.own.as_ref().and_then(Machine::deadline)
    }

    fn tick(&mut self) {
        self.decide(Event::Tick);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_deeper_than_its_limit_is_refused() {
        let most = MAX_DEPTH as usize;
        assert_eq!(check_depth(most, 1), Ok(()));
        let told = check_depth(most + 1, 1).expect_err("a level too many");
        assert_eq!(told, "it was told a tree of 65 levels, 64 are the most");
        for degree in [0, 2, 32] {
            assert_eq!(check_depth(bootstrap::rank::MAX_HOSTS as usize, degree), Ok(()));
        }
    }
}
