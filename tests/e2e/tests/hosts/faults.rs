//! Every fault of a job on several hosts × phase of the job × shape of the tree: exit code, what is
//! said, how soon all is over, and who survived. Prints the table.

use std::fmt::Write;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use testkit::process::{Process, send};
use testkit::{Bed, Running, Table, all_requested, binary};

use crate::executable;

/// Far above what the end of a job takes on a busy machine: two seconds of grace and the rest.
const SOON: Duration = Duration::from_secs(10);
/// A host that says nothing is given up after 12 s.
const SILENT: Duration = Duration::from_secs(25);
/// An agent that hears nothing is on its own after 30 s.
const ALONE: Duration = Duration::from_secs(45);

const HOSTS: &str = "n1 n2 n3 n4";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Front,
    Root,
    Ssh,
    Agent,
    Guard,
    Rank,
    /// All processes of n2 are killed; its kernel says so.
    Kill,
    /// n2 loses its power.
    Crash,
    Freeze,
    Drop,
    Unplug,
}

impl Fault {
    const KILLS: [Self; 6] =
        [Self::Front, Self::Root, Self::Ssh, Self::Agent, Self::Guard, Self::Rank];
    const SILENT: [Self; 4] = [Self::Crash, Self::Freeze, Self::Drop, Self::Unplug];

    const fn name(self) -> &'static str {
        match self {
            Self::Front => "kill -9 launcher",
            Self::Root => "kill -9 root",
            Self::Ssh => "kill -9 ssh",
            Self::Agent => "kill -9 agent",
            Self::Guard => "kill -9 guard",
            Self::Rank => "kill -9 rank",
            Self::Kill => "host killed",
            Self::Crash => "host lost power",
            Self::Freeze => "host frozen",
            Self::Drop => "network drops",
            Self::Unplug => "cable out",
        }
    }

    /// The verb that does it to a host, and the one that mends it.
    const fn verbs(self) -> Option<(&'static str, &'static str)> {
        Some(match self {
            Self::Kill => ("kill", "boot"),
            Self::Crash => ("crash", "boot"),
            Self::Freeze => ("freeze", "thaw"),
            Self::Drop => ("drop", "pass"),
            Self::Unplug => ("unplug", "plug"),
            _ => return None,
        })
    }

    /// Whether only silence tells of it.
    const fn is_silent(self) -> bool {
        matches!(self, Self::Crash | Self::Freeze | Self::Drop | Self::Unplug)
    }

    /// The host that must be named.
    const fn names(self) -> &'static str {
        match self {
            Self::Front => "",
            Self::Root => "host head was lost",
            Self::Ssh => "n1",
            Self::Agent => "n3",
            Self::Rank => "on host n4",
            _ => "n2",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// n4's login takes long; all others are there.
    Start,
    /// All ranks have met their agents and make their network.
    Init,
    /// All ranks but one have called.
    Exchange,
    Running,
    /// One rank has failed; the others ignore that they are asked to end.
    Exit,
}

impl Phase {
    const ALL: [Self; 5] = [Self::Start, Self::Init, Self::Exchange, Self::Running, Self::Exit];

    const fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Init => "init",
            Self::Exchange => "exchange",
            Self::Running => "running",
            Self::Exit => "exit",
        }
    }
}

struct Case {
    fault: Fault,
    phase: Phase,
    degree: &'static str,
}

/// What there is to know about one case.
struct Seen {
    code: i32,
    /// From the fault until the launcher has ended.
    end: Duration,
    /// The same until nothing of the job is left on hosts that can be told.
    clean: Duration,
    /// Processes that were still there when they had to be gone, on any host.
    survivors: usize,
    wrong: Option<String>,
}

impl Case {
    fn code(&self) -> i32 {
        match (self.fault, self.phase) {
            (Fault::Front, _) => 137,
            (Fault::Root, _) => 125,
            // The failure came first.
            (_, Phase::Exit) => 7,
            (Fault::Rank, _) => 137,
            _ => 125,
        }
    }

    /// A job of two ranks on each of four hosts, once it is in its phase.
    fn start(&self, bed: &Bed) -> Running {
        let degree = format!("GASNET_SSH_OUT_DEGREE={}", self.degree);
        let share = bed.share();
        let slow = format!("GASNET_SSH_CMD={share}/ssh-slow");
        let go = format!("{share}/go");
        let _ = std::fs::remove_file(&go);
        let hello = binary("hello").display().to_string();
        let script = match self.phase {
            Phase::Start | Phase::Running => "sleep 600 & echo up; sleep 601; true".to_owned(),
            // Goes on for long: a start that is quicker than the fault ends in a job that runs.
            Phase::Init => format!("echo up; exec {} 1000000000", binary("ring").display()),
            Phase::Exchange => {
                format!("echo up; test $GASNETRUN_RANK = 5 && sleep 601; exec {hello}")
            }
            Phase::Exit => format!(
                "trap '' TERM; echo up; if test $GASNETRUN_RANK = 0; then \
                 until test -e {go}; do sleep 0.01; done; exit 7; fi; sleep 601; sleep 601"
            ),
        };
        let words = ["-v", "-v", "-n", "8", "--hosts", "n1,n2,n3,n4", "sh", "-c", &script];
        if self.phase == Phase::Start {
            let running = bed.job(&[&degree, &slow], &words).start();
            // All but the slow one.
            running.wait_stderr("Reached(Ready)", 3);
            return running;
        }
        // By default there may be no process of ssh.
        let client = match self.fault {
            Fault::Ssh => "GASNET_SSH_CMD=ssh",
            _ => "GASNET_SSH_CMD=auto",
        };
        let running = bed.lasting(8, &[&degree, client], &words);
        match self.phase {
            Phase::Init => running.wait_stderr("event Hello", 8),
            Phase::Exchange => running.wait_stderr("event Hello", 7),
            Phase::Exit => {
                std::fs::write(&go, "").expect("the share can be written");
                running.wait_stderr("action End(15)", 1);
            }
            _ => {}
        }
        running
    }

    fn victim(&self, bed: &Bed) -> Option<Process> {
        match self.fault {
            Fault::Front => bed.agents("head").into_iter().next(),
            Fault::Root => bed.agents("head").into_iter().nth(1),
            Fault::Ssh => bed.find("head", "(ssh) ").into_iter().next(),
            Fault::Guard => bed.agents("n2").into_iter().next(),
            Fault::Agent => bed.agents("n3").into_iter().nth(1),
            Fault::Rank => bed.rank("n4"),
            _ => None,
        }
    }

    fn strike(&self, bed: &Bed) {
        if let Some((verb, _)) = self.fault.verbs() {
            return bed.cluster.verb(&[verb, "n2"]);
        }
        let victim = self.victim(bed).expect("it runs");
        assert!(send(victim.pid, Signal::SIGKILL), "{victim:?} is gone");
    }

    fn run(&self, bed: &Bed) -> Seen {
        let running = self.start(bed);
        self.strike(bed);
        let begin = Instant::now();
        let outcome = running.wait();
        let end = begin.elapsed();
        let (mut wrong, mut survivors) = (String::new(), 0);
        let bound = if self.fault.is_silent() { SILENT } else { SOON };
        // Who is behind a silent host learns nothing either.
        let but = match self.fault {
            fault if fault.is_silent() && self.degree == "1" => &["n2", "n3", "n4"][..],
            fault if fault.verbs().is_some() => &["n2"],
            _ => &[],
        };
        if let Err(left) = bed.clean_within(bound.saturating_sub(end), but) {
            let _ = writeln!(wrong, "{} processes are left: {left:?}", left.len());
            survivors += left.len();
        }
        let clean = begin.elapsed();
        if clean > bound {
            let _ = writeln!(wrong, "it took {clean:?}, the bound is {bound:?}");
        }
        if let Some(fault) = outcome.fault(self.code()) {
            let _ = writeln!(wrong, "{fault}");
        }
        let names = match self.phase {
            // The failure came first.
            Phase::Exit if self.code() == 7 => "rank 0 of 8 on host n1",
            _ => self.fault.names(),
        };
        // What is said without being asked for.
        let err = outcome.err();
        let mut said = err.lines().filter(|line| !line.contains(" ms: "));
        if self.fault != Fault::Front && !said.any(|line| line.contains(names)) {
            let _ = writeln!(wrong, "{names:?} is not said");
        }
        survivors += self.mend(bed, begin, &mut wrong);
        if !wrong.is_empty() {
            let lines: Vec<&str> = err.lines().collect();
            let last = lines[lines.len().saturating_sub(40)..].join("\n");
            wrong = format!("{self}: {wrong}{last}\n");
        }
        let wrong = Some(wrong).filter(|wrong| !wrong.is_empty());
        Seen { code: outcome.code(), end, clean, survivors, wrong }
    }

    /// Looks at the hosts that were cut off: what runs there ends by itself, or as soon as it can.
    /// How much does not.
    fn mend(&self, bed: &Bed, begin: Instant, wrong: &mut String) -> usize {
        let Some((_, mend)) = self.fault.verbs() else { return 0 };
        // A frozen host does nothing before it goes on.
        let but = if self.fault == Fault::Freeze { &["n2"][..] } else { &[] };
        let ours = || {
            let mut left = bed.left(but);
            // Whose login came from beyond the cut, or was that of the host itself: nobody can tell
            // its sshd.
            left.retain(|(_, process)| {
                !(self.fault.is_silent() && process.command.starts_with("(sshd)"))
            });
            left
        };
        while !ours().is_empty() && begin.elapsed() < ALONE {
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut survivors = ours().len();
        if survivors > 0 {
            let _ = writeln!(wrong, "cut off, and still there: {:?}", ours());
        }
        bed.cluster.verb(&[mend, "n2"]);
        if self.fault == Fault::Freeze
            && let Err(left) = bed.clean_within(SOON, &[])
        {
            let _ = writeln!(wrong, "n2 goes on and still has {left:?}");
            survivors += left.len();
        }
        // An sshd that waits for a connection that is no more does so until its own limits have
        // passed.
        for (_, process) in bed.left(&[]) {
            if self.fault.is_silent() && process.command.starts_with("(sshd)") {
                let _ = send(process.pid, Signal::SIGKILL);
            }
        }
        survivors
    }

    /// Where it stands in the table.
    fn order(&self) -> impl Ord + use<> {
        let number = |text: &str| text.parse::<u32>().unwrap_or(0);
        (number(self.degree), self.phase as u8, self.fault as u8)
    }
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {}, out-degree {}", self.fault.name(), self.phase.name(), self.degree)
    }
}

/// Cases of the usual run, and all of them.
fn cases() -> Vec<Case> {
    let case = |fault, phase, degree| Case { fault, phase, degree };
    let mut cases = Vec::new();
    if all_requested() {
        for degree in ["1", "2", "32"] {
            for phase in Phase::ALL {
                cases.extend(Fault::KILLS.map(|fault| case(fault, phase, degree)));
                cases.push(case(Fault::Kill, phase, degree));
                // These take long; the shape of the tree matters while it runs.
                let slow = degree == "2"
                    || phase == Phase::Running
                    || (phase, degree) == (Phase::Init, "1");
                let silent = Fault::SILENT.into_iter().filter(|_| slow);
                cases.extend(silent.map(|fault| case(fault, phase, degree)));
            }
        }
    } else {
        let few = [Fault::Root, Fault::Agent, Fault::Rank];
        let phases = Phase::ALL.into_iter().filter(|phase| *phase != Phase::Init);
        for (number, phase) in phases.enumerate() {
            let all = matches!(phase, Phase::Exchange | Phase::Running);
            let faults = if all { &Fault::KILLS[..] } else { &few };
            for (other, fault) in faults.iter().enumerate() {
                cases.push(case(*fault, phase, ["1", "2", "32"][(number + other) % 3]));
            }
        }
        cases.push(case(Fault::Kill, Phase::Exchange, "2"));
        cases.push(case(Fault::Freeze, Phase::Running, "2"));
    }
    // Before its start there is no rank.
    cases.retain(|case| (case.fault, case.phase) != (Fault::Rank, Phase::Start));
    cases
}

/// A cluster on which every case can be run, once and again.
fn bed() -> Option<Bed> {
    let bed = Bed::up("faults of several hosts", HOSTS)?;
    let slow = format!("{}/ssh-slow", bed.share());
    let script = "#!/bin/sh\ncase \"$*\" in *' n4 '*) sleep 30;; esac\nexec ssh \"$@\"\n";
    executable(&slow, script);
    Some(bed)
}

/// Runs cases on a cluster of its own until there is none left. `false` after a `SKIP`.
fn worker(cases: &Mutex<Vec<Case>>, done: &Mutex<Vec<(Case, Seen)>>) -> bool {
    let Some(bed) = bed() else { return false };
    let next = || cases.lock().expect("no worker panics with it").pop();
    while let Some(case) = next() {
        let seen = case.run(&bed);
        if seen.wrong.is_some() {
            // The next case begins with hosts that are as they should be.
            for host in HOSTS.split(' ') {
                bed.cluster.verb(&["kill", host]);
                bed.cluster.verb(&["boot", host]);
            }
        }
        done.lock().expect("no worker panics with it").push((case, seen));
    }
    true
}

#[test]
fn every_fault_in_every_phase_ends_the_job_and_leaves_nothing() {
    let mut all = cases();
    // One kind alone, for whoever looks for its reason: `TESTKIT_FAULT="cable out, exit"`.
    if let Some(only) = settings::Env::from_process().text("TESTKIT_FAULT") {
        all.retain(|case| case.to_string().contains(&only));
        assert!(!all.is_empty(), "no case is called {only:?}");
    }
    // The slow ones first; they wait and use no processor, so several clusters do not get into each
    // other's way.
    all.sort_by_key(|case| case.fault.is_silent());
    let workers = if all_requested() { 4.min(all.len()) } else { 1 };
    let (cases, done) = (Mutex::new(all), Mutex::new(Vec::new()));
    let ran = std::thread::scope(|scope| {
        let each: Vec<_> = (0..workers).map(|_| scope.spawn(|| worker(&cases, &done))).collect();
        each.into_iter().all(|one| one.join().expect("a worker ends"))
    });
    if !ran {
        return;
    }
    let mut done = done.into_inner().expect("no worker panicked");
    done.sort_by_key(|(case, _)| case.order());
    let columns = ["fault", "phase", "out-degree", "code", "ended ms", "clean ms", "survivors", ""];
    let mut table = Table::new("Faults of jobs on four hosts over ssh (! = wrong)", &columns);
    let mut faults = String::new();
    for (case, seen) in &done {
        table.row(vec![
            case.fault.name().to_owned(),
            case.phase.name().to_owned(),
            case.degree.to_owned(),
            seen.code.to_string(),
            seen.end.as_millis().to_string(),
            seen.clean.as_millis().to_string(),
            seen.survivors.to_string(),
            if seen.wrong.is_some() { "!".to_owned() } else { String::new() },
        ]);
        faults.push_str(seen.wrong.as_deref().unwrap_or_default());
    }
    table.show();
    assert!(faults.is_empty(), "{faults}");
}
