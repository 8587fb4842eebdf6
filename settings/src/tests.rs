use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::Env;

fn env(pairs: &[(&str, &str)]) -> Env {
    pairs.iter().copied().collect()
}

#[test]
fn names_are_unique_and_belong_to_one_row() {
    let mut seen = BTreeSet::new();
    for row in rows() {
        assert!(seen.insert(row.name), "{} occurs twice", row.name);
        assert_eq!(find(row.name), Some(row));
    }
    let aliases = rows().flat_map(|row| row.aliases.iter().copied());
    for name in aliases.chain(without_effect().map(|(name, _)| name)) {
        assert!(seen.insert(name), "{name} occurs twice");
        assert_eq!(find(name), None);
    }
    let letter = |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_';
    assert!(seen.iter().all(|name| !name.is_empty() && name.bytes().all(letter)), "{seen:?}");
    assert!(seen.len() > 150, "{} names", seen.len());
}

#[test]
fn every_default_is_of_its_own_form() {
    for row in rows() {
        if let Preset::Value(text) = row.preset {
            assert!(
                parse(row.kind, text).is_ok(),
                "{}: {text:?}: {:?}",
                row.name,
                parse(row.kind, text)
            );
        }
    }
}

#[test]
fn every_row_says_what_it_is_for() {
    for row in rows() {
        assert!(row.doc.ends_with('.') && row.doc.len() > 10, "{}: {:?}", row.name, row.doc);
        assert!(!row.doc.contains('\n') && !row.doc.contains("  "), "{}: {:?}", row.name, row.doc);
        assert!(!row.kind.expected().is_empty() && !row.kind.label().is_empty());
    }
    for (name, list) in without_effect() {
        assert!(list.doc.ends_with('.') && list.doc.len() > 10, "{name}: {:?}", list.doc);
        assert!(!list.doc.contains("  ") && !list.advice.ends_with('.'), "{name}: {list:?}");
        let says_why = matches!(list.status, Status::Obsolete | Status::Refused);
        assert_eq!(list.advice.is_empty(), !says_why, "{name}");
    }
}

#[test]
fn aliases_give_the_value_of_their_row() {
    for row in rows() {
        for alias in row.aliases {
            assert!(find(alias).is_none(), "{alias} is a row too");
            let value = if let Preset::Value(text) = row.preset { text } else { "7" };
            let lines = warnings(&env(&[(alias, value)]));
            assert!(
                lines.iter().any(|line| line.contains(alias) && line.contains(row.name)),
                "{lines:?}"
            );
            assert!(print_settings(&env(&[(alias, value)])).contains(&format!("as {alias}")));
        }
    }
}

#[test]
fn active_sizes_that_may_be_negative_are_known_to_their_readers() {
    const CODES: [&str; 2] = ["GASNET_MAX_MTU", "GASNET_AM_GATHER_MIN"];
    for row in rows() {
        let negative = matches!(row.kind, Kind::Size { min: ..0, .. });
        assert_eq!(negative, CODES.contains(&row.name), "{}", row.name);
    }
    let settings = Values::from_env(&env(&[("GASNET_AM_GATHER_MIN", "-1")])).unwrap();
    assert_eq!(settings.size_or_code("GASNET_AM_GATHER_MIN"), -1);
}

#[test]
fn a_number_below_its_floor_is_refused_by_the_rule() {
    for (name, value, rule) in [
        ("GASNET_NETWORKDEPTH_PP", "0", "(GASNET_NETWORKDEPTH_PP < 1)"),
        ("GASNET_AM_OUST_PP", "-3", "(GASNET_AM_OUST_PP < 1)"),
        ("GASNET_MAX_MTU", "-2", "(GASNET_MAX_MTU < -1)"),
        ("GASNET_QP_RETRY_COUNT", "0", "(GASNET_QP_RETRY_COUNT < 1)"),
        ("GASNET_PACKEDLONG_LIMIT", "-1", "(GASNET_PACKEDLONG_LIMIT < 0)"),
    ] {
        let error = Values::from_env(&env(&[(name, value)])).unwrap_err().to_string();
        assert!(error.contains(rule), "{error}");
    }
}

#[test]
fn an_empty_environment_gives_the_defaults() {
    let settings = Values::from_env(&Env::default()).unwrap();
    assert!(!settings.bool("GASNET_BACKTRACE") && settings.bool("GASNET_CATCH_EXIT"));
    assert_eq!(settings.int("GASNET_PSHM_NETWORK_DEPTH"), 32);
    assert_eq!(settings.word("GASNET_BARRIER"), "DISSEM");
    assert_eq!(settings.word("GASNET_IBV_SPAWNER"), "ssh");
    assert_eq!(settings.signal("GASNET_FREEZE_SIGNAL"), None);
    assert_eq!(settings.signals("GASNET_NO_CATCH_SIGNAL"), Signals::Some(vec![]));
    assert_eq!(settings.bool_opt("GASNET_BACKTRACE_MT"), None);
    assert_eq!(settings.nodes("GASNET_BACKTRACE_NODES"), Nodes::All);
    assert_eq!(settings.path("GASNET_SSH_NODEFILE"), None);
    let segment = MemSpec { amount: Amount::Fraction(0.85), per: Per::Host };
    assert_eq!(settings.memory("GASNET_MAX_SEGSIZE"), Some(segment));
    assert!(!settings.is_set("GASNET_BACKTRACE"));
    assert!(warnings(&Env::default()).is_empty());
}

#[test]
fn set_values_count() {
    let pairs = [
        ("GASNET_BACKTRACE", "Yes"),
        ("GASNET_BACKTRACE_NODES", "0, 2-3"),
        ("GASNET_FREEZE_SIGNAL", "usr1"),
        ("GASNET_NO_CATCH_SIGNAL", "SIGINT,TERM 3"),
        ("GASNET_BACKTRACE_TYPE", "gdb|execinfo"),
        ("GASNET_MAX_SEGSIZE", "128.0MB/P"),
        ("GASNET_VERBOSEENV", ""),
        ("GASNET_EXITTIMEOUT", "5/2"),
    ];
    let settings = Values::from_env(&env(&pairs)).unwrap();
    assert!(settings.bool("GASNET_BACKTRACE") && settings.is_set("GASNET_BACKTRACE"));
    assert!(settings.bool("GASNET_VERBOSEENV"));
    let nodes = settings.nodes("GASNET_BACKTRACE_NODES");
    assert_eq!([0, 1, 2, 3, 4].map(|rank| nodes.contains(rank)), [true, false, true, true, false]);
    assert_eq!(settings.signal("GASNET_FREEZE_SIGNAL"), Some(libc::SIGUSR1));
    assert_eq!(settings.signals("GASNET_NO_CATCH_SIGNAL"), Signals::Some(vec![2, 15, 3]));
    assert_eq!(settings.words("GASNET_BACKTRACE_TYPE"), ["GDB", "EXECINFO"]);
    let segment = MemSpec { amount: Amount::Bytes(128 << 20), per: Per::Process };
    assert_eq!(settings.memory("GASNET_MAX_SEGSIZE"), Some(segment));
    assert_eq!(settings.exit_timeout(1000), Ok(Duration::from_millis(2500)));
}

#[test]
fn paths_keep_their_bytes() {
    use std::os::unix::ffi::OsStrExt;
    let odd = std::ffi::OsStr::from_bytes(b"/tmp/\xff%0x41");
    let env: Env = [("GASNET_SSH_NODEFILE", odd)].into_iter().collect();
    assert_eq!(Values::from_env(&env).unwrap().path("GASNET_SSH_NODEFILE"), Some(odd.into()));
}

#[test]
fn the_exit_time_out_follows_the_formula() {
    let timeout =
        |pairs: &[(&str, &str)], ranks| Values::from_env(&env(pairs)).unwrap().exit_timeout(ranks);
    assert_eq!(timeout(&[], 1), Ok(Duration::from_millis(2250)));
    assert_eq!(timeout(&[], 64), Ok(Duration::from_secs(18)));
    assert_eq!(timeout(&[], 1_000_000), Ok(Duration::from_secs(480)));
    assert_eq!(timeout(&[("GASNET_EXITTIMEOUT_MAX", "3")], 64), Ok(Duration::from_secs(3)));
    let short = [("GASNET_EXITTIMEOUT_MIN", "0"), ("GASNET_EXITTIMEOUT_FACTOR", "0.5")];
    assert_eq!(timeout(&short, 4), Ok(Duration::from_secs(2)));
    let error = timeout(&short, 3).unwrap_err().to_string();
    for part in ["_MAX", "_MIN", "_FACTOR", "1.5 s", "at least 2 s"] {
        assert!(error.contains(part), "{error}");
    }
    let below = Values::from_env(&env(&[("GASNET_EXITTIMEOUT", "1.9")])).unwrap_err().to_string();
    assert!(below.contains("below the least value 2"), "{below}");
}

#[test]
fn bad_values_are_named_with_what_is_expected() {
    for (name, value, problem) in [
        ("GASNET_BACKTRACE", "", "empty"),
        ("GASNET_BACKTRACE", "on", "neither yes nor no"),
        ("GASNET_PSHM_NETWORK_DEPTH", "32x", "\"x\" follows the number"),
        ("GASNET_PSHM_NETWORK_DEPTH", "", "empty"),
        ("GASNET_PSHM_NETWORK_DEPTH", "3", "below the least value 4"),
        ("GASNET_PSHM_NETWORK_DEPTH", "1.0", "not whole"),
        ("GASNET_PSHM_NETWORK_DEPTH", "0xfffffffffffffffff", "too large"),
        ("GASNET_MAX_SEGSIZE", "1.0", "neither a part of the memory"),
        ("GASNET_MAX_SEGSIZE", "3/2/H", "neither a part of the memory"),
        ("GASNET_MAX_SEGSIZE", "0", "not enough"),
        ("GASNET_MAX_SEGSIZE", "1", "below the least value of 4096"),
        ("GASNET_MAX_SEGSIZE", "-5M", "not enough"),
        ("GASNET_MAX_SEGSIZE", "0.0/H", "above 0"),
        ("GASNET_MAX_SEGSIZE", "128MBs/P", "follows the number"),
        ("GASNET_MAX_SEGSIZE", "1/0", "denominator"),
        ("GASNET_FREEZE_SIGNAL", "SIGKILL", "cannot be caught"),
        ("GASNET_FREEZE_SIGNAL", "65", "no signal"),
        ("GASNET_NO_CATCH_SIGNAL", "INT,FOO", "\"FOO\" is no signal"),
        ("GASNET_BACKTRACE_NODES", "1,,3", "no rank"),
        ("GASNET_BACKTRACE_NODES", "5-3", "is empty"),
        ("GASNET_BARRIER", "TREE", "\"TREE\" is unknown"),
        ("GASNET_EXITTIMEOUT", "inf", "not a number"),
        ("GASNET_EXITTIMEOUT", "nan", "not a number"),
        ("GASNET_EXITTIMEOUT", "30s", "not a number"),
        ("GASNET_EXITTIMEOUT", "1e999", "not a number"),
    ] {
        let settings = Values::from_env(&env(&[(name, value)]));
        let error = settings.expect_err(&format!("{name}={value}"));
        let text = error.to_string();
        assert!(
            text.contains(problem) && text.contains(name) && text.contains("expected"),
            "{text}"
        );
        let printed = print_settings(&env(&[(name, value)]));
        assert!(printed.contains("ERROR"), "{printed}");
        assert_eq!(Values::errors(&env(&[(name, value)])), [error]);
    }
}

#[test]
fn sizes_take_letters() {
    let bytes = Kind::Size { unit: 1 << 10, min: -1, max: i64::MAX };
    for (text, value) in [
        ("64", 65_536),
        ("64b", 64),
        ("64B", 64),
        ("1k", 1024),
        ("1 KB", 1024),
        ("1.5G", 3 << 29),
        ("2MiB", 2 << 20),
        ("1T", 1 << 40),
        ("0x10k", 16_384),
        ("+7M", 7 << 20),
        (".5K", 512),
        ("-1", -1),
        ("0", 0),
        ("9223372036854775807b", i64::MAX),
    ] {
        assert_eq!(parse(bytes, text), Ok(Value::Size(value)), "{text}");
    }
    for text in [
        "", "K", "1KX", "1 K B", "1Bi", "1ib", "1bb", "--1", "1..2", "0x", "0x1.8", "8388608T",
        "0.5b", "1e3", "-2",
    ] {
        assert!(parse(bytes, text).is_err(), "{text}: {:?}", parse(bytes, text));
    }
}

#[test]
fn unknown_names_come_with_a_near_match() {
    let set = env(&[
        ("GASNET_BACKTRCE", "1"),
        ("GASNET_SEGMENT_COLOUR", "1"),
        ("gasnet_quiet", "1"),
        ("GASNET_IBV_PORTS_0_1", "mlx5_0"),
        ("GASNET_IBV_PORTS_X", "mlx5_0"),
        ("GASNETRUN_RNK", "1"),
        ("HOME", "/"),
    ]);
    let unknown = unknown_names(&set);
    let names: Vec<&str> = unknown.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        ["GASNETRUN_RNK", "GASNET_BACKTRCE", "GASNET_IBV_PORTS_X", "GASNET_SEGMENT_COLOUR"]
    );
    assert_eq!(unknown[0].1, None, "too short to be sure");
    assert_eq!(unknown[1].1, Some("GASNET_BACKTRACE"));
    assert_eq!(unknown[3].1, None);
    assert!(warnings(&set).iter().any(|line| line.contains("did you mean GASNET_BACKTRACE?")));
}

#[test]
fn variables_without_effect_give_one_warning() {
    let lines = warnings(&env(&[
        ("GASNET_COLL_SCRATCH_SIZE", "18"),
        ("GASNET_RCV_THREAD_LOAD", "1"),
        ("GASNET_PLATFORM", "x"),
        ("GASNET_ATOMIC_TABLESZ", "0x100"),
    ]));
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(
        lines[0].contains("GASNET_COLL_SCRATCH_SIZE=18 is refused: collectives take no"),
        "{lines:?}"
    );
    assert!(lines[1].contains("obsolete") && lines[1].contains("_RATE"), "{lines:?}");
    // Set to nothing, an obsolete one means what it always meant.
    assert!(warnings(&env(&[("GASNET_HCA_ID", ""), ("GASNET_PORT_NUM", "")])).is_empty());
    assert_eq!(warnings(&env(&[("GASNET_PORT_NUM", "1")])).len(), 1);
    // A bad value of a variable without effect ends nothing.
    assert!(Values::from_env(&env(&[("GASNET_COLL_SCRATCH_SIZE", "x")])).is_ok());
}

#[test]
fn mistakes_in_filters_of_ports_are_found_before_a_rank_runs() {
    let set = env(&[
        ("GASNET_IBV_PORTS", "mlx5_0:x"),
        ("GASNET_IBV_PORTS_0_1", "mlx5_0+"),
        ("GASNET_IBV_PORTS_2", " "),
        ("GASNET_IBV_PORTS_3", "mlx5_3:1,2+ib0"),
    ]);
    let found: Vec<String> = Values::errors(&set).iter().map(ToString::to_string).collect();
    let [base, member] = &found[..] else { panic!("{found:?}") };
    assert!(base.starts_with("environment variable GASNET_IBV_PORTS=\"mlx5_0:x\": character 8: "));
    assert!(member.contains("GASNET_IBV_PORTS_0_1=") && member.contains("for example mlx5_0+"));
    assert!(Values::from_env(&env(&[("GASNET_IBV_PORTS_7", ":1")])).is_err());
    assert!(Values::from_env(&env(&[("GASNET_IBV_PORTS", "")])).is_ok());
}

#[test]
fn all_but_the_launchers_own_and_what_scripts_set_goes_to_other_hosts() {
    for name in ["GASNET_SSH_CMD", "GASNET_SPAWN_CONDUIT", "GASNETRUN_RANK"] {
        assert!(!propagates(name), "{name}");
    }
    for name in ["GASNET_BACKTRACE", "GASNET_TRACEFILE", "GASNET_HCA_ID", "GASNET_UNKNOWN"] {
        assert!(propagates(name), "{name}");
    }
}

#[test]
fn settings_are_printed_with_origin_and_marker() {
    let text = print_settings(&env(&[("GASNET_MAX_SEGSIZE", "64M"), ("GASNET_TSC_VERBOSE", "1")]));
    let line = |name: &str| {
        text.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned()
    };
    assert!(line("GASNET_MAX_SEGSIZE ").contains("64M = 67108864/P"), "{text}");
    assert!(line("GASNET_MAX_SEGSIZE ").ends_with("(environment)"), "{text}");
    assert!(
        line("GASNET_BACKTRACE ").contains("* ")
            && line("GASNET_BACKTRACE ").ends_with("(default)"),
        "{text}"
    );
    assert!(line("GASNET_TSC_VERBOSE ").ends_with("(environment, refused, no effect)"), "{text}");
    assert!(line("GASNETRUN_RANK ").is_empty(), "{text}");
    assert!(line("GASNET_TSC_RATE ").is_empty(), "{text}");
}

#[test]
fn man_page_has_every_name() {
    let man = man_section();
    let words: BTreeSet<&str> = man.lines().filter_map(|line| line.strip_prefix(".B ")).collect();
    let words: BTreeSet<&str> = words.iter().flat_map(|line| line.split(", ")).collect();
    for name in rows().map(|row| row.name).chain(without_effect().map(|(name, _)| name)) {
        assert!(words.contains(name), "{name}");
    }
    assert!(man.lines().all(|line| !line.starts_with('.')
        || [".SH", ".SS", ".TP", ".B ", ".br"].iter().any(|m| line.starts_with(m))));
}

fn any_kind() -> impl Strategy<Value = Kind> {
    // Kinds that no row has now, and may have again.
    let unused = [
        Kind::Size { unit: 1 << 10, min: 0, max: i64::MAX },
        Kind::Size { unit: 1 << 20, min: 0, max: i64::MAX },
        Kind::MemSpec { per: false, min: 128 << 20 },
        Kind::Real { min: 0.0, max: 1.0 },
    ];
    let kinds = rows().map(|row| row.kind).chain(unused);
    proptest::sample::select(kinds.collect::<Vec<Kind>>())
}

proptest! {
    #[test]
    fn no_text_panics(kind in any_kind(), text in "\\PC*") {
        let _ = parse(kind, &text);
    }

    #[test]
    fn no_number_like_text_panics(kind in any_kind(), text in "[-+ ]{0,2}(0[xX])?[0-9a-f.]{0,40}[TGMKBtgmkbi/PH ]{0,4}[0-9.]{0,4}") {
        let _ = parse(kind, &text);
    }

    #[test]
    fn whole_numbers_come_back(number: i64) {
        let kind = Kind::Int { min: i64::MIN + 1, max: i64::MAX };
        if number > i64::MIN {
            prop_assert_eq!(parse(kind, &number.to_string()), Ok(Value::Int(number)));
        }
    }

    #[test]
    fn sizes_come_back(number in 0..1i64 << 20, power in 0usize..5, tail in 0usize..3) {
        let kind = Kind::Size { unit: 1, min: 0, max: i64::MAX };
        let (letter, tail) = (["B", "K", "M", "G", "T"][power], ["", "B", "iB"][tail]);
        let tail = if power == 0 { "" } else { tail };
        let value = number << (10 * power);
        prop_assert_eq!(parse(kind, &format!("{number}{letter}{tail}")), Ok(Value::Size(value)));
    }

    #[test]
    fn reals_come_back(number in 0.0..1e12f64) {
        prop_assert_eq!(parse(Kind::Real { min: 0.0, max: f64::INFINITY }, &number.to_string()), Ok(Value::Real(number)));
    }

    #[test]
    fn rank_lists_come_back(ranges in proptest::collection::vec((0u32..1000, 0u32..1000), 1..8)) {
        let ranges: Vec<_> = ranges.into_iter().map(|(a, b)| (a.min(b), a.max(b))).collect();
        let text: Vec<String> = ranges.iter().map(|(a, b)| if a == b { a.to_string() } else { format!("{a}-{b}") }).collect();
        prop_assert_eq!(parse(Kind::Nodes, &text.join(",")), Ok(Value::Nodes(Nodes::Ranges(ranges))));
    }

    #[test]
    fn accepted_values_are_within_limits(kind in any_kind(), text in "[-0-9.xKMG/H]{0,12}") {
        match (kind, parse(kind, &text)) {
            (Kind::Int { min, max }, Ok(Value::Int(value))) | (Kind::Size { min, max, .. }, Ok(Value::Size(value))) => {
                prop_assert!((min..=max).contains(&value));
            }
            (Kind::Real { min, max }, Ok(Value::Real(value))) => prop_assert!(value >= min && value <= max),
            (_, Ok(Value::MemSpec(MemSpec { amount: Amount::Fraction(part), .. }))) => {
                prop_assert!(part > 0.0 && part < 1.0);
            }
            _ => {}
        }
    }

    #[test]
    fn no_environment_panics(pairs in proptest::collection::vec(("GASNET_[A-Z_]{0,12}", "\\PC{0,12}"), 0..6)) {
        let env: Env = pairs.into_iter().collect();
        let _ = (Values::from_env(&env), warnings(&env), print_settings(&env), Values::errors(&env));
    }
}
