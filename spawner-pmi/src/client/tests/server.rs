//! A PMI server in this process, with the habits of the real ones as switches.

use std::collections::BTreeMap;
use std::io::{BufReader, prelude::*};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use crate::wire::{Fields, PmiVersion, frame, frame_length};

/// Whose habits the server has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flavour {
    Hydra,
    Slurm,
}

/// What the server does wrong, when a command contains the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Sends these bytes instead of the answer.
    Say(Vec<u8>),
    /// Never answers.
    Silence,
    /// Closes the connection.
    Hangup,
    /// Answers, but cuts the values of keys.
    Cut(usize),
}

#[derive(Clone, Debug)]
pub(super) struct Habits {
    pub(super) flavour: Flavour,
    /// Newest version that the server knows.
    pub(super) version: PmiVersion,
    /// Its map of hosts.
    pub(super) mapping: Option<String>,
    pub(super) value_limit: usize,
    pub(super) fault: Option<(&'static str, Fault)>,
}

/// What the ranks asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) puts: usize,
    pub(super) gets: usize,
    pub(super) fences: usize,
    pub(super) finalized: usize,
    pub(super) aborted: Option<i64>,
    /// Keys that were put although they were there.
    pub(super) again: usize,
    pub(super) longest: usize,
}

#[derive(Default)]
struct KeyValueSpace {
    /// Each value with the fence that it was put before.
    visible: BTreeMap<String, (usize, String)>,
    pending: Vec<(String, String)>,
    inside: usize,
    generation: usize,
    over: bool,
    counts: Counts,
}

pub(super) struct Server {
    size: usize,
    habits: Habits,
    space: Mutex<KeyValueSpace>,
    bell: Condvar,
}

impl Server {
    /// A server for `size` ranks and the ranks' ends of the connections to it.
    pub(super) fn start(size: u32, habits: Habits) -> (Arc<Self>, Vec<OwnedFd>) {
        let (space, bell) = (Mutex::default(), Condvar::new());
        let server = Arc::new(Self { size: size as usize, habits, space, bell });
        let connect = |_| {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let server = Arc::clone(&server);
            std::thread::spawn(move || server.serve(ours));
            OwnedFd::from(theirs)
        };
        let ends = (0..size).map(connect).collect();
        (server, ends)
    }

    fn lock(&self) -> MutexGuard<'_, KeyValueSpace> {
        self.space.lock().unwrap()
    }

    pub(super) fn counts(&self) -> Counts {
        self.lock().counts
    }

    fn serve(&self, stream: UnixStream) {
        // A connection that breaks ends it for all, as with Hydra.
        let _ = self.talk(&stream);
        self.lock().over = true;
        self.bell.notify_all();
    }

    fn talk(&self, stream: &UnixStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut out = stream.try_clone()?;
        let mut framed = false;
        loop {
            let text = if framed {
                let mut columns = [0; 6];
                reader.read_exact(&mut columns)?;
                let mut body = vec![0; frame_length(&columns).map_err(std::io::Error::other)?];
                reader.read_exact(&mut body)?;
                String::from_utf8(body).map_err(std::io::Error::other)?
            } else {
                let mut line = String::new();
                if reader.read_line(&mut line)? == 0 {
                    return Ok(());
                }
                if line.len() > 1024 && self.habits.flavour == Flavour::Slurm {
                    // It would take the rest for another request and answer neither.
                    continue;
                }
                line
            };
            match &self.habits.fault {
                Some((sign, fault)) if text.contains(sign) => match fault {
                    Fault::Say(bytes) => {
                        out.write_all(bytes)?;
                        continue;
                    }
                    Fault::Silence => continue,
                    Fault::Hangup => return stream.shutdown(std::net::Shutdown::Both),
                    Fault::Cut(_) => {}
                },
                _ => {}
            }
            let asked = Fields::parse(&text, if framed { ';' } else { ' ' }).unwrap();
            let Some(answer) = self.answer(&asked, framed) else { return Ok(()) };
            let ends = asked.get("cmd") == Some("finalize");
            self.lock().counts.finalized += usize::from(ends);
            if framed {
                let slurm = self.habits.flavour == Flavour::Slurm;
                let message =
                    if slurm { format!("{:<6}{answer}", answer.len()) } else { frame(&answer) };
                out.write_all(message.as_bytes())?;
            } else {
                out.write_all(answer.as_bytes())?;
                let two = self.habits.version == PmiVersion::Two;
                framed = two && asked.get("pmi_version") == Some("2");
            }
            if ends {
                // Until the rank closes.
                let mut rest = Vec::new();
                reader.read_to_end(&mut rest)?;
                return Ok(());
            }
        }
    }

    fn put(&self, key: &str, value: &str) {
        let mut space = self.lock();
        space.counts.puts += 1;
        space.counts.longest = space.counts.longest.max(value.len());
        let pending = space.pending.iter().any(|(known, _)| known == key);
        space.counts.again += usize::from(pending || space.visible.contains_key(key));
        let mut value = value.to_owned();
        value.truncate(self.habits.value_limit - 1);
        space.pending.push((key.to_owned(), value));
    }

    fn get(&self, key: &str) -> Option<String> {
        let mut space = self.lock();
        space.counts.gets += 1;
        let (fence, mut value) = space.visible.get(key).cloned()?;
        // No longer than a process manager must keep it.
        if fence + 1 < space.generation {
            return None;
        }
        if let Some((sign, Fault::Cut(length))) = &self.habits.fault
            && key.contains(sign)
        {
            value.truncate(*length);
        }
        Some(value)
    }

    /// False when the job is over.
    fn fence(&self, first_wins: bool) -> bool {
        let mut space = self.lock();
        space.counts.fences += 1;
        space.inside += 1;
        let generation = space.generation;
        if space.inside == self.size {
            space.inside = 0;
            space.generation += 1;
            let fence = space.generation;
            for (key, value) in std::mem::take(&mut space.pending) {
                if !first_wins || !space.visible.contains_key(&key) {
                    space.visible.insert(key, (fence, value));
                }
            }
            self.bell.notify_all();
        }
        while space.generation == generation && !space.over {
            space = self.bell.wait(space).unwrap();
        }
        space.generation != generation
    }

    fn answer(&self, asked: &Fields, framed: bool) -> Option<String> {
        let field = |name| asked.get(name).unwrap_or_default();
        if field("cmd") == "abort" {
            let mut space = self.lock();
            space.counts.aborted = Some(asked.number("exitcode").unwrap());
            space.over = true;
            return None;
        }
        if framed { self.answer_two(asked) } else { self.answer_one(asked) }
    }

    fn answer_one(&self, asked: &Fields) -> Option<String> {
        let field = |name| asked.get(name).unwrap_or_default();
        let slurm = self.habits.flavour == Flavour::Slurm;
        let rc = |cmd: &str, rest: &str| {
            if slurm { format!("cmd={cmd} rc=0 {rest}\n") } else { format!("cmd={cmd} {rest}\n") }
        };
        Some(match field("cmd") {
            "init" if field("pmi_version") == "2" && self.habits.version == PmiVersion::One => {
                "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=-1\n".to_owned()
            }
            "init" => {
                let version = field("pmi_version");
                rc("response_to_init", &format!("pmi_version={version} pmi_subversion=1"))
            }
            "get_maxes" => {
                let value = self.habits.value_limit;
                rc("maxes", &format!("kvsname_max=256 keylen_max=64 vallen_max={value}"))
            }
            "get_my_kvsname" => rc("my_kvsname", &format!("kvsname={}", self.name())),
            "put" => {
                assert_eq!(field("kvsname"), self.name());
                self.put(field("key"), field("value"));
                "cmd=put_result rc=0 msg=success\n".to_owned()
            }
            "get" if field("key") == "PMI_process_mapping" => match &self.habits.mapping {
                Some(map) => format!("cmd=get_result rc=0 msg=success value={map}\n"),
                None => "cmd=get_result rc=-1 msg=key_not_found value=unknown\n".to_owned(),
            },
            "get" => match self.get(field("key")) {
                Some(value) if slurm => format!("cmd=get_result rc=0 value={value}\n"),
                Some(value) => format!("cmd=get_result rc=0 msg=success value={value}\n"),
                None if slurm => "cmd=get_result rc=1\n".to_owned(),
                None => "cmd=get_result rc=-1 msg=key_not_found value=unknown\n".to_owned(),
            },
            "barrier_in" if !self.fence(false) => return None,
            "barrier_in" => rc("barrier_out", ""),
            "finalize" => "cmd=finalize_ack\n".to_owned(),
            other => panic!("command {other:?}"),
        })
    }

    fn answer_two(&self, asked: &Fields) -> Option<String> {
        let field = |name| asked.get(name).unwrap_or_default();
        let slurm = self.habits.flavour == Flavour::Slurm;
        let rc = |rest: String| {
            let cmd = field("cmd");
            if slurm {
                format!("cmd={cmd}-response;rc=0;{rest}")
            } else {
                format!("cmd={cmd}-response;{rest}rc=0;")
            }
        };
        Some(match field("cmd") {
            "fullinit" => {
                let (rank, size) = (field("pmirank"), self.size);
                rc(format!("pmi-version=2;rank={rank};size={size};appnum=0;"))
            }
            "job-getid" => rc(format!("jobid={};", self.name())),
            "info-getjobattr" => match &self.habits.mapping {
                Some(map) => rc(format!("found=TRUE;value={map};")),
                None if slurm => rc("found=TRUE;value=(n1,(eth0,IP_V4,127.0.0.1));".to_owned()),
                None => rc("found=FALSE;".to_owned()),
            },
            "kvs-put" => {
                self.put(field("key"), field("value"));
                rc(String::new())
            }
            "kvs-get" => {
                assert_eq!(field("jobid"), self.name());
                match self.get(field("key")) {
                    Some(value) => rc(format!("found=TRUE;value={value};")),
                    None => rc("found=FALSE;".to_owned()),
                }
            }
            "kvs-fence" if !self.fence(!slurm) => return None,
            "kvs-fence" | "finalize" => rc(String::new()),
            other => panic!("command {other:?}"),
        })
    }

    /// No other server of this process has this name.
    fn name(&self) -> String {
        format!("kvs_{}_{:p}", std::process::id(), self)
    }
}
