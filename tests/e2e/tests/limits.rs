//! Limits of the system that are too low for the ranks: told before any of them starts, with the
//! number that would do.

use std::fs;
use std::path::{Path, PathBuf};

use testkit::{Outcome, Tree, binary, skip};

const RANKS: &str = "64";

/// A job of 64 ranks that print a line, behind `script`, which ends with the call of its words.
fn limited(script: &str, wrapper: &[&str]) -> Outcome {
    let launcher = binary("gasnetrun_ibv");
    let words = [wrapper, &["sh", "-c", script, "sh"]].concat();
    let tree = Tree::new(words[0]).args(&words[1..]).arg(launcher);
    tree.args(["-n", RANKS, "/bin/echo", "ran"]).dir("/").run()
}

/// Runs the job under a low limit, which must be told as `told`, and then under the one that the
/// message names.
fn too_low(low: u64, told: &str, run: impl Fn(u64) -> Outcome) {
    let outcome = run(low);
    let err = outcome.err();
    outcome.expect(125);
    assert!(outcome.stdout.is_empty(), "a rank ran: {err}");
    assert_eq!(err.matches("the limit is").count(), 1, "{err}");
    let told = format!("the limit is {low} ({told}");
    assert!(err.contains("64 ranks need") && err.contains(&told), "{told:?} not in {err}");
    let words: Vec<&str> = err.split_ascii_whitespace().collect();
    let at = words.iter().position(|word| *word == "would").expect("what would do");
    let enough: u64 = words[at - 1].parse().expect("a number");
    let outcome = run(enough);
    outcome.expect(0);
    assert_eq!(outcome.out().lines().count(), 64, "{}", outcome.err());
    // Not much more than necessary is asked for.
    assert!(enough < low + 300, "{err}");
}

#[test]
fn descriptors_are_too_few() {
    let script = |limit| format!("ulimit -n {limit}; exec \"$@\"");
    too_low(100, "hard limit of open files", |limit| limited(&script(limit), &[]));
    // A soft limit is raised, and the ranks have it as it was.
    let outcome = limited("ulimit -Sn 50; exec \"$@\"", &[]);
    outcome.expect(0);
    assert_eq!(outcome.out().lines().count(), 64, "{}", outcome.err());
}

/// A job of one rank that runs `program`, behind a shell with these limits.
fn one(limits: &str, program: &str) -> Outcome {
    let launcher = binary("gasnetrun_ibv");
    let script = format!("{limits}; exec \"$@\"");
    let tree = Tree::new("sh").args(["-c", &script, "sh"]).arg(launcher);
    tree.args(["-n", "1", "sh", "-c", program]).dir("/").run()
}

#[test]
fn a_small_stack_is_raised_and_the_ranks_have_it_as_it_was() {
    let outcome = one("ulimit -Ss 64", "ulimit -s");
    outcome.expect(0);
    assert_eq!(outcome.out().trim(), "64", "{}", outcome.err());
    // Without the right to raise the hard limit.
    let limits = "ulimit -s 64; exec setpriv --bounding-set=-sys_resource --inh-caps=-sys_resource \"$@\"; exit 99";
    let tried = Tree::new("sh").args(["-c", limits, "sh", "true"]).run();
    if tried.code() != 0 {
        return skip("a hard limit of the stack", "needs setpriv");
    }
    let outcome = one(limits, "ulimit -s");
    outcome.expect(125);
    let err = outcome.err();
    assert!(
        err.contains("the limit is 64 KiB (hard limit of the stack")
            && err.contains("1024 would do"),
        "{err}"
    );
}

#[test]
fn output_longer_than_files_may_be_is_said_and_fails_the_job() {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("out");
    let limits = format!("ulimit -f 8; exec >{}", path.display());
    let outcome = one(&limits, "head -c 100000 /dev/zero | tr '\\0' x; trap - XFSZ; exit 0");
    let err = outcome.err();
    outcome.expect(1);
    assert!(err.contains("File too large") && err.contains("standard output"), "{err}");
    let length = fs::metadata(&path).expect("the file").len();
    assert!((1..100_000).contains(&length), "{length} bytes");
}

#[test]
fn a_user_may_have_too_few_processes() {
    // A user who has none yet. Root is free from this limit.
    let user = (40_000..).find(|user| !is_in_use(*user)).expect("a number");
    let user = user.to_string();
    let words =
        ["setpriv", "--reuid", &user, "--regid", &user, "--clear-groups", "--inh-caps=-all"];
    let launcher = binary("gasnetrun_ibv");
    let tried = Tree::new(words[0]).args(&words[1..]).args(["test", "-x"]).arg(launcher).run();
    if !nix::unistd::getuid().is_root() || tried.code() != 0 {
        return skip("processes of a user", "needs root, setpriv and binaries for everybody");
    }
    too_low(20, "limit of processes, `ulimit -u`", |limit| {
        let limit = format!("--nproc={limit}");
        limited("exec \"$@\"", &[&words[..], &["prlimit", &limit]].concat())
    });
}

fn is_in_use(user: u32) -> bool {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut statuses =
        processes.filter_map(|one| fs::read_to_string(one.path().join("status")).ok());
    let line = format!("Uid:\t{user}\t");
    statuses.any(|status| status.contains(&line))
}

/// A control group of its own that limits processes.
struct Group(PathBuf);

impl Group {
    fn new(limit: u64) -> Option<Self> {
        let name = format!("gasnetrun-test-{}-{limit}", std::process::id());
        ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"].iter().find_map(|mount| {
            let group = Self(Path::new(mount).join(&name));
            fs::create_dir(&group.0).ok()?;
            fs::write(group.0.join("pids.max"), limit.to_string()).ok()?;
            Some(group)
        })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn a_control_group_may_have_too_few_processes() {
    if Group::new(20).is_none() {
        return skip("processes of a control group", "no group can be made here");
    }
    too_low(20, "/sys/fs/cgroup/", |limit| {
        let group = Group::new(limit).expect("a control group");
        let script = format!("echo $$ >{}/cgroup.procs; exec \"$@\"", group.0.display());
        limited(&script, &[])
    });
}

/// Connections of the software adapter need more descriptors than programs have by default; those
/// are not the program's, nor is the limit another one for what it starts.
#[test]
fn the_programs_limit_on_descriptors_stays_as_it_was() {
    let script = "ulimit -Sn 256; [ $(ulimit -Hn) -gt 300 ] || exit 77; exec \"$@\"";
    let tree = Tree::new("sh").args(["-c", script, "sh"]).arg(binary("gasnetrun_ibv"));
    let tree = tree.args(["-n", "4"]).arg(binary("descriptors"));
    let outcome = testkit::apart::neighbourhoods(tree, 1).run();
    if outcome.code() == 77 {
        return skip("descriptors of connections", "the hard limit leaves no room above 256");
    }
    outcome.expect(0);
    let out = outcome.out();
    let right = |line: &&str| line.starts_with("limit 256, of ") && line.ends_with(", 0 new");
    assert_eq!(out.lines().filter(right).count(), 4, "{out}");
}
