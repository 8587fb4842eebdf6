//! What agents say to each other. Everything that comes is checked where it is used: no length or
//! index is believed.

use std::ffi::OsString;
use std::path::Path;
use std::rc::Rc;

use bootstrap::collective::{self, Bytes};
use bootstrap::rank::MAX_RANKS;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use spawner_pmi::server;
use spawner_ssh::Ssh;

use super::frames::Lane;
use super::hosts::HostStatus;
use super::told::Told;
use crate::agent::local_ranks::CpuSample;
use crate::agent::machine::{Command, RankEvent};
use crate::binding::Binding;
use crate::doctor::finding::Finding;
use crate::event_loop::Which;
use crate::plan::{Container, HostEntry, Pmi, Program, Reach};
use crate::stage::digest::Digest;
use crate::stage::offer::Offer;
use crate::trace::Wanted;
use crate::watch::questions::{Seen, Subject};

/// What is the same for every host of a job. Encoded once, passed on as it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Common {
    pub(crate) job_id: String,
    pub(crate) hosts: u32,
    /// Host of every rank, as runs: host and number of consecutive ranks.
    pub(crate) runs: Vec<(u32, u32)>,
    pub(crate) program: OsString,
    pub(crate) argv: Vec<OsString>,
    /// Which word is the program; 0: the one that is executed.
    pub(crate) program_word: u32,
    /// The programs of a job with several.
    pub(crate) programs: Vec<Program>,
    pub(crate) container: Option<Container>,
    /// Files of programs as they are on the launching host, and what is sent to hosts that do not
    /// have them.
    pub(crate) staged: Vec<(OsString, Option<Offer>)>,
    /// Files that every host must have itself, and what they are on the launching host.
    pub(crate) identities: Vec<(OsString, u64)>,
    pub(crate) env: Vec<(OsString, OsString)>,
    pub(crate) directory: OsString,
    pub(crate) binding: Binding,
    /// Which ranks read the launcher's standard input: nobody, one, all.
    pub(crate) stdin: Option<Option<u32>>,
    pub(crate) exit_bound_ms: u64,
    pub(crate) conduit_program: bool,
    pub(crate) verbose: u8,
    pub(crate) pmi: Pmi,
    /// Where the library by which Open MPI speaks PMI-1 is on the launching host.
    pub(crate) pmi_library: Option<OsString>,
    /// Names of all hosts, where ranks may ask for them.
    pub(crate) host_names: Vec<String>,
    /// Traces and counters that are wanted of the ranks.
    pub(crate) trace: Option<Wanted>,
    /// There is no job: hosts are to be looked at.
    pub(crate) doctor: bool,
    pub(crate) ssh: Ssh,
}

/// A host of a subtree, with its number in the job.
pub(crate) type Member = (u32, HostEntry);

/// What the root wants of every host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum HostCommand {
    /// What was decided about the ranks.
    Ranks(Command),
    /// What CPU time will the ranks have had when so many microseconds have passed? The number comes
    /// back with the answer. It ends the question before it.
    SampleCpu {
        number: u32,
        rest: u64,
    },
    /// What time is it? When that was asked comes back with the answer.
    Clock {
        sent: u64,
    },
    /// What do the ranks do, or where are they? The number comes back with the answer.
    Look {
        number: u32,
        subject: Subject,
    },
    /// Nobody reads this stream any more.
    OutputClosed(Which),
    InputEnd,
    Start,
    /// Drain the output, say so, and go.
    Finish,
}

/// From a parent to a child.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Down {
    /// A [`Common`], and the hosts of the child's subtree, the child's first.
    Setup {
        common: Bytes,
        subtree: Vec<Member>,
    },
    HostCommand(HostCommand),
    Bootstrap(collective::Down),
    /// Of the PMI server.
    Pmi(server::Message),
    /// Standard input, for the ranks that read it.
    Input(Bytes),
    /// So many bytes of output may be sent in addition.
    Credit(u32),
    /// The hashes of the job's programs, by number; none: it is not sent.
    Described(Vec<Option<Digest>>),
    /// A piece of the program of that number.
    Program {
        at: u32,
        bytes: Bytes,
    },
    /// It will not come; why.
    NoProgram {
        at: u32,
        why: String,
    },
    /// Nothing but a sign of life.
    Ping,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Loss {
    pub(crate) seen: String,
    /// Nothing had been heard from it before that for so many milliseconds.
    pub(crate) silent: u64,
}

impl Loss {
    /// Of a host that was heard until now.
    pub(crate) const fn at_once(seen: String) -> Self {
        Self { seen, silent: 0 }
    }
}

/// From a child to its parent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Up {
    /// How far the start of a host has come.
    Host { host: u32, status: HostStatus },
    /// A host could not be reached by its parent; with it, these are without agent.
    Unreached(Vec<Member>),
    /// A link broke after it had stood: these hosts are lost.
    Lost { hosts: Vec<u32>, loss: Loss },
    /// Every host of the subtree is ready, has failed or was named an orphan.
    Standing,
    /// What ranks did.
    Events(Vec<RankEvent>),
    /// Answer to [`HostCommand::SampleCpu`] for the whole subtree.
    CpuSampled { number: u32, sample: CpuSample },
    /// Answer to [`Command::FindOrphans`], and again when it changes: whether processes are left on
    /// a host.
    Orphans { host: u32, left: bool },
    /// What a rank wrote.
    Output { rank: u32, which: Which, bytes: Bytes },
    /// It will write no more to this stream.
    OutputEnd { rank: u32, which: Which },
    /// A piece of what a rank has recorded, and where it belongs in its slot.
    Trace { rank: u32, at: u64, bytes: Bytes },
    /// Answer to [`HostCommand::Clock`] of one host.
    Clock { host: u32, sent: u64, there: u64 },
    /// Answer to [`HostCommand::Look`] of one host.
    Seen { host: u32, number: u32, seen: Seen },
    /// Of the machine that matches collective calls.
    Bootstrap(collective::Up),
    /// Of the PMI server.
    Pmi(server::Message),
    /// The whole subtree has the last piece of input; whether anybody there reads more.
    InputTaken { more: bool },
    /// Which ssh client has logged in to these hosts from another one than the launching host, and why.
    Client { client: String, hosts: Vec<u32> },
    /// A line for the user.
    Say(String),
    /// What was found on a host, and the time there, seconds since the epoch.
    Findings { host: u32, at: f64, findings: Vec<Finding> },
    /// Asks for the hashes of the job's programs.
    Describe,
    /// Asks for the program of that number.
    Want { at: u32 },
    /// So many bytes of it may be sent in addition.
    Took { at: u32, bytes: u32 },
    /// Nothing but a sign of life.
    Ping,
    /// The subtree is drained; the number of processes left behind that were ended.
    Done { orphans: u32 },
    /// What many ranks or hosts of the subtree have in common.
    Told(Told),
    /// When ranks ended that were told of together, seconds since the epoch.
    Times(Vec<(u32, f64)>),
}

#[derive(Debug, thiserror::Error)]
#[error("a message that cannot be read: {0}")]
pub(crate) struct Unreadable(#[from] postcard::Error);

impl Down {
    pub(crate) const fn lane(&self) -> Lane {
        match self {
            Self::Setup { .. } | Self::Bootstrap(_) | Self::Pmi(_) | Self::Input(_) => Lane::Bulk,
            Self::Described(_) | Self::Program { .. } | Self::NoProgram { .. } => Lane::Bulk,
            // Behind the setup, and behind the last piece of input.
            Self::HostCommand(HostCommand::Start | HostCommand::InputEnd) => Lane::Bulk,
            Self::HostCommand(_) | Self::Credit(_) | Self::Ping => Lane::Control,
        }
    }
}

impl Up {
    pub(crate) const fn lane(&self) -> Lane {
        match self {
            Self::Output { .. }
            | Self::OutputEnd { .. }
            | Self::Trace { .. }
            | Self::Seen { .. }
            | Self::Times(_)
            | Self::Bootstrap(_)
            | Self::Pmi(_)
            // Behind the output.
            | Self::Done { .. } => Lane::Bulk,
            _ => Lane::Control,
        }
    }
}

/// Encoding into growing memory cannot fail for these types: no map or sequence of unknown length
/// is in them.
pub(crate) fn encode(value: &impl Serialize) -> Rc<Vec<u8>> {
    Rc::new(postcard::to_stdvec(value).unwrap_or_default())
}

/// Reads what [`encode`] wrote.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Unreadable> {
    Ok(postcard::from_bytes(bytes)?)
}

impl Common {
    /// What is told when there is no job: hosts are to be looked at. `env` is for ranks of other
    /// hosts, `host_of` has the host of every rank.
    pub(crate) fn new(
        reach: &Reach,
        directory: &Path,
        env: &[(OsString, OsString)],
        hosts: usize,
        host_of: &[u32],
    ) -> Self {
        let agent = std::env::current_exe().unwrap_or_else(|_| "gasnetrun_ibv".into());
        Self {
            job_id: "doctor".to_owned(),
            hosts: u32::try_from(hosts).unwrap_or(u32::MAX),
            runs: Self::runs(host_of),
            program: "/".into(),
            argv: vec!["doctor".into()],
            env: env.to_vec(),
            directory: reach.directory.as_deref().unwrap_or(directory).into(),
            doctor: true,
            ssh: Ssh { agent: agent.into(), ..reach.ssh.clone() },
            ..Self::default()
        }
    }

    /// Reads what [`encode`] wrote and checks what it says about ranks and hosts; the host of every
    /// rank comes with it.
    pub(crate) fn decode(bytes: &[u8]) -> Result<(Self, Vec<u32>), String> {
        let common: Self = postcard::from_bytes(bytes).map_err(|error| error.to_string())?;
        let ranks: u64 = common.runs.iter().map(|(_, count)| u64::from(*count)).sum();
        if ranks == 0 || ranks > MAX_RANKS.into() || common.argv.is_empty() {
            return Err(format!("a job of {ranks} ranks and {} words", common.argv.len()));
        }
        let size = u32::try_from(ranks).unwrap_or(u32::MAX);
        if let Some(problem) = Program::problem(&common.programs, size) {
            return Err(problem);
        }
        if let Some((host, _)) = common.runs.iter().find(|(host, _)| *host >= common.hosts) {
            return Err(format!("host {host} of {}", common.hosts));
        }
        let each = common.runs.iter();
        let host_of =
            each.flat_map(|(host, count)| std::iter::repeat_n(*host, *count as usize)).collect();
        Ok((common, host_of))
    }

    pub(crate) fn runs(host_of: &[u32]) -> Vec<(u32, u32)> {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for host in host_of {
            match runs.last_mut() {
                Some((last, count)) if last == host => *count += 1,
                _ => runs.push((*host, 1)),
            }
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use spawner_ssh::StageMode;

    use super::super::frames::{MAX_BULK, MAX_CONTROL};
    use super::super::told::{Kind, News};
    use super::*;
    use crate::agent::machine::deed::Deed;
    use crate::report::End;
    use bootstrap::rank::MAX_HOSTS;
    use spawner_ssh::diagnosis::{Class, Failure, Step};

    fn common(host_of: &[u32], hosts: u32) -> Common {
        Common {
            job_id: "n1.1.2".into(),
            hosts,
            runs: Common::runs(host_of),
            program: "/bin/true".into(),
            argv: vec!["true".into(), OsString::from("\u{fffd}")],
            program_word: 0,
            programs: Vec::new(),
            container: Some(Container { socket: Some(3) }),
            staged: Vec::new(),
            identities: vec![("/bin/true".into(), 7)],
            env: vec![("A".into(), "B".into())],
            directory: "/".into(),
            binding: Binding::cpus(0),
            stdin: Some(Some(0)),
            exit_bound_ms: 6000,
            conduit_program: true,
            verbose: 0,
            pmi: Pmi::On,
            pmi_library: Some("/usr/lib/x.so".into()),
            host_names: vec!["n1".into()],
            trace: Some(Wanted { capacity: 8, events: true, counts: false }),
            doctor: false,
            ssh: Ssh {
                command: "ssh".into(),
                options: Vec::new(),
                out_degree: 32,
                agent: "/x".into(),
                stage: StageMode::Auto,
                keep: false,
                cache: 0,
            },
        }
    }

    proptest! {
        #[test]
        fn a_map_of_hosts_survives_as_runs(host_of in proptest::collection::vec(0u32..5, 1..60)) {
            let sent = common(&host_of, 5);
            let (read, back) = Common::decode(&encode(&sent)).unwrap();
            prop_assert_eq!(back, host_of);
            prop_assert_eq!(read, sent);
        }

        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode::<Up>(&bytes);
            let _ = decode::<Down>(&bytes);
            let _ = Common::decode(&bytes);
        }

        #[test]
        fn a_broken_message_never_panics(at in 0usize..200, byte in any::<u8>()) {
            let mut bytes = encode(&common(&[0, 0, 1], 2)).as_ref().clone();
            let at = at % bytes.len();
            bytes[at] = byte;
            let _ = Common::decode(&bytes);
            bytes.truncate(at);
            let _ = Common::decode(&bytes);
        }
    }

    #[test]
    fn messages_survive() {
        let failure = Failure::new(Class::Refused, "Connection refused");
        for up in [
            Up::Host { host: 3, status: HostStatus::Failed(failure) },
            Up::Host { host: 3, status: HostStatus::Reached(Step::Ready) },
            Up::Unreached(vec![(1, HostEntry::new("n1"))]),
            Up::Events(vec![RankEvent::Ended { rank: 1, end: End::Signal(9), at: 0.5 }]),
            Up::Output { rank: 1, which: Which::Err, bytes: vec![1, 2].into() },
            Up::Trace { rank: 1, at: 1 << 40, bytes: vec![3].into() },
            Up::Clock { host: 1, sent: 2, there: 3 },
            Up::Told(Told::Some { news: News::Did(Deed::Hello), runs: vec![(1, 2)] }),
            Up::Told(Told::Rest { news: News::Bare, count: 7 }),
            Up::Told(Told::Complete { kind: Kind::Ended, count: 7 }),
            Up::Times(vec![(1, 0.5)]),
            Up::Done { orphans: 3 },
        ] {
            assert_eq!(decode::<Up>(&encode(&up)).unwrap(), up);
        }
        let down = Down::Setup { common: vec![1].into(), subtree: vec![(0, HostEntry::new("n"))] };
        assert_eq!(decode::<Down>(&encode(&down)).unwrap(), down);
    }

    /// Messages that name all hosts or ranks of the largest job.
    #[test]
    fn the_largest_job_has_room() {
        let name = |host: u32| HostEntry::new(format!("node{host:08}.cluster.example.org"));
        let all: Vec<Member> = (0..MAX_HOSTS).map(|host| (host, name(host))).collect();
        let hosts = (0..MAX_HOSTS).collect();
        let lost = Up::Lost { hosts, loss: Loss::at_once("end of file".into()) };
        for up in [lost, Up::Unreached(all.clone())] {
            assert!(encode(&up).len() <= MAX_CONTROL, "{}", encode(&up).len());
        }
        // One rank after the other on another host: the longest description.
        let host_of: Vec<u32> = (0..MAX_RANKS).map(|rank| rank % MAX_HOSTS).collect();
        let common = encode(&common(&host_of, MAX_HOSTS));
        assert_eq!(Common::decode(&common).unwrap().1, host_of);
        let setup = Down::Setup { common: common.to_vec().into(), subtree: all };
        assert!(encode(&setup).len() <= MAX_BULK, "{}", encode(&setup).len());
    }

    #[test]
    fn nonsense_about_hosts_is_refused() {
        assert!(Common::decode(&encode(&common(&[0, 7], 2))).unwrap_err().contains("host 7 of 2"));
        assert!(Common::decode(&encode(&common(&[], 2))).unwrap_err().contains("0 ranks"));
    }
}
