//! The bodies of the fuzz targets on their seeds and on changes of them, with every run of the
//! tests. (`messages` has a test file of its own.)

#[path = "../fuzz/bodies/collective.rs"]
mod collective;
#[path = "../fuzz/bodies/frame.rs"]
mod frame;
#[path = "../../fabric/fuzz/seeds.rs"]
mod seeds;

use std::path::Path;

fn each(target: &str, divide: u32, run: impl Fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(target);
    seeds::each(&folder, divide, run);
}

#[test]
fn frames() {
    each("frame", 1, frame::run);
}

#[test]
fn collective_calls() {
    each("collective", 1, collective::run);
}
