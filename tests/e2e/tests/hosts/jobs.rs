//! Real jobs on four hosts over ssh: a program with real input, every way to end, standard input
//! for all, the order of output, a reader that is slow, and signals to the launcher. Ranks of
//! different hosts talk over the software adapter.

use std::fmt::Write as _;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::Signal;
use settings::deadlines::tree::{CHILD_SILENT, HEARTBEAT};
use testkit::process::{Process, eventually, send};
use testkit::{Bed, Input, Outcome, Output, Table, all_requested, binary};

use crate::executable;

const HOSTS: &str = "n1 n2 n3 n4";
const LIST: &str = "n1,n2,n3,n4";
const DEGREES: [&str; 3] = ["1", "2", "32"];
/// Far above what anything here waits for on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

fn program(name: &str) -> String {
    binary(name).display().to_string()
}

fn degree(degree: &str) -> String {
    format!("GASNET_SSH_OUT_DEGREE={degree}")
}

#[test]
fn words_of_real_files_are_counted_as_on_one_host() {
    let Some(bed) = Bed::up("wordcount on four hosts", HOSTS) else { return };
    let files = testkit::texts::files(if all_requested() { 2000 } else { 200 });
    if files.len() < 10 {
        testkit::skip("wordcount on four hosts", "fewer than 10 text files below /usr/share");
        return;
    }
    let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    let count = program("wordcount");
    // All rows; the last line has the time in it.
    let rows = |outcome: &Outcome| {
        outcome.expect(0);
        let out = outcome.out();
        let (rows, last) = out.trim_end().rsplit_once('\n').map_or(("", ""), |(a, b)| (a, b));
        let last = last.split(" on ").next().unwrap_or_default();
        format!("{rows}\n{last}")
    };
    let mut words = vec!["-n", "1", "--hosts", "head", count.as_str(), "-k", "3000"];
    words.extend(files.iter().map(String::as_str));
    let expected = rows(&bed.run(&[], &words));
    assert!(expected.lines().count() > 100, "{expected}");
    for out in DEGREES {
        words[1] = "8";
        words[3] = LIST;
        let outcome = bed.run(&[&degree(out)], &words);
        let (stdout, stderr) = (outcome.out(), outcome.err());
        assert!(rows(&outcome) == expected, "out-degree {out}: {stdout}\nstderr:\n{stderr}");
    }
}

#[test]
fn every_way_to_end_has_its_code_on_every_shape() {
    let Some(bed) = Bed::up("exit cases on four hosts", HOSTS) else { return };
    let exit = program("testexit");
    let usual = [1, 3, 4, 11, 52, 104];
    let cases: Vec<u32> = if all_requested() {
        (1..=15).chain(51..=55).chain(100..=106).collect()
    } else {
        usual.to_vec()
    };
    // As in the table of one host.
    let code = |case: u32| match case {
        case @ 1..=55 => case.cast_signed(),
        case => match case % 100 {
            0 | 1 => 0,
            2 | 3 => 128 + 6,
            4 => 128 + 11,
            5 => 128 + 7,
            _ => 128 + 8,
        },
    };
    let columns = ["case", "out-degree 1", "2", "32"];
    let title =
        "Exit cases on four hosts, 8 ranks: code and time from launch to return (! = wrong)";
    let mut table = Table::new(title, &columns);
    let mut faults = String::new();
    for (number, case) in cases.iter().enumerate() {
        let mut row = vec![case.to_string()];
        for (other, out) in DEGREES.iter().enumerate() {
            if !all_requested() && (number + other) % 3 != 0 {
                row.push("-".to_owned());
                continue;
            }
            let words = ["-n", "8", "--hosts", LIST, &exit, &case.to_string(), "--delay", "150"];
            let outcome = bed.job(&[&degree(out)], &words).run();
            let fault = outcome.fault(code(*case)).or_else(|| {
                bed.clean_within(Duration::from_secs(10), &[]).err().map(|left| format!("{left:?}"))
            });
            let mark = if fault.is_some() { " !" } else { "" };
            row.push(format!("{}: {} ms{mark}", outcome.code(), outcome.ms()));
            if let Some(fault) = fault {
                let _ = writeln!(faults, "case {case}, {out}: {fault}\n{}", outcome.err());
            }
        }
        table.row(row);
    }
    table.show();
    assert!(faults.is_empty(), "{faults}");
}

#[test]
fn input_for_all_ranks_arrives_whole_on_every_host() {
    let Some(bed) = Bed::up("standard input of four hosts", HOSTS) else { return };
    let len = if all_requested() { 64 << 20 } else { 1 << 20 };
    let sum = |bytes: u64| {
        let mut all = Vec::new();
        let mut block = 0;
        while (all.len() as u64) < bytes {
            all.extend(testkit::tree::pattern(block));
            block += 1;
        }
        all.truncate(usize::try_from(bytes).expect("it fits"));
        let mut child = std::process::Command::new("cksum");
        let mut child =
            child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("cksum runs");
        std::io::Write::write_all(&mut child.stdin.take().expect("a pipe"), &all)
            .expect("it reads");
        let output = child.wait_with_output().expect("it ends");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    let expected = sum(len);
    for out in DEGREES {
        let words = ["-n", "8", "--hosts", LIST, "--stdin", "all", "sh", "-c", "echo $(cksum)"];
        let outcome = bed.job(&[&degree(out)], &words).stdin(Input::Pattern(len)).run();
        outcome.expect(0);
        let lines: Vec<String> = outcome.out().lines().map(str::to_owned).collect();
        assert_eq!(lines, vec![expected.clone(); 8], "out-degree {out}");
        bed.assert_clean();
    }
    // One rank alone, on the last host.
    let words = ["-n", "8", "--hosts", LIST, "--stdin", "7", "sh", "-c", "echo $(cksum)"];
    let outcome = bed.job(&[&degree("1")], &words).stdin(Input::Pattern(len)).run();
    outcome.expect(0);
    let out = outcome.out();
    assert_eq!(out.lines().filter(|line| **line == expected).count(), 1, "{out}");
    // One that reads little does not hold the others up.
    let script = "test $GASNETRUN_RANK = 2 && exec head -c 10 >/dev/null; echo $(cksum)";
    let words = ["-n", "4", "--hosts", LIST, "--stdin", "all", "sh", "-c", script];
    let outcome = bed.job(&[&degree("2")], &words).stdin(Input::Pattern(len)).run();
    outcome.expect(0);
    assert_eq!(outcome.out().lines().filter(|line| **line == expected).count(), 3);
    bed.assert_clean();
}

#[test]
fn no_line_is_lost_or_out_of_order_however_slow_the_reader() {
    let Some(bed) = Bed::up("output of four hosts", HOSTS) else { return };
    let lines = if all_requested() { 200_000 } else { 20_000 };
    let script =
        format!("seq -f \"$GASNETRUN_RANK %.0f\" {lines}; echo \"end $GASNETRUN_RANK\" >&2");
    for out in DEGREES {
        let words = ["-n", "8", "--hosts", LIST, "sh", "-c", &script];
        let outcome = bed.run(&[&degree(out)], &words);
        outcome.expect(0);
        check_lines(&outcome.out(), lines);
        assert_eq!(outcome.err().matches("end ").count(), 8, "{}", outcome.err());
    }
    // A reader that takes a little now and then: nothing grows meanwhile, and all arrives.
    let slow = format!("{}/slow", bed.share());
    let text = "#!/bin/sh\n\"$@\" | (sleep 1; head -c 65536; sleep 3; cat)\n";
    executable(&slow, text);
    let launcher = program("gasnetrun_ibv");
    let line = [&slow, "env", "-C", "/", &degree("2"), &launcher, "-n", "8", "--hosts", LIST];
    let line = [&line[..], &["sh", "-c", &script]].concat();
    let outcome = bed.cluster.on("head", &line).run();
    outcome.expect(0);
    check_lines(&outcome.out(), lines);
    bed.assert_clean();
}

fn check_lines(out: &str, lines: u64) {
    let mut next = [1; 8];
    for line in out.lines() {
        let numbers = line.split_once(' ').map(|(rank, at)| (rank.parse(), at.parse::<u64>()));
        let Some((Ok(rank), Ok(at))) = numbers else { panic!("a broken line: {line:?}") };
        let rank: usize = rank;
        assert_eq!(at, next[rank], "rank {rank}");
        next[rank] += 1;
    }
    assert_eq!(next, [lines + 1; 8]);
}

#[test]
fn signals_to_the_launcher_reach_every_host() {
    let Some(bed) = Bed::up("signals on four hosts", HOSTS) else { return };
    // Prepares a job and gives its front as well: it runs behind the programs that enter the host.
    let start = |out: &str, script: &str| {
        let words = ["-n", "8", "--hosts", LIST, "sh", "-c", script];
        let running = bed.lasting(8, &[&degree(out)], &words);
        let front = bed.agents("head").first().expect("a launcher").pid;
        (running, front)
    };
    for (out, name, signal) in [
        ("1", "USR1", Signal::SIGUSR1),
        ("2", "INT", Signal::SIGINT),
        ("32", "TERM", Signal::SIGTERM),
    ] {
        let script =
            format!("trap 'echo got {name}; exit 0' {name}; echo up; while :; do sleep 0.05; done");
        let (running, front) = start(out, &script);
        assert!(send(front, signal));
        running.wait_stdout(&format!("got {name}"), 8);
        let outcome = running.wait();
        outcome.expect(0);
        bed.assert_clean();
    }
    for (out, signal, code) in [("2", Signal::SIGINT, 130), ("1", Signal::SIGTERM, 143)] {
        let (running, front) = start(out, "echo up; exec sleep 600");
        assert!(send(front, signal));
        let outcome = running.wait();
        outcome.expect(code);
        bed.assert_clean();
    }
    // Who ignores the first is killed by the second.
    let (running, front) = start("2", "trap '' INT; echo up; while :; do sleep 1; done");
    assert!(send(front, Signal::SIGINT));
    std::thread::sleep(Duration::from_millis(200));
    assert!(send(front, Signal::SIGINT));
    running.wait().expect(130);
    bed.assert_clean();

    let (running, front) = start("2", "echo up; exec sleep 600");
    // A shell has said "up" before it is a sleep.
    let ranks = eventually("all ranks sleep", PATIENCE, || {
        let found = HOSTS.split(' ').flat_map(|host| bed.find(host, "(sleep) sleep 600"));
        let found: Vec<i32> = found.map(|process| process.pid).collect();
        (found.len() == 8).then_some(found)
    });
    // The program that entered the host stops when it sees the launcher stop, and a signal to go on that
    // came before would be lost.
    let all = |stopped: bool| {
        ranks
            .iter()
            .chain([&front, &running.pid()])
            .all(|pid| Process::read(*pid).is_some_and(|process| (process.state == 'T') == stopped))
    };
    assert!(send(front, Signal::SIGTSTP));
    eventually("all ranks, the launcher and what started it stopped", PATIENCE, || {
        all(true).then_some(())
    });
    // The program that entered the host passes this on.
    assert!(running.signal(Signal::SIGCONT));
    eventually("all of them go on", PATIENCE, || all(false).then_some(()));
    assert!(send(front, Signal::SIGTERM));
    running.wait().expect(143);
    bed.assert_clean();
}

/// Who stood still is not called silent, nor does it call others so: a machine that was paused, a launcher
/// that was stopped.
#[test]
fn a_job_that_stood_still_for_longer_than_a_silence_goes_on() {
    let Some(bed) = Bed::up("a job that stands still", "n1 n2") else { return };
    let words = ["-n", "2", "--hosts", "n1,n2", "sh", "-c", "echo up; exec sleep 600"];
    for all in [true, false] {
        let running = bed.lasting(2, &[], &words);
        let of = |host: &str| bed.agents(host).into_iter().map(|process| process.pid);
        let (head, agents): (Vec<i32>, Vec<i32>) =
            (of("head").collect(), ["n1", "n2"].into_iter().flat_map(of).filter(|_| all).collect());
        let front = *head.first().expect("a launcher");
        for pid in head.iter().chain(&agents) {
            assert!(send(*pid, Signal::SIGSTOP));
        }
        std::thread::sleep(CHILD_SILENT.limit + HEARTBEAT.limit);
        for pid in &head {
            assert!(send(*pid, Signal::SIGCONT));
        }
        // The program that entered the host has stopped with the launcher.
        assert!(running.signal(Signal::SIGCONT));
        // The root sees at once how late it is.
        std::thread::sleep(HEARTBEAT.limit);
        for pid in &agents {
            assert!(send(*pid, Signal::SIGCONT));
        }
        assert!(send(front, Signal::SIGTERM));
        running.wait().expect(143);
        bed.assert_clean();
    }
}

#[test]
fn output_without_a_reader_ends_the_job() {
    let Some(bed) = Bed::up("output that nobody reads", HOSTS) else { return };
    let launcher = program("gasnetrun_ibv");
    let script = format!(
        "env -C / GASNET_SSH_OUT_DEGREE=2 GASNET_QUIET=1 {launcher} -n 4 --hosts {LIST} yes | head -n 3; echo over"
    );
    let outcome = bed.cluster.on("head", &["sh", "-c", &script]).stdout(Output::Keep).run();
    outcome.expect(0);
    assert_eq!(outcome.out(), "y\ny\ny\nover\n");
    bed.assert_clean();
}

/// A reader that is there and reads nothing, of a job that is to end.
#[test]
fn output_that_nobody_reads_does_not_outlast_the_time_limit() {
    let Some(bed) = Bed::up("output that waits for ever", HOSTS) else { return };
    let launcher = program("gasnetrun_ibv");
    let pipe = format!("{}/unread", bed.share());
    let job = format!("{launcher} --timeout 8 -n 4 --hosts {LIST} yes");
    let script = format!(
        "mkfifo {pipe}; exec 3<>{pipe}; env -C / GASNET_SSH_OUT_DEGREE=2 GASNET_QUIET=1 {job} >&3; echo code $?"
    );
    let outcome = bed.cluster.on("head", &["sh", "-c", &script]).run();
    outcome.expect(0);
    let err = outcome.err();
    assert_eq!(outcome.out(), "code 124\n", "{err}");
    let dropped = |line: &&str| line.contains("nobody read for 10 s");
    let line = err.lines().find(dropped).unwrap_or_else(|| panic!("nothing was dropped: {err}"));
    for rank in 0..4 {
        assert!(line.contains(&format!(" of rank {rank}")), "{line}");
    }
    bed.assert_clean();
}
