//! Any bytes as a template for the call of another launcher. It must be understood or refused
//! without a panic; one that is understood names a launcher, and its words carry the arguments
//! unchanged at least once, whole or quoted for a shell.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use spawner_pmi::launch::template::{Template, Values};

pub(crate) fn run(data: &[u8]) {
    let text = OsString::from_vec(data.to_vec());
    for unchecked in [false, true] {
        let Ok(template) = Template::parse("PMIRUN_CMD", &text, unchecked) else { continue };
        let values = Values {
            ranks: 4,
            program: "/bin/program".into(),
            arguments: vec!["ARGUMENT".into()],
            host_file: Some("/file".into()),
            ..Values::default()
        };
        let words = template.expand(&values).expect("there is a file with hosts");
        let has = |wanted: &str| {
            let wanted = wanted.as_bytes();
            words
                .iter()
                .any(|word| word.as_bytes().windows(wanted.len()).any(|part| part == wanted))
        };
        assert!(unchecked || (has("ARGUMENT") && has("/bin/program") && has("4")));
        assert!(!words.is_empty() || template.launcher() == OsStr::new(""));
    }
}
