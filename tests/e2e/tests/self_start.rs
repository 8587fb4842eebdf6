//! Programs that start themselves as jobs: `program [-v] N[:M] [arguments]`.

use std::time::Duration;

use testkit::{Tree, binary};

fn program(words: &[&str]) -> Tree {
    let mut tree = Tree::new(binary("hello")).args(words);
    for name in ["GASNET_SSH_SERVERS", "GASNET_NODEFILE", "GASNET_SSH_NODEFILE"] {
        tree = tree.env_remove(name);
    }
    tree.env("GASNET_IBV_SPAWNER", "ssh")
        .deadline("a job that starts itself", Duration::from_secs(60))
}

#[test]
fn a_program_becomes_a_job_only_when_it_is_asked_to() {
    let asked = |words: &[&str]| program(words).env("GASNET_IBV_SELF_START", "1");
    let outcome = asked(&["3", "an argument"]).run();
    outcome.expect(0);
    for rank in 0..3 {
        assert!(outcome.out().contains(&format!("rank {rank} of 3 on ")), "{}", outcome.out());
    }
    let outcome = asked(&["-v", "2:1"]).run();
    outcome.expect(0);
    assert!(outcome.err().contains("2 ranks of ") && outcome.out().contains("rank 1 of 2"));
    // M without hosts is the launcher's refusal; nonsense is ours.
    asked(&["4:2"]).run().expect(125);
    let outcome = asked(&["four"]).run();
    assert_ne!(outcome.code(), 0);
    assert!(outcome.err().contains("\"four\" is not N[:M]"), "{}", outcome.err());
    let outcome = asked(&["2"]).env("GASNET_IBV_LAUNCHER", "/nonexistent/launcher").run();
    assert_ne!(outcome.code(), 0);
    assert!(outcome.err().contains("GASNET_IBV_LAUNCHER"), "{}", outcome.err());
    // Without the variable, or with another spawner, the words are the program's own.
    for tree in [program(&["3"]), asked(&["3"]).env("GASNET_IBV_SPAWNER", "pmi")] {
        let outcome = tree.run();
        outcome.expect(0);
        assert!(outcome.out().starts_with("rank 0 of 1 on "), "{}", outcome.out());
    }
}
