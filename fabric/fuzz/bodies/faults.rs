//! Any text as a fault script: refused with a column inside the text, or it works without a panic.

use std::time::{Duration, Instant};

use fabric::soft::FaultScript;
use fabric::soft::testing::FaultPlan;

/// One input.
pub(crate) fn run(text: &str) {
    for name in ["", "1"] {
        let script = match FaultScript::parse_for(text, name) {
            Ok(script) => script,
            Err(problem) => {
                assert!(problem.column > 0 && problem.column <= text.len() + 2);
                continue;
            }
        };
        let faults = FaultPlan::new(script);
        assert!(faults.datagram().copies <= 2);
        let _ =
            (faults.refuse_registration(1 << 20), faults.queue_pair_ready(), faults.need_clock());
        let age = faults.age(Instant::now()) + Duration::from_secs(1);
        let _ = (
            faults.port_is_down("soft0", 1, age),
            faults.is_dead(age),
            faults.is_any_unreachable(age),
        );
        let _ = faults.is_unreachable([127, 0, 0, 1].into(), age);
    }
}
