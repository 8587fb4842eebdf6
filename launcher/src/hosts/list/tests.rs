//! Tests of host lists and maps.

use proptest::prelude::*;

use super::*;
use supervisor::plan::Map;

fn shown(list: &[HostEntry]) -> String {
    let one = |host: &HostEntry| match host.slots {
        Some(slots) => format!("{host} slots={slots}"),
        None => host.to_string(),
    };
    list.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn words_of(text: &str) -> String {
    parse(text, Grammar::Words).map_or_else(|e| e.to_string(), |list| shown(&list.hosts))
}

#[test]
fn lists_in_one_text() {
    for (text, hosts) in [
        ("", ""),
        (" , ", ""),
        ("n1", "n1"),
        ("n1 n2,n3;n4/n5\tn6\nn7", "n1, n2, n3, n4, n5, n6, n7"),
        ("n1:4,n2:22 n3:2222", "n1 slots=4, n2:22, n3:2222"),
        ("me@n1:4", "me@n1:4"),
        ("me@corp.example@n1", "me@corp.example@n1"),
        ("n1 slots=4, n2 port=2200 slots=2 user=me,n3", "n1 slots=4, me@n2:2200 slots=2, n3"),
        (
            "::1,[::1]:22 [fe80::1%eth0] me@[::1]:2222 me@::1",
            "::1, [::1]:22, fe80::1%eth0, me@[::1]:2222, me@::1",
        ),
        ("10.0.0.1:2", "10.0.0.1 slots=2"),
        ("n[1-3,08-10],x", "n1, n2, n3, n08, n09, n10, x"),
        ("r[0-1]n[1-2]-ib:3", "r0n1-ib slots=3, r0n2-ib slots=3, r1n1-ib slots=3, r1n2-ib slots=3"),
        ("n[1-2] slots=3", "n1 slots=3, n2 slots=3"),
        ("gr\u{fc}n", "gr\u{fc}n"),
    ] {
        assert_eq!(words_of(text), hosts, "{text:?}");
    }
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    for (text, parts) in [
        ("n1,n2:0", &["line 1, column 4", "n2:0", "from 1 to 65535"][..]),
        ("n1:x", &["column 1", "n1:x", "whole number"]),
        ("n1\nme@n2:99999", &["line 2, column 1", "no port"]),
        ("\u{fc} -oProxyCommand=x", &["column 3", "-oProxyCommand=x", "not known behind a host"]),
        ("-v", &["\"-v\"", "option of the remote shell"]),
        ("-v@n1", &["\"-v@n1\"", "option of the remote shell"]),
        ("me@-v", &["\"me@-v\"", "option of the remote shell"]),
        ("@n1", &["\"@n1\"", "names no host"]),
        ("me@", &["\"me@\"", "names no host"]),
        ("n1 $(x)", &["column 4", "'$'"]),
        ("n[1-2", &["n[1-2", "brackets"]),
        ("n1]", &["n1]", "brackets"]),
        ("[n1]:22", &["brackets"]),
        ("[::1]22", &["brackets"]),
        ("n[]", &["\"\" is no range"]),
        ("n[3-1]", &["\"3-1\" is no range"]),
        ("n[a-b]", &["\"a-b\" is no range"]),
        ("n[1--2]", &["is no range"]),
        ("n[[1]]", &["is no range"]),
        ("n[0-9999999]", &["more than 1048576 hosts"]),
        ("n[0-999999]m[0-999999]", &["more than 1048576 hosts"]),
        ("a[1]b[1]c[1]d[1]e[1]f[1]g[1]h[1]i[1]", &["brackets"]),
        ("n[1-1000000000000000000]", &["is no range"]),
        ("slots=4 n1", &["column 1", "belongs behind a host"]),
        ("n1 slot=4", &["column 4", "slot=4", "slots=4"]),
        ("n1 slots=-4", &["slots=-4", "from 1 to 16777216"]),
        ("n1:n2", &["n1:n2"]),
        ("::1:22:n", &["::1:22:n"]),
    ] {
        let error = parse(text, Grammar::Words).expect_err(text).to_string();
        for part in parts {
            assert!(error.contains(part), "{text:?}: {error} lacks {part:?}");
        }
    }
}

#[test]
fn host_files() {
    let list = parse(
        "\u{feff}# hosts\n\n  n1 slots=4\r\n\tn2  # old\n  # no\nn[3-4]:2\nn1\n",
        Grammar::Lines,
    )
    .expect("fine");
    assert_eq!(shown(&list.hosts), "n1 slots=4, n2, n3 slots=2, n4 slots=2, n1");
    assert!(list.notes.is_empty());
    let list = parse("n1 four\nn2 4 x\n", Grammar::Lines).expect("fine");
    assert_eq!(shown(&list.hosts), "n1, n2");
    assert_eq!(list.notes.len(), 1);
    assert!(list.notes[0].contains("line 1, column 4: \"four\""), "{:?}", list.notes);
    let error = parse("n1\n\n n2,n3\n", Grammar::Lines).expect_err("comma").to_string();
    assert!(error.contains("line 3, column 2") && error.contains("one host per line"), "{error}");
    let error = parse("n1\nn\u{fffd}\n", Grammar::Lines).expect_err("bytes").to_string();
    assert!(error.contains("line 2") && error.contains("UTF-8"), "{error}");
    assert!(parse("n1#x\n", Grammar::Lines).is_err(), "a comment needs a blank before it");
}

#[test]
fn grid_engine_files() {
    let text = "n1.x 4 all.q@n1.x UNDEFINED\nn2.x 2 all.q@n2.x <NULL>\n";
    let list = parse(text, Grammar::GridEngine).expect("fine");
    assert_eq!(shown(&list.hosts), "n1.x slots=4, n2.x slots=2");
    assert!(list.notes.is_empty());
    let error = parse("n1 many\n", Grammar::GridEngine).expect_err("no number").to_string();
    assert!(error.contains("column 4") && error.contains("many"), "{error}");
}

#[test]
fn repeated_hosts() {
    let list = parse("n1 n2 n1 me@n1 n1:2 n2 N1 n1:3", Grammar::Words).expect("fine");
    assert_eq!(shown(&distinct(list.hosts)), "n1, n2, me@n1, N1");
    let list = parse("n1:2 n2 n1:3 n1", Grammar::Words).expect("fine");
    assert_eq!(shown(&distinct(list.hosts)), "n1 slots=5, n2");
}

#[test]
fn the_launching_host_is_recognised() {
    let here = Here {
        name: "n1.cluster".into(),
        batch_name: Some("node-a".into()),
        user: Some("me".into()),
    };
    let is = |text: &str| here.is(&parse(text, Grammar::Words).expect(text).hosts[0]);
    for text in ["n1", "N1.cluster", "localhost", "127.0.0.1", "::1", "me@n1", "n1:4", "node-a"] {
        assert!(is(text), "{text}");
    }
    for text in ["n2", "n1.other", "10.0.0.1", "n1:22", "you@n1", "node-b"] {
        assert!(!is(text), "{text}");
    }
}

fn map(text: &str, ranks: u32, list: &str) -> Result<Map, String> {
    let list = parse(list, Grammar::Words).expect("a list").hosts;
    let list = (!list.is_empty()).then_some(list.as_slice());
    let here = Here { name: "n1".into(), ..Here::default() };
    place(text, ranks, list, &here).map_err(|error| error.to_string())
}

#[test]
fn maps_from_files() {
    let made = map("# c\n0,4-5 n2 # x\n\n* +0\n", 6, "n1 n2 n3").expect("fine");
    assert_eq!(
        (shown(&made.hosts).as_str(), &made.host_of[..]),
        ("n1, n2", &[1, 0, 0, 0, 1, 1][..])
    );
    let made = map("1 b\n0 n1\n2 b", 3, "").expect("the map's own hosts");
    assert_eq!((shown(&made.hosts).as_str(), &made.host_of[..]), ("b, n1", &[1, 0, 0][..]));
    assert!(made.hosts[1].here && !made.hosts[0].here);
    let made = map("* n2", 2, "n1 me@n2:2222").expect("the name alone");
    assert_eq!(shown(&made.hosts), "me@n2:2222");
    for (text, parts) in [
        ("0 n1\n0-1 n2", &["line 2, column 1", "rank 0 has a host already"][..]),
        ("0 n1\n2 n1\n", &["line 2", "rank 1 has no host"]),
        ("", &["line 1", "rank 0 has no host"]),
        ("0-3 n1", &["\"0-3\"", "job of 3"]),
        ("2-1 n1", &["\"2-1\""]),
        ("0, n1", &["\"\""]),
        ("* n1\n* n2", &["line 2", "\"*\""]),
        ("  0", &["column 3", "needs a host"]),
        ("0 n1 n2", &["column 6", "too much"]),
        ("0 n9", &["\"n9\"", "not among the 2"]),
        ("0 +2", &["\"+2\"", "not among the 2"]),
        ("0 n1:4", &["slots"]),
        ("0 n[1-2]", &["brackets"]),
    ] {
        let error = map(text, 3, "n1 n2").expect_err(text);
        for part in parts {
            assert!(error.contains(part), "{text:?}: {error} lacks {part:?}");
        }
    }
    let error = map("0 n1", 1, "n1:22 me@n1").expect_err("two hosts of that name");
    assert!(error.contains("not among the 2"), "{error}");
}

fn host_text() -> impl Strategy<Value = (String, HostEntry)> {
    let name = prop_oneof![
        "[a-z][a-z0-9.-]{0,8}[a-z0-9]",
        Just("fe80::1".to_owned()),
        Just("10.0.0.1".to_owned())
    ];
    let user = proptest::option::of("[a-z][a-z0-9_]{0,5}");
    (name, user, proptest::option::of(1_u16..), proptest::option::of(1..=MAX_SLOTS)).prop_map(
        |(name, user, port, slots)| {
            let host = HostEntry { name, user, port, slots, here: false };
            let plain = HostEntry { port: None, ..host.clone() };
            let mut text = plain.to_string();
            if let Some(port) = port {
                text += &format!(" port={port}");
            }
            if let Some(slots) = slots {
                text += &format!(" slots={slots}");
            }
            (text, host)
        },
    )
}

proptest! {
    #[test]
    fn what_is_written_is_read(hosts in proptest::collection::vec(host_text(), 0..20)) {
        let expected: Vec<_> = hosts.iter().map(|(_, host)| host.clone()).collect();
        for (grammar, separator) in [(Grammar::Words, ", "), (Grammar::Words, " "), (Grammar::Lines, "\n")] {
            let text = hosts.iter().map(|(text, _)| text.as_str()).collect::<Vec<_>>().join(separator);
            prop_assert_eq!(&parse(&text, grammar).expect("legal").hosts, &expected, "{}", text);
        }
    }

    #[test]
    fn ranges_count(first in 0_u64..3000, count in 0_u64..300, width in 1_usize..6) {
        let last = first + count;
        let list = parse(&format!("a[{first:0width$}-{last}]b"), Grammar::Words).expect("legal");
        let names: Vec<_> = list.hosts.iter().map(|host| host.name.clone()).collect();
        let expected: Vec<_> = (first..=last).map(|i| format!("a{i:0width$}b")).collect();
        prop_assert_eq!(names, expected);
    }

    #[test]
    fn nothing_panics_and_no_option_gets_through(text in "[a-z0-9@:,;#=+*%/\\[\\]. \n-]{0,60}", ranks in 0_u32..20) {
        for grammar in [Grammar::Words, Grammar::Lines, Grammar::GridEngine] {
            match parse(&text, grammar) {
                Ok(list) => for host in list.hosts {
                    prop_assert!(!host.name.is_empty() && !host.name.starts_with('-'));
                    prop_assert!(host.user.is_none_or(|user| !user.is_empty() && !user.starts_with('-')));
                },
                Err(error) => {
                    let line = text.lines().nth(error.line - 1).unwrap_or_default();
                    prop_assert!(error.column <= line.chars().count());
                }
            }
        }
        if let Ok(map) = place(&text, ranks, None, &Here::default()) {
            prop_assert_eq!(map.check(), Ok(()));
            prop_assert_eq!(map.size(), ranks);
        }
    }
}
