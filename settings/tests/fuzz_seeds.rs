//! The body of the fuzz target on its seeds and on changes of them, with every run of the tests.

#[path = "../../fabric/fuzz/seeds.rs"]
mod seeds;
#[path = "../fuzz/bodies/variables.rs"]
mod variables;

use std::path::Path;

#[test]
fn variables_and_their_values() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds/variables");
    // Each goes to every parser.
    seeds::each(&folder, 10, variables::run);
}
