use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use super::*;

fn set(variables: &[(&str, &str)]) -> Variables {
    variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))).collect()
}

fn call(dialect: &str) -> Call {
    Call {
        dialect: spawner_pmi::launch::dialect::named(dialect.as_ref()).expect("a row"),
        program: "/bin/x".into(),
        argv: Vec::new(),
        from: String::new(),
        template: OsString::new(),
        warnings: Vec::new(),
    }
}

#[test]
fn the_script_leaves_a_note() {
    let note = StepNote::create().expect("two files");
    assert_eq!(note.read(), None, "nobody has run it");
    let run = |job: &str, step: &str| {
        let mut script = Command::new(note.script());
        let done = script.arg("program").env("SLURM_JOB_ID", job).env("SLURM_STEP_ID", step);
        assert!(done.status().expect("it can be executed").success());
        note.read()
    };
    assert_eq!(run("12", "0"), Some(("12".to_owned(), "0".to_owned())));
    assert_eq!(run("13", "41"), Some(("13".to_owned(), "41".to_owned())), "the last step counts");
    for (job, step) in [("", ""), ("12", ""), ("12", "x"), ("1 2", "3")] {
        assert_eq!(run(job, step), None, "{job} {step}");
    }
}

#[test]
fn the_job_is_that_of_the_note_or_of_the_environment() {
    let array = [("SLURM_ARRAY_JOB_ID", "5"), ("SLURM_ARRAY_TASK_ID", "2")];
    let batch = set(&[&[("SLURM_JOB_ID", "7")], &array[..]].concat());
    let slurm = |job: &str, step: Option<&str>, array: bool| Slurm {
        job: job.into(),
        step: step.map(Into::into),
        array_job: array.then(|| "5".into()),
        array_task: array.then(|| "2".into()),
    };
    assert_eq!(of(&set(&[("HOME", "/")]), None, None), None);
    assert_eq!(of(&set(&[("SLURM_JOB_ID", "")]), None, None), None);
    assert_eq!(of(&batch, None, None), Some(slurm("7", None, true)));
    let step = set(&[("SLURM_JOB_ID", "7"), ("SLURM_STEP_ID", "3")]);
    assert_eq!(of(&step, None, None), Some(slurm("7", Some("3"), false)));
    assert_eq!(of(&step, Some(&call("hydra")), None), Some(slurm("7", Some("3"), false)));
    assert_eq!(of(&step, Some(&call("srun")), None), Some(slurm("7", None, false)));
    let note = StepNote::create().expect("two files");
    let write = |text: &str| std::fs::write(path(&note.note), text).expect("a note");
    write("7 4\n");
    assert_eq!(of(&batch, Some(&call("srun")), Some(&note)), Some(slurm("7", Some("4"), true)));
    write("8 0\n");
    let outside = of(&batch, Some(&call("srun")), Some(&note));
    assert_eq!(outside, Some(slurm("8", Some("0"), false)), "a job of its own");
}

/// `scontrol show config` as it is, and a variable.
struct Site(Option<&'static str>, Option<&'static str>);

impl Machine for Site {
    fn find(&self, name: &OsStr) -> Option<PathBuf> {
        self.0.map(|_| Path::new("/bin").join(name))
    }
    fn real(&self, path: &Path) -> PathBuf {
        path.to_owned()
    }
    fn ask(&self, program: &Path, words: &[&str]) -> Option<String> {
        assert_eq!((program, words), (Path::new("/bin/scontrol"), &["show", "config"][..]));
        self.0.map(str::to_owned)
    }
    fn variable(&self, name: &str) -> Option<OsString> {
        self.1.filter(|_| name == "SLURM_PROLOG").map(OsString::from)
    }
}

#[test]
fn a_prolog_of_the_site_or_of_the_user_stays() {
    let none = "SrunEpilog              = /e\nSrunPortRange           = 0-0\nSrunProlog              = (null)\n";
    let own = "SrunProlog              = /etc/slurm/prolog\n";
    assert!(may_note(&call("srun"), &Site(Some(none), None)));
    assert!(!may_note(&call("hydra"), &Site(Some(none), None)));
    assert!(!may_note(&call("srun"), &Site(Some(none), Some("/mine"))));
    assert!(!may_note(&call("srun"), &Site(Some(own), None)));
    assert!(!may_note(&call("srun"), &Site(Some("slurm_load_ctl_conf error"), None)));
    assert!(!may_note(&call("srun"), &Site(None, None)));
}
