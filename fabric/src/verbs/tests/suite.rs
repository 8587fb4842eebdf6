//! The conformance suite on the first real device with a usable port, both sides in this process.

use super::device::place;
use crate::conformance::{Outcome, Side, Verdict, channel_links, run};
use crate::verbs::open;

/// `FABRIC_VERBS_ONLY` limits it to cases whose name contains the text.
#[test]
fn the_device_conforms() {
    let Some((device, port)) = place() else { return };
    let only = std::env::var("FABRIC_VERBS_ONLY").unwrap_or_default();
    let (mut left, mut right) = channel_links();
    let only = only.as_str();
    let side = |role, link| {
        // Each side opens the device for itself, as processes do.
        let fabric = open(None).expect("it opened before");
        let mut side = Side::new(role, fabric, device, port, link);
        run(&mut side, only, &mut |outcome: &Outcome| {
            if role == 0 {
                println!(
                    "{:<50} {:>6} ms  {:?}",
                    outcome.case,
                    outcome.took.as_millis(),
                    outcome.verdict
                );
            }
        })
    };
    let outcomes = std::thread::scope(|scope| {
        let other = scope.spawn(|| side(1, &mut right));
        let own = side(0, &mut left);
        other.join().expect("the other side").expect("the other side");
        own.expect("this side")
    });
    let failed: Vec<&Outcome> =
        outcomes.iter().filter(|one| matches!(one.verdict, Verdict::Fail(_))).collect();
    assert!(failed.is_empty(), "{failed:#?}");
}
