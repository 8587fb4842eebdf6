//! Runs a rank's exit machine in the process: head, body, tail.
//!
//! The machine and what it asked for sit behind a mutex that is held for moments, with signals
//! blocked, so that a signal handler on the same thread never finds it taken. The body belongs to
//! one thread (its *owner*), the one whose event took the machine out of Running. Other threads may
//! deliver messages meanwhile; what follows from them is the owner's.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use bootstrap::node_shm::{Ack, ExitDecision};
use bootstrap::{ExitPath, Rank};
use settings::deadlines::exit::{AGENT_QUIT, SLICE};

use super::flush::Flush;
use super::line::Line;
use super::link::Link;
use super::machine::{
    Action, Actions, Code, Config, Event, Machine, Message, Millis, Phase, Timeouts,
};
use super::outbox::Outbox;
use super::signals::{self, Mask, Stack};
use super::timeouts::Alarms;
use super::wire;

/// Polls that find nothing before the body sleeps.
const IDLE_POLLS: u32 = 4;

/// What the driver is told at install.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    /// The exit time-out T.
    pub(super) timeout: Millis,
    /// Sync file systems when the streams are flushed.
    pub(super) sync: bool,
    /// Whether SIGQUIT goes to a handler of the program.
    pub(super) user_handles_quit: fn() -> bool,
}

static DRIVER: OnceLock<Driver> = OnceLock::new();

/// The exit that is installed in this process.
pub(super) fn driver() -> Option<&'static Driver> {
    DRIVER.get()
}

struct Protocol {
    machine: Machine,
    scratch: Actions,
    outbox: Outbox,
}

/// One rank's exit.
pub(super) struct Driver {
    link: Arc<dyn Link>,
    options: Options,
    alarms: Alarms,
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
    alarmed: AtomicBool,
    /// On the hook's path: the code that libc ends the process with, whatever the job's is.
    natural: OnceLock<i32>,
    flush: Flush,
}

/// What an event meant.
struct Taken {
    /// It began the exit: the calling thread has the body now.
    first: bool,
}

impl Driver {
    /// Makes this the exit of the process; `false` when there is one.
    pub(super) fn install(self) -> bool {
        DRIVER.set(self).is_ok()
    }

    pub(super) fn new(link: Arc<dyn Link>, options: Options) -> Self {
        let place = link.rank_info();
        let control = link.exit_notifier().is_connected();
        let timeouts = Timeouts::new(options.timeout);
        let timeouts =
            if link.exit_notifier().has_agent() { timeouts } else { timeouts.deciding() };
        let config = Config { rank: place.rank.0, size: place.size, control, timeouts };
        let protocol = Protocol {
            machine: Machine::new(config),
            scratch: Actions::new(),
            outbox: Outbox::new(),
        };
        Self {
            link,
            options,
            alarms: Alarms::new(options.timeout),
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
            alarmed: AtomicBool::new(false),
            natural: OnceLock::new(),
            flush: Flush::new(),
        }
    }

    /// This rank.
    pub(super) fn rank(&self) -> Rank {
        self.link.rank_info().rank
    }

    /// Whether this is the process of the rank, not one that it forked.
    pub(super) fn is_ours(&self) -> bool {
        self.process == std::process::id()
    }

    /// Whether this rank's exit has begun.
    pub(super) fn has_begun(&self) -> bool {
        self.owner.load(Ordering::SeqCst) != 0
    }

    /// Whether the end of the job is decided already.
    pub(super) fn is_decided(&self) -> bool {
        self.link.node_shm().exit_decision().is_some()
    }

    fn now(&self) -> Millis {
        Millis(u64::try_from(self.begin.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    fn lock(&self) -> MutexGuard<'_, Protocol> {
        self.protocol.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `call` with the protocol, signals blocked.
    fn with<T>(&self, call: impl FnOnce(&mut Protocol) -> T) -> T {
        signals::undisturbed(|| call(&mut self.lock()))
    }

    /// Gives an event to the machine and sends what can be sent.
    fn take(&self, event: Event) -> Taken {
        let now = self.now();
        self.with(|protocol| {
            let Protocol { machine, scratch, outbox } = protocol;
            let before = machine.state();
            scratch.clear();
            machine.handle(now, event, scratch);
            outbox.take(scratch, self.rank().0, self.link.rank_info().size);
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
            Taken { first }
        })
    }

    fn send(&self, outbox: &mut Outbox) {
        outbox.send(|to, message| {
            let (id, words, count) = wire::encode(message);
            self.link.send(Rank(to), id, &words[..count])
        });
    }

    /// Sends what is waiting; true when nothing is left.
    fn resend(&self) -> bool {
        self.with(|protocol| {
            self.send(&mut protocol.outbox);
            protocol.outbox.is_sent()
        })
    }

    // ---- head ----

    /// An exit that begins here. Returns only on the hook's path.
    pub(super) fn local(&self, code: i32, path: ExitPath) {
        let in_signal = path == ExitPath::Signal || signals::is_quit_blocked();
        let mask = signals::block();
        let natural = code;
        let slot = self.link.node_shm().slot(self.link.rank_info().local);
        // A decided end wins over whatever the user's SIGQUIT handler, which it may have started,
        // exits with. But where the others left with 0 and this rank worked on, its own code says
        // how the job ended.
        let decision = self.link.node_shm().exit_decision();
        let worked_on = slot.ack() == Ack::None;
        let code = decision
            .filter(|decision| decision.code != 0 || !worked_on)
            .map_or(code, |decision| decision.code);
        // Sends run with signals blocked, so no handler ever interrupts one and sending is always
        // allowed.
        let event = Event::LocalExit { code: Code::new(code), path, in_signal: false };
        if self.take(event).first {
            self.in_signal.store(in_signal, Ordering::SeqCst);
            if path == ExitPath::Hook {
                let _ = self.natural.set(natural);
            }
            slot.claim_ack(Ack::Rank);
            if decision.is_some() {
                self.take(Event::ExitDecision { code: Code::new(code) });
            }
            self.body();
        } else {
            self.join(mask);
        }
        self.leave(path, mask);
    }

    /// The control tree's decision, seen by a poll. Returns only when this thread is the one that
    /// exits already.
    pub(super) fn exit_decision(&self, decision: ExitDecision) {
        if self.has_begun() {
            return self.meet();
        }
        let mask = signals::block();
        if self.take(Event::ExitDecision { code: Code::new(decision.code) }).first {
            self.body();
            self.leave(ExitPath::Remote, mask);
        }
        signals::restore(mask);
        self.meet();
    }

    /// A peer's message.
    pub(super) fn message(&self, from: Rank, id: u8, args: &[i32]) {
        let Some(message) = wire::decode(id, args) else { return };
        let mask = signals::block();
        if self.take(Event::Message { from: from.0, message }).first {
            self.body();
            self.leave(ExitPath::Remote, mask);
        }
        signals::restore(mask);
        if self.has_begun() && self.owner.load(Ordering::SeqCst) != signals::thread() {
            self.link.node_shm().slot(self.link.rank_info().local).ring();
        }
        // Nobody comes back to what could not be sent before the exit has begun.
        if !self.has_begun() && matches!(message, Message::RoleRequest) {
            for _ in 0..1_000 {
                if self.resend() {
                    break;
                }
                std::thread::yield_now();
            }
        }
    }

    /// A thread that finds the exit under way: the owner returns, others stay here to the end of
    /// the process.
    pub(super) fn meet(&self) {
        if self.owner.load(Ordering::SeqCst) != signals::thread() {
            signals::park();
        }
    }

    /// A later exit call.
    fn join(&self, mask: Mask) {
        if self.owner.load(Ordering::SeqCst) != signals::thread() {
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
        self.bound(self.alarms.step);
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
            busy |= self.look();
            if busy {
                idle = 0;
            } else {
                idle += 1;
                self.rest(idle);
            }
        }
    }

    /// Looks at everything that becomes true by itself; whether something did.
    fn look(&self) -> bool {
        let sent = self.resend();
        let phase = self.phase();
        let coordinating =
            matches!(phase, Phase::Reducing | Phase::Electing | Phase::Leading | Phase::Following);
        if let Some(decision) = self.link.node_shm().exit_decision().filter(|_| coordinating) {
            self.take(Event::ExitDecision { code: Code::new(decision.code) });
            return true;
        }
        let due =
            self.with(|protocol| protocol.machine.deadline()).is_some_and(|at| at <= self.now());
        if due {
            self.take(Event::Timer);
            if coordinating {
                signals::alarm(self.alarms.step);
            }
            return true;
        }
        // Whoever the messages are for reads a decided end in the page of its host. This rank may
        // be unable to send them for ever: its handler interrupted the network, which is shut from
        // then on.
        let told = self.control && self.link.node_shm().exit_decision().is_some();
        let needless = sent || told || !self.flush.is_graceful();
        if phase == Phase::Draining && self.flush.is_over() && needless {
            self.take(Event::Flushed);
            return true;
        }
        false
    }

    fn rest(&self, idle: u32) {
        if idle < IDLE_POLLS {
            std::thread::yield_now();
            return;
        }
        let deadline = self.with(|protocol| protocol.machine.deadline());
        let left = deadline.map_or(SLICE.ms(), |at| at.0.saturating_sub(self.now().0));
        let slice = Duration::from_millis(left.clamp(1, SLICE.ms()));
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
        let place = self.link.rank_info();
        match action {
            Action::Announce { code, path } => self.link.exit_notifier().exiting(code.get(), path),
            Action::StopClientHandlers => {
                self.enter();
                self.link.disable_client_handlers();
            }
            Action::RaiseQuit => self.raise_quit(),
            Action::Decide { code } => {
                let mine = ExitDecision { code: code.get(), cause: Some(place.rank) };
                let decision = self.link.node_shm().decide(mine);
                self.take(Event::ExitDecision { code: Code::new(decision.code) });
            }
            Action::Flush { graceful } => {
                self.resend();
                self.bound(self.alarms.teardown);
                let in_signal = self.in_signal.load(Ordering::SeqCst);
                self.flush.start(graceful, in_signal, self.options.sync);
            }
            Action::Fini { code } => {
                self.close(self.link.node_shm().exit_decision().is_none());
                self.bound(self.alarms.fini);
                // The provider compares the farewell with how the process ends; it knows the codes
                // of all from before.
                self.link.exit_notifier().fini(self.natural.get().copied().unwrap_or(code.get()));
            }
            Action::Abort { code } => {
                self.bound(self.alarms.fini);
                self.link.exit_notifier().abort(code.get());
            }
            Action::Terminate { .. } => return false,
            // The outbox keeps these apart.
            Action::Send { .. } | Action::SendAll { .. } => {}
        }
        true
    }

    /// Arms the watchdog. Before [`Driver::enter`] its handler is not ours yet.
    fn bound(&self, seconds: u32) {
        if self.alarmed.load(Ordering::SeqCst) {
            signals::alarm(seconds);
        }
    }

    /// Takes over the signals that could disturb the body.
    fn enter(&self) {
        signals::alarm(0);
        signals::ignore(libc::SIGQUIT);
        for signal in ABORT_SIGNALS {
            signals::install(signal, on_abort_signal, Stack::Alternate);
        }
        self.alarmed.store(true, Ordering::SeqCst);
        self.bound(self.alarms.step);
    }

    fn raise_quit(&self) {
        let slot = self.link.node_shm().slot(self.link.rank_info().local);
        let mine = slot.claim_ack(Ack::Rank);
        if !(self.options.user_handles_quit)() {
            return;
        }
        // The handler's time is bounded like the rest; if the user has a handler for SIGALRM, that
        // one runs.
        signals::alarm(self.alarms.teardown);
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

    /// The rank leaves in good order and takes nobody along.
    pub(super) fn leave_quietly(&self, code: i32) {
        self.close(false);
        self.link.exit_notifier().fini(code);
    }

    /// The process is about to die of `signal`.
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
    fn abort_signal(&self, signal: i32) -> ! {
        signals::alarm(self.alarms.last);
        let mut line = Line::new();
        line.text("gasnet_ibv: rank ").number(self.rank().0).text(": ");
        if signal == libc::SIGALRM {
            line.text("timeout");
        } else {
            line.text("signal ").number(signal);
        }
        line.text(" during exit [").text(self.phase().text()).text("]").print();
        self.end_now()
    }
}

const ABORT_SIGNALS: [i32; 6] =
    [libc::SIGALRM, libc::SIGABRT, libc::SIGILL, libc::SIGSEGV, libc::SIGFPE, libc::SIGBUS];

extern "C" fn on_abort_signal(signal: i32, _: *mut libc::siginfo_t, _: *mut std::ffi::c_void) {
    if let Some(driver) = driver() {
        driver.abort_signal(signal);
    }
    signals::end(128 + signal)
}
