//! Jobs on four hosts: every case on every shape of the tree over both transports, ssh and the
//! client of our own. Prints the table.

use std::fmt::Write as _;
use std::time::Duration;

use nix::sys::signal::Signal;
use testkit::process::{Process, send};
use testkit::{Bed, Input, Outcome, Table, all_requested, binary};

use crate::builtin;

const HOSTS: &str = "n1 n2 n3 n4";
const LIST: &str = "n1,n2,n3,n4";
const DEGREES: [&str; 4] = ["0", "1", "2", "32"];
const LINES: usize = 5_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    Greetings,
    Ring,
    Fails,
    NonCollectiveExit,
    Streams,
    KillLauncher,
    KillAgent,
    KillRank,
}

impl Case {
    const ALL: [Self; 8] = [
        Self::Greetings,
        Self::Ring,
        Self::Fails,
        Self::NonCollectiveExit,
        Self::Streams,
        Self::KillLauncher,
        Self::KillAgent,
        Self::KillRank,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Greetings => "greetings",
            Self::Ring => "messages between hosts",
            Self::Fails => "a rank fails",
            Self::NonCollectiveExit => "one exits, others wait",
            Self::Streams => "input and output",
            Self::KillLauncher => "kill -9 launcher",
            Self::KillAgent => "kill -9 agent",
            Self::KillRank => "kill -9 rank",
        }
    }

    const fn code(self) -> i32 {
        match self {
            Self::Greetings | Self::Ring | Self::Streams => 0,
            Self::Fails => 7,
            Self::NonCollectiveExit => 3,
            Self::KillAgent => 125,
            Self::KillLauncher | Self::KillRank => 137,
        }
    }

    /// Runs it with two ranks on each host; what it did, and what is wrong.
    fn run(self, bed: &Bed, set: &[&str]) -> (Outcome, Option<String>) {
        let all = ["-n", "8", "--hosts", LIST];
        let program = |name: &str| binary(name).display().to_string();
        let job = |words: &[&str]| bed.job(set, &[&all, words].concat());
        match self {
            Self::Greetings => {
                let outcome = job(&[&program("hello")]).run();
                let hosts = ["n1", "n1", "n2", "n2", "n3", "n3", "n4", "n4"];
                let line = |rank, host| format!("rank {rank} of 8 on {host},");
                let missing = hosts.iter().enumerate().map(|(rank, host)| line(rank, *host));
                let missing = missing.into_iter().find(|line| !outcome.out().contains(line));
                (outcome, missing)
            }
            Self::Ring => (job(&[&program("ring"), "3"]).run(), None),
            Self::Fails => {
                let script = "test $GASNETRUN_RANK = 5 && exit 7; sleep 600";
                let outcome = job(&["sh", "-c", script]).run();
                let named = outcome.err().contains("rank 5 of 8 on host n3");
                (outcome, (!named).then(|| "n3 is not named".to_owned()))
            }
            Self::NonCollectiveExit => {
                (job(&[&program("testexit"), "3", "--delay", "150"]).run(), None)
            }
            Self::Streams => {
                let script = format!("cat; seq {LINES}");
                let tree = job(&["--stdin", "all", "sh", "-c", &script]);
                let text: String = (0..LINES).map(|line| format!("in {line}\n")).collect();
                let outcome = tree.stdin(Input::Bytes(text.into_bytes())).run();
                let out = outcome.out();
                let count = |line: &str| out.lines().filter(|other| *other == line).count();
                let right = out.lines().count() == 16 * LINES && count(&LINES.to_string()) == 8;
                (outcome, (!right).then(|| format!("{} lines came", out.lines().count())))
            }
            Self::KillLauncher | Self::KillAgent | Self::KillRank => self.kill(bed, set),
        }
    }

    fn kill(self, bed: &Bed, set: &[&str]) -> (Outcome, Option<String>) {
        let script = "sleep 600 & echo up; sleep 601; true";
        let words = ["-n", "8", "--hosts", LIST, "sh", "-c", script];
        let running = bed.lasting(8, set, &words);
        let ssh = HOSTS.split(' ').chain(["head"]).flat_map(|host| bed.find(host, "(ssh) "));
        let ssh: Vec<Process> = ssh.collect();
        let is_ours = !set.contains(&"GASNET_SSH_CMD=ssh");
        let wrong = (ssh.is_empty() != is_ours).then(|| format!("processes of ssh: {ssh:?}"));
        let victim = match self {
            Self::KillLauncher => bed.agents("head").into_iter().next(),
            Self::KillAgent => bed.agents("n3").into_iter().nth(1),
            _ => bed.rank("n4"),
        };
        let victim = victim.expect("it runs").pid;
        assert!(send(victim, Signal::SIGKILL), "{victim} is gone");
        (running.wait(), wrong)
    }
}

#[test]
fn every_case_on_every_shape_over_every_transport() {
    let Some(mut bed) = Bed::up("jobs over all transports", HOSTS) else { return };
    let ours = builtin::launcher();
    let columns = ["case", "transport", "out-degree 0", "1", "2", "32"];
    let title = "Jobs on four hosts, 8 ranks: code and time from launch to return (! = wrong)";
    let mut table = Table::new(title, &columns);
    let mut faults = String::new();
    let usual = binary("gasnetrun_ibv").display().to_string();
    let auto = ours.clone();
    for (transport, launcher) in [("ssh", Some(usual)), ("builtin", ours), ("auto", auto)] {
        let Some(launcher) = launcher else { continue };
        bed.set_launcher(&launcher);
        for (number, case) in Case::ALL.into_iter().enumerate() {
            let mut row = vec![case.name().to_owned(), transport.to_owned()];
            for (other, degree) in DEGREES.iter().enumerate() {
                // In the usual run each transport has every second shape of a case, the ssh program
                // those that the client of our own has not.
                let turn = number + other + usize::from(transport == "ssh");
                if !all_requested() && turn % 2 != 0 {
                    row.push("-".to_owned());
                    continue;
                }
                let degree = format!("GASNET_SSH_OUT_DEGREE={degree}");
                let mut set = vec![degree.as_str()];
                match transport {
                    "ssh" => set.push("GASNET_SSH_CMD=ssh"),
                    "builtin" => set.extend(["GASNET_SSH_CMD=builtin", builtin::KEY]),
                    _ => {}
                }
                let (outcome, wrong) = case.run(&bed, &set);
                let fault = outcome.fault(case.code()).or(wrong).or_else(|| {
                    let left = bed.clean_within(Duration::from_secs(15), &[]).err();
                    left.map(|left| format!("left: {left:?}"))
                });
                let mark = if fault.is_some() { " !" } else { "" };
                row.push(format!("{}: {} ms{mark}", outcome.code(), outcome.ms()));
                if let Some(fault) = fault {
                    let what = format!("{}, {transport}, {degree}", case.name());
                    let _ = writeln!(faults, "{what}: {fault}\n{}", outcome.err());
                }
            }
            table.row(row);
        }
    }
    table.show();
    assert!(faults.is_empty(), "{faults}");
}
