//! Programs of `tests/c` over the network with the flow controls beside the default: those about
//! messages, and all with `--all`.

use testkit::{Table, all_requested};

use crate::build::{self, KINDS, MODES, built, place};
use crate::modes::fault;
use crate::programs;

/// Not named after messages, but full of them.
const MESSAGES: [&str; 4] = ["flood", "handlers", "matrix", "vis"];

#[test]
fn programs_pass_with_every_flow_control() {
    if !build::ready() {
        return;
    }
    let sends = |name: &String| name.starts_with("am_") || MESSAGES.contains(&name.as_str());
    let chosen: Vec<String> =
        programs().into_iter().filter(|name| all_requested() || sends(name)).collect();
    assert!(chosen.len() >= 8, "{chosen:?}");
    let mut table = Table::new("flow control: programs on 3 ranks", &["program", "scheme", "mode"]);
    let mut faults = Vec::new();
    for name in &chosen {
        for (turn, scheme) in ["dynamic", "volume"].into_iter().enumerate() {
            let mode = MODES[(place(name) + turn) % MODES.len()];
            let program = built(name, mode, build::kind(place(name) + turn, KINDS[turn]));
            let variables = [("GASNET_SUPERNODE_MAXSIZE", "1"), ("GASNET_AM_FLOW_CONTROL", scheme)];
            let fault = fault(&program, name, &variables);
            let mode = if fault.is_some() { "FAILED" } else { mode };
            table.row(vec![name.clone(), scheme.to_owned(), mode.to_owned()]);
            faults.extend(fault);
        }
    }
    table.show();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
