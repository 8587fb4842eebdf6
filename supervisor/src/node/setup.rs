//! An agent's first message: what it is told, and what follows for this host.

use std::ffi::{OsStr, OsString};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bootstrap::names;
use bootstrap::{HostId, Rank};
use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;
use settings::deadlines::tree::{HEARTBEAT, SETUP, START};

use super::driver::{ms, other};
use super::parent::Parent;
use crate::agent::driver::{AgentError, io};
use crate::agent::host_ranks::HostRanks;
use crate::event_loop::{Poller, Token};
use crate::plan::{HostEntry, JobPlan, Map, StdinTo, cpu_sets};
use crate::stage::{Digest, Host, Staging};
use crate::tree::message::{Common, Down, Member, Up};
use spawner_ssh::Ssh;
use spawner_ssh::diagnosis::{Class, Failure};

/// Waits for the first message.
pub(super) fn setup(
    poller: &Poller,
    parent: &mut Parent,
    rest: &mut Vec<Down>,
    started: Instant,
) -> Result<(bootstrap::collective::Bytes, Vec<Member>), AgentError> {
    let mut ready = Vec::new();
    let mut came = Vec::new();
    loop {
        let now = ms(started.elapsed());
        let left = SETUP.ms().saturating_sub(now);
        if left == 0 {
            return Err(other(format!("it said nothing for {} s", SETUP.limit.as_secs())));
        }
        poller.wait(Some(left), &mut ready).map_err(io("wait for the parent"))?;
        if ready.iter().any(|ready| ready.token == Token::ParentIn) {
            parent.read(now, &mut came).map_err(other)?;
        }
        let mut all = std::mem::take(&mut came).into_iter();
        match all.next() {
            Some(Down::Setup { common, subtree }) => {
                rest.extend(all);
                return Ok((common, subtree));
            }
            Some(Down::Ping) | None => {}
            Some(_) => return Err(other("its first message was no setup".to_owned())),
        }
    }
}

/// The plan as far as this host needs it. Ranks get the environment of the login, with what the
/// launcher sent on top.
pub(super) fn plan_of(common: &Common, own: &HostEntry, size: usize) -> JobPlan {
    let (name, size) = (&own.name, u32::try_from(size).unwrap_or(u32::MAX));
    let address = reached_at(own.here, settings::variable("SSH_CONNECTION").as_deref());
    let address = address.map(|ip| (names::ADDRESS.into(), ip.to_string().into()));
    let sent =
        |name: &OsString| name == names::ADDRESS || common.env.iter().any(|(sent, _)| sent == name);
    let env = settings::Env::from_process()
        .into_iter()
        .filter(|(name, _)| !sent(name))
        .chain(common.env.clone());
    let env = env.chain(address);
    JobPlan {
        job_id: common.job_id.clone(),
        host: name.to_owned(),
        map: Map::here(name, size),
        env: env.collect(),
        directory: PathBuf::from(&common.directory),
        stdin: match common.stdin {
            None => StdinTo::None,
            Some(None) => StdinTo::All,
            Some(Some(rank)) => StdinTo::Rank(Rank(rank)),
        },
        exit_bound: Duration::from_millis(common.exit_bound_ms),
        program_word: common.program_word as usize,
        conduit_program: common.conduit_program,
        verbose: common.verbose,
        ..JobPlan::new(size, PathBuf::from(&common.program), common.argv.clone())
    }
}

/// The address of this host that our login came to: the third word of what sshd says. The launching
/// host's own login, if there was one, came from somewhere else.
fn reached_at(here: bool, connection: Option<&OsStr>) -> Option<IpAddr> {
    let connection = connection.filter(|_| !here)?.to_str()?;
    let own: IpAddr = connection.split_ascii_whitespace().nth(2)?.parse().ok()?;
    // Through a tunnel that ends here it is one that nobody else reaches.
    (!own.is_loopback() && !own.is_unspecified()).then_some(own)
}

/// The program's part on this host.
pub(super) fn staging_of(common: &Common, here: bool, job: String) -> Staging {
    let word = common.program_word as usize;
    let own = if word == 0 { Some(&common.program) } else { common.argv.get(word) };
    let own = own.map(PathBuf::from).unwrap_or_default();
    let Ssh { stage: mode, keep, cache, .. } = common.ssh;
    let host = Host { mode, keep, here, cache, job };
    Staging::new(None, own, host).offering(common.staged.clone())
}

/// Asks the parent for the hash of the program; `None`: it sends none. What else comes from it goes
/// into `rest`.
pub(super) fn hash_of_parent(
    poller: &Poller,
    parent: &mut Parent,
    rest: &mut Vec<Down>,
    started: Instant,
) -> Result<Option<Digest>, AgentError> {
    let begin = ms(started.elapsed());
    parent.send(poller, &Up::Describe, begin);
    let mut came = Vec::new();
    loop {
        let now = ms(started.elapsed());
        let left = (begin + START.ms()).saturating_sub(now);
        if left == 0 {
            let seconds = START.limit.as_secs();
            return Err(other(format!("it did not tell the program's hash for {seconds} s")));
        }
        if now >= parent.said.saturating_add(HEARTBEAT.ms()) {
            parent.send(poller, &Up::Ping, now);
        }
        if parent.has_spoken(left.min(HEARTBEAT.ms())) {
            parent.read(now, &mut came).map_err(other)?;
        }
        let mut found = None;
        for down in came.drain(..) {
            match down {
                Down::Described(digest) => found = Some(digest),
                Down::Ping => {}
                down => rest.push(down),
            }
        }
        if let Some(digest) = found {
            return Ok(digest);
        }
    }
}

/// Begins with the program; the plan has where the ranks will find it.
pub(super) fn begin_staging(staging: &mut Staging, plan: &mut JobPlan) -> Option<Failure> {
    let word = plan.program_word;
    match staging.begin() {
        Ok(None) => None,
        Ok(Some(place)) => {
            match plan.argv.get_mut(word).filter(|_| word > 0) {
                Some(word) => *word = place.into_os_string(),
                None => plan.program = place,
            }
            None
        }
        Err(why) => Some(Failure::new(Class::Staging, why)),
    }
}

/// This host's part, and why it cannot be bound to CPUs.
pub(super) fn share_of(
    common: &Common,
    index: u32,
    host_of: Vec<HostId>,
) -> (HostRanks, Option<Failure>) {
    let mut share = HostRanks::of_host(index, common.hosts, host_of, Vec::new());
    if common.cpus_per_rank == 0 {
        return (share, None);
    }
    let allowed: Vec<usize> = sched_getaffinity(Pid::from_raw(0)).map_or_else(
        |_| Vec::new(),
        |set| (0..CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap_or(false)).collect(),
    );
    match cpu_sets(&allowed, common.cpus_per_rank, share.count()) {
        Some(sets) => {
            share.cpus = sets;
            (share, None)
        }
        None => {
            let seen = format!(
                "-c {}: {} ranks need {} CPUs, this host has {}",
                common.cpus_per_rank,
                share.count(),
                u64::from(common.cpus_per_rank) * u64::from(share.count()),
                allowed.len()
            );
            (share, Some(Failure::new(Class::Program, seen)))
        }
    }
}

/// Ranks of all `hosts`, in the order of the hosts, each host's ascending.
pub(crate) fn ranks_of(hosts: &[Member], host_of: &[HostId]) -> Vec<Rank> {
    let wanted: std::collections::HashMap<u32, usize> =
        hosts.iter().enumerate().map(|(at, (host, _))| (*host, at)).collect();
    let mut each = vec![Vec::new(); hosts.len()];
    for (rank, host) in (0..).zip(host_of) {
        if let Some(at) = wanted.get(&host.0) {
            each[*at].push(Rank(rank));
        }
    }
    each.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_a_login_is_one_that_others_reach() {
        let of = |text: &str| reached_at(false, Some(OsStr::new(text))).map(|ip| ip.to_string());
        assert_eq!(of("10.0.0.1 51000 10.0.0.2 22").as_deref(), Some("10.0.0.2"));
        assert_eq!(of("fd00::1 51000 fd00::2 22").as_deref(), Some("fd00::2"));
        for bad in
            ["", "10.0.0.1 5", "a b c d", "127.0.0.1 5 127.0.0.1 22", "::1 5 ::1 22", "1 2 0.0.0.0"]
        {
            assert_eq!(of(bad), None, "{bad}");
        }
        let login = Some(OsStr::new("10.0.0.1 51000 10.0.0.2 22"));
        assert_eq!(reached_at(true, login), None, "the user's own login");
        assert_eq!(reached_at(false, None), None);
    }
}
