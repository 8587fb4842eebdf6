use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use super::*;
use crate::command_line;

/// Programs and variables.
#[derive(Default)]
struct Fake(Vec<&'static str>, HashMap<&'static str, &'static str>);

impl Machine for Fake {
    fn find(&self, name: &OsStr) -> Option<PathBuf> {
        self.0.iter().any(|program| name == *program).then(|| Path::new("/bin").join(name))
    }
    fn real(&self, path: &Path) -> PathBuf {
        path.to_owned()
    }
    fn ask(&self, _: &Path, _: &[&str]) -> Option<String> {
        None
    }
    fn variable(&self, name: &str) -> Option<OsString> {
        self.1.get(name).map(OsString::from)
    }
}

fn flags(words: &[&str]) -> Flags {
    let words = ["-n", "4"].iter().chain(words).chain(&["prog"]).map(OsString::from);
    command_line::parse(words).expect("a command line").flags
}

fn made(words: &[&str], machine: &Fake) -> Result<String, String> {
    let plan = JobPlan {
        conduit_program: true,
        env_for_hosts: vec![("GASNET_A".into(), "1".into())],
        host: "here".to_owned(),
        directory: "/d".into(),
        exit_bound: Duration::from_secs(3),
        ..JobPlan::new(4, "/bin/prog".into(), vec!["prog".into(), "a b".into()])
    };
    match call(&plan, &flags(words), Spawner::Pmi, None, machine) {
        Ok(call) => Ok(call.argv.join(OsStr::new("|")).into_string().expect("text")),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn our_options_become_words() {
    let hydra = Fake(vec!["mpiexec.hydra"], HashMap::new());
    for (words, line) in [
        (&[][..], "mpiexec.hydra|-n|4|/bin/prog|a b"),
        (&["-N", "2", "-c", "0"], "mpiexec.hydra|-n|4|-ppn|2|-bind-to|none|/bin/prog|a b"),
        (&["-N", "9"], "mpiexec.hydra|-n|4|-ppn|1|/bin/prog|a b"),
        (
            &["--hosts", "n[1-2],n1", "--tag-output"],
            "mpiexec.hydra|-n|4|-hosts|n1,n2|-prepend-rank|/bin/prog|a b",
        ),
        (&["--stdin", "none"], "mpiexec.hydra|-n|4|/bin/prog|a b"),
        (&["--ranks-per-host", "3"], "mpiexec.hydra|-n|4|-ppn|3|/bin/prog|a b"),
        (&["--bind-to", "socket"], "mpiexec.hydra|-n|4|-bind-to|socket|/bin/prog|a b"),
        (&["--bind-to", "none"], "mpiexec.hydra|-n|4|-bind-to|none|/bin/prog|a b"),
    ] {
        assert_eq!(made(words, &hydra).as_deref(), Ok(line), "{words:?}");
    }
    let srun = Fake(vec!["srun"], [("SLURM_JOB_ID", "1")].into());
    let head = "srun|-K0|-W8|--mpi=pmi2|-n|4";
    for (words, line) in [
        (&["--stdin", "3"][..], "--input=3|--export=ALL|/bin/prog|a b"),
        (&["--map", "cyclic"], "-mcyclic|--input=0|--export=ALL|/bin/prog|a b"),
    ] {
        assert_eq!(made(words, &srun), Ok(format!("{head}|{line}")), "{words:?}");
    }
}

#[test]
fn several_programs_are_told_apart_by_colons() {
    let program = |first, name: &str, own: bool| Program {
        first,
        file: name.into(),
        argv: vec![name.into(), "x".into()],
        env: if own { vec![("A".into(), "1".into())] } else { Vec::new() },
        directory: own.then(|| "/d".into()),
        ..Program::default()
    };
    let plan = JobPlan {
        programs: vec![program(0, "/bin/a", false), program(3, "/bin/b", true)],
        env_for_hosts: vec![("GASNET_A".into(), "1".into())],
        ..JobPlan::new(4, "/bin/a".into(), vec!["a".into()])
    };
    let made = |machine: &Fake| {
        let call = call(&plan, &flags(&["-N", "2"]), Spawner::Pmi, None, machine);
        call.map(|call| call.argv.join(OsStr::new("|")).into_string().expect("text"))
            .map_err(|error| error.to_string())
    };
    let hydra = Fake(vec!["mpiexec.hydra"], HashMap::new());
    let line = "mpiexec.hydra|-n|3|-ppn|2|/bin/a|x|:|-n|1|env|-C|/d|A=1|/bin/b|x";
    assert_eq!(made(&hydra).as_deref(), Ok(line));
    let named = |template| Fake(vec!["orterun", "srun"], [("PMIRUN_CMD", template)].into());
    let line = "orterun|-np|3|-map-by|ppr:2:node|--stdin|0|-x|GASNET_A|/bin/a|x|:|-n|1|-x|GASNET_A|env|-C|/d|A=1|/bin/b|x";
    assert_eq!(made(&named("orterun -np %N %C")).as_deref(), Ok(line));
    for (template, why) in [
        ("srun -n %N %C", "it takes one program"),
        ("orterun -np %N sh -c 'exec %C'", "%C, which must be the last word"),
    ] {
        let error = made(&named(template)).expect_err(template);
        assert!(error.contains("several programs") && error.contains(why), "{error}");
    }
}

#[test]
fn what_only_our_agents_can_do_is_refused() {
    let hydra = Fake(vec!["mpiexec.hydra"], HashMap::new());
    for (words, option) in [
        (&["--output-dir", "/tmp/x"][..], "--output-dir"),
        (&["--start-timeout", "3"], "--start-timeout"),
        (&["--stage", "always"], "--stage"),
        (&["--map", "/tmp/file"], "--map FILE"),
        (&["--map", "slots"], "--map slots"),
        (&["--place", "socket"], "--place"),
        (&["--no-oversubscribe"], "--no-oversubscribe"),
        (&["--oversubscribe"], "--oversubscribe"),
        (&["--report-bindings"], "--report-bindings"),
        (&["--stdin", "2"], "--stdin 2"),
    ] {
        let error = made(words, &hydra).expect_err(option);
        assert!(error.contains(option) && error.contains("-spawner=ssh"), "{error}");
    }
    let error = made(&["--hosts", "n[1"], &hydra).expect_err("a bracket");
    assert!(error.starts_with("--hosts, line 1"), "{error}");
    let error = made(&["--hostfile", "/no/such/file"], &hydra).expect_err("no file");
    assert!(error.contains("/no/such/file"), "{error}");
    let error = made(&["--hosts", ""], &hydra).expect_err("no host");
    assert!(error.starts_with("--hosts"), "{error}");
}

/// What our own agents would not take, another launcher does not get either.
#[test]
fn lists_of_hosts_are_read_as_for_our_own_agents() {
    let hydra = Fake(vec!["mpiexec.hydra"], HashMap::new());
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("hosts");
    let path = file.to_str().expect("text").to_owned();
    let both = |bytes: &[u8]| {
        std::fs::write(&file, bytes).expect("a file");
        let all = hosts::all(None, Some(&file), "here", |_| None);
        let names = |all: Option<List>| {
            all.unwrap_or_default()
                .hosts
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(",")
        };
        let ours = all.map(names).map_err(|error| error.to_string());
        let call = made(&["--hostfile", &path], &hydra);
        let theirs = call.map(|line| line.split('|').nth(4).unwrap_or_default().to_owned());
        assert_eq!(ours, theirs, "{bytes:?}");
        ours
    };
    assert_eq!(both(b"n1\n# n9\nn2\nn1\n"), Ok("n1,n2".to_owned()));
    for bytes in [&b"n1\nn\xff2\n"[..], b"\xc3 n1\n", b"", b"n[1\n"] {
        both(bytes).expect_err("a mistake");
    }
}

#[test]
fn an_allocation_with_other_hosts_is_used_through_its_launcher() {
    let slurm = |more: &[(&'static str, &'static str)]| {
        let base =
            [("SLURM_JOB_ID", "7"), ("SLURM_JOB_NUM_NODES", "2"), ("SLURM_JOB_NODELIST", "n[1-2]")];
        Fake(vec!["srun"], base.into_iter().chain(more.iter().copied()).collect())
    };
    let owns = |words: &[&str], machine: &Fake| owns_the_hosts(&flags(words), "n1", machine);
    assert!(owns(&[], &slurm(&[])));
    assert!(!owns(&["--hosts", "n1"], &slurm(&[])));
    assert!(!owns(&["--hostfile", "f"], &slurm(&[])));
    assert!(!owns(&["--map", "f"], &slurm(&[])));
    assert!(!owns(&[], &slurm(&[("GASNET_SSH_SERVERS", "n1 n2")])));
    assert!(!owns(&[], &Fake(vec![], slurm(&[]).1)), "without srun");
    assert!(!owns(&[], &Fake(vec!["srun"], HashMap::new())), "outside of an allocation");
    let one = [("SLURM_JOB_NUM_NODES", "1"), ("SLURM_JOB_NODELIST", "n1")];
    assert!(!owns(&[], &slurm(&one)), "the only host is this one");
    let other = [("SLURM_JOB_NUM_NODES", "1"), ("SLURM_JOB_NODELIST", "n2")];
    assert!(owns(&[], &slurm(&other)), "the only host is another one");
    let named =
        [("SLURM_JOB_NUM_NODES", "1"), ("SLURM_JOB_NODELIST", "x1"), ("SLURMD_NODENAME", "x1")];
    assert!(!owns(&[], &slurm(&named)), "Slurm has another name for this host");
}

#[test]
fn the_file_with_hosts() {
    let file = |words: &[&str], set: &[(&'static str, &'static str)]| {
        host_file(&flags(words), &Fake(vec![], set.iter().copied().collect()))
    };
    assert_eq!(file(&[], &[]), None);
    assert_eq!(file(&["--hostfile", "/f"], &[("GASNET_NODEFILE", "/g")]), Some("/f".into()));
    assert_eq!(file(&[], &[("GASNET_NODEFILE", "/g"), ("PBS_NODEFILE", "/p")]), Some("/g".into()));
    assert_eq!(file(&[], &[("PBS_NODEFILE", "/p")]), Some("/p".into()));
    assert_eq!(file(&[], &[("PE_HOSTFILE", "/p"), ("TMPDIR", "/no/such")]), None);
}

#[test]
fn batch_jobs_have_names() {
    let set = |name: &str| vec![(OsString::from(name), OsString::from("7"))];
    assert_eq!(batch_job(&set("SLURM_JOB_ID")), Some(("SLURM_JOB_ID", "7".into())));
    assert_eq!(batch_job(&set("HOME")), None);
}
