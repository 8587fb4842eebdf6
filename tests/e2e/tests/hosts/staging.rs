//! Programs that only the launching host has: every host has a `/tmp` of its own, and the job's
//! program, or the launcher itself, is in that of the first one.

use testkit::{Bed, Outcome, binary};

/// Hosts whose head has `hello` and the launcher in its own `/tmp/only`.
fn bed(test: &str, hosts: &str) -> Option<Bed> {
    let bed = Bed::up(test, hosts)?;
    bed.shell("head", "mkdir -m 755 /tmp/only");
    for program in ["hello", "gasnetrun_ibv"] {
        bed.shell("head", &format!("cp {} /tmp/only/", binary(program).display()));
    }
    Some(bed)
}

/// Runs a job of one rank on each host but the head.
fn run(bed: &Bed, degree: &str, words: &[&str]) -> Outcome {
    let degree = format!("GASNET_SSH_OUT_DEGREE={degree}");
    let (ranks, hosts) = ((bed.hosts().len() - 1).to_string(), bed.hosts()[1..].join(","));
    bed.run(&[&degree], &[&["-n", &ranks, "--hosts", &hosts], words].concat())
}

/// What is in a user's directory on a host: programs that are kept, and directories of jobs.
fn kept(bed: &Bed, host: &str, user: u32) -> (usize, usize) {
    let names = bed.shell(host, &format!("ls -A /tmp/gasnetrun-{user} 2>/dev/null; true"));
    let content = names.lines().filter(|name| name.len() == 64).count();
    (content, names.lines().count() - content)
}

/// The numbers of the files that are kept on a host, which change when something is sent again.
fn files(bed: &Bed, host: &str) -> String {
    bed.shell(host, "stat -c %i /tmp/gasnetrun-0/????????????????* | sort")
}

fn assert_everybody_said_hello(bed: &Bed, outcome: &Outcome) {
    outcome.expect(0);
    for (rank, host) in bed.hosts()[1..].iter().enumerate() {
        let line = format!("rank {rank} of {} on {host},", bed.hosts().len() - 1);
        assert!(outcome.out().contains(&line), "{line} in {}", outcome.out());
    }
}

const HELLO: &str = "/tmp/only/hello";

#[test]
fn a_program_that_only_the_launching_host_has() {
    let Some(bed) = bed("a program that only one host has", "n1 n2 n3") else { return };
    // From host to host, one after the other; what was sent is kept, the job's own directory is
    // not.
    assert_everybody_said_hello(&bed, &run(&bed, "1", &[HELLO]));
    for host in ["n1", "n2", "n3"] {
        assert_eq!(kept(&bed, host, 0), (1, 0), "{host}");
        assert_eq!(bed.shell(host, "stat -c %a /tmp/gasnetrun-0"), "700");
    }
    assert_eq!(kept(&bed, "head", 0), (0, 0), "the launching host needs none");
    // The next job finds it there, also behind a wrapper.
    let before = files(&bed, "n2");
    assert_everybody_said_hello(&bed, &run(&bed, "32", &["env", "A=b", HELLO]));
    assert_eq!(files(&bed, "n2"), before, "it was sent again");
    // What was damaged meanwhile is sent again.
    bed.shell("n2", "for f in /tmp/gasnetrun-0/*; do echo broken > $f; done");
    assert_everybody_said_hello(&bed, &run(&bed, "0", &[HELLO]));
    let before = files(&bed, "n2");
    assert_everybody_said_hello(&bed, &run(&bed, "2", &["--stage", "always", HELLO]));
    assert_ne!(files(&bed, "n2"), before, "it was not sent, although always was asked for");
    // A GASNet program of the same name is another one.
    bed.shell("n3", "mkdir /tmp/only && cp /bin/false /tmp/only/hello");
    assert_everybody_said_hello(&bed, &run(&bed, "1", &[HELLO]));
    // Nothing is kept when nothing may be; -k keeps the job's directory.
    let words = ["-n", "3", "--hosts", "n1,n2,n3", "-k", HELLO];
    let outcome = bed.run(&["GASNET_SSH_STAGE_CACHE=0"], &words);
    assert_everybody_said_hello(&bed, &outcome);
    assert!(outcome.err().contains("n1: kept /tmp/gasnetrun-0/kept."), "{}", outcome.err());
    assert_eq!(kept(&bed, "n1", 0), (0, 1));
    // Without leave to send, the hosts without it are named; a tool is where it is.
    let outcome = run(&bed, "1", &["--stage", "never", HELLO]);
    outcome.expect(125);
    for part in ["2 of 3 hosts (n1 n2)", "program check", "No such file", "--stage auto"] {
        assert!(outcome.err().contains(part), "{part} in {}", outcome.err());
    }
    run(&bed, "1", &["--stage", "never", "true"]).expect(0);
}

/// Without leave to send, hosts that have something else in that place are named.
#[test]
fn another_program_in_the_same_place() {
    let Some(bed) = bed("another program in the same place", "n1 n2") else { return };
    for host in ["n1", "n2"] {
        bed.shell(host, &format!("mkdir /tmp/only && cp {} /tmp/only/", binary("hello").display()));
    }
    assert_everybody_said_hello(&bed, &run(&bed, "1", &["--stage", "never", HELLO]));
    // A copy without symbols is the same program, and so is one that was touched.
    bed.shell("n1", "strip /tmp/only/hello; touch /tmp/only/hello");
    assert_everybody_said_hello(&bed, &run(&bed, "1", &["--stage", "never", HELLO]));
    bed.shell("n2", &format!("cp {} {HELLO}", binary("greet").display()));
    let outcome = run(&bed, "1", &["--stage", "never", HELLO]);
    outcome.expect(125);
    for part in ["1 of 2 hosts (n2)", "program check", "is another program than on the launching"] {
        assert!(outcome.err().contains(part), "{part} in {}", outcome.err());
    }
    // Whoever means it so is not kept from it; both greet and say how many they are.
    let words = ["-n", "2", "--hosts", "n1,n2", "--stage", "never", HELLO];
    bed.run(&["GASNET_IBV_SAME_PROGRAM=0"], &words).expect(0);
    // Behind a script, which may differ, the ranks see it themselves, however they were started.
    for host in ["head", "n1", "n2"] {
        bed.shell(host, &format!("echo 'exec {HELLO} # '$(hostname) > /tmp/only/script"));
    }
    let outcome = run(&bed, "1", &["--stage", "never", "sh", "/tmp/only/script"]);
    assert_ne!(outcome.code(), 0);
    let said = "has another program at /tmp/only/hello on its host than rank";
    assert!(outcome.err().contains(said), "{}", outcome.err());
}

/// Each host gets what its ranks run; programs of the same name are told apart.
#[test]
fn several_programs_that_only_the_launching_host_has() {
    let Some(bed) = bed("several programs that only one host has", "n1 n2 n3") else { return };
    bed.shell(
        "head",
        &format!(
            "mkdir -m 755 /tmp/only/too && cp {} /tmp/only/too/hello",
            binary("greet").display()
        ),
    );
    let greet = "/tmp/only/too/hello";
    for degree in ["1", "32"] {
        let degree = format!("GASNET_SSH_OUT_DEGREE={degree}");
        // Ranks 0 and 1 on n1, 2 and 3 on n2, 4 and 5 on n3: both programs run on n2.
        let words = [
            "-n", "3", "--hosts", "n1,n2,n3", "-wdir", "/", HELLO, ":", "-n", "3", "env", "A=b",
            greet,
        ];
        let outcome = bed.run(&[&degree], &words);
        outcome.expect(0);
        let at = |rank: u32| ["n1", "n1", "n2"].get(rank as usize).copied();
        for rank in 0..6 {
            let line = match at(rank) {
                Some(host) => format!("rank {rank} of 6 on {host},"),
                None => format!("rank {rank} of 6: "),
            };
            assert!(outcome.out().contains(&line), "{line} in {}", outcome.out());
        }
        assert_eq!(["n1", "n2", "n3"].map(|host| kept(&bed, host, 0).1), [0, 0, 0]);
        bed.assert_clean();
    }
    assert_eq!(kept(&bed, "n2", 0), (2, 0), "both run there");
    assert_eq!(kept(&bed, "head", 0), (0, 0));
    // A program that is not sent and not there is named, by the hosts that have ranks of it.
    let words = ["-n", "1", "--stage", "never", "--hosts", "n1,n2", "true", ":", "-n", "1", greet];
    let outcome = bed.run(&[], &words);
    outcome.expect(125);
    let err = outcome.err();
    assert!(err.contains("1 of 2 hosts (n2)") && err.contains(greet), "{err}");
    // Variables and directories of one program, on the hosts that run it.
    let show = "echo $GASNETRUN_RANK $A $B $PWD $(cat /proc/sys/kernel/hostname)";
    let first = [
        "-n", "1", "--hosts", "n1,n2", "-genv", "B", "2", "-x", "A=1", "-wdir", "/", "sh", "-c",
        show,
    ];
    let words =
        [&first[..], &[":", "-n", "1", "-x", "A=3", "-wdir", "/tmp", "sh", "-c", show]].concat();
    let outcome = bed.run(&["GASNET_QUIET=1"], &words);
    outcome.expect(0);
    let text = outcome.out();
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["0 1 2 / n1", "1 3 2 /tmp n2"]);
    bed.assert_clean();
}

#[test]
fn an_agent_that_only_the_launching_host_has() {
    let Some(mut bed) = bed("an agent that only one host has", "n1 n2") else { return };
    bed.set_launcher("/tmp/only/gasnetrun_ibv");
    assert_everybody_said_hello(&bed, &run(&bed, "1", &[HELLO]));
    for host in ["n1", "n2"] {
        assert_eq!(kept(&bed, host, 0), (2, 0), "{host}: agent and program, no directory of a job");
    }
    let before = files(&bed, "n2");
    assert_everybody_said_hello(&bed, &run(&bed, "1", &[HELLO]));
    assert_eq!(files(&bed, "n2"), before, "it was sent again");
    let outcome = run(&bed, "1", &["--stage", "never", HELLO]);
    outcome.expect(125);
    assert!(outcome.err().contains("no agent at /tmp/only/gasnetrun_ibv"), "{}", outcome.err());
    // Killed agents leave nothing either.
    let words = ["-n", "2", "--hosts", "n1,n2", "sh", "-c", "echo up; sleep 600"];
    bed.shell("n1", "rm -rf /tmp/gasnetrun-0");
    let running = bed.lasting(2, &["GASNET_SSH_OUT_DEGREE=1"], &words);
    let mut agents = bed.find("n1", "(gasnetrun");
    agents.retain(|one| one.command.contains("--node-agent"));
    // The agent and not its guard: nobody could end what a rank has started if both were gone at
    // once.
    let agent = agents.iter().find(|one| agents.iter().any(|guard| guard.pid == one.parent));
    let agent = agent.expect("a guard and its agent").pid;
    assert!(testkit::process::send(agent, nix::sys::signal::Signal::SIGKILL), "it runs");
    assert_ne!(running.wait().code(), 0);
    bed.assert_clean();
    assert_eq!(kept(&bed, "n1", 0), (1, 0));
}

#[test]
fn hosts_that_cannot_take_a_program_are_named_with_the_reason() {
    let name = "hosts that cannot take a program";
    let Some(bed) = bed(name, "n1 n2 n3 n4") else { return };
    bed.shell("n2", "mount -o remount,size=1m /tmp");
    bed.shell("n3", "mount -o remount,noexec /tmp");
    bed.shell("n4", "chmod 755 /tmp");
    let bed = bed.of_user("gx");
    let outcome = run(&bed, "1", &[HELLO]);
    outcome.expect(125);
    let said = outcome.err();
    for part in [
        "1 of 4 hosts (n2), at the step `program check`",
        "No space left on device",
        "1 of 4 hosts (n3), at the step `program check`",
        "noexec",
        "1 of 4 hosts (n4), at the step `program check`",
        "Permission denied",
        "XDG_CACHE_HOME",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
    let user = bed.shell("head", "id -u gx").parse().expect("a number");
    // The whole copy, or none: the others may have failed before it was there.
    let whole = kept(&bed, "n1", user);
    assert!(matches!(whole, (0 | 1, 0)), "{whole:?}");
    for host in ["n2", "n3", "n4"] {
        assert_eq!(kept(&bed, host, user), (0, 0), "{host}");
    }
}
