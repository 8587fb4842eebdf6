use std::collections::HashMap;

use super::*;

/// A machine with programs, what they say, and variables.
#[derive(Default)]
struct Fake {
    programs: Vec<&'static str>,
    says: HashMap<(&'static str, &'static str), &'static str>,
    links: HashMap<&'static str, &'static str>,
    variables: HashMap<String, OsString>,
}

impl Machine for Fake {
    fn find(&self, name: &OsStr) -> Option<PathBuf> {
        let name = Path::new(name).file_name()?.to_str()?.to_owned();
        self.programs.contains(&&*name).then(|| PathBuf::from(format!("/bin/{name}")))
    }
    fn real(&self, path: &Path) -> PathBuf {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        self.links.get(name).map_or_else(|| path.to_owned(), PathBuf::from)
    }
    fn ask(&self, program: &Path, words: &[&str]) -> Option<String> {
        let name = program.file_name()?.to_str()?;
        self.says.get(&(name, *words.first()?)).map(ToString::to_string)
    }
    fn variable(&self, name: &str) -> Option<OsString> {
        self.variables.get(name).cloned()
    }
}

impl Fake {
    fn with(programs: &[&'static str]) -> Self {
        let env = ("GASNET_ENVCMD".to_owned(), "env".into());
        Self {
            programs: programs.iter().copied().chain(["env"]).collect(),
            variables: [env].into(),
            ..Self::default()
        }
    }
    fn set(mut self, name: &str, value: &str) -> Self {
        self.variables.insert(name.into(), value.into());
        self
    }
    fn saying(mut self, program: &'static str, word: &'static str, text: &'static str) -> Self {
        self.says.insert((program, word), text);
        self
    }
}

/// Three variables, one with a blank, in order.
fn variables() -> Vec<(OsString, OsString)> {
    [("GASNET_A", "1"), ("GASNET_IBV_SPAWNER", "pmi"), ("USER_B", "x y")]
        .map(|(n, v)| (n.into(), v.into()))
        .to_vec()
}

fn wanted<'a>(environment: &'a [(OsString, OsString)], arguments: &'a [OsString]) -> Wanted<'a> {
    Wanted {
        ranks: 8,
        hosts: None,
        host_list: &[],
        ranks_per_host: None,
        cyclic: false,
        cpus: None,
        bind_to: None,
        oversubscribe: false,
        report_bindings: false,
        stdin: None,
        label: false,
        wait: 60,
        verbose: false,
        program: OsStr::new("/bin/prog"),
        arguments,
        parts: &[],
        environment,
        secrets: &["GASNET_SECRET"],
        host_file: None,
        before: None,
        directory: Path::new("/work"),
    }
}

fn line(call: &Call) -> String {
    let word = |word: &OsString| match word.to_str().expect("text") {
        word if word.is_empty() || word.contains(' ') => format!("'{word}'"),
        word => word.to_owned(),
    };
    call.argv.iter().map(word).collect::<Vec<_>>().join(" ")
}

/// Every row of the table: the call with nothing but variables, and the call with `-N 4 -c 2 -v`,
/// or its refusal.
#[test]
fn every_dialect_has_its_words() {
    let golden = include_str!("../../tests/dialects.txt");
    let environment = variables();
    let arguments = ["a b".into()];
    let mut seen = String::new();
    for row in dialect::DIALECTS {
        let machine = Fake::with(&["launch"])
            .set("PMIRUN_CMD", "launch %V -n %N %C")
            .set("GASNET_IBV_DIALECT", row.name);
        let plain = plan(&PMI, &wanted(&environment, &arguments), &machine).expect(row.name);
        seen += &format!("{}: {}\n", row.name, line(&plain));
        let unbound = Wanted { cpus: Some(0), ..wanted(&environment, &arguments) };
        let unbound = plan(&PMI, &unbound, &machine).expect(row.name);
        assert!(unbound.warnings.is_empty(), "-c 0 is always possible");
        seen += &format!("  -c 0: {}\n", line(&unbound));
        let all = Wanted {
            hosts: Some(4),
            cpus: Some(2),
            verbose: true,
            ..wanted(&environment, &arguments)
        };
        seen += &match plan(&PMI, &all, &machine) {
            Ok(call) => format!("  -N 4 -c 2 -v: {}\n", line(&call)),
            Err(error) => format!("  -N 4 -c 2 -v: {error}\n"),
        };
        let cyclic = Wanted { cyclic: true, ..all.clone() };
        seen += &match plan(&PMI, &cyclic, &machine) {
            Ok(call) => format!("  -N 4 --map cyclic -c 2 -v: {}\n", line(&call)),
            Err(error) => format!("  -N 4 --map cyclic -c 2 -v: {error}\n"),
        };
        let hosts = [("n1".to_owned(), Some(2)), ("n2".to_owned(), None)];
        let more = Wanted {
            host_list: &hosts,
            label: true,
            stdin: Some("all".into()),
            ..wanted(&environment, &arguments)
        };
        seen += &match plan(&PMI, &more, &machine) {
            Ok(call) => format!("  --hosts n1:2,n2 --tag-output --stdin all: {}\n", line(&call)),
            Err(error) => format!("  --hosts n1:2,n2 --tag-output --stdin all: {error}\n"),
        };
        let uneven = Wanted { hosts: Some(3), ..wanted(&environment, &arguments) };
        let uneven = plan(&PMI, &uneven, &machine).expect(row.name);
        assert_eq!(uneven.warnings.is_empty(), row.layout.is_some());
    }
    if settings::variable("GASNETRUN_UPDATE_DOCUMENTS").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/dialects.txt");
        std::fs::write(path, &seen).expect("the golden file can be written");
        return;
    }
    assert_eq!(seen, golden);
}

/// Of several equal options a launcher heeds the last one only, so what the layout and the cpus
/// want stands in one.
#[test]
fn no_option_is_given_twice() {
    let environment = variables();
    for row in dialect::DIALECTS {
        let machine = Fake::with(&["launch"])
            .set("PMIRUN_CMD", "launch -n %N %C")
            .set("GASNET_IBV_DIALECT", row.name);
        for (cyclic, hosts, cpus) in
            [(false, Some(2), Some(2)), (true, Some(2), Some(2)), (true, None, Some(0))]
        {
            let wanted = Wanted { cyclic, hosts, cpus, ..wanted(&environment, &[]) };
            let Ok(call) = plan(&PMI, &wanted, &machine) else { continue };
            let options = || call.argv.iter().filter(|word| *word != "-x" && *word != "-E");
            let options = || options().filter(|word| word.to_string_lossy().starts_with('-'));
            let all = options().count();
            let once = options().collect::<std::collections::BTreeSet<_>>().len();
            assert_eq!(all, once, "{}: {}", row.name, line(&call));
        }
    }
}

#[test]
fn a_script_runs_before_the_ranks_where_the_launcher_can_do_that() {
    let environment = variables();
    let wanted = Wanted { before: Some("/proc/1/fd/9".into()), ..wanted(&environment, &[]) };
    let call = |template: &str| {
        let machine = Fake::with(&["srun", "aprun"]).set("PMIRUN_CMD", template);
        line(&plan(&PMI, &wanted, &machine).expect(template))
    };
    assert_eq!(
        call("srun -n %N %C"),
        "srun -n 8 --input=0 --prolog=/proc/1/fd/9 --export=ALL /bin/prog"
    );
    assert_eq!(
        call("srun --prolog=/mine -n %N %C"),
        "srun --prolog=/mine -n 8 --input=0 --export=ALL /bin/prog"
    );
    assert_eq!(call("aprun -n %N %C"), "aprun -n 8 /bin/prog");
}

#[test]
fn the_launcher_is_chosen() {
    let environment = variables();
    let call =
        |machine: &Fake| plan(&PMI, &wanted(&environment, &[]), machine).map(|call| line(&call));
    let rest = "-n 8 /bin/prog";
    // In an allocation of Slurm srun, with the PMI that it has.
    let slurm = || Fake::with(&["srun", "mpiexec"]).set("SLURM_JOB_ID", "7");
    let list = "MPI plugin types are...\n\tpmix\n\tnone\n\tpmi2\n";
    assert_eq!(
        call(&slurm().saying("srun", "--mpi=list", list)).expect("srun"),
        "srun -K0 -W60 --mpi=pmi2 -n 8 --input=0 --export=ALL /bin/prog"
    );
    assert!(
        call(&slurm().saying("srun", "--mpi=list", "\tpmix\n"))
            .expect("srun")
            .contains("--mpi=pmix ")
    );
    // Its sign without its program.
    let hydra = Fake::with(&["mpiexec"]).set("SLURM_JOB_ID", "7").saying(
        "mpiexec",
        "--version",
        "HYDRA build",
    );
    assert_eq!(call(&hydra).expect("hydra"), format!("mpiexec {rest}"));
    assert_eq!(
        call(&Fake::with(&["mpiexec.hydra", "mpirun"])).expect("hydra"),
        format!("mpiexec.hydra {rest}")
    );
    // Without its sign a batch system's launcher comes last.
    assert_eq!(
        call(&Fake::with(&["srun", "mpiexec.hydra"])).expect("hydra"),
        format!("mpiexec.hydra {rest}")
    );
    assert!(call(&Fake::with(&["srun"])).expect("srun").starts_with("srun "));
    // Variables win, the first of them first.
    let both = Fake::with(&["a", "b", "srun"])
        .set("PMIRUN_CMD", "a -n %N %C")
        .set("MPIRUN_CMD", "b -n %N %C");
    assert!(call(&both).expect("a").starts_with("a "));
    assert!(
        call(&Fake::with(&["b"]).set("MPIRUN_CMD", "b -n %N %C")).expect("b").starts_with("b ")
    );
    let error = call(&Fake::with(&[])).expect_err("nothing").to_string();
    assert!(
        error.contains("mpiexec.hydra, mpiexec")
            && error.contains("PMIRUN_CMD=")
            && error.contains("-spawner=ssh"),
        "{error}"
    );
}

#[test]
fn templates_of_the_older_documents() {
    let environment = variables();
    let wanted = Wanted { verbose: true, ..wanted(&environment, &[]) };
    let call = |template: &str| {
        let machine = Fake::with(&["srun", "aprun"]).set("PMIRUN_CMD", template);
        line(&plan(&PMI, &wanted, &machine).expect(template))
    };
    assert_eq!(
        call("srun -K0 -W60 %V -mblock -n %N %C"),
        "srun -K0 -W60 -v -mblock -n 8 --input=0 --export=ALL /bin/prog"
    );
    assert_eq!(call("aprun -n %N %C"), "aprun -n 8 /bin/prog");
    // What the template says about the environment is the user's choice.
    assert!(!call("srun --export=NONE -n %N %C").contains("ALL"));
}

#[test]
fn secrets_go_with_the_environment_alone() {
    let mut environment = variables();
    environment.push(("GASNET_SECRET".into(), "s3cret".into()));
    let call = |dialect: &str| {
        let machine = Fake::with(&["mpirun"]).set("MPIRUN_CMD", "mpirun -np %N %C");
        let machine = machine.set("GASNET_IBV_DIALECT", dialect);
        line(&plan(&PMI, &wanted(&environment, &[]), &machine).expect(dialect))
    };
    let named = call("openmpi");
    assert!(named.contains("-x GASNET_SECRET") && !named.contains("s3cret"), "{named}");
    let words = call("unknown");
    assert!(words.contains("env GASNET_A=1") && !words.contains("SECRET"), "{words}");
}

#[test]
fn a_launcher_is_known_by_name_by_its_file_and_by_what_it_says() {
    let environment = variables();
    let name = |machine: Fake| {
        let machine = machine.set("MPIRUN_CMD", "mpirun -np %N %C");
        plan(&PMI, &wanted(&environment, &[]), &machine).expect("a call").dialect.name
    };
    let mut linked = Fake::with(&["mpirun"]);
    linked.links.insert("mpirun", "/usr/bin/orterun");
    assert_eq!(name(linked), "openmpi");
    assert_eq!(
        name(Fake::with(&["mpirun"]).saying("mpirun", "--version", "mpirun (Open MPI) 5.0")),
        "openmpi"
    );
    assert_eq!(name(Fake::with(&["mpirun"]).saying("mpirun", "-h", "usage: mpiexec")), "hydra");
    assert_eq!(name(Fake::with(&["mpirun"])), "unknown");
    assert_eq!(name(Fake::with(&["mpirun"]).set("GASNET_IBV_DIALECT", "jsrun")), "jsrun");
}

#[test]
fn mistakes_are_named() {
    let environment = variables();
    let call = |machine: Fake| {
        plan(&PMI, &wanted(&environment, &[]), &machine).expect_err("a mistake").to_string()
    };
    let error = call(Fake::with(&[]).set("PMIRUN_CMD", "mpirn -n %N %C"));
    assert!(error.contains("PMIRUN_CMD calls \"mpirn\""), "{error}");
    let error =
        call(Fake::with(&["x"]).set("PMIRUN_CMD", "x -n %N %C").set("GASNET_IBV_DIALECT", "mpd"));
    assert!(error.contains("\"mpd\"") && error.contains("openmpi"), "{error}");
    let error = call(Fake::with(&["x"]).set("PMIRUN_CMD", "x -n 4 %C"));
    assert!(error.contains("no %N") && error.contains("PMIRUN_CMD_OK"), "{error}");
}

#[test]
fn a_template_behind_env_is_run_through_env() {
    let environment = variables();
    let machine = Fake::with(&["mpirun"])
        .set("MPIRUN_CMD", "env A=b mpirun -np %N %C")
        .set("GASNET_IBV_DIALECT", "hydra");
    let call = plan(&PMI, &wanted(&environment, &[]), &machine).expect("a call");
    assert_eq!(call.program, Path::new("/bin/env"));
    assert_eq!(line(&call), "env A=b mpirun -np 8 /bin/prog");
}
