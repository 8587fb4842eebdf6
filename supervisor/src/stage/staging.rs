//! What one agent (or the root) does about the program: whether its host has it, from where it gets
//! it, and who below wants it from here. It looks at files and says what is to be sent; it sends
//! nothing itself.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use nix::unistd::{AccessFlags, eaccess};

use super::cache::{self, Cache, CacheError, file};
use super::digest::Digest;
use super::incoming::Incoming;
use super::offer::{Offer, Program, Stamp};
use crate::tree::message::Down;
use spawner_ssh::StageMode;

/// Bytes in one message.
const PIECE: u32 = 64 * 1024;
/// Bytes that may be under way to one agent and not in its file yet.
const WINDOW: u32 = 4 * PIECE;

#[derive(Debug, PartialEq)]
pub(crate) enum Action {
    Ask,
    /// Tell the parent that so many more bytes may come.
    Took(u32),
    Give(usize, Down),
    /// This host has the program: go on with its start.
    Ready,
    Failed(String),
    Say(String),
}

#[derive(Clone, Debug)]
pub(crate) struct Host {
    pub(crate) mode: StageMode,
    /// `-k`.
    pub(crate) keep: bool,
    /// It is the launching one, whose program is the one that is meant.
    pub(crate) here: bool,
    /// Most bytes that are kept here for later jobs.
    pub(crate) cache: u64,
    /// Name of the job's directory, from [`super::job_directory_name`].
    pub(crate) job: String,
    /// Number of the file among those of the job.
    pub(crate) at: u32,
    /// Whether the job has several, which may have the same name.
    pub(crate) several: bool,
}

impl Host {
    /// The directory in which the job's ranks find the program.
    fn directory(&self, cache: &Cache) -> PathBuf {
        let directory = cache.job_directory(&self.job, self.keep);
        if self.several { directory.join(self.at.to_string()) } else { directory }
    }
}

#[derive(Debug)]
enum State {
    Unknown,
    Coming(Cache, Incoming),
    /// A file with the right content.
    Here(File),
    Failed(String),
}

/// An agent below that is being sent the program.
#[derive(Clone, Copy, Debug)]
struct Flow {
    at: u64,
    room: u32,
}

#[derive(Debug)]
pub(crate) struct Staging {
    /// What was said about the program; none: there is nothing to be sent.
    offer: Option<Offer>,
    /// The same with its hash, once it was needed.
    program: Option<Program>,
    /// Where the program is on the launching host, and should be here.
    pub(super) own: PathBuf,
    host: Host,
    state: State,
    /// Where this host's ranks will find it, while they wait for it.
    place: Option<PathBuf>,
    flows: BTreeMap<usize, Flow>,
    actions: VecDeque<Action>,
}

impl Staging {
    /// `offer` is what was said about the program, `own` its path.
    pub(crate) fn new(offer: Option<Offer>, own: PathBuf, host: Host) -> Self {
        Self {
            offer,
            program: None,
            own,
            host,
            state: State::Unknown,
            place: None,
            flows: BTreeMap::new(),
            actions: VecDeque::new(),
        }
    }

    /// Whether the hash must be known before [`Staging::begin`].
    pub(crate) fn needs_hash(&self) -> bool {
        let stays = |offer: &Offer| self.stays(|own| offer.is_good_at(own));
        self.program.is_none() && self.offer.as_ref().is_some_and(|offer| !stays(offer))
    }

    /// Whether ranks of this host run the program where it is; `is_good`: whether what is there
    /// will do.
    fn stays(&self, is_good: impl FnOnce(&Path) -> bool) -> bool {
        match self.host.mode {
            _ if self.host.here => true,
            StageMode::Never => true,
            StageMode::Auto => is_good(&self.own),
            StageMode::Always => false,
        }
    }

    /// The parent has told the hash; `None`: it sends no program.
    pub(crate) fn learn(&mut self, digest: Option<Digest>) {
        if self.program.is_none() {
            self.program =
                digest.and_then(|digest| Some(Program { offer: self.offer.clone()?, digest }));
        }
    }

    /// The hash for an agent below, of the file itself where this host sees it. `None`: the parent
    /// must be asked.
    pub(crate) fn hash(&mut self) -> Option<Digest> {
        let seen = |offer: &Offer| self.host.here || offer.is_seen_at(&self.own);
        if self.program.is_none()
            && let Some(offer) = self.offer.clone().filter(seen)
            && let Ok((digest, size)) = Digest::of(&self.own)
            && size == offer.size
        {
            self.program = Some(Program { offer, digest });
        }
        self.program.as_ref().map(|program| program.digest)
    }

    /// Whether it is sent to hosts that lack it.
    pub(crate) const fn is_sent(&self) -> bool {
        self.offer.is_some()
    }

    pub(crate) fn next(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Whether the start of this host waits for [`Action::Ready`] or [`Action::Failed`].
    pub(crate) fn is_expected(&self) -> bool {
        let told = |action: &Action| matches!(action, Action::Ready | Action::Failed(_));
        self.place.is_some() || self.actions.iter().any(told)
    }

    /// This host has failed for another reason: it needs the program no more.
    pub(crate) fn give_up(&mut self) {
        self.place = None;
        self.actions.retain(|action| !matches!(action, Action::Ready | Action::Failed(_)));
    }

    /// Decides about this host. `None`: its ranks run the program where it is. Else they will find
    /// it at that path, once [`Action::Ready`] has come.
    ///
    /// # Errors
    /// There is no place for it.
    pub(crate) fn begin(&mut self) -> Result<Option<PathBuf>, String> {
        let stays = |program: &Program| self.stays(|own| fits(own, program, program.offer.same));
        let Some(program) = self.program.as_ref().filter(|program| !stays(program)) else {
            cache::tidy_own(self.host.cache);
            return Ok(None);
        };
        let cache = Cache::open(settings::variable).map_err(|error| error.to_string())?;
        let place = self.host.directory(&cache).join(&program.offer.name);
        self.place = Some(place.clone());
        let got = self.get(cache);
        self.or_fail(got);
        Ok(Some(place))
    }

    /// Gets the content: from the cache, or from above.
    fn get(&mut self, cache: Cache) -> Result<(), CacheError> {
        let Some(program) = &self.program else { return Ok(()) };
        let kept = match self.host.mode {
            StageMode::Always => None,
            _ => cache.find(&program.digest, program.offer.size),
        };
        if let Some(path) = kept {
            return self.have(&cache, &path);
        }
        let directory = self.host.directory(&cache);
        let incoming = Incoming::new(&cache, &directory, program)?;
        self.state = State::Coming(cache, incoming);
        self.actions.push_back(Action::Ask);
        Ok(())
    }

    /// The content is in the cache.
    fn have(&mut self, cache: &Cache, content: &Path) -> Result<(), CacheError> {
        let directory = self.host.directory(cache);
        if let Some(place) = &self.place {
            cache.make_job_directory(&directory)?;
            cache.place(content, place)?;
        }
        let opened = File::open(content);
        self.state = State::Here(opened.map_err(file("read the program in", &cache.root))?);
        cache.tidy(self.host.cache, SystemTime::now());
        if let Some(place) = self.place.take() {
            if self.host.keep {
                self.actions.push_back(Action::Say(format!("kept {}", place.display())));
            }
            self.actions.push_back(Action::Ready);
        } else {
            // Nobody runs it here, it is only passed on.
            let _ = std::fs::remove_dir_all(&directory);
        }
        self.pump_all();
        Ok(())
    }

    fn or_fail(&mut self, done: Result<(), CacheError>) {
        if let Err(error) = done {
            self.fail(&error.to_string());
        }
    }

    /// Neither this host nor who asks it will have the program.
    fn fail(&mut self, why: &str) {
        self.state = State::Failed(why.to_owned());
        if self.host.keep {
            // Nothing was made that is worth keeping.
            if let Some(directory) = self.place.as_deref().and_then(Path::parent) {
                let _ = std::fs::remove_dir_all(directory);
            }
        } else {
            cache::forget_job(&self.host.job);
        }
        for link in std::mem::take(&mut self.flows).into_keys() {
            self.refuse(link, why);
        }
        if self.place.take().is_some() {
            self.actions.push_back(Action::Failed(why.to_owned()));
        }
    }

    fn refuse(&mut self, link: usize, why: &str) {
        let why = format!("the host above it has no program to send: {why}");
        self.actions.push_back(Action::Give(link, Down::NoProgram { at: self.host.at, why }));
    }

    pub(crate) fn want(&mut self, link: usize) {
        let Some(program) = &self.program else {
            return self.refuse(link, "the job sends none");
        };
        if let State::Unknown = self.state {
            let own = self.host.here || fits(&self.own, program, true);
            match own.then(|| File::open(&self.own)) {
                Some(Ok(file)) => self.state = State::Here(file),
                Some(Err(error)) => self.fail(&format!("{}: {error}", self.own.display())),
                None => {
                    let got = Cache::open(settings::variable).and_then(|cache| self.get(cache));
                    self.or_fail(got);
                }
            }
        }
        if let State::Failed(why) = &self.state {
            let why = why.clone();
            return self.refuse(link, &why);
        }
        self.flows.insert(link, Flow { at: 0, room: WINDOW });
        self.pump(link);
    }

    /// An agent below has put so many bytes into its file.
    pub(crate) fn took(&mut self, link: usize, bytes: u32) {
        if let Some(flow) = self.flows.get_mut(&link) {
            flow.room = flow.room.saturating_add(bytes).min(WINDOW);
            self.pump(link);
        }
    }

    pub(crate) fn lost(&mut self, link: usize) {
        self.flows.remove(&link);
    }

    fn pump_all(&mut self) {
        for link in self.flows.keys().copied().collect::<Vec<_>>() {
            self.pump(link);
        }
    }

    /// Sends what is here and the window of a link has room for, also while the rest is still to
    /// come: a deep tree is not slower than a flat one. Whoever gets it checks the whole before
    /// anybody can run it.
    fn pump(&mut self, link: usize) {
        let Some(program) = &self.program else { return };
        let (file, here) = match &self.state {
            State::Here(file) => (file, program.offer.size),
            State::Coming(_, incoming) => (&incoming.file, program.offer.size - incoming.left),
            State::Unknown | State::Failed(_) => return,
        };
        let Some(flow) = self.flows.get_mut(&link) else { return };
        let mut problem = None;
        while flow.at < here && flow.room > 0 {
            let left = u32::try_from(here - flow.at).unwrap_or(u32::MAX);
            let count = PIECE.min(flow.room).min(left);
            let mut bytes = vec![0; count as usize];
            if let Err(error) = file.read_exact_at(&mut bytes, flow.at) {
                problem = Some(error.to_string());
                break;
            }
            flow.at += u64::from(count);
            flow.room -= count;
            self.actions.push_back(Action::Give(
                link,
                Down::Program { at: self.host.at, bytes: bytes.into() },
            ));
        }
        let over = flow.at >= program.offer.size;
        if over || problem.is_some() {
            self.flows.remove(&link);
        }
        if let Some(problem) = problem {
            self.refuse(link, &problem);
        }
    }

    /// A piece came from above. What was not asked for is ignored.
    pub(crate) fn piece(&mut self, bytes: &[u8]) {
        let State::Coming(cache, incoming) = &mut self.state else { return };
        let taken = incoming.take(cache, bytes);
        if let Ok(count) = u32::try_from(bytes.len()) {
            self.actions.push_back(Action::Took(count));
        }
        let done = taken.and_then(|last| match last {
            true => self.complete(),
            false => {
                self.pump_all();
                Ok(())
            }
        });
        self.or_fail(done);
    }

    fn complete(&mut self) -> Result<(), CacheError> {
        let state = std::mem::replace(&mut self.state, State::Unknown);
        let (State::Coming(cache, incoming), Some(program)) = (state, &self.program) else {
            return Ok(());
        };
        let path = incoming.finish(&cache, program)?;
        self.have(&cache, &path)
    }

    pub(crate) fn refused(&mut self, why: &str) {
        if let State::Coming(..) = self.state {
            self.fail(why);
        }
    }
}

/// Whether a file can stand for the program; `same`: only if its content is the same.
fn fits(path: &Path, program: &Program, same: bool) -> bool {
    let Ok(data) = path.metadata() else { return false };
    let runs = data.is_file() && eaccess(path, AccessFlags::X_OK).is_ok();
    runs && (!same
        || (data.len() == program.offer.size
            && (Stamp::of(&data) == program.offer.stamp
                || Digest::of(path).is_ok_and(|(digest, _)| digest == program.digest))))
}

#[cfg(test)]
mod tests;
