//! Draws each `NAME.json` of a folder to `NAME.svg` beside it: `bench_plots FOLDER`.

use std::path::Path;
use std::process::ExitCode;

use bench::plot::{Error, plot, records};
use testkit::report::show;

fn draw_all(folder: &Path) -> Result<(), Error> {
    for record in records(folder)? {
        let path = record.with_extension("svg");
        std::fs::write(&path, plot(&record)?).map_err(|source| Error::File {
            operation: "write",
            path: path.clone(),
            source,
        })?;
        show(&format!("{}\n", path.display()));
    }
    Ok(())
}

fn main() -> ExitCode {
    let Some(folder) = std::env::args_os().nth(1) else {
        eprintln!("usage: bench_plots FOLDER");
        return ExitCode::from(2);
    };
    match draw_all(Path::new(&folder)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench_plots: {error}");
            ExitCode::FAILURE
        }
    }
}
