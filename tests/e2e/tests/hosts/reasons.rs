//! Hosts that cannot take part in a job over ssh, each with its own reason: what is said, and that
//! nothing is left. And hosts that can, although it does not look like it.

use std::time::Duration;

use testkit::{Bed, Input, Outcome, Table, binary};

use crate::executable;

const HOSTS: &str = "n1 n2";
/// More than a start that is given up after one to three seconds needs on a busy machine.
const GIVEN_UP: Duration = Duration::from_secs(20);

/// A script in the directory that all hosts share; its path.
fn script(bed: &Bed, name: &str, text: &str) -> String {
    let path = format!("{}/{name}", bed.share());
    executable(&path, &format!("#!/bin/sh\n{text}\n"));
    path
}

/// What an agent says first.
fn marker() -> String {
    let outcome = testkit::launcher(["--node-agent"]).stdin(Input::Bytes(Vec::new())).run();
    let text = String::from_utf8_lossy(&outcome.stdout).into_owned();
    let line = text.lines().next().unwrap_or_default().to_owned();
    assert!(line.starts_with("GASNETRUN-AGENT "), "{text:?}");
    line
}

/// Cases, what is wrong with them, and the table.
struct Cases<'a> {
    bed: &'a Bed,
    table: Table,
    faults: String,
}

impl<'a> Cases<'a> {
    fn new(bed: &'a Bed, title: &str) -> Self {
        let table = Table::new(title, &["what", "code", "ms", "said"]);
        Self { bed, table, faults: String::new() }
    }

    /// Runs two ranks on n1 and n2; all of `says` must be said.
    fn run(&mut self, what: &str, set: &[&str], words: &[&str], code: i32, says: &[&str]) {
        let words = [&["-n", "2", "--hosts", "n1,n2"], words].concat();
        let outcome = self.bed.job(set, &words).deadline("a start", GIVEN_UP).run();
        self.check(what, &outcome, code, says);
    }

    fn check(&mut self, what: &str, outcome: &Outcome, code: i32, says: &[&str]) {
        let err = outcome.err();
        let missing: Vec<_> = says.iter().filter(|part| !err.contains(**part)).collect();
        let left = self.bed.clean_within(Duration::from_secs(10), &[]).err();
        let ran = outcome.code() != 0 && outcome.out().contains("ran");
        let fault = outcome.fault(code);
        if fault.is_some() || !missing.is_empty() || left.is_some() || ran {
            self.faults.push_str(&format!(
                "{what}: {fault:?}, not said: {missing:?}, left: {left:?}, a rank ran: {ran}\n{err}\n"
            ));
        }
        let line = err.lines().find(|line| line.contains(" of ") && line.contains("hosts ("));
        let line = line.unwrap_or_default().trim().chars().take(110).collect();
        let (code, ms) = (outcome.code().to_string(), outcome.ms().to_string());
        self.table.row(vec![what.to_owned(), code, ms, line]);
    }

    #[track_caller]
    fn end(self) {
        self.table.show();
        assert!(self.faults.is_empty(), "{}", self.faults);
    }
}

const RAN: [&str; 3] = ["sh", "-c", "echo ran"];

#[test]
fn a_remote_shell_that_is_none_or_talks_too_much() {
    let Some(bed) = Bed::up("remote shells that are none", HOSTS) else { return };
    let mut cases = Cases::new(&bed, "Remote shells");
    let both = "2 of 2 hosts (n1 n2)";
    let set = |path: &str| format!("GASNET_SSH_CMD={path}");
    for (what, path, says) in [
        ("no such program", "/no/such/ssh", "cannot start /no/such/ssh"),
        ("/bin/true", "/bin/true", "`remote shell`"),
        ("/bin/false", "/bin/false", "`remote shell`"),
        ("cat", "cat", "cat: "),
    ] {
        cases.run(what, &[&set(path)], &RAN, 125, &[both, says, "try:"]);
    }
    let echo = script(&bed, "ssh-echo", "exec cat");
    let words = [&["--start-timeout", "1"], &RAN[..]].concat();
    cases.run("what it is told comes back", &[&set(&echo)], &words, 125, &[both, "within 1 s"]);
    let noise = script(&bed, "ssh-noise", "yes Welcome | head -c 200000; sleep 60");
    cases.run("noise without end", &[&set(&noise)], &RAN, 125, &[both, "65536 bytes of output"]);
    let silent = script(&bed, "ssh-silent", "exec sleep 600");
    cases.run("never a word", &[&set(&silent)], &words, 125, &[both, "within 1 s"]);

    let marker = marker();
    let other = script(&bed, "ssh-other", "echo GASNETRUN-AGENT 1 0.0.0-other; sleep 600");
    let says = [both, "version match", "0.0.0-other"];
    cases.run("another version", &[&set(&other)], &RAN, 125, &says);
    let protocol = marker.split(' ').next_back().unwrap_or_default().to_owned();
    let other = format!("echo GASNETRUN-AGENT 4000000000 {protocol}; sleep 600");
    let other = script(&bed, "ssh-protocol", &other);
    cases.run("another protocol", &[&set(&other)], &RAN, 125, &[both, "4000000000"]);
    for (what, bytes) in [
        ("a frame of any length", r"\377\377\377\377"),
        ("a frame that is no message", r"\004\000\000\200\377\377\377\377"),
        ("text for a frame", "Connection established"),
    ] {
        let text = format!("echo '{marker}'; printf '{bytes}'; sleep 600");
        let nonsense = script(&bed, "ssh-nonsense", &text);
        cases.run(what, &[&set(&nonsense)], &RAN, 125, &[both, "`agent start`", "its agent sent"]);
    }
    cases.end();
}

#[test]
fn logins_that_print_and_shells_of_every_kind() {
    let Some(bed) = Bed::up("logins of every kind", HOSTS) else { return };
    let home = bed.cluster.directory().join("home");
    let mut cases = Cases::new(&bed, "Logins");
    let hello = binary("hello").display().to_string();
    for (user, file) in [
        ("gx-sh", None),
        ("gx-bash", Some(".bashrc")),
        ("gx-zsh", Some(".zshenv")),
        ("gx-csh", Some(".cshrc")),
        ("gx-tcsh", Some(".tcshrc")),
        ("gx-fish", Some(".config/fish/config.fish")),
    ] {
        if !home.join(user).exists() {
            testkit::skip(&format!("logins of {user}"), "this shell is not installed");
            continue;
        }
        if let Some(file) = file {
            let path = home.join(user).join(file);
            std::fs::create_dir_all(path.parent().expect("it is in a directory")).expect("a home");
            let banner = "echo 'Welcome to this cluster!'\necho GASNETRUN-AGENT\nprintf 'no end'\n";
            std::fs::write(&path, banner).expect("a home");
        }
        let hosts = format!("{user}@n1,{user}@n2");
        let words = ["-n", "4", "--hosts", &hosts, &hello];
        let outcome = bed.job(&["GASNET_SSH_OUT_DEGREE=1"], &words).run();
        cases.check(user, &outcome, 0, &[]);
        let here = (0..4).all(|rank| outcome.out().contains(&format!("rank {rank} of 4 on n")));
        if !here || outcome.out().contains("Welcome") {
            cases.faults.push_str(&format!("{user}: {}\n", outcome.out()));
        }
    }
    cases.end();
}

#[test]
fn hosts_that_are_listed_in_strange_ways() {
    let Some(bed) = Bed::up("hosts listed in strange ways", HOSTS) else { return };
    let mut cases = Cases::new(&bed, "Host lists");
    let place = "echo $GASNETRUN_RANK $GASNETRUN_HOST $(cat /proc/sys/kernel/hostname)";
    for (set, hosts, expected) in [
        (&[][..], "n1,n1", ["0 0 n1", "1 0 n1"]),
        (&["GASNET_SSH_KEEPDUP=1"][..], "n1,n1", ["0 0 n1", "1 1 n1"]),
        // The launching host by the addresses that it has itself.
        (&["GASNET_SSH_CMD=/bin/false"][..], "127.0.0.1", ["0 0 head", "1 0 head"]),
        (&["GASNET_SSH_CMD=/bin/false"][..], "198.18.77.254", ["0 0 head", "1 0 head"]),
        (&[][..], "198.18.77.1,n2", ["0 0 n1", "1 1 n2"]),
    ] {
        let outcome = bed.job(set, &["-n", "2", "--hosts", hosts, "sh", "-c", place]).run();
        cases.check(&format!("{hosts} {}", set.concat()), &outcome, 0, &[]);
        let mut lines: Vec<String> = outcome.out().lines().map(str::to_owned).collect();
        lines.sort();
        if lines != expected {
            cases.faults.push_str(&format!("{hosts} {set:?}: {lines:?}\n"));
        }
    }
    for (what, hosts, says) in [
        ("unknown host", "n1,nowhere", "Could not resolve"),
        ("unknown user", "nobody-at-all@n1,n2", "Permission denied"),
    ] {
        let words = [&["-n", "2", "--hosts", hosts], &RAN[..]].concat();
        let outcome = bed.job(&[], &words).run();
        cases.check(what, &outcome, 125, &[says, "1 of 2 hosts", "try:"]);
    }
    for (what, set, says) in [
        ("open quote in the options", "GASNET_SSH_OPTIONS=-o 'BatchMode", "GASNET_SSH_OPTIONS"),
        ("unknown ssh option", "GASNET_SSH_OPTIONS=-o NoSuchOption=1", "Bad configuration option"),
    ] {
        cases.run(what, &[set], &RAN, 125, &[says]);
    }
    cases.end();
}

#[test]
fn what_is_missing_on_one_host_is_said_before_any_rank_starts() {
    let Some(bed) = Bed::up("programs that cannot run on one host", HOSTS) else { return };
    let mut cases = Cases::new(&bed, "What is wrong on n2 alone");
    let one = "1 of 2 hosts (n2)";
    // Each host has a /tmp of its own.
    let on = |host: &str, command: &str| {
        let outcome = bed.cluster.on(host, &["sh", "-c", command]).run();
        outcome.expect(0);
    };
    let hello = binary("hello").display().to_string();
    for host in ["head", "n1", "n2"] {
        on(host, &format!("mkdir -p /tmp/p && cp {hello} /tmp/p/program"));
    }
    let words = ["--stage", "never", "/tmp/p/program"];
    cases.run("nothing", &[], &words, 0, &[]);
    let program = "cannot execute /tmp/p/program";
    for (what, command, says) in [
        ("not executable", "chmod 644 /tmp/p/program", "Permission denied"),
        (
            "for another machine",
            "printf '\\050\\000' | dd of=/tmp/p/program bs=1 seek=18 conv=notrunc 2>/dev/null; \
             chmod 755 /tmp/p/program",
            "ELF machine 40",
        ),
        ("a directory", "rm /tmp/p/program; mkdir /tmp/p/program", "not a file"),
        ("missing", "rmdir /tmp/p/program", "No such file"),
    ] {
        on("n2", command);
        cases.run(what, &[], &words, 125, &[one, "program check", program, says]);
    }
    on("head", "mkdir /tmp/there");
    on("n1", "mkdir /tmp/there");
    let words = [&["--wdir", "/tmp/there"], &RAN[..]].concat();
    let says = [one, "program check", "cannot change to the directory /tmp/there"];
    cases.run("missing directory", &[], &words, 125, &says);
    on("n2", "mkdir /tmp/there");
    cases.run("the directory is made", &[], &words, 0, &[]);
    if library(&bed, on) {
        let words = ["--stage", "never", "/tmp/p/linked"];
        cases.run("a library that is there", &[], &words, 0, &[]);
        on("n2", "mv /tmp/p/lib /tmp/p/elsewhere");
        let says = [one, "program check", "libgreet.so: cannot open shared object file"];
        cases.run("missing library", &[], &words, 125, &says);
        let path = "LD_LIBRARY_PATH=/tmp/p/elsewhere";
        let words = [&["-E", "LD_LIBRARY_PATH"], &words[..]].concat();
        cases.run("the library is shown", &[path], &words, 0, &[]);
    }
    // The last one: not everybody may raise a limit again.
    bed.shell("n2", "prlimit --nofile=100:100 --pid $(cat /run/sshd.pid)");
    let words = [&["-n", "80"], &RAN[..]].concat();
    let says = [one, "program check", "40 ranks need", "limit is 100 (hard limit of open files"];
    cases.run("few descriptors", &[], &words, 125, &says);
    cases.run("enough for fewer ranks", &[], &RAN, 0, &[]);
    cases.end();
}

/// A program with a library of its own, in the same place on every host; whether that can be made
/// here.
fn library(bed: &Bed, on: impl Fn(&str, &str)) -> bool {
    let share = bed.share();
    let make = "set -e; cd \"$1\"; mkdir -p lib; echo 'int greet(void) { return 0; }' >greet.c; \
                echo 'int greet(void); int main(void) { return greet(); }' >main.c; \
                cc -shared -fPIC -o lib/libgreet.so greet.c; \
                cc -o linked main.c -Llib -lgreet -Wl,-rpath,'$ORIGIN/lib'";
    let made = std::process::Command::new("sh").args(["-c", make, "sh", &share]).output();
    if !made.is_ok_and(|made| made.status.success()) {
        testkit::skip("a missing library", "no C compiler");
        return false;
    }
    for host in ["head", "n1", "n2"] {
        on(host, &format!("cp -r {share}/lib {share}/linked /tmp/p"));
    }
    true
}
