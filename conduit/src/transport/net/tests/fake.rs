//! The fake libibverbs of the testkit, which moves data inside this process. Of a list of requests it
//! takes two, and has no room for the others at that moment.

use std::path::Path;
use std::process::Command;
use std::sync::{Arc, OnceLock};

use fabric::Fabric;

/// Built and opened once; `None`, with the reason told, where that is not possible.
pub(super) fn fabric() -> Option<Arc<dyn Fabric>> {
    static FABRIC: OnceLock<Option<Arc<dyn Fabric>>> = OnceLock::new();
    FABRIC.get_or_init(build).clone()
}

fn build() -> Option<Arc<dyn Fabric>> {
    if !Path::new("/usr/include/infiniband/verbs.h").is_file() {
        eprintln!("SKIP network over fake verbs: no infiniband/verbs.h (package libibverbs-dev)");
        return None;
    }
    let file = std::env::temp_dir().join(format!("gasnet-fake-verbs-{}.so", std::process::id()));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testkit/fake-verbs/build");
    let built = Command::new(script)
        .arg(&file)
        .args(["-DFAKE_MOVES", "-DFAKE_LIST=2"])
        .status()
        .expect("a C compiler");
    assert!(built.success(), "the fake library cannot be built");
    let fabric = fabric::verbs::open(Some(&file)).expect("the library that was just built");
    std::fs::remove_file(&file).expect("it was there");
    Some(fabric)
}
