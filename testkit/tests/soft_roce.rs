//! The network on real verbs devices: Soft-RoCE inside virtual machines, see `scripts/softroce`.
//!
//! A boot takes most of a short run, so each test runs all its steps in one boot.

#[path = "soft_roce/machine.rs"]
mod machine;

use machine::step;

#[test]
fn one_machine() {
    if !machine::ready("Soft-RoCE, one machine") {
        return;
    }
    let steps = vec![
        step("ibv_devinfo", 10, "ibv_devinfo -v")
            .shows("rxe0")
            .shows("PORT_ACTIVE")
            .shows("10.77.0.1"),
        step("two ranks by shared memory", 30, "$programs/gasnetrun_ibv -n 2 $programs/hello")
            .shows("rank 1 of 2 on node1"),
        step(
            "a rank that fails",
            30,
            "$programs/gasnetrun_ibv -n 2 $programs/testexit 3 --delay 100",
        )
        .code(3),
    ];
    machine::run("Soft-RoCE, one machine", &[], &steps);
}
