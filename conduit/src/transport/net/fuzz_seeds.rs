//! The bodies of the fuzz targets on their seeds and on changes of them, with every run of the
//! tests.

use std::path::Path;

use super::am::header;
use super::connect::{file, wire};

#[path = "../../../fuzz/bodies/am_header.rs"]
mod am_header;
#[path = "../../../fuzz/bodies/connect_file.rs"]
mod connect_file;
#[path = "../../../fuzz/bodies/connect_wire.rs"]
mod connect_wire;
#[path = "../../../../fabric/fuzz/seeds.rs"]
pub(crate) mod run;

fn each(target: &str, body: impl Fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(target);
    run::each(&folder, 1, body);
}

#[test]
fn messages_of_peers() {
    each("am_header", am_header::run);
}

#[test]
fn connect_files() {
    each("connect_file", connect_file::run);
}

#[test]
fn packets_of_the_handshake() {
    each("connect_wire", connect_wire::run);
}
