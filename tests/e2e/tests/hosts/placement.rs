//! Ranks on several hosts are where the launcher says, with the environment and the cpus that it
//! says.

use std::path::Path;
use std::time::Duration;

use testkit::{Cluster, Outcome, binary};

/// Far above what a job on a few hosts takes on a busy machine.
const BOUND: Duration = Duration::from_secs(60);

const HOSTS: &str = "head n1 n2";

/// The launcher on the head, as an ordinary user, in a directory that all hosts share.
struct Bed {
    cluster: Cluster,
    share: String,
}

impl Bed {
    fn new(test: &str) -> Option<Self> {
        let cluster = Cluster::up(test, HOSTS)?;
        let share = cluster.directory().join("share").display().to_string();
        Some(Self { cluster, share })
    }

    /// Runs the launcher; `set` are variables of its environment, which has little else.
    fn launch(&self, set: &[&str], words: &[&str]) -> Outcome {
        let launcher = binary("gasnetrun_ibv").display().to_string();
        let home = self.cluster.directory().join("home/gx").display().to_string();
        let home = format!("HOME={home}");
        let mut line =
            vec!["env", "-i", "-C", &self.share, &home, "PATH=/usr/bin:/bin", "GASNET_QUIET=1"];
        line.extend(set);
        line.push(&launcher);
        line.extend(words);
        self.cluster.as_user("gx", "head", &line).deadline("a job on several hosts", BOUND).run()
    }

    /// Nothing of the job is left on any host.
    fn assert_clean(&self) {
        let begin = std::time::Instant::now();
        for host in HOSTS.split(' ') {
            // A login that is over takes its sshd a moment.
            while !self.cluster.processes(host).is_empty() {
                let left = self.cluster.processes(host);
                assert!(begin.elapsed() < Duration::from_secs(10), "{host}: {left:?}");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

fn sorted(outcome: &Outcome) -> Vec<String> {
    let mut lines: Vec<String> = outcome.out().lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// Says where a rank is: rank, host's index, local number and size, name of the host.
const WHERE: &str = "echo $GASNETRUN_RANK $GASNETRUN_HOST $GASNETRUN_LOCAL_RANK/$GASNETRUN_LOCAL_SIZE \
                     $(cat /proc/sys/kernel/hostname)";

#[test]
fn ranks_are_where_the_map_says() {
    let Some(bed) = Bed::new("ranks on several hosts") else { return };
    let lines = ["# ranks host", "0,4 n2", "1-2 head", "* n1"].join("\n");
    std::fs::write(Path::new(&bed.share).join("map"), lines).expect("write map");
    std::fs::write(Path::new(&bed.share).join("list"), "n2 slots=1\n\n# no\nn1\nhead\n")
        .expect("write list");
    let block = ["0 0 0/2 n1", "1 0 1/2 n1", "2 1 0/2 n2", "3 1 1/2 n2", "4 2 0/1 head"];
    let cases: [(&[&str], &[&str], [&str; 5]); 5] = [
        (&["--hosts", "n[1-2],head"], &[], block),
        (&[], &["GASNET_SSH_SERVERS=n1 n2 n1 head n2"], block),
        (
            &["-N", "2", "--map", "cyclic"],
            &["SLURM_JOB_NODELIST=n[1-2]", "GASNET_SSH_OUT_DEGREE=1"],
            ["0 0 0/3 n1", "1 1 0/2 n2", "2 0 1/3 n1", "3 1 1/2 n2", "4 0 2/3 n1"],
        ),
        (
            &["--hostfile", "list"],
            &["GASNET_SSH_OUT_DEGREE=1"],
            ["0 0 0/1 n2", "1 1 0/2 n1", "2 1 1/2 n1", "3 2 0/2 head", "4 2 1/2 head"],
        ),
        (
            &["--map", "map"],
            &[],
            ["0 0 0/2 n2", "1 1 0/2 head", "2 1 1/2 head", "3 2 0/1 n1", "4 0 1/2 n2"],
        ),
    ];
    for (options, set, expected) in cases {
        let words = |extra: &[&'static str]| {
            [&["-n", "5"][..], extra, options, &["sh", "-c", WHERE]].concat()
        };
        let outcome = bed.launch(set, &words(&[]));
        outcome.expect(0);
        assert_eq!(sorted(&outcome), expected, "{options:?} {set:?}");
        // The dry run says the same.
        let dry = bed.launch(set, &words(&["-t"]));
        dry.expect(0);
        for line in expected {
            let mut parts = line.split(' ');
            let (rank, host) =
                (parts.next().unwrap_or_default(), parts.next_back().unwrap_or_default());
            let said = format!("{:<12} host {host}, cpus not bound", format!("rank {rank}"));
            assert!(dry.out().contains(&said), "{}", dry.out());
        }
    }
    bed.assert_clean();
}

#[test]
fn other_hosts_get_the_environment_that_is_named() {
    let Some(bed) = Bed::new("environment on several hosts") else { return };
    let show = "printf '%s|' \"$GASNETRUN_RANK\" \"$NAMED\" \"$OTHER\" \"$GASNET_MINE\" \"$GASNET_SSH_SERVERS\" \"$PWD\"; echo";
    let set =
        ["NAMED=it's a \"b\" $x\\ %041", "OTHER=no", "GASNET_MINE=yes", "GASNET_SSH_SERVERS=n1 n2"];
    let outcome = bed.launch(&set, &["-n", "2", "-E", "NAMED,UNSET", "sh", "-c", show]);
    outcome.expect(0);
    let line = |rank| format!("{rank}|it's a \"b\" $x\\ %041||yes||{}|", bed.share);
    assert_eq!(sorted(&outcome), [line(0), line(1)]);
    let outcome =
        bed.launch(&set, &["-n", "1", "-E", "ALL", "sh", "-c", "echo $OTHER $GASNET_SSH_SERVERS"]);
    outcome.expect(0);
    assert_eq!(outcome.out(), "no n1 n2\n");
    bed.assert_clean();
}

#[test]
fn ranks_are_bound_on_their_own_host() {
    let Some(bed) = Bed::new("cpus on several hosts") else { return };
    let show = "echo $GASNETRUN_RANK $(sed -n 's/^Cpus_allowed_list:\\s*//p' /proc/self/status)";
    let outcome = bed.launch(&[], &["-n", "2", "-c", "1", "--hosts", "n1,n2", "sh", "-c", show]);
    outcome.expect(0);
    let lines = sorted(&outcome);
    // Each is the first rank of its host, so both get the first cpu that is allowed.
    let cpus: Vec<_> = lines.iter().filter_map(|line| line.split(' ').nth(1)).collect();
    assert_eq!(cpus.len(), 2, "{lines:?}");
    assert!(cpus[0] == cpus[1] && cpus[0].parse::<usize>().is_ok(), "{lines:?}");
    let outcome =
        bed.launch(&[], &["-n", "2", "-c", "100000", "--hosts", "n1,n2", "sh", "-c", show]);
    assert_eq!(outcome.code(), 125, "{}", outcome.err());
    assert!(outcome.err().contains("100000") && outcome.err().contains("n1"), "{}", outcome.err());
    // What to try is about cpus, not about the program.
    let err = outcome.err();
    assert!(err.contains("ask for less with -c") && !err.contains("in the same place"), "{err}");
    bed.assert_clean();
}

#[test]
fn ranks_are_bound_to_cores_and_every_host_shows_it() {
    let Some(bed) = Bed::new("bindings on several hosts") else { return };
    let show = "echo $GASNETRUN_RANK $(sed -n 's/^Cpus_allowed_list:\\s*//p' /proc/self/status)";
    let words = ["-np", "2", "-host", "n1,n2", "--bind-to", "core", "--report-bindings"];
    let outcome = bed.launch(&[], &[&words[..], &["sh", "-c", show]].concat());
    outcome.expect(0);
    let lines = sorted(&outcome);
    let cpus: Vec<_> = lines.iter().filter_map(|line| line.split(' ').nth(1)).collect();
    assert!(cpus.len() == 2 && cpus[0] == cpus[1], "{lines:?}");
    for (host, rank) in [("n1", 0), ("n2", 1)] {
        let picture = format!("host {host}, socket 0: [{rank}]");
        assert!(outcome.err().contains(&picture), "{}", outcome.err());
    }
    for (words, seen) in [
        (&["--bind-to", "core", "-c", "9999"][..], "1 rank needs 9999 cores"),
        (&["-n", "9999", "--no-oversubscribe"], "ranks, but"),
    ] {
        let all = [&["-n", "2", "--hosts", "n1,n2"][..], words, &["true"]].concat();
        let outcome = bed.launch(&[], &all);
        assert_eq!(outcome.code(), 125, "{}", outcome.err());
        assert!(outcome.err().contains(seen), "{words:?}: {}", outcome.err());
    }
    bed.assert_clean();
}

/// What no shell can take for a variable or a function is carried where it is named, and no shell
/// on other hosts complains of what `ALL` sends.
#[test]
fn unusable_names_reach_other_hosts_without_a_word() {
    let Some(bed) = Bed::new("names that no shell can use") else { return };
    let set = ["A-B.C=1", "BASH_FUNC_x%%=() { broken", "BASH_FUNC_a b%%=() { :; }", "1=2"];
    let count =
        "tr '\\0' '\\n' < /proc/$$/environ | grep -c -e '^A-B.C=1$' -e '^BASH_FUNC' -e '^1=2$'";
    let named = "A-B.C,BASH_FUNC_x%%,BASH_FUNC_a b%%,1";
    for (list, shell, seen) in [("ALL", "bash", "2\n2\n"), (named, "sh", "4\n4\n")] {
        let words = ["-n", "2", "-E", list, "--hosts", "n1,n2", shell, "-c", count];
        let outcome = bed.launch(&set, &words);
        outcome.expect(0);
        assert_eq!((outcome.out(), outcome.err()), (seen.into(), "".into()), "-E {list}");
    }
    bed.assert_clean();
}

#[test]
fn the_working_directory_is_that_of_the_hosts() {
    let Some(bed) = Bed::new("working directory on other hosts") else { return };
    let pwd = ["sh", "-c", "pwd"];
    let words = ["-n", "2", "-host", "n1,n2", "-wdir", "/proc/self", "-genv", "A", "1,2"];
    let outcome = bed.launch(&["GASNET_SSH_REMOTE_PATH=/"], &[&words[..], &pwd].concat());
    outcome.expect(0);
    assert!(outcome.out().lines().all(|line| line.starts_with("/proc/")), "{}", outcome.out());
    // Where this host has no rank, the others look for it.
    let words = ["-n", "1", "-host", "n1", "--wdir", "/not/there"];
    let outcome = bed.launch(&[], &[&words[..], &pwd].concat());
    assert_eq!(outcome.code(), 125, "{}", outcome.err());
    let err = outcome.err();
    assert!(err.contains("/not/there") && err.contains("n1") && err.contains("--wdir"), "{err}");
    bed.assert_clean();
}

#[test]
fn lists_that_cannot_be_used_start_nothing() {
    let Some(bed) = Bed::new("bad host lists") else { return };
    let cases: [(&[&str], &[&str]); 4] = [
        (&["--hosts", "n1:1,n2:1"], &["3 ranks need 3 slots", "1 too few"]),
        (&["--hosts", "n1,n2:0"], &["line 1, column 4"]),
        (&["--hosts", "n1,nowhere", "-N", "2"], &["nowhere"]),
        (&["--hosts", " "], &["names no host"]),
    ];
    for (options, parts) in cases {
        let words = [&["-n", "3"][..], options, &["sh", "-c", "echo started"]].concat();
        let outcome = bed.launch(&[], &words);
        assert_eq!(outcome.code(), 125, "{}", outcome.err());
        assert_eq!(outcome.out(), "", "{options:?}");
        for part in parts {
            assert!(outcome.err().contains(part), "{options:?}: {}", outcome.err());
        }
    }
    bed.assert_clean();
}
