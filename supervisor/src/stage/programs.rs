//! All programs of a job: one [`Staging`] for each file, and the messages told apart by its number.

use std::path::{Path, PathBuf};

use super::digest::Digest;
use super::offer::Offer;
use super::staging::{Action, Host, Staging};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Programs(Vec<Staging>);

impl Programs {
    /// For each file where it is on the launching host, and what was said about it.
    pub(crate) fn new(files: Vec<(PathBuf, Option<Offer>)>, host: &Host) -> Self {
        let several = files.len() > 1;
        let staging = |(at, (own, offer)): (u32, (PathBuf, Option<Offer>))| {
            Staging::new(offer, own, Host { at, several, ..host.clone() })
        };
        Self((0..).zip(files).map(staging).collect())
    }

    /// Whether hashes must be known before [`Programs::begin`], for the files that `runs` says yes
    /// to.
    pub(crate) fn needs_hash(&self, runs: impl Fn(&Path) -> bool) -> bool {
        self.0.iter().any(|one| runs(&one.own) && one.needs_hash())
    }

    /// The parent has told the hashes.
    pub(crate) fn learn(&mut self, digests: &[Option<Digest>]) {
        self.0.iter_mut().zip(digests).for_each(|(one, digest)| one.learn(*digest));
    }

    /// The hashes as far as they are known here.
    pub(crate) fn hashes(&mut self) -> Vec<Option<Digest>> {
        self.0.iter_mut().map(Staging::hash).collect()
    }

    /// The same for an agent below; `None`: the parent must be asked.
    pub(crate) fn all_hashes(&mut self) -> Option<Vec<Option<Digest>>> {
        let hashes = self.hashes();
        let known = |(one, hash): (&Staging, &Option<Digest>)| hash.is_some() || !one.is_sent();
        self.0.iter().zip(&hashes).all(known).then_some(hashes)
    }

    /// Decides about this host, for the files that `runs` says yes to: where they are and where
    /// ranks will find those that they do not run in place.
    ///
    /// # Errors
    /// There is no place for one.
    pub(crate) fn begin(
        &mut self,
        runs: impl Fn(&Path) -> bool,
    ) -> Result<Vec<(PathBuf, PathBuf)>, String> {
        let mut places = Vec::new();
        for one in self.0.iter_mut().filter(|one| runs(&one.own)) {
            if let Some(place) = one.begin()? {
                places.push((one.own.clone(), place));
            }
        }
        Ok(places)
    }

    /// Whether the start of this host waits for a program.
    pub(crate) fn is_expected(&self) -> bool {
        self.0.iter().any(Staging::is_expected)
    }

    /// This host has failed: it needs no program more.
    pub(crate) fn give_up(&mut self) {
        self.0.iter_mut().for_each(Staging::give_up);
    }

    /// What is to be done next, and for which file.
    pub(crate) fn next(&mut self) -> Option<(u32, Action)> {
        (0..).zip(&mut self.0).find_map(|(at, one)| Some((at, one.next()?)))
    }

    /// A file by its number, which comes from a message.
    pub(crate) fn get(&mut self, at: u32) -> Option<&mut Staging> {
        self.0.get_mut(at as usize)
    }

    /// The agent behind a link wants a file, by its number.
    pub(crate) fn want(&mut self, at: u32, link: usize) {
        if let Some(staging) = self.get(at) {
            staging.want(link);
        }
    }

    /// It has taken so many bytes of one.
    pub(crate) fn took(&mut self, at: u32, link: usize, bytes: u32) {
        if let Some(staging) = self.get(at) {
            staging.took(link, bytes);
        }
    }

    /// A link has gone.
    pub(crate) fn lost(&mut self, link: usize) {
        self.0.iter_mut().for_each(|one| one.lost(link));
    }
}
