//! From what the user wants to the words of another launcher's call.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::launch::dialect::{self, Dialect, Passing, Words, fill};
use crate::launch::template::{Template, TemplateError, Values};

/// Why a job cannot be started through another launcher.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum PlanError {
    /// The template.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// No template and nothing to make one for.
    #[error(
        "the {spawner} spawner found no launcher: looked for {looked} in PATH; install one, load its module, or set \
         {variable} to how it is called, for example {variable}={example:?}. -spawner=ssh needs none"
    )]
    NoLauncher {
        spawner: &'static str,
        looked: String,
        variable: &'static str,
        example: &'static str,
    },
    /// The template's program is not there.
    #[error(
        "{from} calls {program:?}, which is not an executable file in PATH; load its module, or write its full path"
    )]
    Missing { from: String, program: String },
    /// A dialect that is not in the table.
    #[error("GASNET_IBV_DIALECT={seen:?} is none of {known}")]
    Dialect { seen: String, known: String },
    /// An option that the launcher has no words for.
    #[error(
        "{option} is not possible through {title}: {why}. Leave it out, put the launcher's own words into {from}, or use \
         -spawner=ssh{dialect}"
    )]
    Unsupported {
        option: String,
        title: &'static str,
        why: &'static str,
        from: String,
        dialect: &'static str,
    },
}

/// What is looked at on the machine; tests put something else in its place.
pub trait Machine {
    /// The executable file that a name or path means.
    fn find(&self, name: &OsStr) -> Option<PathBuf>;
    /// The file behind symbolic links.
    fn real(&self, path: &Path) -> PathBuf;
    /// What the program prints on both streams when it is called with these words; `None` when it
    /// cannot be started or does not end in time.
    fn ask(&self, program: &Path, words: &[&str]) -> Option<String>;
    /// A variable of the launcher, when it is set to something.
    fn variable(&self, name: &str) -> Option<OsString>;
}

/// A spawner as far as its launchers go.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// Name of the spawner.
    pub spawner: &'static str,
    /// Variables with templates; the first that is set counts.
    pub variables: &'static [&'static str],
    /// Without one: a launcher and its template. The first is taken whose sign is set and whose
    /// program is there, else the first without signs whose program is there, else the first that
    /// is there.
    pub defaults: &'static [Default],
}

/// A launcher that is used when no variable names one.
#[derive(Clone, Copy, Debug)]
pub struct Default {
    /// Variables of which one says that this one is in charge here.
    pub signs: &'static [&'static str],
    /// Its program.
    pub program: &'static str,
    /// Its template; `{mpi}` is the option that makes Slurm speak PMI, `{wait}` is
    /// [`Wanted::wait`].
    pub template: &'static str,
}

/// Launchers for PMI: batch systems first, then what starts processes by itself.
pub const PMI: Family = Family {
    spawner: "pmi",
    variables: &["PMIRUN_CMD", "MPIRUN_CMD"],
    defaults: &[
        Default {
            signs: &["SLURM_JOB_ID", "SLURM_JOBID"],
            program: "srun",
            // A bad exit does not end the step: the ranks agree on a code themselves. What is left
            // is ended after a while.
            template: "srun -K0 -W{wait} {mpi} %V -n %N %C",
        },
        Default { signs: &["FLUX_URI"], program: "flux", template: "flux run %V -n %N %C" },
        Default {
            signs: &["PALS_APID", "PBS_JOBID"],
            program: "aprun",
            template: "aprun -n %N %C",
        },
        Default { signs: &["LSB_JOBID"], program: "jsrun", template: "jsrun -p %N %C" },
        Default { signs: &[], program: "mpiexec.hydra", template: "mpiexec.hydra %V -n %N %C" },
        Default { signs: &[], program: "mpiexec", template: "mpiexec %V -n %N %C" },
        Default { signs: &[], program: "prterun", template: "prterun %V -n %N %C" },
        Default { signs: &[], program: "mpirun", template: "mpirun %V -np %N %C" },
    ],
};

/// What a job needs of another launcher.
#[derive(Clone, Debug)]
pub struct Wanted<'a> {
    /// Ranks.
    pub ranks: u32,
    /// `-N`.
    pub hosts: Option<u32>,
    /// `--hosts` and `--hostfile`: names, and slots where they were said.
    pub host_list: &'a [(String, Option<u32>)],
    /// `--ranks-per-host`.
    pub ranks_per_host: Option<u32>,
    /// Whether ranks are dealt to hosts in turn.
    pub cyclic: bool,
    /// `-c`.
    pub cpus: Option<u32>,
    /// `--bind-to`: core, socket, NUMA node, as the index of the dialect's words, and its name.
    pub bind_to: Option<(usize, &'static str)>,
    /// `--oversubscribe`.
    pub oversubscribe: bool,
    /// `--report-bindings`.
    pub report_bindings: bool,
    /// Who gets standard input, when that is not rank 0: `all`, `none` or a rank.
    pub stdin: Option<String>,
    /// `--tag-output`.
    pub label: bool,
    /// Seconds from the end of one rank until those that are left are ended, where the launcher can
    /// do that.
    pub wait: u64,
    /// `-v`.
    pub verbose: bool,
    /// Program, or the wrapper in front of it.
    pub program: &'a OsStr,
    /// Its arguments.
    pub arguments: &'a [OsString],
    /// The programs of a job with several, the first among them; else empty.
    pub parts: &'a [Part],
    /// Variables that must reach the ranks, sorted by name.
    pub environment: &'a [(OsString, OsString)],
    /// Those of them whose values no command line may have, because other users can read it.
    pub secrets: &'a [&'a str],
    /// File with hosts, for `%H`.
    pub host_file: Option<PathBuf>,
    /// Script to run before the ranks, where the launcher can do that.
    pub before: Option<PathBuf>,
    /// Working directory.
    pub directory: &'a Path,
}

/// One of several programs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Ranks.
    pub ranks: u32,
    /// Program and arguments.
    pub argv: Vec<OsString>,
    /// Variables of its own.
    pub environment: Vec<(OsString, OsString)>,
    /// Working directory of its own.
    pub directory: Option<OsString>,
}

/// A variable as `env` takes it.
fn assignment((name, value): &(OsString, OsString)) -> OsString {
    [name.as_os_str(), value].join(OsStr::new("="))
}

impl Part {
    /// Its words: what is its own is set by `env`, which all launchers pass on.
    fn words(&self) -> Vec<OsString> {
        let mut words = Vec::new();
        if self.directory.is_some() || !self.environment.is_empty() {
            words.push("env".into());
        }
        if let Some(directory) = &self.directory {
            words.extend(["-C".into(), directory.clone()]);
        }
        words.extend(self.environment.iter().map(assignment));
        words.extend(self.argv.iter().cloned());
        words
    }
}

/// The call of a launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Its language.
    pub dialect: &'static Dialect,
    /// Executable file.
    pub program: PathBuf,
    /// Words, with word 0.
    pub argv: Vec<OsString>,
    /// Where the template came from: a variable, or `the default`.
    pub from: String,
    /// The template.
    pub template: OsString,
    /// Things to tell the user.
    pub warnings: Vec<String>,
}

/// Makes the call of `family`'s launcher for what is `wanted`.
///
/// # Errors
/// [`PlanError`]: nothing was started, but `machine` may have been asked.
pub fn plan(
    family: &Family,
    wanted: &Wanted<'_>,
    machine: &dyn Machine,
) -> Result<Call, PlanError> {
    let (from, text) = template(family, wanted, machine)?;
    let unchecked = machine.variable(&format!("{from}_OK")).is_some();
    let template = Template::parse(&from, &text, unchecked)?;
    let name = template.launcher();
    let missing =
        || PlanError::Missing { from: from.clone(), program: name.to_string_lossy().into_owned() };
    let program = machine.find(&name).ok_or_else(missing)?;
    let dialect = dialect_of(&program, machine)?;
    let mut warnings = Vec::new();
    let mut layout = layout(dialect, wanted, &from, &mut warnings)?;
    if let (Some((words, option)), Some(script)) = (dialect.before, &wanted.before)
        && !template.has_option(option)
    {
        layout.extend(fill(words, &[("s", &script.display().to_string())]));
    }
    let first = wanted.parts.first();
    let words = first.map(Part::words);
    let (program_word, arguments) = match words.as_deref().and_then(<[_]>::split_first) {
        Some((program, arguments)) => (program.clone(), arguments.to_vec()),
        None => (wanted.program.to_owned(), wanted.arguments.to_vec()),
    };
    let values = Values {
        ranks: first.map_or(wanted.ranks, |part| part.ranks),
        hosts: wanted.hosts,
        layout,
        environment: environment(dialect, wanted, &template, machine),
        program: program_word,
        arguments,
        verbose: if wanted.verbose { fill(dialect.verbose, &[]) } else { Vec::new() },
        host_file: wanted.host_file.as_ref().map(|file| file.clone().into()),
        directory: wanted.directory.into(),
    };
    let mut argv = template.expand(&values)?;
    argv.extend(further(dialect, wanted, &template, &values.environment, &from)?);
    // Behind `env A=B` it is env that is called.
    let first = argv.first().cloned().unwrap_or_default();
    let program = if first == name { program } else { machine.find(&first).ok_or_else(missing)? };
    Ok(Call { dialect, program, argv, from, template: text, warnings })
}

/// The template, and where it came from.
fn template(
    family: &Family,
    wanted: &Wanted<'_>,
    machine: &dyn Machine,
) -> Result<(String, OsString), PlanError> {
    for name in family.variables {
        if let Some(text) = machine.variable(name) {
            return Ok(((*name).to_owned(), text));
        }
    }
    let there = |row: &&Default| machine.find(OsStr::new(row.program)).is_some();
    let in_charge = |row: &&Default| row.signs.iter().any(|sign| machine.variable(sign).is_some());
    let rows = || family.defaults.iter();
    // Outside of its allocations a batch system's launcher would wait for one, or has no server to
    // ask.
    let own = |row: &&Default| row.signs.is_empty() && there(row);
    let row = rows().find(|row| in_charge(row) && there(row));
    let row = row.or_else(|| rows().find(own)).or_else(|| rows().find(there));
    let Some(row) = row else {
        let looked = rows().map(|row| row.program).collect::<Vec<_>>().join(", ");
        let variable = family.variables.first().copied().unwrap_or_default();
        let example = "mpiexec -n %N %C";
        return Err(PlanError::NoLauncher { spawner: family.spawner, looked, variable, example });
    };
    let mpi = if row.template.contains("{mpi}") { pmi_of_slurm(machine) } else { "" };
    let text = row.template.replace("{mpi}", mpi).replace("{wait}", &wanted.wait.to_string());
    Ok(("the default".to_owned(), text.into()))
}

/// The option with which this Slurm speaks a PMI that needs no library.
fn pmi_of_slurm(machine: &dyn Machine) -> &'static str {
    let srun = machine.find(OsStr::new("srun"));
    let said = srun.and_then(|srun| machine.ask(&srun, &["--mpi=list"])).unwrap_or_default();
    let has = |kind: &str| said.split_whitespace().any(|word| word == kind);
    match (has("pmi2"), has("pmix")) {
        (false, true) => "--mpi=pmix",
        _ => "--mpi=pmi2",
    }
}

fn dialect_of(program: &Path, machine: &dyn Machine) -> Result<&'static Dialect, PlanError> {
    if let Some(name) = machine.variable("GASNET_IBV_DIALECT") {
        return dialect::named(&name).ok_or_else(|| PlanError::Dialect {
            seen: name.to_string_lossy().into_owned(),
            known: dialect::names(),
        });
    }
    let by_name =
        dialect::of_program(program).or_else(|| dialect::of_program(&machine.real(program)));
    if let Some(row) = by_name {
        return Ok(row);
    }
    // A launcher that knows --version must not start anything for it; a site's wrapper may only
    // know -h.
    let asked = |words: &[&str]| machine.ask(program, words).map(|text| dialect::of_text(&text));
    let known = |row: &&Dialect| row.name != "unknown";
    let row = asked(&["--version"]).filter(known).or_else(|| asked(&["-h"]));
    Ok(row.unwrap_or_else(|| dialect::of_text("")))
}

/// The words for all programs but the first.
fn further(
    dialect: &'static Dialect,
    wanted: &Wanted<'_>,
    template: &Template,
    environment: &[OsString],
    from: &str,
) -> Result<Vec<OsString>, PlanError> {
    let Some((_, rest)) = wanted.parts.split_first() else { return Ok(Vec::new()) };
    let speaker = Speaker { dialect, wanted, from };
    if !dialect.colons {
        let why = "it takes one program, or names them in a file of its own";
        return Err(speaker.refuse("a job of several programs", why));
    }
    if !template.ends_with_command() {
        let why = "further programs stand behind %C, which must be the last word of the template";
        return Err(speaker.refuse("a job of several programs", why));
    }
    let words = |part: &Part| {
        let count = [":".into(), "-n".into(), part.ranks.to_string().into()];
        count.into_iter().chain(environment.iter().cloned()).chain(part.words()).collect::<Vec<_>>()
    };
    Ok(rest.iter().flat_map(words).collect())
}

/// Words in front of the program that carry the environment.
fn environment(
    dialect: &Dialect,
    wanted: &Wanted<'_>,
    template: &Template,
    machine: &dyn Machine,
) -> Vec<OsString> {
    let names = || wanted.environment.iter().map(|(name, _)| name.clone());
    match dialect.passing {
        _ if wanted.environment.is_empty() => Vec::new(),
        Passing::Forwards => Vec::new(),
        Passing::Option(option, _) if template.has_option(option) => Vec::new(),
        Passing::Option(option, value) => vec![format!("{option}{value}").into()],
        Passing::Each(option) => names().flat_map(|name| [option.into(), name]).collect(),
        Passing::List(option) => {
            let list = names().collect::<Vec<_>>().join(OsStr::new(","));
            vec![option.into(), list]
        }
        Passing::Command => {
            let command = machine.variable("GASNET_ENVCMD").unwrap_or_else(|| "env".into());
            let open = |(name, _): &&(OsString, OsString)| {
                !wanted.secrets.iter().any(|secret| name == *secret)
            };
            let assignments = wanted.environment.iter().filter(open).map(assignment);
            [command].into_iter().chain(assignments).collect()
        }
    }
}

/// What the user wants, in the words of one launcher.
struct Speaker<'a> {
    dialect: &'static Dialect,
    wanted: &'a Wanted<'a>,
    /// Where the template came from.
    from: &'a str,
}

/// Words for hosts, layout, binding, input and labels.
fn layout(
    dialect: &'static Dialect,
    wanted: &Wanted<'_>,
    from: &str,
    warnings: &mut Vec<String>,
) -> Result<Vec<OsString>, PlanError> {
    let speaker = Speaker { dialect, wanted, from };
    let mut words = speaker.placement(warnings)?;
    words.extend(speaker.hosts()?);
    words.extend(speaker.binding()?);
    words.extend(speaker.sharing()?);
    words.extend(speaker.input()?);
    words.extend(speaker.label()?);
    Ok(words)
}

impl Speaker<'_> {
    fn refuse(&self, option: impl Into<String>, why: &'static str) -> PlanError {
        let from = if self.from == "the default" { "PMIRUN_CMD or MPIRUN_CMD" } else { self.from };
        PlanError::Unsupported {
            option: option.into(),
            title: self.dialect.title,
            why,
            from: from.to_owned(),
            dialect: match self.dialect.name {
                "unknown" => "; GASNET_IBV_DIALECT names a launcher that it behaves as",
                _ => "",
            },
        }
    }

    /// Words with their values; refused where the launcher has none.
    fn say(
        &self,
        words: Option<Words>,
        values: &[(&str, &str)],
        option: &str,
        why: &'static str,
    ) -> Result<Vec<OsString>, PlanError> {
        words.map(|words| fill(words, values)).ok_or_else(|| self.refuse(option, why))
    }

    /// The words for layout and binding at once, with the cpus that they are for.
    fn joint(&self) -> Option<(Words, u32)> {
        let cpus = self.wanted.cpus.filter(|cpus| *cpus > 0)?;
        let words = match (self.wanted.cyclic, self.wanted.hosts) {
            (true, _) => self.dialect.cyclic_and_bound,
            (false, Some(_)) => self.dialect.layout_and_bound,
            (false, None) if self.wanted.ranks_per_host.is_some() => self.dialect.layout_and_bound,
            (false, None) => None,
        };
        Some((words?, cpus))
    }

    fn placement(&self, warnings: &mut Vec<String>) -> Result<Vec<OsString>, PlanError> {
        let joint = self.joint();
        let cpus = joint.map_or(0, |(_, cpus)| cpus).to_string();
        let joint = joint.map(|(words, _)| words);
        if self.wanted.cyclic {
            let words = joint.or(self.dialect.cyclic);
            return self.say(words, &[("c", &cpus)], "--map cyclic", "it has no words for that");
        }
        let per_host = self.wanted.ranks_per_host;
        let needed = per_host.map(|each| self.wanted.ranks.div_ceil(each.max(1)));
        let Some(hosts) = self.wanted.hosts.or(needed) else { return Ok(Vec::new()) };
        if let Some(each) = per_host {
            let words = joint.or(self.dialect.layout);
            let [h, k] = [hosts, each].map(|number| number.to_string());
            let (option, values) =
                (format!("--ranks-per-host {each}"), [("h", &*h), ("k", &*k), ("c", &*cpus)]);
            return self.say(words, &values, &option, "it has no words for that");
        }
        let Some(words) = joint.or(self.dialect.layout) else {
            warnings.push(format!(
                "-N {hosts}: no words for it are known for {}; the layout is the launcher's own",
                self.dialect.title
            ));
            return Ok(Vec::new());
        };
        let each = self.wanted.ranks.div_ceil(hosts.max(1));
        let [hosts, each] = [hosts, each].map(|number| number.to_string());
        Ok(fill(words, &[("h", &hosts), ("k", &each), ("c", &cpus)]))
    }

    fn hosts(&self) -> Result<Vec<OsString>, PlanError> {
        if self.wanted.host_list.is_empty() {
            return Ok(Vec::new());
        }
        let host = |(name, slots): &(String, Option<u32>)| match slots {
            Some(slots) if self.dialect.slots => format!("{name}:{slots}"),
            _ => name.clone(),
        };
        let list: Vec<_> = self.wanted.host_list.iter().map(host).collect();
        let (words, why) = (self.dialect.hosts, "it takes no list of hosts");
        self.say(words, &[("l", &list.join(","))], "a list of hosts", why)
    }

    fn binding(&self) -> Result<Vec<OsString>, PlanError> {
        match self.wanted.cpus {
            None => self.wanted.bind_to.map_or(Ok(Vec::new()), |(at, option)| {
                let words = self.dialect.bound_to.and_then(|words| words.get(at).copied());
                self.say(words, &[], option, "it has no words for that")
            }),
            Some(0) => Ok(fill(self.dialect.unbound, &[])),
            Some(_) if self.joint().is_some() => Ok(Vec::new()),
            Some(cpus) => {
                let why = "it has no words for cpus per rank";
                let values = [("c", &*cpus.to_string())];
                self.say(self.dialect.bound, &values, &format!("-c {cpus}"), why)
            }
        }
    }

    fn sharing(&self) -> Result<Vec<OsString>, PlanError> {
        let mut words = Vec::new();
        let rows = [
            (self.wanted.oversubscribe, self.dialect.oversubscribe, "--oversubscribe"),
            (self.wanted.report_bindings, self.dialect.report, "--report-bindings"),
        ];
        for (_, said, option) in rows.into_iter().filter(|(wanted, ..)| *wanted) {
            words.extend(self.say(said, &[], option, "it has no words for that")?);
        }
        Ok(words)
    }

    fn input(&self) -> Result<Vec<OsString>, PlanError> {
        let who = self.wanted.stdin.as_deref();
        if who == Some("all") && !self.dialect.stdin_for_all {
            let why = "it gives standard input to one rank, or never ends that of others";
            return Err(self.refuse("--stdin all", why));
        }
        match (who, self.dialect.stdin) {
            (who, Some(words)) => Ok(fill(words, &[("i", who.unwrap_or("0"))])),
            // Nobody: the launcher itself gets no input.
            (None | Some("none"), None) => Ok(Vec::new()),
            (Some(who), None) => {
                Err(self.refuse(format!("--stdin {who}"), "it gives standard input to rank 0"))
            }
        }
    }

    fn label(&self) -> Result<Vec<OsString>, PlanError> {
        if !self.wanted.label {
            return Ok(Vec::new());
        }
        self.say(self.dialect.label, &[], "--tag-output", "it puts no labels on lines")
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
