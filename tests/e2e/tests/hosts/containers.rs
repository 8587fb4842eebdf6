//! Ranks of several hosts in containers.

use testkit::{Bed, binary, skip};

#[test]
fn ranks_in_containers_of_several_hosts() {
    let test = "ranks in containers of several hosts";
    let Some(bed) = Bed::up(test, "n1 n2") else { return };
    let container = "bwrap --dev-bind / / --unshare-pid --proc /proc";
    let probe = bed.cluster.on("n1", &["sh", "-c", &format!("{container} true")]).run();
    if probe.code() != 0 {
        return skip(test, &format!("bwrap cannot make a container here: {}", probe.err().trim()));
    }
    let hello = binary("hello").display().to_string();
    let words = ["-n", "4", "--hosts", "n1,n2", "--container", container, &hello];
    let outcome = bed.run(&[], &words);
    outcome.expect(0);
    for (rank, host) in [(0, "n1"), (1, "n1"), (2, "n2"), (3, "n2")] {
        let line = format!("rank {rank} of 4 on {host}, process 2\n");
        assert!(outcome.out().contains(&line), "{line} in {}", outcome.out());
    }
    // One rank that fails ends all of them, with its code.
    let script = "test $GASNETRUN_RANK = 3 && exit 9; sleep 600";
    let words = ["-n", "4", "--hosts", "n1,n2", "--container", container, "sh", "-c", script];
    bed.run(&[], &words).expect(9);
    // A host without the runtime is named before any rank starts.
    bed.shell("n2", "mount --bind /dev/null $(command -v bwrap)");
    let words = ["-n", "4", "--hosts", "n1,n2", "--container", container, &hello];
    let outcome = bed.run(&[], &words);
    outcome.expect(125);
    for part in ["1 of 2 hosts (n2)", "program check", "/bwrap: not a file"] {
        assert!(outcome.err().contains(part), "{part} in {}", outcome.err());
    }
}
