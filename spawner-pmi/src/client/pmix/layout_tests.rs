//! The declarations of this module against the headers of libpmix, where they are installed.

use std::io::Write as _;
use std::mem::offset_of;
use std::process::Command;

use super::*;

const PROGRAM: &str = r#"
    #include <stddef.h>
    #include <stdio.h>
    #include <pmix.h>
    #define SAY(x) printf("%s %lld\n", #x, (long long)(x))
    int main(void) {
        SAY(sizeof(pmix_proc_t)); SAY(offsetof(pmix_proc_t, rank));
        SAY(sizeof(pmix_value_t)); SAY(offsetof(pmix_value_t, data));
        SAY(sizeof(pmix_info_t)); SAY(offsetof(pmix_info_t, flags)); SAY(offsetof(pmix_info_t, value));
        SAY(sizeof(pmix_scope_t)); SAY(sizeof(pmix_data_type_t));
        SAY(PMIX_RANK_WILDCARD); SAY(PMIX_SUCCESS); SAY(PMIX_BOOL); SAY(PMIX_STRING); SAY(PMIX_INT);
        SAY(PMIX_UINT32); SAY(PMIX_GLOBAL); SAY(PMIX_ERR_LOST_CONNECTION_TO_SERVER);
        return 0;
    }
"#;

#[test]
fn declarations_are_those_of_the_headers() {
    let folder = std::env::temp_dir().join(format!("pmix-layout-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (source, program) = (folder.join("layout.c"), folder.join("layout"));
    std::fs::write(&source, PROGRAM).unwrap();
    let mut compile = Command::new("cc");
    for found in
        ["/usr/lib/x86_64-linux-gnu/pmix2/include", "/usr/lib/aarch64-linux-gnu/pmix2/include"]
    {
        compile.arg("-I").arg(found);
    }
    let built = compile.arg("-o").arg(&program).arg(&source).output();
    let said = match built {
        Ok(output) if output.status.success() => Command::new(&program).output().unwrap().stdout,
        _ => {
            std::fs::remove_dir_all(&folder).unwrap();
            let why = "pmix.h is not installed (libpmix-dev), or there is no cc";
            return writeln!(std::io::stdout(), "SKIP declarations of libpmix: {why}").unwrap();
        }
    };
    std::fs::remove_dir_all(&folder).unwrap();
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
    let said = String::from_utf8(said).unwrap();
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
