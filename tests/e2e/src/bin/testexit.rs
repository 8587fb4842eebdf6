//! Every way to end a job. See `testexit --help` for the cases.
//!
//! The exit code of the job must be the number of the case for 1 to 55, 0 for 100 and 101, and not
//! 0 for the other crashes. A line with `TEST FAILED` means that a call returned which must not.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use clap::Parser;
use e2e::sys;
use gasnet_ibv::{
    BarrierFlags, Client, Entry, Error, Flags, HandlerIndex, Mode, Par, Rank, Role, SegmentOffset,
    Seq,
};

const SEGMENT: u64 = 1 << 20;
/// Code that the test's own SIGQUIT handler exits with; it must never win over a code that was
/// there before.
const QUIT_CODE: i32 = 4;
/// Exit code after `TEST FAILED`.
const FAILED: i32 = 99;

const CASES: &str = "Cases (last = highest rank, or 0 with --reversed; peer = the next rank):
    1  all ranks exit at once                     2  all ranks return from main
    3  last exits, others in a barrier            4  last sends itself SIGINT, others in a barrier
    5  last exits, others spin                    6  all exit before attach
    7  last exits before attach, others attach    8  last returns from main, others in a barrier
    9  last returns from main, others spin       10  each asks its peer to exit by a request
   11  rank 0 asks last by a request             12  last asks itself by a request
   13  all ask last by a request                 14  last exits between prepare and commit
   15  last exits in a handler with a prepared reply
   51  all threads of all ranks exit             52  one thread exits, others in a thread barrier
   53  one thread exits, others spin             54  one thread exits, others poll
   55  one thread exits, others send messages of every kind
  100  backtrace     101  backtrace in a SIGQUIT handler     102  fatal error     103  abort
  104  SIGSEGV       105  SIGBUS                             106  SIGFPE
Crash cases + 100 = --all, + 200 = on a thread of their own, + 300 = both.";

/// Every way to end a job.
#[derive(Clone, Debug, Parser)]
#[command(name = "testexit", after_help = CASES)]
struct Args {
    /// Number of the case
    case: u32,
    /// Threads of each rank, for cases from 51 on
    #[arg(default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: u32,
    /// All ranks crash, not only the last one
    #[arg(long)]
    all: bool,
    /// Count ranks from the other end
    #[arg(long)]
    reversed: bool,
    /// Crash on a thread of its own
    #[arg(long)]
    threaded: bool,
    /// Milliseconds that the acting rank waits, so that the others are where the case wants them
    #[arg(long, default_value_t = 1000)]
    delay: u64,
    /// Milliseconds that all ranks wait before the case begins, so that what the network is to
    /// suffer has happened
    #[arg(long, default_value_t = 0)]
    calm: u64,
}

impl Args {
    /// Splits 2xx, 3xx and 4xx into the crash case and its variants.
    fn normalised(mut self) -> Option<Self> {
        if (200..=406).contains(&self.case) {
            let variant = self.case / 100 - 1;
            self.all |= variant & 1 != 0;
            self.threaded |= variant & 2 != 0;
            self.case = self.case % 100 + 100;
        }
        matches!(self.case, 1..=15 | 51..=55 | 100..=106).then_some(self)
    }

    fn code(&self) -> i32 {
        self.case.cast_signed()
    }
}

/// What the SIGQUIT handler looks at.
static CASE: AtomicU32 = AtomicU32::new(0);
static RANK: AtomicU32 = AtomicU32::new(0);

/// The client's own SIGQUIT handler: says so in one write, then exits (or returns, in the backtrace
/// cases).
extern "C" fn on_quit(_: i32) {
    let mut line = *b"testexit: SIGQUIT handler on rank 0000\n";
    let mut rank = RANK.load(Ordering::Relaxed);
    for digit in line[34..38].iter_mut().rev() {
        *digit = b'0' + u8::try_from(rank % 10).unwrap_or(0);
        rank /= 10;
    }
    let _ = nix::unistd::write(std::io::stderr(), &line);
    match CASE.load(Ordering::Relaxed) {
        100 => {}
        101 => gasnet_ibv::print_backtrace(),
        _ => gasnet_ibv::exit(QUIT_CODE),
    }
}

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args.normalised(),
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(2);
        }
    };
    let Some(args) = args else {
        report("no such case, see testexit --help");
        return ExitCode::from(2);
    };
    let outcome = if (51..=55).contains(&args.case) || args.threaded {
        run::<Par>(&args, threads)
    } else {
        run::<Seq>(&args, sequential)
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            report(&format!("TEST FAILED: {error}"));
            ExitCode::from(u8::try_from(FAILED).unwrap_or(1))
        }
    }
}

fn report(text: &str) {
    use std::io::Write;
    let rank = RANK.load(Ordering::Relaxed);
    let _ = std::io::stderr().write_all(format!("testexit: rank {rank}: {text}\n").as_bytes());
}

/// One rank's view of the test.
struct Test<'a, M: Mode> {
    client: &'a Client<M>,
    args: &'a Args,
    /// Rank counted from the chosen end.
    me: u32,
    handlers: Handlers,
}

#[derive(Clone, Copy)]
struct Handlers {
    exit: HandlerIndex,
    noop: HandlerIndex,
    sink: HandlerIndex,
    landing: HandlerIndex,
    prepare: HandlerIndex,
}

type Body<M> = fn(&Test<'_, M>) -> Result<ExitCode, Error>;

fn run<M: Mode>(args: &Args, body: Body<M>) -> Result<ExitCode, Error> {
    let client = Client::<M>::init("testexit")?;
    RANK.store(client.rank().0, Ordering::Relaxed);
    CASE.store(args.case, Ordering::Relaxed);
    if let Err(errno) = sys::on_quit(on_quit) {
        report(&format!("TEST FAILED: cannot install a SIGQUIT handler: {errno}"));
    }
    let me = mirrored(&client, args, client.rank().0);
    if before_attach(args, me == client.size() - 1) {
        client.exit(args.code())
    }
    let _segment = client.attach_segment(SEGMENT)?;
    let handlers = register(&client, args.code(), me == client.size() - 1)?;
    client.barrier(0, BarrierFlags::ANONYMOUS)?;
    if client.rank() == Rank(0) {
        report(&format!("case {} on {} ranks", args.case, client.size()));
    }
    client.barrier(0, BarrierFlags::ANONYMOUS)?;
    std::thread::sleep(Duration::from_millis(args.calm));
    body(&Test { client: &client, args, me, handlers })
}

/// Whether this rank exits between init and attach.
fn before_attach(args: &Args, last: bool) -> bool {
    let exits = args.case == 6 || args.case == 7 && last;
    if exits {
        std::thread::sleep(Duration::from_millis(args.delay));
    }
    exits
}

fn mirrored<M: Mode>(client: &Client<M>, args: &Args, rank: u32) -> u32 {
    if args.reversed { client.size() - 1 - rank } else { rank }
}

fn register<M: Mode>(client: &Client<M>, code: i32, last: bool) -> Result<Handlers, Error> {
    let noop = Arc::new(AtomicU32::new(0));
    let noop_index = 201;
    let mut table = [
        Entry::<M>::short("exit", 0, move |_, _| gasnet_ibv::exit(code)).at(200),
        Entry::short("noop", 0, move |_, _| {
            noop.fetch_add(1, Ordering::Relaxed);
        })
        .at(noop_index),
        Entry::medium("sink", 1, move |token, _, _| {
            answer(token.reply_short(HandlerIndex(noop_index), &[], Flags::NONE).map(drop));
        })
        .role(Role::Request),
        Entry::long("landing", 0, move |token, _, _| {
            answer(token.reply_short(HandlerIndex(noop_index), &[], Flags::NONE).map(drop));
        })
        .role(Role::Request),
        Entry::short("prepare", 0, move |token, _| {
            match token.prepare_reply_medium(None, 0, 64, 0, Flags::NONE) {
                Ok(_) if last => gasnet_ibv::exit(code),
                Ok(prepared) => drop(prepared),
                Err(error) => answer(Err(error)),
            }
        })
        .role(Role::Request),
    ];
    client.endpoint().register(&mut table)?;
    let [exit, noop, sink, landing, prepare] = table.each_ref().map(Entry::index);
    Ok(Handlers { exit, noop, sink, landing, prepare })
}

/// An error inside a handler fails the test, unless it says that the job is ending anyway.
fn answer(outcome: Result<(), Error>) {
    match outcome {
        Ok(()) | Err(Error::JobEnding { .. } | Error::AfterExit { .. }) => {}
        Err(error) => report(&format!("TEST FAILED: in a handler: {error}")),
    }
}

fn spin() -> ! {
    loop {
        std::hint::spin_loop();
    }
}

impl<M: Mode> Test<'_, M> {
    fn is_last(&self) -> bool {
        self.me == self.client.size() - 1
    }

    /// The job rank of a rank counted from the chosen end.
    fn rank(&self, counted: u32) -> Rank {
        Rank(mirrored(self.client, self.args, counted))
    }

    fn last(&self) -> Rank {
        self.rank(self.client.size() - 1)
    }

    fn peer(&self) -> Rank {
        self.rank((self.me + 1) % self.client.size())
    }

    fn delay(&self) {
        std::thread::sleep(Duration::from_millis(self.args.delay));
    }

    fn exit(&self) -> ! {
        self.client.exit(self.args.code())
    }

    /// What the others do in most cases: wait for something that never comes. Control must not come
    /// back.
    fn barrier_forever(&self) -> ! {
        let outcome = self.client.barrier(0, BarrierFlags::ANONYMOUS);
        self.failed(&format!("the barrier returned {outcome:?}"))
    }

    fn poll_forever(&self) -> ! {
        let outcome = self.client.block_until(|| false);
        self.failed(&format!("polling returned {outcome:?}"))
    }

    fn failed(&self, what: &str) -> ! {
        report(&format!("TEST FAILED: {what}"));
        self.client.exit(FAILED)
    }

    fn ask(&self, rank: Rank, handler: HandlerIndex) -> Result<(), Error> {
        self.client.team().request_short(rank, handler, &[], Flags::NONE).map(drop)
    }

    /// Exit code for a return from `main`.
    fn returned(&self) -> ExitCode {
        ExitCode::from(u8::try_from(self.args.case).unwrap_or(1))
    }
}

fn sequential(test: &Test<'_, Seq>) -> Result<ExitCode, Error> {
    let last = test.is_last();
    match test.args.case {
        1 => test.exit(),
        2 => return Ok(test.returned()),
        3 | 5 | 8 | 9 if last => {
            test.delay();
            if test.args.case >= 8 {
                return Ok(test.returned());
            }
            test.exit()
        }
        4 if last => {
            test.delay();
            let _ = nix::sys::signal::raise(nix::sys::signal::Signal::SIGINT);
            test.failed("SIGINT had no effect")
        }
        3 | 4 | 8 => test.barrier_forever(),
        5 | 9 => spin(),
        7 => test.failed("attach returned although a rank has exited"),
        10 => test.ask(test.peer(), test.handlers.exit)?,
        11 if test.client.rank() == Rank(0) => test.ask(test.last(), test.handlers.exit)?,
        12 if last => test.ask(test.last(), test.handlers.exit)?,
        13 => test.ask(test.last(), test.handlers.exit)?,
        14 => prepared(test)?,
        15 => test.ask(test.peer(), test.handlers.prepare)?,
        11 | 12 => {}
        _ => return crash(test),
    }
    test.poll_forever()
}

/// Case 14: everybody prepares, the last one exits, the others commit.
fn prepared(test: &Test<'_, Seq>) -> Result<(), Error> {
    let team = test.client.team();
    let prepared = team.prepare_request_medium(test.peer(), None, 0, 64, 1, Flags::NONE)?;
    if test.is_last() {
        test.exit()
    }
    match prepared {
        Some(prepared) => prepared.commit(test.handlers.sink, 0, &[0]),
        None => test.failed("prepare gave nothing without IMMEDIATE"),
    }
}

fn threads(test: &Test<'_, Par>) -> Result<ExitCode, Error> {
    if test.args.case >= 100 {
        return std::thread::scope(|scope| match scope.spawn(|| crash(test)).join() {
            Ok(outcome) => outcome,
            Err(_) => test.failed("the crashing thread panicked"),
        });
    }
    let count = test.args.threads;
    // One more than there are threads, so that nobody ever leaves it.
    let never = Barrier::new(count as usize + 1);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let worker = |number: u32| {
            let (never, stop) = (&never, &stop);
            move || {
                let outcome = thread(test, number, never, stop);
                test.failed(&format!("thread {number} returned {outcome:?}"))
            }
        };
        for number in 1..count {
            scope.spawn(worker(number));
        }
        worker(0)()
    })
}

/// What one thread does; thread 0 of the last rank is the one that exits.
fn thread(
    test: &Test<'_, Par>,
    number: u32,
    never: &Barrier,
    stop: &AtomicBool,
) -> Result<(), Error> {
    if test.args.case == 51 {
        test.exit()
    }
    if test.is_last() && number == 0 {
        test.delay();
        test.exit()
    }
    match test.args.case {
        52 => {
            never.wait();
            Ok(())
        }
        53 => spin(),
        54 => test.client.block_until(|| stop.load(Ordering::Relaxed)),
        _ => loop {
            every_kind(test, number)?;
        },
    }
}

/// One round of messages of every kind and size to the peer.
fn every_kind(test: &Test<'_, Par>, number: u32) -> Result<(), Error> {
    let (client, team, peer, handlers) =
        (test.client, test.client.team(), test.peer(), test.handlers);
    let most = team.max_request_medium(Some(peer), 1, Flags::NONE);
    let mut bytes = vec![7; most];
    // Threads write to different places; what is there does not matter.
    let place = u64::from(number % 8) * (SEGMENT / 16);
    test.ask(peer, handlers.noop)?;
    for len in [0, 8, most] {
        let _sent = team.request_medium(peer, handlers.sink, &bytes[..len], &[0], Flags::NONE)?;
        let dest = SegmentOffset(place);
        let _sent =
            team.request_long(peer, handlers.landing, &bytes[..len], dest, &[], Flags::NONE)?;
        client.put(peer, place, &bytes[..len])?;
        client.get(peer, place, &mut bytes[..len])?;
    }
    Ok(())
}

/// Cases 100 to 106. Who does not crash waits in a barrier.
fn crash<M: Mode>(test: &Test<'_, M>) -> Result<ExitCode, Error> {
    if test.args.all || test.is_last() {
        if !test.args.all {
            test.delay();
        }
        match test.args.case {
            100 => gasnet_ibv::print_backtrace(),
            101 => {
                let _ = nix::sys::signal::raise(nix::sys::signal::Signal::SIGQUIT);
            }
            102 => gasnet_ibv::fatal_error("testexit case 102"),
            103 => std::process::abort(),
            104 => sys::crash_store(),
            105 => sys::crash_bus(),
            _ => sys::crash_division(),
        }
        if test.args.case > 101 {
            test.failed("the crash did not happen")
        }
    }
    test.client.barrier(0, BarrierFlags::ANONYMOUS)?;
    test.client.exit(0)
}
