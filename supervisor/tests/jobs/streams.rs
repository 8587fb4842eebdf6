//! Standard input, output and error.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Write};
use std::process::Stdio;

use supervisor::report::CauseKind;
use testkit::{Input, Output, tree};

use super::kit::{Checked, Job, Test, ensure, sh};

pub(crate) const TESTS: &[Test] = &[
    ("no_line_is_lost_or_torn", complete),
    ("unfinished_last_lines", unfinished),
    ("long_lines_keep_every_byte", long_lines),
    ("tags_and_times", tags),
    ("output_directory", directory),
    ("output_directory_with_a_pipe", pipe_in_directory),
    ("slow_reader", slow_reader),
    ("reader_that_leaves", reader_leaves),
    ("full_device", full_device),
    ("stdin_to_rank_zero", stdin_one),
    ("stdin_to_all", stdin_all),
    ("stdin_none_and_other_rank", stdin_none),
    ("stdin_ignored", stdin_ignored),
    ("stdin_closed", stdin_closed),
    ("stdin_terminal", stdin_terminal),
    ("prompt_on_a_terminal", prompt),
    ("stdin_file_to_all", stdin_file),
    ("stdin_one_reader_of_many_leaves", stdin_leaver),
];

fn mebibytes() -> u64 {
    if testkit::all_requested() { 1024 } else { 64 }
}

fn complete() -> Checked {
    let (ranks, lines) = (16, 100_000);
    let text = format!("exec seq -f \"$GASNETRUN_RANK:%.0f:xxxxxxxxxxxxxxxxxxxx\" {lines}");
    let done = Job::new(ranks, &[], &sh(&text)).run().expect(0)?;
    let mut next: HashMap<u32, u32> = HashMap::new();
    for line in done.outcome.out().lines() {
        let fields: Vec<&str> = line.split(':').collect();
        let [rank, number, "xxxxxxxxxxxxxxxxxxxx"] = fields[..] else {
            return Err(format!("torn: {line:?}").into());
        };
        let seen = next.entry(rank.parse()?).or_insert(0);
        *seen += 1;
        ensure(number.parse() == Ok(*seen), format!("out of order: {line:?} after {seen}"))?;
    }
    ensure(next.len() == 16 && next.values().all(|n| *n == lines), format!("{next:?}"))
}

fn unfinished() -> Checked {
    let done = Job::new(1, &[], &sh("printf 'no newline'")).run().expect(0)?;
    ensure(done.outcome.out() == "no newline", done.outcome.out())?;
    let done = Job::new(2, &["--tag"], &sh("printf 'no newline'")).run().expect(0)?;
    let mut lines: Vec<String> = done.outcome.out().lines().map(str::to_owned).collect();
    lines.sort();
    ensure(lines == ["[0] no newline", "[1] no newline"], format!("{lines:?}"))
}

fn long_lines() -> Checked {
    let job = Job::new(3, &[], &sh("head -c 3000000 /dev/zero | tr '\\0' $GASNETRUN_RANK; echo"));
    let done = job.run().expect(0)?;
    let out = done.outcome.out();
    let count = |c: char| out.chars().filter(|seen| *seen == c).count();
    let counts = ['0', '1', '2', '\n'].map(count);
    ensure(counts == [3_000_000, 3_000_000, 3_000_000, 3], format!("{counts:?}"))
}

fn tags() -> Checked {
    let done = Job::new(2, &["--tag", "--timestamp"], &sh("echo a; echo b >&2")).run().expect(0)?;
    for (text, last) in [(done.outcome.out(), "a"), (done.outcome.err(), "b")] {
        let good = |line: &str| {
            let shape = |(at, c): (usize, char)| match at {
                2 | 5 => c == ':',
                8 => c == '.',
                12 => c == ' ',
                _ => c.is_ascii_digit(),
            };
            line.len() == 18 && line.chars().take(13).enumerate().all(shape) && line.ends_with(last)
        };
        ensure(text.lines().count() == 2 && text.lines().all(good), text.clone())?;
        ensure(text.contains(" [0] ") && text.contains(" [1] "), text.clone())?;
    }
    Ok(())
}

/// Nobody reads the pipe; opening it must not stop the agent.
fn pipe_in_directory() -> Checked {
    let job = Job::new(2, &["--output-dir", "pipes"], &sh("sleep 1000"));
    let path = job.path();
    std::fs::create_dir(path.join("pipes"))?;
    nix::unistd::mkfifo(&path.join("pipes/rank.1.out"), nix::sys::stat::Mode::S_IRWXU)?;
    job.with(|tree| tree.dir(&path))
        .run()
        .expect(125)?
        .cause(CauseKind::Start, Some(1), "rank.1.out")?
        .ok()
}

fn directory() -> Checked {
    let text = "printf \"out $GASNETRUN_RANK\\nrest\"; echo err >&2";
    let job = Job::new(2, &["--output-dir", "made/here", "--tag"], &sh(text));
    let path = job.path();
    let done = job.with(|tree| tree.dir(&path)).run().expect(0)?;
    for rank in 0..2 {
        let read =
            |suffix| std::fs::read_to_string(path.join(format!("made/here/rank.{rank}.{suffix}")));
        ensure(read("out")? == format!("out {rank}\nrest"), read("out")?)?;
        ensure(read("err")? == "err\n", read("err")?)?;
    }
    drop(done.directory);
    Ok(())
}

/// The reader of our output sleeps: nothing is lost, and the ranks feel the back-pressure instead
/// of our memory.
fn slow_reader() -> Checked {
    let exe = std::env::current_exe()?;
    let text = "exec head -c 5000000 /dev/zero";
    let command = format!("{} front -n 2 -- /bin/sh -c '{text}' | (sleep 1; wc -c)", exe.display());
    let outcome = testkit::Tree::new("/bin/sh").args(["-c", &command]).run();
    if let Some(fault) = outcome.fault(0) {
        return Err(fault.into());
    }
    ensure(outcome.out().trim() == "10000000", outcome.out())
}

fn reader_leaves() -> Checked {
    let exe = std::env::current_exe()?;
    let command =
        format!("({} front -n 2 -- /usr/bin/yes; echo code $? >&2) | head -n 3", exe.display());
    let outcome = testkit::Tree::new("/bin/sh").args(["-c", &command]).run();
    if let Some(fault) = outcome.fault(0) {
        return Err(fault.into());
    }
    ensure(outcome.out() == "y\ny\ny\n" && outcome.err().contains("code 141"), outcome.err())
}

fn full_device() -> Checked {
    let exe = std::env::current_exe()?;
    let command = format!("exec {} front -n 1 -- /bin/echo text > /dev/full", exe.display());
    let outcome = testkit::Tree::new("/bin/sh").args(["-c", &command]).run();
    if let Some(fault) = outcome.fault(1) {
        return Err(fault.into());
    }
    ensure(
        outcome.err().contains("cannot write standard output, /dev/full on host "),
        outcome.err(),
    )
}

fn stdin_one() -> Checked {
    let bytes = mebibytes() << 20;
    let job = Job::new(3, &[], &sh("exec cat"));
    let done = job
        .with(|tree| tree.stdin(Input::Pattern(bytes)).stdout(Output::Digest))
        .run()
        .expect(0)?;
    ensure(done.outcome.stdout_len == bytes, format!("{} bytes", done.outcome.stdout_len))?;
    ensure(done.outcome.stdout_crc == tree::pattern_crc(bytes), "the bytes differ")
}

fn stdin_all() -> Checked {
    let bytes = mebibytes() << 18;
    let job = Job::new(3, &["--stdin", "all"], &sh("cksum"));
    let done = job.with(|tree| tree.stdin(Input::Pattern(bytes))).run().expect(0)?;
    let out = done.outcome.out();
    let sums: Vec<&str> = out.lines().collect();
    ensure(sums.len() == 3 && sums.iter().all(|sum| *sum == sums[0]), out.clone())?;
    ensure(sums[0].ends_with(&format!(" {bytes}")), out.clone())
}

fn stdin_none() -> Checked {
    let bytes = || Input::Bytes(b"text\n".to_vec());
    let none = Job::new(2, &["--stdin", "none"], &sh("cat; echo $GASNETRUN_RANK"));
    let done = none.with(|tree| tree.stdin(bytes())).run().expect(0)?;
    ensure(done.outcome.stdout_len == 4, done.outcome.out())?;
    let other = Job::new(3, &["--tag", "--stdin", "2"], &sh("cat"));
    let done = other.with(|tree| tree.stdin(bytes())).run().expect(0)?;
    ensure(done.outcome.out() == "[2] text\n", done.outcome.out())
}

fn stdin_ignored() -> Checked {
    for mode in ["0", "all"] {
        let job = Job::new(2, &["--stdin", mode], &sh("sleep 0.1"));
        job.with(|tree| tree.stdin(Input::Open)).run().expect(0)?;
        let job = Job::new(2, &["--stdin", mode], &sh("exec <&-; sleep 0.1"));
        job.with(|tree| tree.stdin(Input::Pattern(1 << 20))).run().expect(0)?;
    }
    Ok(())
}

fn stdin_closed() -> Checked {
    let exe = std::env::current_exe()?;
    for mode in ["0", "all"] {
        let command = format!("exec {} front -n 2 --stdin {mode} -- /bin/cat <&-", exe.display());
        let outcome = testkit::Tree::new("/bin/sh").args(["-c", &command]).run();
        if let Some(fault) = outcome.fault(0) {
            return Err(fault.into());
        }
    }
    Ok(())
}

fn stdin_terminal() -> Checked {
    let pty = nix::pty::openpty(None, None)?;
    let job = Job::new(2, &[], &sh("exec cat"));
    let live = job.with(|tree| tree.stdin(Input::Stream(Stdio::from(pty.slave)))).start();
    let mut master = File::from(pty.master);
    master.write_all(b"typed\n")?;
    live.running.wait_stdout("typed", 1);
    master.write_all(b"more\n\x04")?;
    let done = live.wait().expect(0)?;
    ensure(done.outcome.out() == "typed\nmore\n", done.outcome.out())?;
    let mut echo = [0; 64];
    let _ = master.read(&mut echo)?;
    Ok(())
}

/// A question without newline must appear before the answer is typed.
fn prompt() -> Checked {
    let pty = nix::pty::openpty(None, None)?;
    let exe = std::env::current_exe()?;
    let text = "[ $GASNETRUN_RANK = 0 ] || exec sleep 1000; printf 'name? '; read name; echo \"<$name>\"; exit 4";
    let mut front = std::process::Command::new(exe);
    front.args(["front", "-n", "2", "--"]).args(sh(text));
    front.stdin(pty.slave.try_clone()?).stdout(pty.slave.try_clone()?).stderr(Stdio::null());
    let mut front = front.spawn()?;
    drop(pty.slave);
    let mut master = File::from(pty.master);
    let mut seen = Vec::new();
    let mut until = |master: &mut File, text: &str| -> Checked {
        let mut bytes = [0; 1024];
        while !String::from_utf8_lossy(&seen).contains(text) {
            let count = master.read(&mut bytes)?;
            seen.extend_from_slice(&bytes[..count]);
        }
        Ok(())
    };
    until(&mut master, "name? ")?;
    master.write_all(b"me\n")?;
    until(&mut master, "<me>")?;
    ensure(front.wait()?.code() == Some(4), "the job did not end with rank 0's code")
}

fn stdin_file() -> Checked {
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), vec![b'x'; 300_000])?;
    let job = Job::new(2, &["--stdin", "all"], &sh("wc -c"));
    let input = Input::Stream(Stdio::from(File::open(file.path())?));
    let done = job.with(|tree| tree.stdin(input)).run().expect(0)?;
    ensure(done.outcome.out().lines().all(|line| line == "300000"), done.outcome.out())
}

fn stdin_leaver() -> Checked {
    let bytes = 8 << 20;
    let text = "[ $GASNETRUN_RANK = 1 ] && exit 0; wc -c";
    let job = Job::new(3, &["--stdin", "all"], &sh(text));
    let done = job.with(|tree| tree.stdin(Input::Pattern(bytes))).run().expect(0)?;
    ensure(done.outcome.out() == format!("{bytes}\n{bytes}\n"), done.outcome.out())?;
    ensure(
        done.report.is_some_and(|r| r.cause.is_none_or(|c| c.kind != CauseKind::Signal)),
        "a death",
    )
}
