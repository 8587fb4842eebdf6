//! Runs a rank's exit machine in the process: head, body, tail.
//!
//! The machine and what it asked for sit behind a mutex that is held for moments, with signals
//! blocked, so that a signal handler on the same thread never finds it taken. The body belongs to
//! one thread (its *owner*), the one whose event took the machine out of Running. Other threads may
//! deliver messages meanwhile; what follows from them is the owner's.

use std::ffi::c_void;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use bootstrap::node_shm::{Ack, ExitDecision};
use bootstrap::{ExitPath, Rank};
use settings::deadlines::Deadline;
use settings::deadlines::exit::{AGENT_QUIT, ALARM_FINI, ALARM_LAST, ALARM_STEP, ALARM_TEARDOWN};

use super::flush::Flush;
use super::line::print_line;
use super::link::Link;
use super::machine::{
    Action, Actions, Code, Config, Event, Machine, Message, Millis, Phase, Timeouts,
};
use super::protocol::Outbox;
use super::signals::{self, Mask, Stack, Streams};
use super::timeouts::{seconds, slice};
use crate::trace;

const IDLE_POLLS: u32 = 4;

#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    /// The exit time-out T.
    pub(super) timeout: Millis,
    pub(super) sync: bool,
    pub(super) user_handles_quit: fn() -> bool,
    /// Whether the call comes from inside a signal that asks the process to end.
    pub(super) path: fn() -> ExitPath,
}

static DRIVER: OnceLock<Driver> = OnceLock::new();

/// The exit of the rank that this process is; `None` in a process that a rank forked.
pub(super) fn driver() -> Option<&'static Driver> {
    DRIVER.get().filter(|driver| driver.process == std::process::id())
}

pub(crate) fn of(rank: Rank) -> Option<&'static Driver> {
    driver().filter(|driver| driver.rank() == rank)
}

/// Whether the end of the job is decided already, also for a process that a rank forked.
pub(super) fn is_decided() -> bool {
    DRIVER.get().is_some_and(|driver| driver.decision().is_some())
}

/// Ends the job with `code`; see [`Client::exit`](crate::Client::exit). For places where the client
/// is out of reach, like signal handlers and message handlers. In a process without an installed
/// rank it ends that process.
pub fn exit(code: i32) -> ! {
    if let Some(driver) = driver() {
        driver.local(code, (driver.options.path)());
    } else {
        let _ = std::io::stdout().flush();
        signals::flush(Streams::Standard);
    }
    signals::end(code)
}

/// Return from `main`, or `exit(3)`.
pub(super) extern "C" fn hook(code: i32, _: *mut c_void) {
    if let Some(driver) = driver() {
        driver.local(code, ExitPath::Hook);
    }
}

/// As [`hook`] when the program's exits are its own affair: the rank leaves in good order and ends
/// nothing.
pub(super) extern "C" fn hook_quietly(code: i32, _: *mut c_void) {
    if let Some(driver) = driver().filter(|driver| !driver.has_begun()) {
        driver.close(false);
        driver.link.exit_notifier().fini(code);
    }
}

struct Protocol {
    machine: Machine,
    outbox: Outbox,
}

pub(crate) struct Driver {
    link: Arc<dyn Link>,
    options: Options,
    begin: Instant,
    /// What is decided on one host is heard on all.
    control: bool,
    /// A process made by `fork` inherits all this but is no rank.
    process: u32,
    protocol: Mutex<Protocol>,
    /// Thread that has the body, 0 for none.
    owner: AtomicI32,
    /// The owner is inside the user's SIGQUIT handler.
    raising: AtomicBool,
    /// The owner came in a signal handler.
    in_signal: AtomicBool,
    /// The body is over and the owner went back to libc.
    done: AtomicBool,
    /// For handlers: the code to end with, and the number of the phase.
    code: AtomicI32,
    phase: AtomicU8,
    /// The handler of the watchdog is ours.
    watched: AtomicBool,
    /// On the hook's path: the code that libc ends the process with, whatever the job's is.
    natural: OnceLock<i32>,
    flush: Flush,
}

impl Driver {
    /// Makes this the exit of the process; `false` when there is one.
    pub(super) fn install(link: Arc<dyn Link>, options: Options) -> bool {
        let place = link.rank_info();
        let control = link.exit_notifier().is_connected();
        let timeouts = Timeouts::new(options.timeout);
        let timeouts =
            if link.exit_notifier().has_agent() { timeouts } else { timeouts.deciding() };
        let (size, tree) = (place.size, link.tree());
        let config = Config { rank: place.rank.0, size, control, timeouts, tree };
        let protocol = Protocol { machine: Machine::new(config), outbox: Outbox::new() };
        let driver = Self {
            link,
            options,
            begin: Instant::now(),
            control,
            process: std::process::id(),
            protocol: Mutex::new(protocol),
            owner: AtomicI32::new(0),
            raising: AtomicBool::new(false),
            in_signal: AtomicBool::new(false),
            done: AtomicBool::new(false),
            code: AtomicI32::new(0),
            phase: AtomicU8::new(0),
            watched: AtomicBool::new(false),
            natural: OnceLock::new(),
            flush: Flush::new(),
        };
        DRIVER.set(driver).is_ok()
    }

    fn rank(&self) -> Rank {
        self.link.rank_info().rank
    }

    pub(super) fn has_begun(&self) -> bool {
        self.owner.load(Ordering::SeqCst) != 0
    }

    fn is_owner(&self) -> bool {
        self.owner.load(Ordering::SeqCst) == signals::thread()
    }

    fn decision(&self) -> Option<ExitDecision> {
        self.link.node_shm().exit_decision()
    }

    fn now(&self) -> Millis {
        Millis(u64::try_from(self.begin.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    fn with<T>(&self, call: impl FnOnce(&mut Protocol) -> T) -> T {
        signals::undisturbed(|| {
            call(&mut self.protocol.lock().unwrap_or_else(PoisonError::into_inner))
        })
    }

    /// Gives an event to the machine and sends what can be sent. Whether it began the exit: then
    /// the calling thread has the body.
    fn take(&self, event: Event) -> bool {
        let now = self.now();
        self.with(|Protocol { machine, outbox }| {
            let (before, mut actions) = (machine.state(), Actions::new());
            machine.handle(now, event, &mut actions);
            outbox.take(&actions, self.rank().0, self.link.rank_info().size);
            let after = machine.state();
            let first = before == Phase::Running && after != Phase::Running;
            if first {
                self.owner.store(signals::thread(), Ordering::SeqCst);
            }
            if let Some(code) = machine.code().filter(|_| after != Phase::Running) {
                self.code.store(code.get(), Ordering::SeqCst);
            }
            self.phase.store(after as u8, Ordering::SeqCst);
            // Announcements go before messages: who completes a reduction knows that all have
            // announced.
            if outbox.is_quiet() {
                self.send(outbox);
            }
            first
        })
    }

    /// Sends what is waiting; true when nothing is left.
    fn send(&self, outbox: &mut Outbox) -> bool {
        outbox.send(|to, message| {
            let (id, words, count) = message.encode();
            self.link.send(Rank(to), id, &words[..count])
        })
    }

    fn resend(&self) -> bool {
        self.with(|protocol| self.send(&mut protocol.outbox))
    }

    // ---- head ----

    /// An exit that begins here. Returns only on the hook's path.
    pub(super) fn local(&self, code: i32, path: ExitPath) {
        let in_signal = path == ExitPath::Signal || signals::is_quit_blocked();
        let mask = signals::block();
        let natural = code;
        let slot = self.link.node_shm().slot(self.link.rank_info().local);
        // A decided end wins over whatever the user's SIGQUIT handler, which it may have started,
        // exits with.
        let decision = self.decision();
        let code = Code::new(decision.map_or(code, |decision| decision.code));
        if self.take(Event::LocalExit { code, path }) {
            self.in_signal.store(in_signal, Ordering::SeqCst);
            if path == ExitPath::Hook {
                let _ = self.natural.set(natural);
            }
            slot.claim_ack(Ack::Rank);
            if decision.is_some() {
                self.take(Event::ExitDecision(code));
            }
            self.body();
        } else {
            self.join(mask);
        }
        self.leave(path, mask);
    }

    /// An event from elsewhere: the exit that it begins does not return.
    fn remote(&self, event: Event) {
        let mask = signals::block();
        if self.take(event) {
            self.body();
            self.leave(ExitPath::Remote, mask);
        }
        signals::restore(mask);
    }

    /// A call of the client found that the end of the job is decided. Returns only on the thread
    /// that exits already.
    pub(crate) fn exit_decision(&self, decision: ExitDecision) {
        if !self.has_begun() {
            self.remote(Event::ExitDecision(Code::new(decision.code)));
        }
        self.meet();
    }

    /// An internal message for this rank. Does not return when it begins the exit.
    pub(crate) fn message(&self, from: Rank, id: u8, args: &[i32]) {
        let Some(message) = Message::decode(id, args) else { return };
        self.remote(Event::Message { from: from.0, message });
        if self.has_begun() {
            if !self.is_owner() {
                self.link.node_shm().slot(self.link.rank_info().local).ring();
            }
        } else if matches!(message, Message::RoleRequest) {
            // Nobody comes back to what could not be sent before the exit has begun.
            for _ in 0..1_000 {
                if self.resend() {
                    break;
                }
                std::thread::yield_now();
            }
        }
    }

    /// A call of the client came after the exit had begun: the owner returns, other threads stay
    /// here to the end of the process.
    pub(crate) fn meet(&self) {
        if !self.is_owner() {
            signals::park();
        }
    }

    fn join(&self, mask: Mask) {
        if !self.is_owner() {
            signals::restore(mask);
            signals::park();
        }
        if self.done.load(Ordering::SeqCst) {
            return;
        }
        if !self.raising.load(Ordering::SeqCst) {
            // A handler on top of the body: the body cannot go on below it.
            self.end_now();
        }
        // The user's SIGQUIT handler exits: the body goes on from here.
        self.body();
    }

    // ---- body ----

    fn body(&self) {
        self.bound_step();
        let mut idle = 0;
        loop {
            let mut busy = false;
            while let Some(action) = self.with(|protocol| protocol.outbox.next()) {
                busy = true;
                if !self.perform(action) {
                    return;
                }
            }
            busy |= self.link.poll() > 0;
            busy |= self.check();
            if busy {
                idle = 0;
            } else {
                idle += 1;
                self.rest(idle);
            }
        }
    }

    /// Checks everything that becomes true by itself; whether something did.
    fn check(&self) -> bool {
        let sent = self.resend();
        let phase = self.phase();
        let coordinating =
            matches!(phase, Phase::Reducing | Phase::Electing | Phase::Leading | Phase::Following);
        let decision = self.decision();
        if let Some(decision) = decision.filter(|_| coordinating) {
            self.take(Event::ExitDecision(Code::new(decision.code)));
            return true;
        }
        // A slow reader of the output has its time.
        let held = phase == Phase::Draining && self.flush.is_held();
        if !held && self.deadline().is_some_and(|at| at <= self.now()) {
            self.take(Event::Timer);
            if coordinating {
                self.bound_step();
            }
            return true;
        }
        // Whoever the messages are for reads a decided end in the page of its host. This rank may
        // be unable to send them for ever: its handler interrupted the network, which is shut from
        // then on.
        let needless = sent || self.control && decision.is_some() || !self.flush.is_graceful();
        let flushed = phase == Phase::Draining && self.flush.is_over() && needless;
        if flushed {
            self.take(Event::Flushed);
        }
        flushed
    }

    fn deadline(&self) -> Option<Millis> {
        self.with(|protocol| protocol.machine.deadline())
    }

    fn rest(&self, idle: u32) {
        if idle < IDLE_POLLS {
            std::thread::yield_now();
            return;
        }
        let left = self.deadline().map(|at| Millis(at.0.saturating_sub(self.now().0)));
        let slice = slice(self.link.rank_info().locals, left, self.resend());
        if self.phase() == Phase::Draining {
            // The decided end, which is still in the page, would end a sleep on the doorbell at
            // once.
            self.flush.wait(slice);
        } else {
            std::thread::yield_now();
            self.link.sleep(slice);
        }
    }

    fn phase(&self) -> Phase {
        let number = usize::from(self.phase.load(Ordering::SeqCst));
        Phase::ALL.get(number).copied().unwrap_or(Phase::Running)
    }

    /// Does one thing; false after the last.
    fn perform(&self, action: Action) -> bool {
        let notifier = self.link.exit_notifier();
        match action {
            Action::Announce { code, path } => {
                trace::exiting(code.get(), self.in_signal.load(Ordering::SeqCst));
                notifier.exiting(code.get(), path);
            }
            Action::StopClientHandlers => {
                self.enter();
                self.link.disable_client_handlers();
            }
            Action::RaiseQuit => self.raise_quit(),
            Action::Decide(code) => {
                let mine = ExitDecision { code: code.get(), cause: Some(self.rank()) };
                let decision = self.link.node_shm().decide(mine);
                self.take(Event::ExitDecision(Code::new(decision.code)));
            }
            Action::Flush(graceful) => {
                self.resend();
                self.bound(ALARM_TEARDOWN);
                let in_signal = self.in_signal.load(Ordering::SeqCst);
                trace::finish(!in_signal);
                trace::leave();
                self.flush.start(graceful, in_signal, self.options.sync);
            }
            Action::Fini(code) => {
                self.close(self.decision().is_none());
                self.bound(ALARM_FINI);
                // The provider compares this code with how the process ends; it knows the codes
                // of all from before.
                notifier.fini(self.natural.get().copied().unwrap_or(code.get()));
            }
            Action::Abort(code) => {
                self.bound(ALARM_FINI);
                notifier.abort(code.get());
            }
            Action::Terminate(_) => return false,
            // The outbox keeps these apart.
            Action::Send { .. } | Action::SendAll(_) => {}
        }
        true
    }

    fn alarm(&self, row: Deadline) {
        signals::alarm(seconds(row, self.options.timeout));
    }

    /// Arms the watchdog. Before [`Driver::enter`] its handler is not ours yet.
    fn bound(&self, row: Deadline) {
        if self.watched.load(Ordering::SeqCst) {
            self.alarm(row);
        }
    }

    /// Takes over the signals that could disturb the body.
    fn enter(&self) {
        signals::alarm(0);
        signals::ignore(libc::SIGQUIT);
        for signal in ABORT_SIGNALS {
            signals::install(signal, on_abort_signal, Stack::Alternate);
        }
        self.watched.store(true, Ordering::SeqCst);
        self.bound_step();
    }

    /// Arms it for a step of the protocol that has a bound.
    fn bound_step(&self) {
        if self.deadline().is_some_and(|at| at.0 < u64::MAX) {
            self.bound(ALARM_STEP);
        }
    }

    fn raise_quit(&self) {
        let slot = self.link.node_shm().slot(self.link.rank_info().local);
        let mine = slot.claim_ack(Ack::Rank);
        if !(self.options.user_handles_quit)() {
            return;
        }
        // The handler's time is bounded like the rest; if the user has a handler for SIGALRM, that
        // one runs.
        self.alarm(ALARM_TEARDOWN);
        signals::install(libc::SIGALRM, on_abort_signal, Stack::Alternate);
        self.raising.store(true, Ordering::SeqCst);
        let mask = signals::unblock(libc::SIGQUIT);
        if mine {
            signals::raise(libc::SIGQUIT);
        } else {
            // The agent has taken it on and its signal is on its way, or was here.
            signals::nap(u32::try_from(AGENT_QUIT.ms()).unwrap_or(u32::MAX));
        }
        signals::restore(mask);
        self.raising.store(false, Ordering::SeqCst);
    }

    // ---- tail ----

    /// Ends the process, or gives it back to libc on the hook's path.
    fn leave(&self, path: ExitPath, mask: Mask) {
        if path != ExitPath::Hook {
            signals::end(self.code.load(Ordering::SeqCst));
        }
        self.done.store(true, Ordering::SeqCst);
        signals::alarm(0);
        signals::restore(mask);
    }

    /// Closes the network, except where a signal handler may have interrupted anything. Under the
    /// alarm of the teardown.
    fn close(&self, agreed: bool) {
        if !self.in_signal.load(Ordering::SeqCst) {
            Arc::clone(&self.link).close(agreed);
        }
    }

    pub(super) fn dying(&self, signal: i32) {
        self.link.exit_notifier().dying(128 + signal);
    }

    /// Ends the process from a handler that interrupted the body.
    fn end_now(&self) -> ! {
        let code = self.code.load(Ordering::SeqCst);
        self.link.exit_notifier().abort(code);
        signals::end(code)
    }

    /// A fault inside the exit, or the watchdog.
    fn abort_signal(&self, signal: i32) {
        if signal == libc::SIGALRM && self.phase() == Phase::Draining && signals::is_output_full() {
            return self.alarm(ALARM_TEARDOWN);
        }
        self.alarm(ALARM_LAST);
        let (rank, phase) = (self.rank(), self.phase().text());
        match signal {
            libc::SIGALRM => {
                print_line(format_args!("gasnet_ibv: rank {rank}: timeout during exit [{phase}]"));
            }
            _ => print_line(format_args!(
                "gasnet_ibv: rank {rank}: signal {signal} during exit [{phase}]"
            )),
        }
        self.end_now()
    }
}

const ABORT_SIGNALS: [i32; 6] =
    [libc::SIGALRM, libc::SIGABRT, libc::SIGILL, libc::SIGSEGV, libc::SIGFPE, libc::SIGBUS];

extern "C" fn on_abort_signal(signal: i32, _: *mut libc::siginfo_t, _: *mut c_void) {
    if let Some(driver) = DRIVER.get() {
        return driver.abort_signal(signal);
    }
    signals::end(128 + signal)
}
