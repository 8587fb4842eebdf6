//! The body of the fuzz target on its seeds and on changes of them, with every run of the tests.

#[path = "../fuzz/bodies/provider.rs"]
mod provider;
#[path = "../../fabric/fuzz/seeds.rs"]
mod seeds;

use std::path::Path;

#[test]
fn choice_of_a_provider() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds/provider");
    seeds::each(&folder, 10, provider::run);
}
