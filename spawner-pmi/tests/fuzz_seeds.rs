//! The bodies of the fuzz targets on their seeds and on changes of them, with every run of the tests.

#[path = "../fuzz/bodies/pmi_server.rs"]
mod pmi_server;
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

#[test]
fn what_ranks_say_to_the_pmi_server() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds/pmi_server");
    seeds::each(&folder, 1, pmi_server::run);
}
