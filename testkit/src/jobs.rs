//! Commands of the launcher.

use std::ffi::OsStr;
use std::path::Path;

use crate::Tree;

/// The launcher with these arguments, free of what the caller's environment says about jobs.
#[must_use]
pub fn launcher<I: IntoIterator<Item: AsRef<OsStr>>>(args: I) -> Tree {
    let mut tree = Tree::new(crate::binary("gasnetrun_ibv"));
    for (name, _) in settings::Env::from_process() {
        let bytes = name.as_encoded_bytes();
        let foreign: [&[u8]; 5] = [b"GASNET", b"PMI", b"OMPI_", b"SLURM_", b"MPI"];
        if foreign.iter().any(|prefix| bytes.starts_with(prefix)) {
            tree = tree.env_remove(name);
        }
    }
    tree.args(args)
}

/// `gasnetrun_ibv -n RANKS PROGRAM`; a program without a slash is a binary of the workspace.
#[must_use]
pub fn job(ranks: u32, program: &str) -> Tree {
    let program =
        if Path::new(program).is_absolute() { program.into() } else { crate::binary(program) };
    launcher(["-n", &ranks.to_string()]).arg(program)
}
