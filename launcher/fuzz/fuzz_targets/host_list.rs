//! Any text as a host list, a host file, a file of Grid Engine and a map. It must be understood or
//! refused without a panic, no host may look like an option of the remote shell, and a map must
//! keep its promises.

#![no_main]

use libfuzzer_sys::fuzz_target;
use launcher::hosts::list::{Grammar, Here, distinct, parse, place};

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    for grammar in [Grammar::Words, Grammar::Lines, Grammar::GridEngine] {
        let Ok(list) = parse(&text, grammar) else { continue };
        for host in &list.hosts {
            assert!(!host.name.is_empty() && !host.name.starts_with('-'));
            assert!(host.user.as_ref().is_none_or(|user| !user.is_empty() && !user.starts_with('-')));
        }
        let once = distinct(list.hosts);
        assert_eq!(distinct(once.clone()), once);
        if let Ok(map) = place(&text, 8, Some(&once), &Here::default()) {
            map.check().expect("every host has a rank");
        }
    }
});
