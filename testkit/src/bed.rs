//! Jobs on the hosts of a [`Cluster`], launched from its first host.

use std::time::{Duration, Instant};

use crate::process::Process;
use crate::{Cluster, Outcome, Running, Tree, binary};

/// Far above what a job on a few hosts takes on a busy machine.
const BOUND: Duration = Duration::from_secs(90);
/// The same for what the end of a job must bring about.
const GONE: Duration = Duration::from_secs(15);

/// A cluster whose first host is called `head`, and jobs on it.
#[derive(Debug)]
pub struct Bed {
    /// The hosts.
    pub cluster: Cluster,
    hosts: Vec<String>,
    user: Option<String>,
    launcher: String,
    always: Vec<String>,
}

impl Bed {
    /// Boots `head` and these hosts, named between blanks. `None` after a `SKIP` of `test`.
    #[must_use]
    pub fn up(test: &str, hosts: &str) -> Option<Self> {
        Self::up_with_clocks(test, hosts, "")
    }

    /// The same with hosts whose clocks are ahead, as [`Cluster::up_with_clocks`] says.
    #[must_use]
    pub fn up_with_clocks(test: &str, hosts: &str, clocks: &str) -> Option<Self> {
        let all = format!("head {hosts}");
        let cluster = Cluster::up_with_clocks(test, &all, clocks)?;
        Some(Self {
            cluster,
            hosts: all.split(' ').map(str::to_owned).collect(),
            user: None,
            launcher: binary("gasnetrun_ibv").display().to_string(),
            always: Vec::new(),
        })
    }

    /// The same hosts, with jobs launched by this user.
    #[must_use]
    pub fn of_user(mut self, user: &str) -> Self {
        self.user = Some(user.to_owned());
        self
    }

    /// Jobs are launched by this user from now on; `None` is root.
    pub fn set_user(&mut self, user: Option<&str>) {
        self.user = user.map(str::to_owned);
    }

    /// Jobs are launched by this program from now on.
    pub fn set_launcher(&mut self, launcher: &str) {
        launcher.clone_into(&mut self.launcher);
    }

    /// Variables, as `NAME=value`, of all jobs from now on; those of a job win.
    pub fn set_always(&mut self, set: &[&str]) {
        self.always = set.iter().map(|word| (*word).to_owned()).collect();
    }

    /// The hosts, the launching one first.
    #[must_use]
    pub fn hosts(&self) -> &[String] {
        &self.hosts
    }

    /// What a command on a host prints, without blanks around it.
    ///
    /// # Panics
    /// When it fails.
    #[track_caller]
    pub fn shell(&self, host: &str, command: &str) -> String {
        let outcome = self.cluster.on(host, &["sh", "-c", command]).run();
        outcome.expect(0);
        outcome.out().trim().to_owned()
    }

    /// A directory that all hosts share and everybody can write to.
    #[must_use]
    pub fn share(&self) -> String {
        self.cluster.directory().join("share").display().to_string()
    }

    /// The launcher on the head with these words behind `set`, which are variables of its
    /// environment; its directory is the root, which all hosts have.
    #[must_use]
    pub fn job(&self, set: &[&str], words: &[&str]) -> Tree {
        self.job_under(&[], set, words)
    }

    /// The same behind the words of a wrapper.
    #[must_use]
    pub fn job_under(&self, wrapper: &[&str], set: &[&str], words: &[&str]) -> Tree {
        let mut line = vec!["env", "-C", "/", "GASNET_QUIET=1", "GASNET_IBV_FABRIC=soft"];
        line.extend(self.always.iter().map(String::as_str));
        line.extend(set);
        line.extend(wrapper);
        line.push(&self.launcher);
        line.extend(words);
        let tree = match &self.user {
            None => self.cluster.on("head", &line),
            Some(user) => self.cluster.as_user(user, "head", &line),
        };
        tree.deadline("a job on several hosts", BOUND)
    }

    /// Runs a job and looks whether it left anything.
    ///
    /// # Panics
    /// When something is left on a host.
    #[must_use]
    pub fn run(&self, set: &[&str], words: &[&str]) -> Outcome {
        let outcome = self.job(set, words).run();
        self.assert_clean();
        outcome
    }

    /// Starts a job and waits until its output has `up` so many times.
    ///
    /// # Panics
    /// When it does not come to that.
    #[must_use]
    pub fn lasting(&self, ups: usize, set: &[&str], words: &[&str]) -> Running {
        let running = self.job(set, words).start();
        running.wait_stdout("up\n", ups);
        running
    }

    /// Processes of a job on all hosts that are up, logins included; the hosts of `but` are left
    /// out.
    #[must_use]
    pub fn left(&self, but: &[&str]) -> Vec<(String, Process)> {
        let hosts = self.hosts.iter().filter(|host| !but.contains(&host.as_str()));
        let each = hosts.flat_map(|host| {
            self.cluster.processes(host).into_iter().map(|process| (host.clone(), process))
        });
        each.collect()
    }

    /// Waits until nothing of a job is left on the hosts other than `but`; how long that took.
    ///
    /// # Errors
    /// What is still there after `bound`.
    pub fn clean_within(
        &self,
        bound: Duration,
        but: &[&str],
    ) -> Result<Duration, Vec<(String, Process)>> {
        let begin = Instant::now();
        loop {
            let left = self.left(but);
            if left.is_empty() {
                return Ok(begin.elapsed());
            }
            if begin.elapsed() > bound {
                return Err(left);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Nothing of a job is left on any host that is up.
    ///
    /// # Panics
    /// When something is.
    #[track_caller]
    pub fn assert_clean(&self) {
        if let Err(left) = self.clean_within(GONE, &[]) {
            panic!("{} processes are left: {left:?}", left.len());
        }
    }

    /// Processes of a host whose name, in parentheses, and command line begin like this, oldest
    /// first.
    #[must_use]
    pub fn find(&self, host: &str, begin: &str) -> Vec<Process> {
        let mut found = self.cluster.processes(host);
        found.retain(|process| process.command.starts_with(begin));
        found.sort_by_key(|process| process.pid);
        found
    }

    /// The launcher's programs on a host: guard and agent, on the head front and root.
    #[must_use]
    pub fn agents(&self, host: &str) -> Vec<Process> {
        self.find(host, "(gasnetrun_ibv) ")
    }
    /// The first rank on a host other than the head: what its agent started. Its own children may
    /// come later than what it writes.
    #[must_use]
    pub fn rank(&self, host: &str) -> Option<Process> {
        let agent = self.agents(host).into_iter().nth(1)?.pid;
        self.cluster.processes(host).into_iter().find(|process| process.parent == agent)
    }
}
