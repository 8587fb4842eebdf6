//! The state of every host of a job (pure): how far its start has come, and what is wrong with
//! those that failed.
//!
//! `docs/design/tree.md` has the table of steps and classes, which a test compares with this.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::local::HostsStart;
use crate::report::HostRecord;
use settings::log;
use spawner_ssh::diagnosis::{Failure, Step};

#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum HostStatus {
    Reached(Step),
    /// It failed, after all attempts that its class is worth.
    Failed(Failure),
}

#[derive(Clone, Debug)]
pub(crate) struct Hosts {
    hosts: Vec<HostRecord>,
    /// Hosts that are neither ready nor failed.
    open: usize,
    pub(crate) failed: usize,
}

impl Hosts {
    pub(crate) fn new(names: impl IntoIterator<Item = String>) -> Self {
        let host = |host| HostRecord { host, step: Step::Waiting, failure: None };
        let hosts: Vec<HostRecord> = names.into_iter().map(host).collect();
        Self { open: hosts.len(), failed: 0, hosts }
    }

    pub(crate) fn name(&self, host: u32) -> &str {
        self.hosts.get(host as usize).map_or("?", |host| &host.host)
    }

    fn is_open(host: &HostRecord) -> bool {
        host.failure.is_none() && host.step < Step::Ready
    }

    /// Takes a status; steps never go back, and a host that failed stays so until it is
    /// [`Hosts::again`].
    pub(crate) fn update(&mut self, host: u32, status: HostStatus) {
        let Some(host) = self.hosts.get_mut(host as usize) else { return };
        let before = Self::is_open(host);
        match status {
            HostStatus::Reached(step) if host.failure.is_none() => host.step = host.step.max(step),
            HostStatus::Failed(failure) if host.failure.is_none() => {
                host.failure = Some(failure);
                self.failed += 1;
            }
            _ => {}
        }
        self.open -= usize::from(before && !Self::is_open(host));
    }

    /// A host that failed is tried by another way.
    pub(crate) fn again(&mut self, host: u32) {
        let Some(host) = self.hosts.get_mut(host as usize) else { return };
        if host.failure.take().is_some() {
            self.failed -= 1;
            host.step = Step::Waiting;
            self.open += 1;
        }
    }

    /// Whether every host is ready or has failed.
    pub(crate) const fn is_settled(&self) -> bool {
        self.open == 0
    }

    /// Hosts that are neither ready nor failed.
    pub(crate) fn unsettled(&self) -> Vec<u32> {
        let open = (0..).zip(&self.hosts).filter(|(_, host)| Self::is_open(host));
        open.map(|(number, _)| number).collect()
    }

    /// How far the start is, with at most `most` of the hosts that are waited for, those that have
    /// come least far first.
    pub(crate) fn start(&self, most: usize) -> HostsStart {
        let mut open: Vec<&HostRecord> =
            self.hosts.iter().filter(|host| Self::is_open(host)).collect();
        open.sort_by_key(|host| host.step);
        let total = self.hosts.len();
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        HostsStart {
            total: count(total),
            ready: count(total - self.open - self.failed),
            failed: count(self.failed),
            slowest: open
                .into_iter()
                .take(most)
                .map(|host| (host.host.clone(), host.step.name().to_owned()))
                .collect(),
        }
    }

    /// What failed, grouped by cause: one line for each, with the hosts and what to try.
    pub(crate) fn table(&self) -> String {
        const SHOWN: usize = 4;
        let mut groups: BTreeMap<String, (&Failure, Vec<&str>)> = BTreeMap::new();
        for host in &self.hosts {
            let Some(failure) = &host.failure else { continue };
            // What differs only in the host's own name is the same.
            let key = failure.seen.replace(&host.host, "HOST");
            let group = groups.entry(format!("{:?} {key}", failure.class));
            group.or_insert_with(|| (failure, Vec::new())).1.push(&host.host);
        }
        let mut groups: Vec<_> = groups.into_values().collect();
        groups.sort_by_key(|(_, hosts)| std::cmp::Reverse(hosts.len()));
        let mut text = String::new();
        for (failure, hosts) in groups {
            let rule = failure.class.rule();
            let more = hosts.len().saturating_sub(SHOWN);
            let names = hosts[..hosts.len().min(SHOWN)].join(" ");
            let (names, seen) = (log::line(&names), log::line(&failure.seen));
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let _ = write!(
                text,
                "{}{} of {} hosts ({names}{more}), at the step `{}`: {}\n    try: {}",
                if text.is_empty() { "" } else { "\n  " },
                hosts.len(),
                self.hosts.len(),
                rule.step.name(),
                seen,
                rule.advice
            );
        }
        text
    }

    pub(crate) fn records(&self) -> Vec<HostRecord> {
        let record = |host: &HostRecord| {
            let failed = host.failure.as_ref().map(|failure| failure.class.rule().step);
            HostRecord { step: failed.unwrap_or(host.step), ..host.clone() }
        };
        self.hosts.iter().map(record).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use spawner_ssh::diagnosis::Class;

    fn three() -> Hosts {
        Hosts::new(["n1", "n2", "n3"].map(String::from))
    }

    fn denied(host: &str) -> HostStatus {
        let seen = format!("me@{host}: Permission denied (publickey).");
        HostStatus::Failed(Failure::new(Class::Authentication, seen))
    }

    #[test]
    fn settled_when_each_is_ready_or_failed() {
        let mut hosts = three();
        hosts.update(0, HostStatus::Reached(Step::Connect));
        hosts.update(0, HostStatus::Reached(Step::Ready));
        hosts.update(1, denied("n2"));
        assert!(!hosts.is_settled());
        assert_eq!(hosts.unsettled(), [2]);
        hosts.update(2, HostStatus::Reached(Step::Ready));
        assert!(hosts.is_settled() && hosts.failed == 1);
        hosts.again(1);
        assert!(!hosts.is_settled() && hosts.failed == 0);
        hosts.update(7, HostStatus::Reached(Step::Ready));
    }

    #[test]
    fn hosts_with_the_same_trouble_share_a_line() {
        let mut hosts = three();
        hosts.update(0, denied("n1"));
        hosts.update(2, denied("n3"));
        hosts.update(1, HostStatus::Failed(Failure::new(Class::Refused, "Connection refused")));
        let table = hosts.table();
        let lines: Vec<&str> = table.lines().collect();
        assert!(
            lines[0].starts_with("2 of 3 hosts (n1 n3), at the step `authentication`"),
            "{table}"
        );
        assert!(lines[2].contains("1 of 3 hosts (n2)"), "{table}");
        assert!(lines[1].contains("try:") && lines[3].contains("try:"), "{table}");
    }

    proptest! {
        #[test]
        fn the_counts_are_those_of_the_states(
            status in proptest::collection::vec((0u32..4, 0u8..4), 0..40),
        ) {
            let mut hosts = three();
            for (host, what) in status {
                match what {
                    0 => hosts.update(host, HostStatus::Reached(Step::Connect)),
                    1 => hosts.update(host, HostStatus::Reached(Step::Ready)),
                    2 => hosts.update(host, denied("x")),
                    _ => hosts.again(host),
                }
                let failed = hosts.hosts.iter().filter(|host| host.failure.is_some()).count();
                prop_assert_eq!(hosts.failed, failed);
                prop_assert_eq!(hosts.is_settled(), hosts.unsettled().is_empty());
                prop_assert_eq!(hosts.open, hosts.unsettled().len());
            }
        }
    }
}
