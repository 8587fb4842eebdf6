//! The body of the fuzz target on its seeds and on changes of them, with every run of the tests.

use std::path::Path;

use super::{ledger, wire};
use crate::transport::net::fuzz_seeds::run;

#[path = "../../fuzz/bodies/loans_wire.rs"]
mod loans_wire;

#[test]
fn messages_of_loans() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds/loans_wire");
    run::each(&folder, 1, loans_wire::run);
}
