//! The declarations of this module against what the crate `pmix-sys` reads from the headers of
//! libpmix, where they are installed (`spawner-pmi/tests/oracle`).

use std::io::Write as _;
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;

use super::*;

/// Where Debian has libpmix.
const PLACES: [&str; 2] = ["/usr/lib/x86_64-linux-gnu/pmix2", "/usr/lib/aarch64-linux-gnu/pmix2"];

/// What the oracle prints; why there is nothing, where it cannot be built.
fn asked() -> Result<String, String> {
    let found = PLACES.into_iter().find(|place| Path::new(place).join("include/pmix.h").exists());
    let place = found.ok_or("pmix.h is not installed (libpmix-dev)")?;
    let crate_root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new("cargo")
        .args(["run", "--quiet", "--locked", "--manifest-path"])
        .arg(crate_root.join("tests/oracle/Cargo.toml"))
        .arg("--target-dir")
        .arg(crate_root.join("../target/pmix-oracle"))
        .env("PMIX_INCLUDE_DIR", format!("{place}/include"))
        .env("PMIX_LIB_DIR", format!("{place}/lib"))
        .output()
        .map_err(|error| format!("cargo: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("libclang") {
        return Err("bindgen finds no libclang (libclang-dev)".to_owned());
    }
    assert!(output.status.success(), "{said}");
    Ok(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn declarations_are_those_of_the_headers() {
    let said = match asked() {
        Ok(said) => said,
        Err(why) => {
            return writeln!(std::io::stdout(), "SKIP declarations of libpmix: {why}").unwrap();
        }
    };
    let ours: [i64; 17] = [
        size_of::<Proc>(),
        offset_of!(Proc, rank),
        size_of::<Value>(),
        offset_of!(Value, data),
        size_of::<Info>(),
        offset_of!(Info, flags),
        offset_of!(Info, value),
        size_of_val(&SCOPE_GLOBAL),
        size_of_val(&BOOL),
        RANK_WILDCARD as usize,
        0,
        BOOL.into(),
        STRING.into(),
        INT.into(),
        UINT32.into(),
        SCOPE_GLOBAL.into(),
        0,
    ]
    .map(|number| i64::try_from(number).unwrap());
    for (line, mut ours) in said.lines().zip(ours) {
        let (name, theirs) = line.rsplit_once(' ').unwrap();
        if name == "PMIX_ERR_LOST_CONNECTION_TO_SERVER" {
            assert!(LOST.contains(&theirs.parse().unwrap()), "{line}, ours {LOST:?}");
            continue;
        }
        if name == "PMIX_SUCCESS" {
            ours = SUCCESS.into();
        }
        assert_eq!(theirs.parse(), Ok(ours), "{name}");
    }
    assert_eq!(said.lines().count(), ours.len());
}
