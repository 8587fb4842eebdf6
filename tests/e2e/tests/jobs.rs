//! Whole jobs of plain programs: codes, streams, reports.

use std::collections::BTreeSet;
use std::time::Duration;

use testkit::{Input, Output, Tree, all_requested, job, launcher};

/// `gasnetrun_ibv OPTIONS -n RANKS sh -c SCRIPT`.
fn shell(ranks: u32, options: &[&str], script: &str) -> Tree {
    launcher(options.iter().copied())
        .args(["-n", &ranks.to_string(), "/bin/sh", "-c", script])
        .deadline("plain job", Duration::from_secs(30))
}

fn lines(text: &str) -> BTreeSet<String> {
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_plain_program_runs_as_n_copies_that_know_their_number() {
    let outcome = shell(4, &[], "echo $GASNETRUN_RANK of $GASNETRUN_SIZE").run();
    outcome.expect(0);
    let expected = (0..4).map(|rank| format!("{rank} of 4")).collect();
    assert_eq!(lines(&outcome.out()), expected);
    // Ranks may come and go at different times.
    shell(3, &[], "[ $GASNETRUN_RANK = 1 ] || sleep 0.2").run().expect(0);
}

#[test]
fn the_first_failure_decides_the_code_and_is_named() {
    let outcome = shell(
        4,
        &[],
        "[ $GASNETRUN_RANK = 2 ] && { echo last words >&2; exit 9; }; exec sleep 600",
    )
    .run();
    outcome.expect(9);
    let err = outcome.err();
    assert!(err.contains("rank 2") && err.contains("last words"), "{err}");
    for (signal, code) in [("SEGV", 139), ("KILL", 137), ("TERM", 143)] {
        let script = format!("[ $GASNETRUN_RANK = 0 ] && kill -{signal} $$; exec sleep 600");
        let outcome = shell(3, &[], &script).run();
        outcome.expect(code);
        assert!(outcome.err().contains("rank 0"), "{}", outcome.err());
    }
}

#[test]
fn a_rank_that_opens_the_bootstrap_and_ends_without_finishing_it_is_a_failure() {
    let outcome = job(3, "nofini").deadline("no fini", Duration::from_secs(30)).run();
    outcome.expect(1);
    assert!(outcome.err().contains("rank"), "{}", outcome.err());
}

#[test]
fn what_ranks_started_in_other_sessions_is_ended_too() {
    job(2, "grandchild").arg("3").deadline("grandchild", Duration::from_secs(30)).run().expect(3);
    job(2, "grandchild").arg("0").deadline("grandchild", Duration::from_secs(30)).run().expect(0);
}

#[test]
fn standard_input_reaches_its_rank_to_the_last_byte() {
    let len = if all_requested() { 1 << 30 } else { 64 << 20 };
    let sum = testkit::tree::pattern_crc(len);
    for options in [&["-n", "3"][..], &["-n", "3", "--stdin", "2"]] {
        let outcome = launcher(options.iter().copied())
            .arg("/bin/cat")
            .stdin(Input::Pattern(len))
            .stdout(Output::Digest)
            .deadline("input", Duration::from_secs(120))
            .run();
        outcome.expect(0);
        assert_eq!((outcome.stdout_len, outcome.stdout_crc), (len, sum), "{options:?}");
    }
    let outcome = launcher(["-n", "3", "--stdin", "all", "/usr/bin/wc", "-c"])
        .stdin(Input::Pattern(3_000_000))
        .run();
    outcome.expect(0);
    let counts: Vec<&str> = outcome
        .stdout
        .split(|byte| *byte == b'\n')
        .filter_map(|l| std::str::from_utf8(l).ok().map(str::trim).filter(|l| !l.is_empty()))
        .collect();
    assert_eq!(counts, ["3000000"; 3]);
    let outcome = launcher(["-n", "3", "--stdin", "none", "/bin/cat"])
        .stdin(Input::Bytes(b"nobody reads this".to_vec()))
        .run();
    outcome.expect(0);
    assert_eq!(outcome.out(), "");
}

#[test]
fn an_input_that_is_silent_ignored_or_closed_never_hangs_the_job() {
    launcher(["-n", "2", "/bin/true"]).stdin(Input::Open).run().expect(0);
    launcher(["-n", "2", "/bin/true"]).stdin(Input::Pattern(16 << 20)).run().expect(0);
    let program = testkit::binary("gasnetrun_ibv");
    let script = format!("exec {} -n 2 /bin/cat <&-", program.display());
    Tree::new("/bin/sh").args(["-c", &script]).run().expect(0);
    // A rank that reads a little and goes on without reading more.
    let outcome = shell(2, &[], "[ $GASNETRUN_RANK = 0 ] && head -c 3; exit 0")
        .stdin(Input::Pattern(16 << 20))
        .run();
    outcome.expect(0);
    assert_eq!(outcome.stdout.len(), 3);
}

#[test]
fn output_is_complete_and_lines_stay_whole() {
    const LINES: u32 = 20_000;
    let script = format!(
        "i=0; while [ $i -lt {LINES} ]; do echo \"rank $GASNETRUN_RANK line $i end\"; i=$((i+1)); done; printf 'tail%s' $GASNETRUN_RANK"
    );
    let outcome = shell(4, &[], &script).run();
    outcome.expect(0);
    let out = outcome.out();
    let mut seen = BTreeSet::new();
    let mut rest = String::new();
    for line in out.lines() {
        // The last piece of a rank has no end of line and may have any neighbour behind it.
        match line.find("tail") {
            None => assert!(seen.insert(line.to_owned()), "twice: {line:?}"),
            Some(_) => rest.push_str(line),
        }
    }
    for rank in 0..4 {
        assert!(out.contains(&format!("tail{rank}")), "the unfinished last line of rank {rank}");
    }
    for rank in 0..4 {
        for line in [0, 1, LINES / 2, LINES - 1] {
            let text = format!("rank {rank} line {line} end");
            assert!(seen.contains(&text) || rest.contains(&text), "{text:?} is missing");
        }
    }
    assert_eq!(out.matches(" end").count(), 4 * LINES as usize);
    let whole = |line: &String| line.starts_with("rank ") && line.ends_with(" end");
    assert!(seen.iter().all(whole), "a broken line");
}

#[test]
fn the_last_output_of_a_rank_that_dies_is_not_lost() {
    for _ in 0..10 {
        let outcome = shell(2, &[], "yes 0123456789abcdef | head -n 5000; kill -KILL $$").run();
        assert_eq!(outcome.code(), 137);
        // The rank that died first had written all its lines.
        assert!(outcome.out().lines().count() >= 5000, "{}", outcome.out().lines().count());
    }
}

#[test]
fn output_can_be_tagged_and_kept_in_files() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let options = ["--tag-output", "--output-dir", out.to_str().unwrap()];
    let script = "echo o$GASNETRUN_RANK; echo e$GASNETRUN_RANK >&2";
    let outcome = shell(3, &options, script).run();
    outcome.expect(0);
    for rank in 0..3 {
        assert!(outcome.out().contains(&format!("[{rank}] o{rank}\n")), "{}", outcome.out());
        assert!(outcome.err().contains(&format!("[{rank}] e{rank}\n")), "{}", outcome.err());
        let file =
            |end: &str| std::fs::read_to_string(out.join(format!("rank.{rank}.{end}"))).unwrap();
        assert_eq!((file("out"), file("err")), (format!("o{rank}\n"), format!("e{rank}\n")));
    }
}

/// Two programs that make the same collective calls are one job of the conduit.
#[test]
fn several_programs_are_one_job() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("report.json");
    let outcome = launcher(["--report", path.to_str().unwrap(), "-n", "2"])
        .arg(testkit::binary("greet"))
        .args([":", "-n", "2"])
        .arg(testkit::binary("hello"))
        .run();
    outcome.expect(0);
    for part in ["rank 0 of 4: ", "rank 1 of 4: 0 greets me", "rank 2 of 4 on ", "rank 3 of 4 on "]
    {
        assert!(outcome.out().contains(part), "{part} in {}", outcome.out());
    }
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let programs = report["plan"]["programs"].as_array().unwrap();
    assert_eq!(
        (programs.len(), &programs[1]["first_rank"], &programs[1]["ranks"]),
        (2, &2.into(), &2.into())
    );
    assert!(
        programs[1]["program"].as_str().is_some_and(|name| name.ends_with("/hello")),
        "{report}"
    );
    assert!(
        report["ranks"].as_array().unwrap().iter().all(|rank| rank["hello"] == true),
        "{report}"
    );
    // The cause names the program of its rank.
    let outcome = launcher([
        "-n",
        "1",
        "sh",
        "-c",
        "sleep 60",
        ":",
        "-n",
        "1",
        "-x",
        "CODE=7",
        "sh",
        "-c",
        "exit $CODE",
    ])
    .run();
    outcome.expect(7);
    assert!(
        outcome.err().contains("rank 1 of 2 (") && outcome.err().contains("sh) on host"),
        "{}",
        outcome.err()
    );
}

#[test]
fn the_report_says_what_happened() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("report.json");
    let text = path.to_str().unwrap();
    let read =
        || -> serde_json::Value { serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap() };
    launcher(["--report", text, "-n", "3"]).arg(testkit::binary("hello")).run().expect(0);
    let report = read();
    assert_eq!(report["exit_code"], 0);
    assert!(report["cause"].is_null(), "{report}");
    let ranks = report["ranks"].as_array().unwrap();
    assert_eq!(ranks.len(), 3);
    for (rank, record) in ranks.iter().enumerate() {
        assert_eq!(record["rank"], rank);
        assert_eq!(record["hello"], true);
        assert_eq!(record["end"]["code"], 0, "{record}");
        assert!(record["pid"].as_i64() > Some(1) && record["host"].is_string(), "{record}");
        let (start, end) = (record["started"].as_f64().unwrap(), record["ended"].as_f64().unwrap());
        assert!(start > 1e9 && start <= end, "{record}");
    }
    let phases = &report["phases"];
    assert!(phases["prepare"].as_f64() <= phases["spawn"].as_f64(), "{phases}");
    assert!(phases["spawn"].as_f64() <= phases["done"].as_f64(), "{phases}");

    let script = "[ $GASNETRUN_RANK = 1 ] && { echo oh >&2; kill -SEGV $$; }; exec sleep 600";
    shell(3, &["--report", text], script).run().expect(139);
    let cause = &read()["cause"];
    assert_eq!(
        (&cause["rank"], &cause["signal"], &cause["code"]),
        (&1.into(), &11.into(), &139.into())
    );
    assert_eq!(cause["kind"], "signal");
    assert_eq!(cause["stderr_tail"][0], "oh", "{cause}");
    assert_eq!(read()["ranks"][0]["killed_by_launcher"], true);
}

#[test]
fn a_time_limit_ends_the_job_with_its_own_code() {
    let outcome = shell(2, &["--timeout", "1"], "exec sleep 600").run();
    outcome.expect(124);
    assert!(
        outcome.err().contains("limit") || outcome.err().contains("timeout"),
        "{}",
        outcome.err()
    );
}

#[test]
fn values_of_any_bytes_reach_the_ranks() {
    let value = "a b\n'\"\\$(x) \t;&|é".repeat(200);
    let outcome = shell(2, &["-E", "ODD_VALUE,UNSET_NAME"], "printf %s \"$ODD_VALUE\" | cksum")
        .env("ODD_VALUE", &value)
        .run();
    outcome.expect(0);
    let expected = Tree::new("/usr/bin/cksum").stdin(Input::Bytes(value.into_bytes())).run();
    assert_eq!(outcome.out(), expected.out().repeat(2));
}

#[test]
fn wrappers_in_front_of_the_program_work() {
    let hello = testkit::binary("hello");
    let outcome = launcher(["-n", "2", "env", "X=1"]).arg(hello).run();
    outcome.expect(0);
    assert_eq!(outcome.out().lines().count(), 2);
}

#[test]
fn an_output_that_goes_away_or_fails_ends_the_job() {
    let launcher = testkit::binary("gasnetrun_ibv");
    let shell = |script: &str| {
        let script = script.replace("LAUNCHER", launcher.to_str().unwrap());
        Tree::new("/bin/bash")
            .args(["-c", &script])
            .deadline("output", Duration::from_secs(30))
            .run()
    };
    let outcome = shell("LAUNCHER -n 2 yes | head -n 1; exit ${PIPESTATUS[0]}");
    assert_ne!(outcome.expect(141).out().as_str(), "");
    let outcome = shell("LAUNCHER -n 2 yes >/dev/full");
    assert!(outcome.code() > 0 && outcome.survivors.is_empty(), "{outcome:?}");
    assert!(outcome.err().contains("standard output"), "{}", outcome.err());
    shell("LAUNCHER -n 2 true <&- >&- 2>&-").expect(0);
}

#[test]
fn a_job_may_start_jobs() {
    let program = testkit::binary("gasnetrun_ibv");
    let outcome = launcher(["-n", "2"])
        .arg(&program)
        .args(["-n", "2", "/bin/sh", "-c", "echo $GASNETRUN_RANK of $GASNETRUN_SIZE"])
        .run();
    outcome.expect(0);
    let mut lines: Vec<&str> = std::str::from_utf8(&outcome.stdout).unwrap().lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["0 of 2", "0 of 2", "1 of 2", "1 of 2"]);
}

#[test]
fn a_rank_that_works_after_the_others_left_with_0_is_not_cut_off() {
    for code in [0, 7] {
        let bound = Duration::from_secs(30);
        let outcome =
            job(4, "latecomer").args(["600", &code.to_string()]).deadline("latecomer", bound).run();
        outcome.expect(code);
        assert!(outcome.out().contains("result"), "{}", outcome.out());
    }
    // Its time is the exit bound, not for ever: the others' code stands.
    let outcome = job(3, "latecomer")
        .args(["600000", "7"])
        .env("GASNET_EXITTIMEOUT", "2")
        .deadline("bounded latecomer", Duration::from_secs(30))
        .run();
    outcome.expect(0);
    assert!(!outcome.out().contains("result"), "{}", outcome.out());
}

#[test]
fn a_rank_that_hears_late_that_the_last_barrier_is_complete_goes_on() {
    for (how, most) in [("shared memory", "255"), ("network", "1")] {
        let outcome = job(3, "latecomer")
            .args(["400", "0", "stopped"])
            .env("GASNET_SUPERNODE_MAXSIZE", most)
            .deadline("stopped latecomer", Duration::from_secs(30))
            .run();
        outcome.expect(0);
        let whole = outcome.out().starts_with("working\nresult");
        assert!(whole, "{how}:\n{}\n{}", outcome.out(), outcome.err());
    }
}

#[test]
fn a_rank_that_prints_for_a_slow_reader_when_the_others_have_left_is_not_cut_off() {
    let outcome = Tree::new("sh")
        .args(["-c", "\"$@\" | (sleep 4; cat)", "sh"])
        .arg(testkit::binary("gasnetrun_ibv"))
        .args(["-n", "2"])
        .arg(testkit::binary("latecomer"))
        .args(["0", "0", "lines"])
        .env("GASNET_QUIET", "1")
        .env("GASNET_EXITTIMEOUT", "2")
        .deadline("a rank that prints", Duration::from_secs(60))
        .run();
    let lines = outcome.out().matches("result").count();
    assert_eq!(lines, 30_000, "code {}:\n{}", outcome.code(), outcome.err());
}

#[test]
fn ranks_tell_about_themselves_when_asked() {
    let run = |name: &str, value: &str| {
        let outcome =
            job(2, "hello").env(name, value).deadline("notes", Duration::from_secs(30)).run();
        outcome.expect(0);
        outcome.err()
    };
    let settings = run("GASNET_VERBOSEENV", "1");
    assert_eq!(settings.matches("GASNET_EXITTIMEOUT_MIN").count(), 1, "{settings}");
    assert!(settings.contains("gasnet_ibv: env: GASNET_BARRIER"), "{settings}");
    let trace = run("GASNET_SPAWN_VERBOSE", "1");
    for rank in ["rank 0 of 2", "rank 1 of 2"] {
        assert!(trace.contains(rank), "{trace}");
    }
    let memory = run("GASNET_AMPSHM_MEMORY_REPORT", "1");
    assert!(memory.contains("message queues of 2 ranks"), "{memory}");
    assert!(!run("GASNET_QUIET", "1").contains("gasnet_ibv:"));
    // The algorithm is a matter of speed only.
    run("GASNET_BARRIER", "AMCENTRAL");
}

/// Of a job that cannot be joined the first process says what to do, the others wait for that.
#[test]
fn one_rank_of_a_job_without_a_pmi_says_what_to_do() {
    let err = |rank: &str| {
        let outcome = Tree::new(testkit::binary("hello"))
            .env("PMI_SIZE", "3")
            .env("PMI_RANK", rank)
            .deadline("a process that cannot join", Duration::from_secs(30))
            .run();
        outcome.expect(1);
        outcome.err()
    };
    let first = err("0");
    assert!(first.contains("start it with") && first.contains("gasnetrun_ibv -n"), "{first}");
    let other = err("2");
    assert!(other.contains("process 0 says why") && !other.contains("start it with"), "{other}");
}

/// A program that no launcher of ours has started warns about settings by itself.
#[test]
fn a_rank_without_our_launcher_warns_about_settings() {
    let run = |quiet: &str| {
        let outcome = Tree::new(testkit::binary("hello"))
            .env("GASNET_EXITTIMEOUTT", "3")
            .env("GASNET_COLL_SCRATCH_SIZE", "4M")
            .env("GASNET_QUIET", quiet)
            .deadline("a job of one rank", Duration::from_secs(30))
            .run();
        outcome.expect(0);
        outcome.err()
    };
    let said = run("0");
    for part in ["did you mean GASNET_EXITTIMEOUT?", "GASNET_COLL_SCRATCH_SIZE=4M is refused"] {
        assert_eq!(said.matches(part).count(), 1, "{said}");
    }
    assert!(!run("1").contains("warning"));
    // Where a launcher of ours has, ranks do not.
    let outcome = job(2, "hello").env("GASNET_EXITTIMEOUTT", "3");
    let outcome = outcome.deadline("warnings", Duration::from_secs(30)).run();
    assert_eq!(outcome.err().matches("did you mean").count(), 1, "{}", outcome.err());
}

#[test]
fn a_reader_that_pauses_after_the_ranks_have_ended_gets_every_line() {
    // More than the launcher keeps, less than it and the ranks' pipes hold together: the ranks end
    // before the reader begins.
    let script = "seq -f \"$GASNETRUN_RANK %.0f\" 22000";
    let words = ["-n", "4", "sh", "-c", script];
    let outcome = Tree::new("sh")
        .args(["-c", "\"$@\" | (sleep 3; cat)", "sh"])
        .arg(testkit::binary("gasnetrun_ibv"))
        .args(words)
        .env("GASNET_QUIET", "1")
        .deadline("a reader that pauses", Duration::from_secs(60))
        .run();
    outcome.expect(0);
    assert_eq!(outcome.out().lines().count(), 4 * 22000);
}
