//! Runs steps inside one boot of `scripts/softroce` and tells how each ended.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use testkit::{Table, Tree};

/// One command inside the machine.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) name: String,
    /// For bash. `$programs` is the directory of the workspace's binaries.
    pub(crate) command: String,
    pub(crate) code: i32,
    /// What its output must contain.
    pub(crate) texts: Vec<String>,
    /// Seconds.
    pub(crate) limit: u32,
}

/// How a step went.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: i32,
    pub(crate) ms: u64,
    /// Processes that it left.
    pub(crate) left: u32,
    pub(crate) output: String,
}

/// A step that must return 0.
pub(crate) fn step(name: &str, limit: u32, command: &str) -> Step {
    let (name, command) = (name.to_owned(), command.to_owned());
    Step { name, command, code: 0, texts: Vec::new(), limit }
}

impl Step {
    /// Expects another exit code.
    pub(crate) fn code(mut self, code: i32) -> Self {
        self.code = code;
        self
    }

    /// Expects a text in the output.
    pub(crate) fn shows(mut self, text: &str) -> Self {
        self.texts.push(text.to_owned());
        self
    }

    fn fault(&self, done: &Done) -> Option<String> {
        let missing = self.texts.iter().find(|text| !done.output.contains(text.as_str()));
        match done {
            Done { code: 124, .. } => Some(format!("still there after {} s", self.limit)),
            Done { code, .. } if *code != self.code => {
                Some(format!("ended with {code}, expected {}", self.code))
            }
            Done { left, .. } if *left > 0 => Some(format!("{left} survivors")),
            _ => missing.map(|text| format!("its output has no {text:?}")),
        }
    }
}

/// Before the steps: how a step is run, measured and told. What is left when a step returns is
/// counted before it is killed.
const HEAD: &str = r##"
alive() { ps -e -o pid=,ppid=,comm= >/tmp/ps; awk '$1 != 2 && $2 != 2 && $3 != "ps" { print $1 }' /tmp/ps | sort; }
step() { # step NUMBER LIMIT COMMAND
    alive >/tmp/before
    begin=${EPOCHREALTIME/./}
    timeout -k 2 "$2" bash -c "$3" >/tmp/output 2>&1 </dev/null
    code=$?
    end=${EPOCHREALTIME/./}
    alive >/tmp/after
    left=$(comm -13 /tmp/before /tmp/after)
    printf '@step %s %s %s %s\n' "$1" "$code" $(((end - begin) / 1000)) "$(wc -w <<<"$left")"
    [ -z "$left" ] || ps -o pid=,stat=,args= -p $(paste -sd, <<<"$left")
    cat /tmp/output
    printf '\n@end\n'
    [ -z "$left" ] || kill -9 $left
}
"##;

pub(crate) fn script() -> PathBuf {
    testkit::repository().join("scripts/softroce")
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Whether machines can be started here; says SKIP otherwise.
pub(crate) fn ready(test: &str) -> bool {
    let limit = Duration::from_secs(300);
    let outcome = Tree::new(script()).arg("--prepare").deadline("kernel of Soft-RoCE", limit).run();
    if outcome.code() == 77 {
        testkit::skip(test, outcome.err().trim().lines().last().unwrap_or_default());
        return false;
    }
    outcome.expect(0);
    true
}

/// Runs all steps in one boot with these options of `scripts/softroce`; shows a table of them.
///
/// # Panics
/// When the machine fails, or a step is not as expected; after all steps, with the outputs of those
/// that failed.
pub(crate) fn run(title: &str, options: &[&str], steps: &[Step]) -> Vec<Done> {
    let programs = testkit::binary("gasnetrun_ibv");
    let programs = programs.parent().expect("a binary is in a directory").to_owned();
    let mut text = format!("export programs={}\n{HEAD}", quoted(&programs.display().to_string()));
    for (number, step) in steps.iter().enumerate() {
        let _ = writeln!(text, "step {number} {} {}", step.limit, quoted(&step.command));
    }
    text.push_str("echo @finished\n");
    let limit = 120 + steps.iter().map(|step| u64::from(step.limit)).sum::<u64>();
    let outcome = Tree::new(script())
        .args(["--limit", &limit.to_string(), "--see"])
        .arg(&programs)
        .args(options)
        .args(["--", "bash", "-c", &text])
        .deadline("run of Soft-RoCE", Duration::from_secs(limit + 30))
        .run();
    let out = outcome.out();
    let finished = outcome.fault(0).is_none() && out.contains("@finished");
    assert!(finished, "{title}: {:?}\n{out}\n{}", outcome.fault(0), outcome.err());
    let found: Vec<Done> = steps.iter().enumerate().map(|(number, _)| done(&out, number)).collect();

    let seconds = outcome.ms() / 1000;
    let title = format!("{title} ({seconds} s with boot; ! = wrong)");
    let mut table = Table::new(&title, &["step", "code", "ms", "survivors"]);
    let mut faults = String::new();
    for (step, done) in steps.iter().zip(&found) {
        let fault = step.fault(done);
        let mark = if fault.is_some() { " !" } else { "" };
        let (code, ms, left) = (done.code, done.ms.to_string(), done.left.to_string());
        table.row(vec![step.name.clone(), format!("{code}{mark}"), ms, left]);
        if let Some(fault) = fault {
            let _ = writeln!(faults, "{}: {fault}\n{}", step.name, done.output);
        }
    }
    table.show();
    assert!(faults.is_empty(), "{faults}");
    found
}

/// What the machine told about a step.
fn done(out: &str, number: usize) -> Done {
    let mark = format!("@step {number} ");
    let (_, rest) = out.split_once(&mark).unwrap_or_else(|| panic!("no step {number} in\n{out}"));
    let (numbers, rest) = rest.split_once('\n').unwrap_or_default();
    let (output, _) = rest.split_once("\n@end").unwrap_or((rest, ""));
    let mut numbers = numbers.split(' ').map(|number| number.parse().unwrap_or(-1));
    let mut next = || numbers.next().unwrap_or(-1_i64);
    Done {
        code: i32::try_from(next()).unwrap_or(-1),
        ms: next().unsigned_abs(),
        left: u32::try_from(next()).unwrap_or(u32::MAX),
        output: output.to_owned(),
    }
}
