//! The bodies of the fuzz targets on their seeds and on changes of them, with every run of the tests.

#[path = "../fuzz/bodies/pmi_server.rs"]
mod pmi_server;
#[path = "../fuzz/bodies/pmix_frames.rs"]
mod pmix_frames;
#[path = "../../fabric/fuzz/seeds.rs"]
mod seeds;
#[path = "../fuzz/bodies/template.rs"]
mod template;

use std::path::{Path, PathBuf};

/// The seeds of a target.
fn folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(target)
}

#[test]
fn templates() {
    seeds::each(&folder("template"), 1, template::run);
}

#[test]
fn what_ranks_say_to_the_pmi_server() {
    seeds::each(&folder("pmi_server"), 1, pmi_server::run);
}

#[test]
fn what_an_agent_and_its_helper_for_pmix_say() {
    seeds::each(&folder("pmix_frames"), 1, pmix_frames::run);
}

/// A fuzzer begins with these talks. (`GASNETRUN_UPDATE_DOCUMENTS=1` writes them.)
#[test]
fn seeds_for_the_frames_of_pmix_are_these() {
    let folder = folder("pmix_frames");
    for (name, bytes) in pmix_frames::talks() {
        let path = folder.join(name);
        if settings::variable("GASNETRUN_UPDATE_DOCUMENTS").is_some() {
            std::fs::write(&path, &bytes).expect("the seed can be written");
        }
        let seed = std::fs::read(&path).expect("the seed");
        assert!(seed == bytes, "{} is another talk", path.display());
    }
}
