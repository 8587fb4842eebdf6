//! What tells one host from another: boot, name and the namespaces in which ranks would have to
//! meet.

use std::hash::{DefaultHasher, Hash, Hasher};

/// A host as its ranks know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// For people.
    pub name: String,
    /// 32 hexadecimal digits; the same on all ranks that can share memory.
    pub mark: String,
}

impl Identity {
    /// The host that this process runs on.
    pub fn here() -> Self {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let name = name.trim().to_owned();
        let mut facts = vec![
            name.clone(),
            std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default(),
        ];
        for space in ["ipc", "net", "pid"] {
            let link = std::fs::read_link(format!("/proc/self/ns/{space}")).unwrap_or_default();
            facts.push(link.to_string_lossy().into_owned());
        }
        let name = if name.is_empty() { "(no name)".to_owned() } else { name };
        Self { mark: mark(&facts), name }
    }

    /// A host of tests.
    #[cfg(test)]
    pub(crate) fn named(name: &str) -> Self {
        Self { name: name.to_owned(), mark: mark(&[name]) }
    }

    /// Both in one word, to be sent.
    pub fn word(&self) -> String {
        format!("{}{}", self.mark, self.name)
    }

    /// Reads [`Identity::word`].
    pub fn read(word: &str) -> Option<Self> {
        let (mark, name) = word.split_at_checked(32)?;
        let sound = mark.bytes().all(|byte| byte.is_ascii_hexdigit());
        sound.then(|| Self { name: name.to_owned(), mark: mark.to_owned() })
    }
}

/// 32 hexadecimal digits of anything; ranks of one build agree on them.
pub fn mark<T: Hash>(facts: &[T]) -> String {
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, facts).hash(&mut hasher);
        hasher.finish()
    };
    format!("{:016x}{:016x}", half(0), half(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_itself_and_nobody_else() {
        let here = Identity::here();
        assert_eq!(here, Identity::here());
        assert_ne!(here.mark, Identity::named("n1").mark);
        assert_eq!(Identity::read(&here.word()), Some(here));
        assert_eq!(Identity::read("short"), None);
        assert_eq!(Identity::read(&"x".repeat(40)), None);
    }
}
