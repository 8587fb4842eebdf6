//! The body of the fuzz target for messages on its seeds and on changes of them, with every run of the tests.

use std::path::Path;

use super::header;

#[path = "../../../fuzz/bodies/am_header.rs"]
mod am_header;
#[path = "../../../../fabric/fuzz/seeds.rs"]
mod run;

#[test]
fn messages_of_peers() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds/am_header");
    run::each(&folder, 1, am_header::run);
}
