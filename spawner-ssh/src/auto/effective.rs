//! What `ssh -G` prints: the configuration that counts for one host.

/// One line for each key and value, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effective {
    lines: Vec<(String, String)>,
}

impl Effective {
    /// Reads the output; `None` when it is none of `ssh -G`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let cut = |line: &str| {
            let (key, value) = line.split_once(' ').unwrap_or((line, ""));
            (key.to_ascii_lowercase(), value.trim().to_owned())
        };
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty()).map(cut).collect();
        let all = Self { lines };
        let whole = ["hostname", "port", "user", "batchmode", "stricthostkeychecking"];
        whole.iter().all(|key| all.get(key).is_some()).then_some(all)
    }

    /// The first value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.all(key).next()
    }

    /// All values of a key.
    pub fn all(&self, key: &str) -> impl Iterator<Item = &str> {
        self.lines.iter().filter(move |(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// All keys; one that has several values comes as often.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(|(key, _)| key.as_str())
    }

    /// The same for another host that no pattern of the configuration tells from `first`, whose
    /// answer this is. `None` when the answer may be that of `first` alone.
    #[must_use]
    pub fn renamed(&self, first: &str, other: &str) -> Option<Self> {
        let of_name = |key: &str| key == "host" || key == "hostname";
        if self.get("hostname") != Some(first) || other != other.to_ascii_lowercase() {
            return None;
        }
        let mut lines = self.lines.clone();
        for (key, value) in &mut lines {
            if of_name(key) {
                other.clone_into(value);
            } else if value.contains(first) {
                return None;
            }
        }
        Some(Self { lines })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "host n1\nuser me\nhostname n1\nport 22\nbatchmode yes\nstricthostkeychecking ask\nsendenv A\nsendenv B\n";

    #[test]
    fn lines_are_keys_and_values() {
        let effective = Effective::parse(TEXT).unwrap();
        assert_eq!(effective.get("port"), Some("22"));
        assert_eq!(effective.all("sendenv").collect::<Vec<_>>(), ["A", "B"]);
        assert_eq!(effective.get("proxyjump"), None);
        for other in ["", "usage: ssh [-46AaCf]", "user me\nport 22\n"] {
            assert_eq!(Effective::parse(other), None, "{other}");
        }
    }

    #[test]
    fn an_answer_serves_another_host_only_where_nothing_is_of_the_first() {
        let effective = Effective::parse(TEXT).unwrap();
        let other = effective.renamed("n1", "n2").unwrap();
        assert_eq!((other.get("hostname"), other.get("user")), (Some("n2"), Some("me")));
        assert_eq!(effective.renamed("n1", "N2"), None, "ssh writes names in small letters");
        assert_eq!(effective.renamed("alias", "n2"), None, "another HostName");
        let own = Effective::parse(&format!("{TEXT}hostkeyalias n1.cluster\n")).unwrap();
        assert_eq!(own.renamed("n1", "n2"), None);
    }
}
