//! The real-input example against the shell pipeline that defines it.

#![expect(clippy::unwrap_used, reason = "what is missing here fails the test")]

use std::process::{Command, Stdio};
use std::time::Duration;

use testkit::{Tree, all_requested, job, launcher};

/// `tr | sort | uniq -c` over the files, most frequent first, ties by word; files do not run into
/// each other.
fn reference(list: &std::path::Path) -> Vec<(String, u64)> {
    let script = r#"while read -r file; do cat "$file"; echo; done < "$1" | tr -cs '[:alpha:]' '\n' | tr A-Z a-z |
        grep . | sort | uniq -c | sort -k1,1nr -k2,2"#;
    let output = Command::new("sh")
        .args(["-c", script, "sh"])
        .arg(list)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let row = |line: &str| {
        let (count, word) = line.trim_start().split_once(' ').unwrap();
        (word.to_owned(), count.parse().unwrap())
    };
    text.lines().map(row).collect()
}

#[test]
fn the_result_equals_tr_sort_uniq_on_hundreds_of_real_files() {
    let files = testkit::texts::files(if all_requested() { 6000 } else { 600 });
    if files.len() < 10 {
        testkit::skip("wordcount on real files", "fewer than 10 text files below /usr/share");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let list = directory.path().join("files");
    let lines: String = files.iter().map(|file| format!("{}\n", file.display())).collect();
    std::fs::write(&list, lines).unwrap();
    let expected = reference(&list);
    let total: u64 = expected.iter().map(|(_, count)| count).sum();
    let most = 3000.min(expected.len());

    for ranks in [1, 2, 4, 7] {
        let outcome = job(ranks, "wordcount")
            .args(["-k", &most.to_string()])
            .args(&files)
            .deadline("wordcount", Duration::from_secs(120))
            .run();
        outcome.expect(0);
        let out = outcome.out();
        let mut lines = out.lines();
        assert_eq!(lines.next().map(str::trim), Some("count  word"), "{out}");
        let rows: Vec<(String, u64)> = lines
            .by_ref()
            .take(most)
            .map(|line| {
                let (count, word) = line.trim_start().split_once("  ").unwrap();
                (word.to_owned(), count.parse().unwrap())
            })
            .collect();
        assert!(rows == expected[..most], "{ranks} ranks: {:?} …", &rows[..10.min(rows.len())]);
        let last = lines.next().unwrap();
        let head = format!("{total} words, {} distinct, ", expected.len());
        assert!(last.starts_with(&head), "{ranks} ranks: {last:?}, expected {head:?}");
        testkit::report::show(&format!("\nwordcount, {last}\n"));
    }
}

#[test]
fn mistakes_are_said_once_and_end_the_job() {
    let outcome = job(3, "wordcount").args(["-k", "0", "x"]).run();
    outcome.expect(2);
    // The launcher's summary repeats it, indented.
    let said =
        outcome.err().lines().filter(|line| line.starts_with("error: invalid value")).count();
    assert_eq!(said, 1, "{}", outcome.err());
    let outcome = job(3, "wordcount").arg("/does/not/exist").run();
    outcome.expect(1);
    assert!(outcome.err().contains("/does/not/exist"), "{}", outcome.err());
}

#[test]
fn a_program_without_a_launcher_is_a_job_of_one_rank() {
    let outcome =
        Tree::new(testkit::binary("wordcount")).arg("/usr/share/common-licenses/BSD").run();
    outcome.expect(0);
    assert!(outcome.out().contains("on 1 ranks"), "{}", outcome.out());
}

#[test]
fn hello_and_ring_run() {
    for ranks in [1, 2, 5, 64] {
        let outcome = job(ranks, "hello").run();
        outcome.expect(0);
        let mut lines: Vec<String> = outcome.out().lines().map(str::to_owned).collect();
        lines.sort_by_key(|line| line.split(' ').nth(1).and_then(|rank| rank.parse::<u32>().ok()));
        assert_eq!(lines.len(), ranks as usize, "{}", outcome.out());
        for (rank, line) in lines.iter().enumerate() {
            assert!(line.starts_with(&format!("rank {rank} of {ranks} on ")), "{line}");
        }
        let outcome = job(ranks, "ring").arg("20").run();
        outcome.expect(0);
        assert!(
            outcome.out().contains(&format!("20 laps around {ranks} ranks")),
            "{}",
            outcome.out()
        );
    }
    let outcome = job(4, "greet").run();
    outcome.expect(0);
    let mut lines: Vec<&str> = std::str::from_utf8(&outcome.stdout).unwrap().lines().collect();
    lines.sort_unstable();
    let line = |rank| format!("rank {rank} of 4: {} greets me", (rank + 3) % 4);
    assert_eq!(lines, [line(0), line(1), line(2), line(3)]);
    launcher(["--version"]).run().expect(0);
}

#[test]
fn stencil_is_the_same_on_any_number_of_ranks() {
    for (ranks, most) in [(1, 1), (2, 1), (3, 3), (4, 2)] {
        let tree = testkit::apart::neighbourhoods(job(ranks, "stencil"), most);
        let outcome = tree.run();
        outcome.expect(0);
        let line = format!("50 steps of 48 x {} numbers on {ranks} ranks, as on one", 20 * ranks);
        assert!(outcome.out().contains(&line), "{}", outcome.out());
    }
}
