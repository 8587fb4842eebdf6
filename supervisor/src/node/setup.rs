//! An agent's first message: what it is told, and what follows for this host.

use std::ffi::{OsStr, OsString};
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bootstrap::names;
use bootstrap::{HostId, Rank};
use settings::deadlines::tree::{HEARTBEAT, SETUP, START};

use super::parent::Parent;
use crate::agent::host_ranks::HostRanks;
use crate::agent::pmi_server::open_mpi_library;
use crate::binding::{Topology, picture};
use crate::event_loop::{OsError, cannot};
use crate::plan::{HostEntry, JobPlan, Map, StdinTo};
use crate::stage::{Digest, Host, Programs};
use crate::trace::Memory;
use crate::tree::message::{Common, Down, Member, Up};
use spawner_ssh::Ssh;
use spawner_ssh::diagnosis::{Class, Failure};

pub(super) fn other(text: String) -> OsError {
    cannot("work for its parent")(io::Error::other(text))
}

pub(super) fn setup(
    parent: &mut Parent,
    rest: &mut Vec<Down>,
) -> Result<(bootstrap::collective::Bytes, Vec<Member>), OsError> {
    let mut came = Vec::new();
    loop {
        let left = SETUP.ms().saturating_sub(parent.poller.now());
        if left == 0 {
            return Err(other(format!("it said nothing for {} s", SETUP.limit.as_secs())));
        }
        parent.wait(left, &mut came).map_err(other)?;
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
        programs: common.programs.clone(),
        container: common.container,
        conduit_program: common.conduit_program,
        verbose: common.verbose,
        pmi: common.pmi,
        host_names: common.host_names.clone(),
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

pub(super) fn staging_of(common: &Common, here: bool, job: String) -> Programs {
    let Ssh { stage: mode, keep, cache, .. } = common.ssh;
    let host = Host { mode, keep, here, cache, job, at: 0, several: false };
    let files = common.staged.iter();
    Programs::new(files.map(|(own, offer)| (own.into(), offer.clone())).collect(), &host)
}

/// The files of programs that ranks of this host run.
pub(super) fn files_of(plan: &JobPlan, index: u32, host_of: &[HostId]) -> Vec<PathBuf> {
    let own = |(_, host): &(u32, &HostId)| host.0 == index;
    let ranks: Vec<Rank> = (0..).zip(host_of).filter(own).map(|(rank, _)| Rank(rank)).collect();
    let programs = plan.all_programs();
    let mine = plan.programs_of(&ranks).into_iter().filter_map(|at| programs.get(at));
    mine.map(|program| PathBuf::from(program.own_file())).collect()
}

/// Where the launching host has the library by which ranks of Open MPI speak PMI-1, if this one has none.
pub(super) fn missing_library(common: &Common) -> Option<PathBuf> {
    let library = PathBuf::from(common.pmi_library.as_ref()?);
    open_mpi_library().is_err().then_some(library)
}

/// Asks the parent for the hashes of the programs; `None`: it sends none. What else comes from it goes
/// into `rest`.
pub(super) fn hash_of_parent(
    parent: &mut Parent,
    rest: &mut Vec<Down>,
) -> Result<Vec<Option<Digest>>, OsError> {
    let until = parent.poller.now() + START.ms();
    parent.send(&Up::Describe);
    let mut came = Vec::new();
    loop {
        let left = until.saturating_sub(parent.poller.now());
        if left == 0 {
            let seconds = START.limit.as_secs();
            return Err(other(format!("it did not tell the program's hash for {seconds} s")));
        }
        if parent.poller.now() >= parent.ping_due() {
            parent.send(&Up::Ping);
        }
        parent.wait(left.min(HEARTBEAT.ms()), &mut came).map_err(other)?;
        let mut found = None;
        for down in came.drain(..) {
            match down {
                Down::Described(digests) => found = Some(digests),
                Down::Ping => {}
                down => rest.push(down),
            }
        }
        if let Some(digests) = found {
            return Ok(digests);
        }
    }
}

/// Begins with the files that ranks of this host run, `library` among them if they need it; the plan has
/// where they will find them.
pub(super) fn begin_staging(
    staging: &mut Programs,
    plan: &mut JobPlan,
    runs: &[PathBuf],
    library: Option<&OsStr>,
) -> Result<(), Failure> {
    let begun = staging.begin(|file| runs.iter().any(|own| own == file));
    for (own, place) in begun.map_err(|why| Failure::new(Class::Staging, why))? {
        if library == Some(own.as_os_str()) {
            plan.pmi_library = Some(place);
            continue;
        }
        for program in plan.programs.iter_mut().filter(|program| own == *program.own_file()) {
            program.set_own_file(place.clone().into());
        }
        if !plan.programs.is_empty() {
            continue;
        }
        let word = plan.program_word;
        match plan.argv.get_mut(word).filter(|_| word > 0) {
            Some(word) => *word = place.into_os_string(),
            None => plan.program = place,
        }
    }
    // Our own program was sent here, while the library is where the launching host has it.
    let seen = library.map(Path::new).filter(|path| runs.iter().any(|own| own == path));
    if let Some(path) = seen.filter(|path| plan.pmi_library.is_none() && path.is_file()) {
        plan.pmi_library = Some(path.to_owned());
    }
    Ok(())
}

/// Memory for the traces of this host's ranks, if they are wanted. Without it the job goes on.
pub(super) fn memory_of(common: &Common, share: &HostRanks, parent: &mut Parent) -> Option<Memory> {
    let made = Memory::new(common.trace?, share.count());
    if let Err(error) = &made {
        parent.send(&Up::Say(format!("no memory for the traces of some ranks: {error}")));
    }
    made.ok()
}

/// This host's part, and whether it can be bound to CPUs. A picture of that, if one is wanted, goes
/// to the parent.
pub(super) fn share_of(
    common: &Common,
    name: &str,
    index: u32,
    host_of: Vec<HostId>,
    parent: &mut Parent,
) -> (HostRanks, Result<(), Failure>) {
    let mut share = HostRanks::of_host(index, common.hosts, host_of, Vec::new());
    let binding = &common.binding;
    if binding.is_idle() {
        return (share, Ok(()));
    }
    let bound = Topology::of_this_host().and_then(|host| {
        share.cpus = binding.sets(&host, share.count())?;
        if binding.report {
            let ranks = share.ranks.iter().map(|rank| rank.0).zip(&share.cpus);
            let ranks: Vec<_> = ranks.map(|(rank, cpus)| (rank, cpus.as_slice())).collect();
            for line in picture(&host, &ranks) {
                parent.send(&Up::Say(format!("host {name}, {line}")));
            }
        }
        Ok(())
    });
    (share, bound.map_err(|error| Failure::new(Class::Cpus, error.to_string())))
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
