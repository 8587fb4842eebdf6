//! The services under an MPI launcher, through a plugin that is found and opened at run time.
//!
//! MPI has no space of keys; this module makes one: what ranks put goes to all of them at the next
//! fence, in one gather of its lengths and one of the contents.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use settings::deadlines::bootstrap::CALL;
use settings::{Env, Values};

use super::plugin::{Plugin, is_loaded};
use bootstrap::provider::number;
use bootstrap::self_start::installed_launcher;
use bootstrap::service::{Bootstrap, Error, HostId, Rank};
use bootstrap::wait::{Wait, Watch};
use bootstrap::{Announced, Provider};
use spawner_pmi::client::allows;
use spawner_pmi::client::process_manager::{
    Finalization, FinalizeCalls, Identity, JobInfo, ProcessManager, ProcessManagerBounds,
    ProcessManagerError, join, mark, unwatched,
};

const NAME: &str = "MPI";
/// Bytes of a value; what a fence carries has no other limit.
const VALUE_LIMIT: usize = 32 * 1024;
const BUILD: &str = "build and install the plugin with scripts/install (or scripts/build-mpi-plugin) where the MPI is installed, put it next to the program or \
                     name it in GASNET_IBV_MPI_PLUGIN, or start the program with gasnetrun_ibv -spawner=ssh or -spawner=pmi";

/// MPIs that there are plugins for: name, and the library by which a process that has one is
/// recognised.
const FLAVOURS: [(&str, &std::ffi::CStr); 2] =
    [("openmpi", c"libmpi.so.40"), ("mpich", c"libmpich.so.12")];

/// An MPI launcher that tells how many ranks it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Launcher {
    /// The variable that announces the number of ranks.
    pub(super) variable: &'static str,
    /// That number.
    pub(super) size: u32,
}

/// An MPI launcher: when the user asks for MPI, or the launcher offers nothing simpler.
pub(super) fn mpi_launcher(env: &Env, trace: &mut Vec<String>) -> Result<Option<Launcher>, Error> {
    let asked = env.text("GASNET_IBV_SPAWNER").is_some_and(|name| name.eq_ignore_ascii_case("mpi"));
    let tellers: &[&'static str] = if asked {
        &["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"]
    } else {
        &["OMPI_COMM_WORLD_SIZE"]
    };
    let Some(variable) = tellers.iter().find(|name| env.get(name).is_some()) else {
        trace.push("no MPI launcher tells a number of processes".to_owned());
        return Ok(None);
    };
    let value = env.text(variable).unwrap_or_default();
    if !allows(env, "mpi") {
        trace.push(format!("{variable}={value:?}: an MPI launcher, not used as one"));
        return Ok(None);
    }
    trace.push(format!("{variable}={value:?}: an MPI launcher"));
    let size = number(env, variable, variable)?;
    Ok((size > 1 || asked).then_some(Launcher { variable, size }))
}

/// MPI.
pub const MPI: Provider = Provider {
    name: "MPI",
    find: |env, trace| {
        Ok(mpi_launcher(env, trace)?.map(|found| Box::new(found) as Box<dyn Announced>))
    },
};

impl Announced for Launcher {
    fn describe(&self) -> String {
        format!("MPI through its plugin: {} ranks", self.size)
    }

    fn connect(&self, env: &Env) -> Result<Box<dyn Bootstrap>, Error> {
        connect(env, (self.variable, self.size), |size| ProcessManagerBounds::of(env, size))
    }
}

/// The connection of one rank.
struct Mpi {
    plugin: Plugin,
    info: JobInfo,
    finalization: &'static Finalization,
    /// Lines of `key=value`, put since the last fence.
    pending: String,
    values: Fenced,
}

/// What all ranks put before the last two fences, as long as [`ProcessManager`] promises it.
#[derive(Default)]
struct Fenced {
    last: BTreeMap<String, String>,
    before: BTreeMap<String, String>,
}

impl Fenced {
    /// After a fence: what all ranks put before it, in lines of `key=value`.
    fn fence(&mut self, all: &str) {
        let pairs = all.lines().filter_map(|line| line.split_once('='));
        let pairs = pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        self.before = std::mem::replace(&mut self.last, pairs);
    }

    fn get(&self, key: &str) -> Option<&String> {
        self.last.get(key).or_else(|| self.before.get(key))
    }
}

/// The flavour of the MPI whose launcher started this process, or that is in it already.
fn flavour(env: &Env) -> &'static str {
    let here = FLAVOURS.iter().find(|(_, library)| is_loaded(library));
    match here {
        Some((name, _)) => name,
        None if env.get("OMPI_COMM_WORLD_SIZE").is_some() => "openmpi",
        None => "mpich",
    }
}

/// Files in which the plugin may be, in the order in which they are tried. `asked`: a file or a
/// directory named by the user; `launcher`: the one that belongs to this library.
fn candidates(
    asked: Option<&Path>,
    program: Option<&Path>,
    launcher: Option<&Path>,
    flavour: &str,
) -> Vec<PathBuf> {
    let file = format!("libgasnetrun_mpi_{flavour}.so");
    if let Some(asked) = asked {
        return vec![if asked.is_dir() { asked.join(file) } else { asked.to_owned() }];
    }
    let beside = program.and_then(Path::parent).map(|directory| directory.join(&file));
    let installed = |binary: Option<&Path>| {
        let prefix = binary.and_then(Path::parent).and_then(Path::parent)?;
        Some(prefix.join("lib/gasnetrun_ibv").join(&file))
    };
    let mut files: Vec<_> =
        beside.into_iter().chain(installed(program)).chain(installed(launcher)).collect();
    files.dedup();
    files
}

fn open(env: &Env, settings: &Values) -> Result<Plugin, Error> {
    let flavour = flavour(env);
    let asked = settings.path("GASNET_IBV_MPI_PLUGIN");
    let program = std::fs::read_link("/proc/self/exe").ok();
    let mut tried = Vec::new();
    let launcher = installed_launcher(env);
    let launcher = launcher.map(|path| path.canonicalize().unwrap_or(path));
    for path in candidates(asked.as_deref(), program.as_deref(), launcher.as_deref(), flavour) {
        let name = path.display().to_string();
        if !path.is_file() {
            tried.push(format!("{name}: no such file"));
            continue;
        }
        match Plugin::open(&name) {
            Ok(plugin) => return Ok(plugin),
            Err(problem) => tried.push(format!("{name}: {problem}")),
        }
    }
    let problem = format!("no plugin for {flavour} can be used ({})", tried.join("; "));
    Err(ProcessManagerError::Library { manager: NAME, problem, advice: BUILD }.into())
}

/// Joins the job of an MPI launcher. `announced`: the variable with the number of ranks, and its
/// value.
fn connect(
    env: &Env,
    announced: (&'static str, u32),
    bounds: impl FnOnce(u32) -> ProcessManagerBounds,
) -> Result<Box<dyn Bootstrap>, Error> {
    let settings = Values::from_env(env).map_err(|error| ProcessManagerError::Library {
        manager: NAME,
        problem: error.to_string(),
        advice: "correct the variable",
    })?;
    let plugin = open(env, &settings)?;
    let levels = ["SINGLE", "FUNNELED", "SERIALIZED", "MULTIPLE"];
    let level = settings.word("GASNET_MPI_THREAD");
    let level = levels.iter().position(|name| level.eq_ignore_ascii_case(name)).unwrap_or(0);
    let joined =
        plugin.init(i32::try_from(level).unwrap_or(0)).map_err(refused("initialisation"))?;
    let (variable, count) = announced;
    if joined.size != count {
        // An MPI that does not know the launcher makes every process a job of its own.
        let (size, value) = (joined.size, count.to_string());
        let advice = "the plugin belongs to another MPI than the launcher: name the right one in GASNET_IBV_MPI_PLUGIN";
        return Err(
            ProcessManagerError::Size { manager: NAME, size, variable, value, advice }.into()
        );
    }
    if (joined.level as usize) < level {
        let problem = format!("{} grants thread level {}", plugin.library(), joined.level);
        let advice = "ask for less with GASNET_MPI_THREAD";
        return Err(ProcessManagerError::Library { manager: NAME, problem, advice }.into());
    }
    let finalize = settings.bool("GASNET_MPI_FINALIZE");
    let finalization = Finalization::new(Box::new(MpiFinalize { plugin, finalize }));
    let (rank, size, job) = (Rank(joined.rank), joined.size, String::new());
    let info = JobInfo { manager: NAME, rank, size, job, value_limit: VALUE_LIMIT };
    let (pending, values) = (String::new(), Fenced::default());
    let mut manager = Mpi { plugin, info, finalization, pending, values };
    manager.name_the_job()?;
    join(Box::new(manager), &Identity::here(), bounds(joined.size))
}

impl Mpi {
    /// A name that no other job has: rank 0's process and the time.
    fn name_the_job(&mut self) -> Result<(), Error> {
        let time =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let name = mark(&[u128::from(std::process::id()), time.as_nanos()]);
        let lengths = vec![32; self.info.size as usize];
        let all = self.gather(name.into_bytes(), &lengths, &mut unwatched())?;
        let first = all.get(..32).unwrap_or_default();
        self.info.job = String::from_utf8_lossy(first).into_owned();
        Ok(())
    }

    fn gather(
        &self,
        mine: Vec<u8>,
        lengths: &[u32],
        watch: &mut Watch<'_>,
    ) -> Result<Vec<u8>, Error> {
        let during = "gather";
        let wait = Wait::new(during, CALL);
        self.plugin.gather(mine, lengths, refused(during), &mut || {
            wait.slice()?;
            watch()
        })
    }
}

fn refused(during: &'static str) -> impl Fn(String) -> Error {
    move |reason| ProcessManagerError::Refused { manager: NAME, during, reason }.into()
}

impl ProcessManager for Mpi {
    fn job_info(&self) -> &JobInfo {
        &self.info
    }

    /// MPI could tell which ranks share memory, but not which can reach each other's sockets.
    fn host_map(&mut self) -> Result<Option<Vec<HostId>>, Error> {
        Ok(None)
    }

    fn put(&mut self, key: &str, value: &str) -> Result<(), Error> {
        self.pending.push_str(&format!("{key}={value}\n"));
        Ok(())
    }

    fn fence(&mut self, watch: &mut Watch<'_>) -> Result<(), Error> {
        let text = std::mem::take(&mut self.pending);
        let nonsense = |problem: &str| -> Error {
            let (problem, seen) = (problem.to_owned(), String::new());
            ProcessManagerError::Nonsense { manager: NAME, during: "fence", problem, seen }.into()
        };
        let length = u32::try_from(text.len()).map_err(|_| nonsense("more than 4 GiB"))?;
        let fours = vec![4; self.info.size as usize];
        let lengths = self.gather(length.to_le_bytes().to_vec(), &fours, watch)?;
        let lengths: Vec<u32> =
            lengths.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
        let mut all = Vec::new();
        if lengths.iter().any(|length| *length != 0) {
            all = self.gather(text.into_bytes(), &lengths, watch)?;
        }
        let all = String::from_utf8(all).map_err(|_| nonsense("it is no text"))?;
        self.values.fence(&all);
        Ok(())
    }

    fn get(&mut self, from: Rank, key: &str) -> Result<String, Error> {
        self.values.get(key).cloned().ok_or_else(|| {
            let problem = "was not put before the last two fences".to_owned();
            ProcessManagerError::Value { manager: NAME, key: key.to_owned(), from, problem }.into()
        })
    }

    fn finalization(&self) -> &'static Finalization {
        self.finalization
    }
}

impl Drop for Mpi {
    fn drop(&mut self) {
        self.finalization.close();
    }
}

/// The last calls. They are not safe in signal handlers, but MPI has no others; the alarm of the
/// exit bounds them.
#[derive(Debug)]
struct MpiFinalize {
    plugin: Plugin,
    finalize: bool,
}

impl FinalizeCalls for MpiFinalize {
    fn finalize(&self) {
        self.plugin.finalize(self.finalize);
    }

    fn abort(&self, code: i32) {
        self.plugin.abort(code);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_there_until_the_second_fence_after_theirs() {
        let mut values = Fenced::default();
        let mut seen = Vec::new();
        for all in ["a=1\nb=x=y\n", "c=2\n", "", ""] {
            values.fence(all);
            seen.push(["a", "b", "c"].map(|key| values.get(key).cloned().unwrap_or_default()));
        }
        assert_eq!(seen, [["1", "x=y", ""], ["1", "x=y", "2"], ["", "", "2"], ["", "", ""]]);
    }

    #[test]
    fn where_plugins_are_looked_for() {
        let program = Path::new("/opt/x/bin/prog");
        let names = |asked: Option<&str>| -> Vec<String> {
            let launcher = Some(Path::new("/usr/bin/gasnetrun_ibv"));
            candidates(asked.map(Path::new), Some(program), launcher, "mpich")
                .iter()
                .map(|path| path.display().to_string())
                .collect()
        };
        let file = "libgasnetrun_mpi_mpich.so";
        assert_eq!(
            names(None),
            [
                format!("/opt/x/bin/{file}"),
                format!("/opt/x/lib/gasnetrun_ibv/{file}"),
                format!("/usr/lib/gasnetrun_ibv/{file}")
            ]
        );
        assert_eq!(names(Some("/nowhere/mine.so")), ["/nowhere/mine.so"]);
        assert_eq!(names(Some("/")), [format!("/{file}")]);
        assert!(candidates(None, None, None, "mpich").is_empty());
    }

    #[test]
    fn a_plugin_that_is_none_is_named() {
        let env: Env = [("GASNET_IBV_MPI_PLUGIN", "/nowhere/x.so"), ("OMPI_COMM_WORLD_SIZE", "2")]
            .into_iter()
            .collect();
        let fails = |env: &Env| {
            let outcome =
                connect(env, ("OMPI_COMM_WORLD_SIZE", 2), |_| ProcessManagerBounds::default());
            outcome.err().unwrap().to_string()
        };
        let error = fails(&env);
        assert!(error.contains("/nowhere/x.so: no such file"), "{error}");
        assert!(error.contains("scripts/build-mpi-plugin"), "{error}");
        let this = std::fs::read_link("/proc/self/exe").unwrap();
        let env: Env = [("GASNET_IBV_MPI_PLUGIN", this.to_str().unwrap())].into_iter().collect();
        let error = fails(&env);
        assert!(error.contains("no plugin for mpich can be used"), "{error}");
    }

    /// What stands in for a plugin: C that is compiled by the compiler with which this was linked.
    const PLUGIN: &str = r#"
        #include <stddef.h>
        #include <stdint.h>
        #include <string.h>
        struct job { uint32_t rank, size, level, before; };
        static void library(char *text, size_t size) { strncpy(text, "some MPI", size); }
        static int init(int level, struct job *job) { job->rank = 0; job->size = SIZE; job->level = 0; return level < 0; }
        static int begin(const void *a, int b, void *c, const int *d, const int *e) { return 1; }
        static int test(int *done) { return 1; }
        static int finalize(int end) { return 0; }
        static void stop(int code) {}
        static void explain(int code, char *text, size_t size) { strncpy(text, "broken", size); }
        static const struct { uint32_t version, length; void *calls[7]; } table = {
            VERSION, LENGTH, { library, init, begin, test, finalize, stop, explain } };
        const void *NAME(void) { return TABLE; }
    "#;

    /// Compiles [`PLUGIN`] with these words in place of its own; what a rank of two says to it.
    fn with_plugin(name: &str, words: &[(&str, &str)], level: &str) -> String {
        let directory =
            std::env::temp_dir().join(format!("mpi-plugin-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let (source, plugin) = (directory.join("plugin.c"), directory.join("plugin.so"));
        std::fs::write(&source, PLUGIN).unwrap();
        let right = [
            ("VERSION", "1"),
            ("LENGTH", "sizeof table"),
            ("NAME", "gasnetrun_mpi_plugin"),
            ("TABLE", "&table"),
            ("SIZE", "2"),
        ];
        let mut compile = std::process::Command::new("cc");
        compile.args(["-shared", "-fPIC", "-o"]).arg(&plugin).arg(&source);
        for (word, value) in right.iter().chain(words) {
            // The last definition of a word counts.
            compile.arg(format!("-U{word}")).arg(format!("-D{word}={value}"));
        }
        let done = compile.output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let path = plugin.to_str().unwrap();
        let env: Env =
            [("GASNET_IBV_MPI_PLUGIN", path), ("GASNET_MPI_THREAD", level)].into_iter().collect();
        let outcome =
            connect(&env, ("OMPI_COMM_WORLD_SIZE", 2), |_| ProcessManagerBounds::default());
        std::fs::remove_dir_all(&directory).unwrap();
        outcome.err().unwrap().to_string()
    }

    #[test]
    fn a_plugin_of_another_version_is_refused_with_both_versions() {
        let error = with_plugin("newer", &[("VERSION", "2")], "SINGLE");
        assert!(
            error.contains("interface version 2 of ") && error.contains("needs 1 of "),
            "{error}"
        );
        assert!(error.contains("scripts/build-mpi-plugin"), "{error}");
        let error = with_plugin("short", &[("LENGTH", "16")], "SINGLE");
        assert!(error.contains("interface version 1 of 16 bytes"), "{error}");
        let error = with_plugin("empty", &[("TABLE", "0")], "SINGLE");
        assert!(error.contains("no table of functions"), "{error}");
        let error = with_plugin("other", &[("NAME", "somebody_elses_plugin")], "SINGLE");
        assert!(error.contains("lacks the function gasnetrun_mpi_plugin"), "{error}");
    }

    /// An MPI that does not know the launcher makes each process a job of its own.
    #[test]
    fn a_plugin_of_another_flavour_is_refused_with_what_to_do() {
        let error = with_plugin("flavour", &[("SIZE", "1")], "SINGLE");
        assert!(error.contains("OMPI_COMM_WORLD_SIZE"), "{error}");
        assert!(error.contains("another MPI than the launcher"), "{error}");
        assert!(error.contains("GASNET_IBV_MPI_PLUGIN"), "{error}");
        let error = with_plugin("level", &[], "MULTIPLE");
        assert!(error.contains("some MPI grants thread level 0"), "{error}");
        let error = with_plugin("broken", &[], "SINGLE");
        assert!(error.contains("broken (code 1)"), "{error}");
    }
}
