//! The body of the fuzz target on its seeds and on changes of them, with every run of the tests.

#[path = "../../fabric/fuzz/seeds.rs"]
mod seeds;
#[path = "../fuzz/bodies/template.rs"]
mod template;

use std::path::Path;

#[test]
fn templates() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds/template");
    seeds::each(&folder, 1, template::run);
}
