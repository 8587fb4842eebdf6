//! Several hosts on this machine, made and removed by `scripts/cluster`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::Tree;
use crate::process::Process;

const PREFIX: &str = "gasnetrun-cluster-";

/// Hosts that live until this is dropped.
#[derive(Debug)]
pub struct Cluster {
    state: PathBuf,
    hosts: String,
}

fn script() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().expect("the package is inside the workspace").join("scripts/cluster")
}

impl Cluster {
    /// Boots hosts with these names, between blanks; the first is where jobs are launched. `None`
    /// after a `SKIP` of `test` when that is not possible here.
    ///
    /// # Panics
    /// When it is possible, but fails.
    #[must_use]
    pub fn up(test: &str, hosts: &str) -> Option<Self> {
        Self::up_with_clocks(test, hosts, "")
    }

    /// The same with hosts whose clocks are ahead by so many seconds, as `n1=5000 n2=70000`.
    ///
    /// # Panics
    /// As [`Cluster::up`].
    #[must_use]
    pub fn up_with_clocks(test: &str, hosts: &str, clocks: &str) -> Option<Self> {
        if !clocks.is_empty() && !Path::new("/proc/self/ns/time").exists() {
            crate::skip(test, "hosts have no clocks of their own here");
            return None;
        }
        static NEXT: AtomicU32 = AtomicU32::new(0);
        remove_orphans();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}-{number}", std::process::id());
        let cluster = Self { state: std::env::temp_dir().join(name), hosts: hosts.to_owned() };
        let up = cluster
            .command()
            .arg("up")
            .env("CLUSTER_CLOCKS", clocks)
            .output()
            .expect("scripts/cluster can be run");
        let said = String::from_utf8_lossy(&up.stderr).trim().to_owned();
        if up.status.code() == Some(77) {
            crate::skip(test, said.lines().last().unwrap_or("scripts/cluster cannot run here"));
            return None;
        }
        assert!(up.status.success(), "scripts/cluster up: {:?}\n{said}", up.status);
        Some(cluster)
    }

    /// The script with the variables of this cluster.
    fn command(&self) -> Command {
        let mut command = Command::new(script());
        command.env("CLUSTER_DIR", &self.state).env("CLUSTER_HOSTS", &self.hosts);
        // The programs that are tested may be built below /tmp.
        let exe = std::env::current_exe().ok();
        let builds = exe.as_deref().and_then(Path::parent).and_then(Path::parent);
        command.env("CLUSTER_SEE", builds.unwrap_or(Path::new("")));
        command
    }

    /// Starts Slurm on the hosts: the controller on the first, a node on each other one. `false`
    /// after a `SKIP` of `test` when it is not installed and cannot be.
    ///
    /// # Panics
    /// When it is there, but does not start.
    #[must_use]
    pub fn slurm(&self, test: &str) -> bool {
        let mut command = Command::new(script().with_file_name("slurm-cluster"));
        let up =
            command.arg("up").env("CLUSTER_DIR", &self.state).env("CLUSTER_HOSTS", &self.hosts);
        let up = up.output().expect("scripts/slurm-cluster can be run");
        let said = String::from_utf8_lossy(&up.stderr).trim().to_owned();
        if up.status.code() == Some(77) {
            crate::skip(test, said.lines().last().unwrap_or("Slurm cannot be installed here"));
            return false;
        }
        assert!(up.status.success(), "scripts/slurm-cluster up: {:?}\n{said}", up.status);
        true
    }

    /// The configuration of [`Cluster::slurm`], for `SLURM_CONF`.
    #[must_use]
    pub fn slurm_conf(&self) -> PathBuf {
        self.state.join("slurm/slurm.conf")
    }

    /// Runs a verb, such as `kill n2`, to its end.
    ///
    /// # Panics
    /// When it fails.
    pub fn verb(&self, words: &[&str]) {
        let done = self.command().args(words).output().expect("scripts/cluster can be run");
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.success(), "scripts/cluster {words:?}: {:?}\n{said}", done.status);
    }

    /// A command on a host, as root, still to be run.
    #[must_use]
    pub fn on<S: AsRef<OsStr>>(&self, host: &str, words: &[S]) -> Tree {
        self.tree().args(["on", host]).args(words)
    }

    /// The same without a warden, for what is measured.
    #[must_use]
    pub fn bare<S: AsRef<OsStr>>(&self, host: &str, words: &[S]) -> Command {
        let mut command = self.command();
        command.args(["on", host]).args(words);
        command
    }

    /// A command on a host as another user, still to be run.
    #[must_use]
    pub fn as_user<S: AsRef<OsStr>>(&self, user: &str, host: &str, words: &[S]) -> Tree {
        self.tree().args(["as", user, host]).args(words)
    }

    fn tree(&self) -> Tree {
        let tree = Tree::new(script()).deadline("a command on a host", Duration::from_secs(60));
        tree.env("CLUSTER_DIR", &self.state).env("CLUSTER_HOSTS", &self.hosts)
    }

    /// Where the state of the cluster is; `share` in it can be written by every user on every host.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.state
    }

    /// Process that is the first one of a host, seen from this machine; `None` when the host is
    /// down.
    #[must_use]
    pub fn init(&self, host: &str) -> Option<i32> {
        let recorded = std::fs::read_to_string(self.state.join("pid").join(host)).ok()?;
        let pid = recorded.split_whitespace().next()?.parse().ok()?;
        Process::read(pid).filter(|process| !process.is_zombie()).map(|process| process.pid)
    }

    /// What runs on a host besides its init and the sshd that waits for logins; a login that is
    /// still there is among them. Process ids are those of this machine, so that tests can send
    /// signals.
    #[must_use]
    pub fn processes(&self, host: &str) -> Vec<Process> {
        let space = |pid: i32| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
        let Some(init) = self.init(host) else { return Vec::new() };
        let Some(ours) = space(init) else { return Vec::new() };
        let here = |process: &Process| {
            process.pid != init
                && !process.is_zombie()
                && !(process.command.contains("[listener]") && process.parent == init)
                && space(process.pid).as_ref() == Some(&ours)
        };
        Process::all().into_iter().filter(here).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // A failure to remove it must not hide why a test failed; the next cluster tries again.
        let _ = self.command().arg("down").output();
    }
}

/// Removes what test programs left that were killed.
fn remove_orphans() {
    let Ok(entries) = std::fs::read_dir(std::env::temp_dir()) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let maker = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        let maker = maker.and_then(|rest| rest.split('-').next()?.parse().ok());
        if maker.is_some_and(|pid: i32| Process::read(pid).is_none()) {
            let _ = Command::new(script()).arg("down").env("CLUSTER_DIR", entry.path()).output();
        }
    }
}
