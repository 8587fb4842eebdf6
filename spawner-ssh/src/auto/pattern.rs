//! Patterns as OpenSSH writes them: `*` and `?` in a name, lists of them, `!` in front of one.

/// Whether the whole of `text` is like `pattern`.
#[must_use]
pub fn matches(text: &str, pattern: &str) -> bool {
    let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
    let (mut at, mut in_pattern) = (0, 0);
    // Where the last star stands, and how far its part of the text went.
    let mut star: Option<(usize, usize)> = None;
    while at < text.len() {
        match pattern.get(in_pattern) {
            Some(b'*') => {
                star = Some((in_pattern, at));
                in_pattern += 1;
            }
            Some(letter) if *letter == b'?' || *letter == text[at] => {
                at += 1;
                in_pattern += 1;
            }
            _ => match star {
                Some((place, until)) => {
                    star = Some((place, until + 1));
                    (in_pattern, at) = (place + 1, until + 1);
                }
                None => return false,
            },
        }
    }
    pattern[in_pattern..].iter().all(|letter| *letter == b'*')
}

/// Whether a list between commas means `text`: one of its patterns is like it, and none behind `!`.
#[must_use]
pub fn list_matches(text: &str, list: &str) -> bool {
    let mut found = false;
    for pattern in list.split(',') {
        match pattern.strip_prefix('!') {
            Some(not) if matches(text, not) => return false,
            Some(_) => {}
            None => found |= matches(text, pattern),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_patterns() {
        for (text, pattern, is) in [
            ("n1", "n1", true),
            ("n1", "n2", false),
            ("n12", "n?", false),
            ("n12", "n*", true),
            ("", "*", true),
            ("", "?", false),
            ("a.b.c", "*.c", true),
            ("a.b.c", "*.b", false),
            ("abcabd", "*abd", true),
            ("[n1]:22", "[n1]:22", true),
            ("n1", "", false),
            ("", "", true),
            ("aab", "a*b*", true),
        ] {
            assert_eq!(matches(text, pattern), is, "{text} {pattern}");
        }
        assert!(list_matches("n1", "n*,!n2"));
        assert!(!list_matches("n2", "n*,!n2"));
        assert!(!list_matches("n2", "!n3"), "only what is not meant is named");
        assert!(!list_matches("n1", ""));
    }

    proptest::proptest! {
        #[test]
        fn a_star_is_any_text(head in "[a-c]{0,4}", middle in "[a-c*?]{0,4}", tail in "[a-c]{0,4}") {
            let text = format!("{head}{middle}{tail}");
            let pattern = format!("{head}*{tail}");
            assert!(matches(&text, &pattern));
        }
    }
}
