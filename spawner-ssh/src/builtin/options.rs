//! The options that the client of our own takes: those of OpenSSH that name user, port, keys and
//! known hosts.

use std::ffi::OsString;
use std::path::PathBuf;

use super::Settings;

/// The list of the system.
pub const GLOBAL_KNOWN_HOSTS: &str = "/etc/ssh/ssh_known_hosts";
const KNOWN: &str = "-p PORT, -l USER, -i FILE, -F none, and -o with Port, User, IdentityFile, UserKnownHostsFile, ConnectTimeout, \
                     BatchMode=yes, StrictHostKeyChecking=yes";

impl Settings {
    /// What `GASNET_SSH_OPTIONS` says, without any configuration file. The first of a kind counts,
    /// as with OpenSSH; identity files add up.
    pub(crate) fn read(options: &[OsString]) -> Result<Self, String> {
        let mut settings = Self { keep_alive: true, least_rsa: 1024, ..Self::default() };
        let mut words = options.iter();
        while let Some(word) = words.next() {
            let text = word.to_str().ok_or_else(|| format!("{word:?} is no text"))?;
            let Some((letter, joined)) = text
                .strip_prefix('-')
                .and_then(|rest| Some((rest.chars().next()?, rest.get(1..)?)))
                .filter(|(letter, _)| "plioF".contains(*letter))
            else {
                return Err(format!(
                    "the built-in client does not know {text:?}; it knows {KNOWN}"
                ));
            };
            let value = match joined {
                "" => words.next().and_then(|word| word.to_str()).map(str::to_owned),
                joined => Some(joined.to_owned()),
            };
            let value = value.ok_or_else(|| format!("{text} needs a value"))?;
            let (name, value) = match letter {
                'p' => ("port".to_owned(), value),
                'l' => ("user".to_owned(), value),
                'i' => ("identityfile".to_owned(), value),
                'F' => ("a file of -F".to_owned(), value),
                _ => {
                    let cut = value.trim().split_once(['=', ' ', '\t']);
                    let (name, value) = cut.ok_or_else(|| format!("-o {value} has no value"))?;
                    let value = value.trim_start_matches(['=', ' ', '\t']);
                    (name.to_ascii_lowercase(), value.to_owned())
                }
            };
            settings.set(&name, &value)?;
        }
        Ok(settings)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let bad = || format!("{name} cannot be {value:?}");
        match name {
            "port" => {
                let port = value.parse().ok().filter(|port| *port > 0).ok_or_else(bad)?;
                self.port.get_or_insert(port);
            }
            "user" => drop(self.user.get_or_insert_with(|| value.to_owned())),
            "identityfile" => self.identities.push(PathBuf::from(value)),
            "userknownhostsfile" => {
                self.known_hosts.get_or_insert_with(|| {
                    vec![PathBuf::from(value), PathBuf::from(GLOBAL_KNOWN_HOSTS)]
                });
            }
            "connecttimeout" => {
                let seconds = value.parse().ok().filter(|time| *time > 0).ok_or_else(bad)?;
                self.timeout.get_or_insert(seconds);
            }
            // What is always so.
            "a file of -F" if matches!(value, "none" | "/dev/null") => {}
            "batchmode" | "stricthostkeychecking" if value.eq_ignore_ascii_case("yes") => {}
            _ => {
                return Err(format!(
                    "the built-in client does not know -o {name}={value}; it knows {KNOWN}"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Settings, String> {
        Settings::read(&text.split('|').map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn options_as_openssh_writes_them() {
        let settings =
            read("-p|22|-p23|-i|/a b|-i/c|-o|User=me|-oConnectTimeout 7|-l|you").unwrap();
        assert_eq!((settings.port, settings.user.as_deref()), (Some(22), Some("me")));
        assert_eq!(settings.identities, [PathBuf::from("/a b"), PathBuf::from("/c")]);
        assert_eq!(settings.timeout, Some(7));
        let settings = read("-o|UserKnownHostsFile = /x|-o|StrictHostKeyChecking=yes").unwrap();
        assert_eq!(settings.known_hosts.unwrap()[0], PathBuf::from("/x"));
        assert!(Settings::read(&[]).is_ok_and(|settings| settings.identities.is_empty()));
    }

    #[test]
    fn what_it_does_not_know_is_refused_and_not_ignored() {
        for bad in [
            "-v",
            "-o|ProxyJump=x",
            "-o|StrictHostKeyChecking=no",
            "-p",
            "-p|0",
            "-p|x",
            "n1",
            "",
            "-",
            "-o|Port",
            "-F|/x",
            "-é",
            "-o|ConnectTimeout=0",
        ] {
            let error = read(bad).unwrap_err();
            assert!(!error.is_empty(), "{bad}");
        }
        assert!(read("-J|x").unwrap_err().contains("IdentityFile"));
    }
}
