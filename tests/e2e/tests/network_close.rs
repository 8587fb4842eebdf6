//! How the network ends and what it leaves behind, over the software adapter: lists of used
//! connections, exits in any order; what ranks must have alike; which ports are used; what an
//! unconnected peer costs.

#![expect(clippy::unwrap_used, reason = "what is missing here fails the test")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use testkit::{Outcome, Tree, all_requested, job, launcher};

/// Far above what any of these takes, below the last resorts of the exit.
const BOUND: Duration = Duration::from_secs(60);

/// No two ranks share memory.
fn apart(tree: Tree) -> Tree {
    let tree = tree.env("GASNET_SUPERNODE_MAXSIZE", "1").env("GASNET_IBV_FABRIC", "soft");
    tree.deadline("job over the network", BOUND)
}

fn with(tree: Tree, variables: &[(&str, &str)]) -> Tree {
    variables.iter().fold(apart(tree), |tree, (name, value)| tree.env(name, value))
}

/// A directory of one test, gone at its end.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("gasnet-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn read(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn right(outcome: &Outcome, words: &str) {
    outcome.expect(0);
    assert!(outcome.out().contains(words), "{}\n{}", outcome.out(), outcome.err());
    assert!(outcome.err().is_empty(), "{}", outcome.err());
}

#[test]
fn connections_that_a_job_used_are_made_at_the_start_of_the_next() {
    const WORDS: &str = "around 8 ranks: 800 steps in order";
    let place = Place::new("lists");
    for (name, base) in [("list", "36"), ("list.%", "10")] {
        let list = place.file(name);
        let written = [("GASNET_CONNECTFILE_OUT", &*list), ("GASNET_CONNECTFILE_BASE", base)];
        right(&with(job(8, "ring"), &written).run(), WORDS);
        // A barrier of 8 reaches those 1, 2 and 4 away, and so does the ring.
        let text = read(list.replace('%', "0"));
        assert_eq!(text.lines().nth(1), Some(&*format!("base: {base}")), "{text}");
        assert_eq!(text.lines().nth(2), Some("0:1 2 4 6 7"), "{text}");
        assert_eq!(text.lines().count(), if name.contains('%') { 3 } else { 10 }, "{text}");
        // They suffice for the same program, and no other is made.
        let only = [("GASNET_CONNECTFILE_IN", &*list), ("GASNET_CONNECT_DYNAMIC", "0")];
        right(&with(job(8, "ring"), &only).run(), WORDS);
    }
    let few = place.file("few");
    std::fs::write(&few, "size: 8\nbase: 10\n0: 1 2 4\n").unwrap();
    let only = [("GASNET_CONNECTFILE_IN", &*few), ("GASNET_CONNECT_DYNAMIC", "0")];
    let outcome = with(job(8, "ring"), &only).run();
    assert_ne!(outcome.code(), 0);
    assert!(outcome.err().contains("GASNET_CONNECT_DYNAMIC=0"), "{}", outcome.err());
    // On demand the rest is made when it is needed, and written down with it.
    let (list, few) = (place.file("again"), &*few);
    let more = [("GASNET_CONNECTFILE_IN", few), ("GASNET_CONNECTFILE_OUT", &*list)];
    right(&with(job(8, "ring"), &more).run(), WORDS);
    assert!(read(&list).contains("\n7:0 1 3 5 6\n"), "{}", read(&list));
}

#[test]
fn a_list_that_cannot_be_written_is_said_and_changes_no_result() {
    for name in ["/nowhere/at/all/list", "/nowhere/at/all/list.%"] {
        let outcome = with(job(2, "hello"), &[("GASNET_CONNECTFILE_OUT", name)]).run();
        outcome.expect(0);
        let said = outcome.err().contains("/nowhere/at/all/list");
        assert!(said && outcome.out().contains("rank 1 of 2"), "{}", outcome.err());
    }
}

#[test]
fn a_job_that_does_not_end_together_ends_without_a_common_list() {
    let place = Place::new("lone");
    let list = place.file("list");
    // Rank 2 exits alone, the others are in a barrier.
    let tree = job(3, "testexit").args(["3", "--delay", "150"]);
    let outcome = with(tree, &[("GASNET_CONNECTFILE_OUT", &*list)]).run();
    outcome.expect(3);
    assert!(outcome.duration < Duration::from_secs(10), "{:?}", outcome.duration);
    assert!(!Path::new(&list).exists(), "{}", read(&list));
}

#[test]
fn whoever_closes_first_is_not_missed() {
    let rounds = if all_requested() { 40 } else { 8 };
    for round in 0..rounds {
        let dynamic = [("GASNET_CONNECT_STATIC", if round % 2 == 0 { "0" } else { "1" })];
        for ranks in [2, 5] {
            let words = format!("around {ranks} ranks:");
            right(&with(job(ranks, "ring"), &dynamic).run(), &words);
        }
    }
}

/// A job whose rank 1 has one more variable.
fn uneven(ranks: u32, variable: &str) -> Tree {
    let program = testkit::binary("hello");
    let script = format!("test $GASNETRUN_RANK = 1 && export {variable}; exec \"$0\"");
    launcher(["-n", &ranks.to_string()]).arg("/bin/sh").args(["-c", &script]).arg(program)
}

#[test]
fn ranks_that_are_connected_otherwise_are_named() {
    for (variable, name) in [
        ("GASNET_CONNECT_STATIC=0", "GASNET_CONNECT_STATIC"),
        ("GASNET_CONNECT_DYNAMIC=0", "GASNET_CONNECT_DYNAMIC"),
        ("GASNET_CONNECTFILE_OUT=/tmp/list", "GASNET_CONNECTFILE_OUT"),
    ] {
        let outcome = apart(uneven(3, variable)).run();
        assert_ne!(outcome.code(), 0);
        let err = outcome.err();
        assert!(err.contains("rank 1 ") && err.contains(name), "{variable}: {err}");
        assert!(outcome.survivors.is_empty(), "{:?}", outcome.survivors);
    }
}

#[test]
fn ports_of_the_software_adapter_are_chosen_and_listed_like_others() {
    let two = ("GASNET_IBV_SOFT_DEVICES", "2");
    let list = [("GASNET_IBV_LIST_PORTS", "1"), ("GASNET_IBV_LIST_PORTS_NODES", "0")];
    let outcome =
        with(job(2, "hello"), &[two, ("GASNET_IBV_PORTS", "soft1"), list[0], list[1]]).run();
    outcome.expect(0);
    let err = outcome.err();
    let used: Vec<&str> = err.lines().filter(|line| line.contains("(used)")).collect();
    assert_eq!(used.len(), 1, "{err}");
    let (first, second) = (err.find("soft0").unwrap(), err.find("soft1").unwrap());
    assert!(first < second && second < err.find("(used)").unwrap(), "{err}");
    for filter in ["mlx5_0", "soft2", "soft0:2"] {
        let outcome = with(job(2, "hello"), &[two, ("GASNET_IBV_PORTS", filter)]).run();
        assert_ne!(outcome.code(), 0, "{filter}");
        let said = format!("no usable port that GASNET_IBV_PORTS={filter} names");
        assert!(outcome.err().contains(&said), "{}", outcome.err());
    }
}

/// Median of what the ranks of a job allocated until the end of init, bytes.
fn allocated(ranks: u32) -> u64 {
    let settings = [("GASNET_CONNECT_STATIC", "0"), ("GASNET_USE_SRQ", "1")];
    let outcome = with(job(ranks, "bench_net_memory"), &settings).run();
    outcome.expect(0);
    let out = outcome.out();
    let values = out.lines().filter_map(|line| line.strip_prefix("heap_bytes ")?.parse().ok());
    let mut values: Vec<u64> = values.collect();
    assert_eq!(values.len(), usize::try_from(ranks).unwrap(), "{out}");
    values.sort_unstable();
    values[values.len() / 2]
}

#[test]
fn an_unconnected_peer_costs_at_most_sixteen_bytes() {
    // Between these two no queue that grows with the logarithm of the ranks, or of the peers, takes
    // the next power of two.
    let (few, many) = (allocated(18), allocated(32));
    let each = many.saturating_sub(few) / (32 - 18);
    assert!(each <= 16, "{few} bytes with 17 peers, {many} with 31: {each} for each more");
}
