//! The body of the fuzz target on its seeds and on changes of them, with every run of the tests.

use std::path::Path;

use super::wire;
use crate::transport::net::fuzz_seeds::run;

#[path = "../../fuzz/bodies/vis_wire.rs"]
mod vis_wire;

#[test]
fn descriptions_of_packets() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds/vis_wire");
    run::each(&folder, 1, vis_wire::run);
}
