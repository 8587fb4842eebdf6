//! What follows a job that hosts have failed: other hosts, or another attempt. [`Attempts`] decides
//! (pure); [`Input`] is what a second attempt reads.

use supervisor::plan::{HostEntry, Map, StdinTo};
use supervisor::report::{CauseKind, JobReport};

/// The launcher's standard input, for a second attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// Nobody reads it, or it is a device: a terminal, /dev/null.
    Lasting,
    /// A file, and where it stood.
    File(i64),
    /// What was read is gone.
    Once,
}

impl Input {
    /// Before the first attempt.
    #[must_use]
    pub fn of(job: &crate::job::Job) -> Self {
        use std::io::{Seek, stdin};
        use std::os::fd::AsFd;
        use std::os::unix::fs::FileTypeExt;
        if job.plan.stdin == StdinTo::None || job.attempts.retries == 0 {
            return Self::Lasting;
        }
        let Ok(owned) = stdin().as_fd().try_clone_to_owned() else { return Self::Lasting };
        let mut file = std::fs::File::from(owned);
        match file.metadata() {
            Ok(data) if data.is_file() => file
                .stream_position()
                .ok()
                .and_then(|at| i64::try_from(at).ok())
                .map_or(Self::Once, Self::File),
            Ok(data) if data.file_type().is_char_device() => Self::Lasting,
            Ok(_) => Self::Once,
            // There is none.
            Err(_) => Self::Lasting,
        }
    }

    /// Goes back to where it stood; whether that is possible.
    #[must_use]
    pub fn rewind(self) -> bool {
        use nix::unistd::{Whence, lseek};
        match self {
            Self::Lasting => true,
            Self::File(at) => lseek(std::io::stdin(), at, Whence::SeekSet).is_ok(),
            Self::Once => false,
        }
    }
}

/// What is left to try.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attempts {
    /// Hosts that may take the place of others, best first (`--spares`).
    pub spares: Vec<HostEntry>,
    /// Times that a job that ran may be started again (`--retry`).
    pub retries: u32,
}

/// How it goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Again {
    /// Where each rank runs now.
    pub map: Map,
    /// Ranks ran before, so this counts as one of the retries.
    pub retry: bool,
    /// What the user is told.
    pub said: Vec<String>,
}

/// Why hosts or the start of ranks ended the job, and not a program or the user.
const fn is_no_fault_of_the_program(kind: CauseKind) -> bool {
    matches!(kind, CauseKind::AgentLost | CauseKind::Start)
}

impl Attempts {
    /// Decides after an attempt; `None`: that was the last. Takes what it needs.
    pub fn next(&mut self, map: &Map, report: &JobReport) -> Option<Again> {
        let cause = report.cause.as_ref()?;
        if !is_no_fault_of_the_program(cause.kind) {
            return None;
        }
        let ran = report.ranks.iter().any(|rank| rank.pid.is_some());
        let (mut map, mut said, shares) = (map.clone(), Vec::new(), map.shares());
        let mut missing = false;
        for (at, host) in report.hosts.iter().enumerate() {
            let (Some(failure), Some(entry)) = (&host.failure, map.hosts.get_mut(at)) else {
                continue;
            };
            let ranks = shares.get(at).copied().unwrap_or(0);
            let fits = |spare: &HostEntry| spare.slots.is_none_or(|slots| slots >= ranks);
            let Some(found) = self.spares.iter().position(fits) else {
                missing = true;
                continue;
            };
            let spare = self.spares.remove(found);
            said.push(format!(
                "{spare} takes the place of {entry}, which failed: {}",
                failure.seen
            ));
            *entry = spare;
        }
        let retry = ran || missing || said.is_empty();
        if retry {
            self.retries = self.retries.checked_sub(1)?;
            said.push(format!(
                "the job is started again, because {}; {} more {} left",
                cause.text.lines().next().unwrap_or("a host failed"),
                self.retries,
                if self.retries == 1 { "time is" } else { "times are" }
            ));
        }
        Some(Again { map, retry, said })
    }
}

#[cfg(test)]
mod tests {
    use spawner_ssh::diagnosis::{Class, Failure, Step};
    use supervisor::report::{Cause, HostRecord, RankRecord};

    use super::*;

    fn map() -> Map {
        let hosts = ["n1", "n2"].map(HostEntry::new).to_vec();
        Map { hosts, host_of: vec![0, 0, 1, 1] }
    }

    fn report(kind: CauseKind, failed: &[usize], ran: bool) -> JobReport {
        let host = |(at, name): (usize, &str)| HostRecord {
            host: name.to_owned(),
            step: Step::Ready,
            failure: failed
                .contains(&at)
                .then(|| Failure::new(Class::Refused, "Connection refused")),
        };
        let pid = ran.then_some(1);
        JobReport {
            job: "j".into(),
            exit_code: 125,
            cause: Some(Cause { text: "host n2 was lost".into(), ..Cause::new(kind, None, 125) }),
            ranks: (0..4).map(|rank| RankRecord { rank, pid, ..RankRecord::default() }).collect(),
            hosts: ["n1", "n2"].into_iter().enumerate().map(host).collect(),
            ..JobReport::default()
        }
    }

    fn spares(slots: &[Option<u32>]) -> Vec<HostEntry> {
        let spare = |(at, slots): (usize, &Option<u32>)| HostEntry {
            slots: *slots,
            ..HostEntry::new(format!("s{at}"))
        };
        slots.iter().enumerate().map(spare).collect()
    }

    #[test]
    fn a_spare_with_enough_slots_takes_the_place_of_a_host_that_does_not_start() {
        let mut attempts = Attempts { spares: spares(&[Some(1), None]), retries: 0 };
        let again = attempts.next(&map(), &report(CauseKind::Start, &[1], false)).unwrap();
        let names: Vec<&str> = again.map.hosts.iter().map(|host| host.name.as_str()).collect();
        assert_eq!((names, again.retry), (vec!["n1", "s1"], false));
        assert!(again.said[0].contains("s1 takes the place of n2"), "{:?}", again.said);
        // The other one has too few slots, and no retries are left.
        assert_eq!(attempts.next(&again.map, &report(CauseKind::Start, &[0], false)), None);
        assert_eq!(attempts.spares, spares(&[Some(1)]));
    }

    #[test]
    fn a_lost_host_is_worth_a_retry_and_a_program_that_failed_is_not() {
        let mut attempts = Attempts { spares: spares(&[None]), retries: 1 };
        for kind in
            [CauseKind::ExitCode, CauseKind::Signal, CauseKind::Timeout, CauseKind::LauncherSignal]
        {
            assert_eq!(attempts.next(&map(), &report(kind, &[], true)), None, "{kind:?}");
        }
        let again = attempts.next(&map(), &report(CauseKind::AgentLost, &[1], true)).unwrap();
        assert!(again.retry && again.map.hosts[1].name == "s0", "{again:?}");
        assert!(again.said[1].contains("because host n2 was lost; 0 more times"), "{again:?}");
        assert_eq!(attempts.next(&again.map, &report(CauseKind::AgentLost, &[1], true)), None);
    }

    #[test]
    fn without_spares_the_same_hosts_are_tried_again() {
        let mut attempts = Attempts { spares: Vec::new(), retries: 2 };
        let again = attempts.next(&map(), &report(CauseKind::Start, &[1], false)).unwrap();
        assert_eq!((again.map, again.retry, attempts.retries), (map(), true, 1));
    }
}
