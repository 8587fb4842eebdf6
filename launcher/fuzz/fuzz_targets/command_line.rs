//! Any command line: words between NUL bytes. It must be parsed or refused without a panic, the
//! (last) program's words must be the tail of the line, and an accepted line must be understood the same
//! way a second time.

#![no_main]

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let words: Vec<OsString> = data.split(|b| *b == 0).map(|word| OsString::from_vec(word.to_vec())).collect();
    if let Ok(line) = launcher::command_line::parse(words.iter().cloned()) {
        // Of several programs the last one has the tail.
        let last = line.parts.last().map_or(&line.command, |part| &part.command);
        assert!(words.ends_with(last));
        let _ = line.ranks();
        let again = launcher::command_line::parse(words).expect("accepted before");
        assert_eq!(format!("{line:?}"), format!("{again:?}"));
    }
});
