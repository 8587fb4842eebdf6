//! The conformance suite, both sides in this process: on the first real device with a usable port,
//! and over the fake library.

use std::sync::Arc;

use super::device::place;
use super::fake::Fake;
use crate::Fabric;
use crate::conformance::{Outcome, Side, Verdict, channel_links, run};
use crate::verbs::open;

#[test]
fn the_device_conforms() {
    let Some((device, port)) = place() else { return };
    let outcomes = conforms(device, port, &|| open(None).expect("it opened before"));
    assert!(outcomes.len() > 1, "{outcomes:?}");
}

/// What no device of the tests can do, and the suite itself against another implementation.
#[test]
fn the_fake_library_conforms() {
    let Some(fake) = Fake::that_moves("suite") else { return };
    let outcomes = conforms(0, 1, &|| fake.fabric());
    let skipped: Vec<_> = outcomes
        .iter()
        .filter(|one| matches!(one.verdict, Verdict::Skip(_)))
        .map(|one| one.case)
        .collect();
    if settings::variable("FABRIC_VERBS_ONLY").is_none() {
        assert_eq!(skipped, ["port-events"]);
    }
    fake.is_clean();
}

/// `FABRIC_VERBS_ONLY` limits it to cases whose name contains the text.
fn conforms(
    device: usize,
    port: u8,
    fabric: &(dyn Fn() -> Arc<dyn Fabric> + Sync),
) -> Vec<Outcome> {
    let only = settings::Env::from_process().text("FABRIC_VERBS_ONLY").unwrap_or_default();
    let (mut left, mut right) = channel_links();
    let only = only.as_str();
    let side = |role, link| {
        // Each side opens the device for itself, as processes do.
        let mut side = Side::new(role, fabric(), device, port, link);
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
    outcomes
}
