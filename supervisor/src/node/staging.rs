//! The job's program: from the parent, to the agents below, and what follows for this host.

use std::ffi::{OsStr, OsString};

use super::check;
use super::driver::Driver;
use crate::event_loop::Role;
use crate::stage::{Action, Digest};
use crate::tree::hosts::HostStatus;
use crate::tree::message::{Down, Up};
use spawner_ssh::diagnosis::{Class, Failure, Step};

impl Driver<'_> {
    /// Carries out what is due.
    pub(super) fn step_staging(&mut self) {
        while let Some(action) = self.staging.next() {
            match action {
                Action::Ask => self.up(&Up::Want),
                Action::Took(bytes) => self.up(&Up::Took { bytes }),
                Action::Give(link, down) => {
                    let now = self.now();
                    self.links.send(&self.poller, link, &down, now);
                }
                Action::Ready => {
                    let checked = self.check_program();
                    self.settled(checked);
                }
                Action::Failed(why) => {
                    let seen = format!("cannot be sent the program: {why}");
                    self.settled(Err(Failure::new(Class::Staging, seen)));
                }
                Action::Say(text) => {
                    let text = format!("{}: {text}", self.plan.host);
                    self.up(&Up::Say(text));
                }
            }
        }
    }

    /// An agent below wants the program's hash.
    pub(super) fn describe(&mut self, link: usize) {
        if let Some(digest) = self.staging.hash() {
            let now = self.now();
            self.links.send(&self.poller, link, &Down::Described(Some(digest)), now);
            return;
        }
        if self.describing.is_empty() {
            self.up(&Up::Describe);
        }
        self.describing.push(link);
    }

    /// The parent has told it.
    pub(super) fn described(&mut self, digest: Option<Digest>) {
        self.staging.learn(digest);
        let now = self.now();
        for link in std::mem::take(&mut self.describing) {
            self.links.send(&self.poller, link, &Down::Described(digest), now);
        }
    }

    /// Looks at this host for the doctor, who starts no job.
    pub(super) fn examine(
        &mut self,
        directory: &OsStr,
        several: bool,
        env: &[(OsString, OsString)],
    ) {
        self.parent.heard = self.now();
        let at = crate::agent::record::epoch_now();
        let findings = crate::doctor::findings(directory, several, env);
        self.up(&Up::Findings { host: self.index, at, findings });
        self.settled(Ok(()));
    }

    /// Looks at what ranks will run: the program and, if there is one, the wrapper.
    pub(super) fn check_program(&self) -> Result<(), Failure> {
        check::program(&self.plan.program, &self.plan.env)?;
        let word = self.plan.program_word;
        let behind = self.plan.argv.get(word).filter(|_| word > 0);
        behind.map_or(Ok(()), |path| check::program(path.as_ref(), &self.plan.env))
    }

    /// Whether this host can take part is known.
    pub(super) fn settled(&mut self, checked: Result<(), Failure>) {
        let status = match checked {
            Ok(()) => HostStatus::Reached(Step::Ready),
            Err(failure) => HostStatus::Failed(failure),
        };
        self.queue(&Up::Host { host: self.index, status });
    }
}
