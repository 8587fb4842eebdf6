//! The bodies of the fuzz targets on their seeds and on changes of them, with every run of the tests.

#[path = "../fuzz/bodies/pmi_server.rs"]
mod pmi_server;
#[path = "../fuzz/bodies/pmix_frames.rs"]
mod pmix_frames;
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

#[test]
fn what_an_agent_and_its_helper_for_pmix_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds/pmix_frames");
    seeds::each(&folder, 1, pmix_frames::run);
}

/// A fuzzer begins with these talks. (`GASNETRUN_UPDATE_DOCUMENTS=1` writes them.)
#[test]
fn seeds_for_the_frames_of_pmix_are_these() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds/pmix_frames");
    for (name, bytes) in pmix_frames::talks() {
        let path = folder.join(name);
        if settings::variable("GASNETRUN_UPDATE_DOCUMENTS").is_some() {
            std::fs::write(&path, &bytes).expect("the seed can be written");
        }
        let seed = std::fs::read(&path).expect("the seed");
        assert!(seed == bytes, "{} is another talk", path.display());
    }
}
