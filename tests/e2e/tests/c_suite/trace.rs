//! C programs and the trace: their texts, and each put and get counted.

use crate::build::{self, Kind, built};
use testkit::launcher;

#[test]
fn texts_of_c_programs_are_traced_and_each_put_is_counted() {
    if !build::ready() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let pattern = |name: &str| directory.path().join(name).display().to_string();
    for (mode, kind) in [("seq", Kind::Shared), ("par", Kind::Static)] {
        let outcome = launcher(["-n", "2"])
            .arg(built("traced", mode, kind))
            .arg("on")
            .env("GASNET_TRACEFILE", pattern("trace-%"))
            .env("GASNET_STATSFILE", pattern("stats-%"))
            .deadline("C program", crate::BOUND)
            .run();
        outcome.expect(0);
        assert!(outcome.out().contains("PASS traced\n"), "{}", outcome.err());
        for rank in 0..2 {
            let read = |name: &str| {
                let path = directory.path().join(format!("{name}-{rank}"));
                std::fs::read_to_string(path).unwrap()
            };
            let (trace, stats) = (read("trace"), read("stats"));
            for text in ["(H) [somewhere.c:77] a text 1", "[somewhere.c:77] forced 2"] {
                assert!(trace.contains(text), "{mode}: {text} is not in {trace}");
            }
            assert!(!trace.contains("masked"), "{trace}");
            assert_eq!(trace.matches(&format!("put rank {rank}, 8 bytes")).count(), 100, "{mode}");
            assert_eq!(trace.matches(&format!("get rank {rank}, 8 bytes")).count(), 100, "{mode}");
            for text in [
                "for the statistics 3".to_owned(),
                format!("callback of rank {rank}"),
                "(P) PUT 100 times, 800 bytes".to_owned(),
                "(G) GET 100 times, 800 bytes".to_owned(),
            ] {
                assert!(stats.contains(&text), "{mode}: {text} is not in {stats}");
            }
            // Without threads nobody waits for a lock.
            assert_eq!(stats.contains("(L) WAIT_LOCK 1 times"), mode == "par", "{stats}");
        }
    }
}
