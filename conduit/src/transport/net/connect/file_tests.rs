use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn peers(text: &str, me: u32, size: u32) -> Result<Vec<u32>, String> {
    let chosen = parse("f", text.as_bytes(), me, size).map_err(|error| error.to_string())?;
    let ranks = chosen.iter().zip(0..).filter(|(chosen, _)| **chosen);
    Ok(ranks.map(|(_, rank)| rank).collect())
}

#[test]
fn the_examples_of_the_documents() {
    assert_eq!(peers("7: 0 4 6\n", 7, 8), Ok(vec![0, 4, 6]));
    assert_eq!(peers("7:0 4\n7:6\n", 7, 8), Ok(vec![0, 4, 6]));
    assert_eq!(peers("6:9-12", 6, 16), Ok(vec![9, 10, 11, 12]));
    assert_eq!(peers("1:0\n0:1\n", 0, 2), Ok(vec![1]));
    assert_eq!(peers("size: 40\nbase: 36\nz:11 0-2\n", 35, 40), Ok(vec![0, 1, 2, 37]));
    assert_eq!(peers("# all\r\n\r\n3:0-2 5\r\n", 3, 6), Ok(vec![0, 1, 2, 5]));
    assert_eq!(peers("3:\n", 3, 6), Ok(vec![]));
    assert_eq!(peers("", 3, 6), Ok(vec![]));
}

#[test]
fn without_a_base_line_everything_is_decimal_and_a_base_line_rules_what_follows() {
    assert_eq!(peers("11:3\n", 11, 20), Ok(vec![3]));
    assert_eq!(peers("11:3\n", 17, 20), Ok(vec![]));
    assert_eq!(peers("10:11\nbase: 16\n10:11\nbase: 2\n10:11\n", 10, 40), Ok(vec![11]));
    assert_eq!(peers("10:11\nbase: 16\n10:11\nbase: 2\n10:11\n", 16, 40), Ok(vec![17]));
    assert_eq!(peers("10:11\nbase: 16\n10:11\nbase: 2\n10:11\n", 2, 40), Ok(vec![3]));
}

#[test]
fn flaws_are_named_with_their_place() {
    let start = "a rank and ':', \"size:\" or \"base:\" at the start of the line expected";
    let cases = [
        ("3:1 2\n 4:1", 2, 1, &format!("\" \" seen, {start}")[..]),
        ("hello", 1, 1, &format!("\"hello\" seen, {start}")),
        (":1", 1, 1, &format!("\":\" seen, {start}")),
        ("3: 1 x", 1, 6, "\"x\" seen, a number in base 10 expected"),
        ("3: 1 2x", 1, 7, "\"x\" seen, a digit in base 10 expected"),
        ("3 : 1", 1, 2, "a blank seen, a digit in base 10 expected"),
        ("3:1-", 1, 5, "the end of the line seen, a number in base 10 expected"),
        ("3:1- 2", 1, 5, "a blank seen, a number in base 10 expected"),
        ("3:-2", 1, 3, "\"-\" seen, a number in base 10 expected"),
        ("3:1-2-3", 1, 6, "\"-\" seen, a digit in base 10 expected"),
        ("3:5-2", 1, 3, "\"5-2\" seen, a range with the lower rank first expected"),
        ("3:1,2", 1, 4, "\",\" seen, a digit in base 10 expected"),
        ("\n\n3:2 8", 3, 5, "\"8\" seen, a rank of this job, 0 to 7 in base 10, expected"),
        (
            "base: 2\n11:1000",
            2,
            4,
            "\"1000\" seen, a rank of this job, 0 to 111 in base 2, expected",
        ),
        ("9:1", 1, 1, "\"9\" seen, a rank of this job, 0 to 7 in base 10, expected"),
        ("size: 9", 1, 7, "\"9\" seen, the size of this job, 8, expected"),
        ("size:", 1, 6, "the end of the line seen, a number in base 10 expected"),
        ("size: 8 8", 1, 9, "\"8\" seen, the end of the line expected"),
        ("base: 37", 1, 7, "\"37\" seen, a base from 2 to 36 expected"),
        ("base: 1", 1, 7, "\"1\" seen, a base from 2 to 36 expected"),
        ("base: 0x10", 1, 8, "\"x\" seen, a digit in base 10 expected"),
        ("base: 2\n12:0", 2, 2, "\"2\" seen, a digit in base 2 expected"),
        (
            "3:99999999999999999999999999",
            1,
            3,
            "\"999999999999999999999999…\" seen, a rank of this job, 0 to 7 in base 10, expected",
        ),
    ];
    for (text, line, column, message) in cases {
        // Also for a rank that has no line of its own.
        assert_eq!(peers(text, 5, 8), Err(format!("f:{line}:{column}: {message}")), "{text:?}");
    }
    let error = parse("f", b"3:\xff\x00", 0, 8).unwrap_err().to_string();
    assert_eq!(error, "f:1:3: \"\\xff\" seen, a number in base 10 expected");
}

#[test]
fn runs_of_three_become_ranges_and_lines_wrap() {
    assert_eq!(lines(3, [0, 1, 4, 5, 6, 9], 10), "3:0 1 4-6 9\n");
    assert_eq!(lines(35, [0, 1, 36, 37, 38], 36), "z:0 1 10-12\n");
    assert_eq!(lines(3, [], 10), "");
    let text = lines(1_000, (0..400).map(|peer| 2 * peer), 2);
    assert!(text.lines().count() > 50 && text.lines().all(|line| line.len() <= WIDTH));
    assert!(text.lines().all(|line| line.starts_with("1111101000:")));
}

#[test]
fn ranks_that_read_like_words_of_the_file_are_told_from_them() {
    let read = |word| u32::from_str_radix(word, 36).unwrap();
    for word in ["size", "base"] {
        let me = read(word);
        let text = header(me + 1, 36) + &lines(me, [1, me], 36);
        assert!(text.contains(&format!("\n0{word}:1 {word}\n")), "{text}");
        assert_eq!(peers(&text, me, me + 1), Ok(vec![1, me]));
    }
}

#[test]
fn files_have_names_and_errors_say_them() {
    let directory = std::env::temp_dir().join(format!("connect-file-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let pattern = directory.join("%-of-%");
    let missing = read(&pattern, 3, 8).unwrap_err().to_string();
    assert!(
        missing.contains("/3-of-3: cannot read it") && missing.contains("GASNET_CONNECTFILE_IN")
    );
    write(&expand(&pattern, 3), "3:1\nx").unwrap();
    let wrong = read(&pattern, 3, 8).unwrap_err().to_string();
    assert!(wrong.ends_with("/3-of-3:2:1: \"x\" seen, a rank and ':', \"size:\" or \"base:\" at the start of the line expected"), "{wrong}");
    write(&expand(&pattern, 3), "3:1\n").unwrap();
    assert_eq!(
        read(&pattern, 3, 3).unwrap_err().to_string().split(": ").nth(1),
        Some("\"3\" seen, a rank of this job, 0 to 2 in base 10, expected")
    );
    assert_eq!(read(&pattern, 3, 4).unwrap(), [false, true, false, false]);
    let nowhere = write(&directory.join("no/where"), "").unwrap_err();
    assert!(nowhere.to_string().contains("cannot write it"), "{nowhere}");
    std::fs::remove_dir_all(&directory).unwrap();
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        size in 1u32..3_000, base in BASES,
        sets in proptest::collection::vec(
            (any::<u32>(), proptest::collection::btree_set(any::<u32>(), 0..120), any::<bool>()), 1..5,
        ),
    ) {
        // Dense sets have ranges, sparse ones long lines.
        let sets: Vec<(u32, BTreeSet<u32>)> = sets
            .into_iter()
            .map(|(me, set, dense)| {
                let among = if dense { size.min(150) } else { size };
                (me % size, set.into_iter().map(|rank| rank % among).collect())
            })
            .collect();
        // Files of several ranks may simply be joined.
        let mut text = String::new();
        for (me, set) in &sets {
            let part = header(size, base) + &lines(*me, set.iter().copied(), base);
            prop_assert!(part.lines().all(|line| line.len() <= WIDTH));
            text += &part;
        }
        for (me, _) in &sets {
            let all = sets.iter().filter(|(rank, _)| rank == me).flat_map(|(_, set)| set.iter().copied());
            let all: Vec<u32> = all.collect::<BTreeSet<_>>().into_iter().collect();
            prop_assert_eq!(peers(&text, *me, size), Ok(all));
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in "[0-9a-c:# \t\r\n-]{0,60}|(size: |base: |1:)?.{0,30}", me in 0u32..20) {
        if let Ok(chosen) = parse("f", text.as_bytes(), me, 20) {
            let again = lines(me, chosen.iter().zip(0..).filter(|(on, _)| **on).map(|(_, rank)| rank), 7);
            let again = parse("f", (header(20, 7) + &again).as_bytes(), me, 20).unwrap();
            prop_assert_eq!(chosen, again);
        }
    }
}
