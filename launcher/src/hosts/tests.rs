//! Tests of the sources and of what is made of them.

use std::path::PathBuf;

use super::*;

struct Case<'a> {
    set: &'a [(&'a str, &'a str)],
    ranks: u32,
    wanted: Option<u32>,
    hosts: Option<&'a str>,
    hostfile: Option<&'a Path>,
    map: MapRule,
    keep: bool,
}

impl Default for Case<'_> {
    fn default() -> Self {
        Self {
            set: &[],
            ranks: 4,
            wanted: None,
            hosts: None,
            hostfile: None,
            map: MapRule::Block,
            keep: false,
        }
    }
}

impl Case<'_> {
    fn choose(&self) -> Result<Chosen, HostsError> {
        let mut flags = crate::command_line::parse_options(&[]).expect("no option");
        flags.host_count = self.wanted;
        flags.hosts = self.hosts.map(OsString::from);
        flags.hostfile = self.hostfile.map(Path::to_owned);
        flags.map = self.map.clone();
        choose(&flags, self.ranks, self.keep, "n1.cluster", |name| {
            self.set.iter().find(|(n, _)| *n == name).map(|(_, value)| OsString::from(value))
        })
    }

    /// `n1:0,1 n2:2,3`, and the warnings.
    fn seen(&self) -> (String, Vec<String>) {
        let chosen = self.choose().expect("a map");
        assert_eq!(chosen.map.check(), Ok(()));
        let host = |(index, host): (u32, &HostEntry)| {
            let ranks: Vec<_> = chosen.map.ranks_of(index).iter().map(u32::to_string).collect();
            format!("{host}:{}", ranks.join(","))
        };
        let text: Vec<_> = (0..).zip(&chosen.map.hosts).map(host).collect();
        (text.join(" "), chosen.warnings)
    }

    fn error(&self) -> String {
        self.choose().expect_err("refused").to_string()
    }
}

fn servers<'a>(set: &'a [(&'a str, &'a str)]) -> Case<'a> {
    Case { set, ..Case::default() }
}

#[test]
fn without_a_source_the_job_is_here() {
    let case = Case::default();
    let chosen = case.choose().expect("here");
    assert!(chosen.map.is_here_only() && chosen.source.is_none() && chosen.warnings.is_empty());
    assert!(Case { wanted: Some(1), ..Case::default() }.choose().is_ok());
    let (map, warnings) = Case { ranks: 1, wanted: Some(3), ..Case::default() }.seen();
    assert_eq!((map.as_str(), warnings.len()), ("n1.cluster:0", 1));
    let error = Case { wanted: Some(2), ..Case::default() }.error();
    assert!(
        error.contains("-N 2") && error.contains("--hosts") && error.contains("-N 1"),
        "{error}"
    );
}

#[test]
fn the_first_source_counts() {
    let directory = tempfile::tempdir().expect("scratch directory");
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).expect("write list");
        path.display().to_string()
    };
    let option = file("option", "o1 slots=2\no2\n");
    let values = [
        ("GASNET_SSH_NODEFILE", file("ssh", "# c\n\na1\na2\n")),
        ("GASNET_SSH_SERVERS", "b1 b2".to_owned()),
        ("GASNET_NODEFILE", file("gasnet", "c1\nc2\n")),
        ("PBS_NODEFILE", file("pbs", "d1\nd1\nd2\nd2\n")),
        ("PE_HOSTFILE", file("sge", "e1 2 all.q@e1 UNDEFINED\ne2 2 all.q@e2 UNDEFINED\n")),
        ("SSS_HOSTLIST", "f1,f2".to_owned()),
        ("LSB_HOSTS", "g1 g1 g2 g2".to_owned()),
        ("OAR_NODEFILE", file("oar", "h1\nh1\nh2\n")),
        ("SLURM_JOB_NODELIST", "i[1-2]".to_owned()),
        ("SLURM_NODELIST", "j[1-2]".to_owned()),
    ];
    let set: Vec<_> = values.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let both = Case { set: &set, hosts: Some("p1,p2"), hostfile: None, ..Case::default() };
    assert_eq!(both.seen().0, "p1:0,1 p2:2,3");
    let path = PathBuf::from(option);
    let both = Case { set: &set, hostfile: Some(&path), ..Case::default() };
    assert_eq!(both.seen().0, "o1:0,1 o2:2,3");
    for (first, letter) in ('a'..='j').enumerate() {
        let case = servers(&set[first..]);
        assert_eq!(case.seen(), (format!("{letter}1:0,1 {letter}2:2,3"), Vec::new()));
        assert_eq!(case.choose().expect("a map").asked, first < 3);
    }
    let empty = [("GASNET_SSH_SERVERS", ""), ("SLURM_JOB_NODELIST", "n1")];
    assert_eq!(servers(&empty).seen().0, "n1:0,1,2,3");
}

#[test]
fn numbers_of_hosts() {
    let list = [("GASNET_SSH_SERVERS", "a b c a")];
    assert_eq!(servers(&list).seen().0, "a:0,1 b:2 c:3");
    assert_eq!(Case { wanted: Some(2), ..servers(&list) }.seen().0, "a:0,1 b:2,3");
    assert_eq!(Case { ranks: 2, ..servers(&list) }.seen().0, "a:0 b:1");
    let (map, warnings) = Case { wanted: Some(4), ..servers(&list) }.seen();
    assert_eq!(map, "a:0,1 b:2 c:3");
    assert!(warnings[0].contains("-N 4") && warnings[0].contains("3 hosts only"), "{warnings:?}");
    let (map, warnings) = Case { ranks: 2, wanted: Some(3), ..servers(&list) }.seen();
    assert_eq!((map.as_str(), warnings.len()), ("a:0 b:1", 1), "{warnings:?}");
    let kept = Case { keep: true, ranks: 8, ..servers(&[("GASNET_SSH_SERVERS", "a b a b")]) };
    assert_eq!(kept.seen().0, "a:0,1 b:2,3 a:4,5 b:6,7");
}

#[test]
fn slots() {
    let case = Case { hosts: Some("a:1,b:2"), ..Case::default() };
    assert_eq!(Case { ranks: 3, ..case }.seen().0, "a:0 b:1,2");
    let error = Case { hosts: Some("a:1,b:2"), ..Case::default() }.error();
    for part in ["4 ranks", "have 3", "1 too few", "Try -n 3", "--hosts"] {
        assert!(error.contains(part), "{error} lacks {part}");
    }
    let directory = tempfile::tempdir().expect("scratch directory");
    let path = directory.path().join("pe");
    std::fs::write(&path, "a 1 q\nb 1 q\n").expect("write list");
    let path = path.display().to_string();
    let (map, warnings) = servers(&[("PE_HOSTFILE", &path)]).seen();
    assert_eq!(map, "a:0,1 b:2,3");
    assert!(
        warnings[0].contains("2 too few") && warnings[0].contains("not heeded"),
        "{warnings:?}"
    );
}

#[test]
fn maps() {
    let cyclic = Case { hosts: Some("a,b,c:1"), ranks: 6, map: MapRule::Cyclic, ..Case::default() };
    assert_eq!(cyclic.seen().0, "a:0,3,5 b:1,4 c:2");
    let directory = tempfile::tempdir().expect("scratch directory");
    let path = directory.path().join("map");
    std::fs::write(&path, "0,2 c\n* a\n").expect("write map");
    let from =
        |hosts, wanted| Case { hosts, wanted, map: MapRule::File(path.clone()), ..Case::default() };
    assert_eq!(from(Some("a,b,c"), None).seen().0, "a:1,3 c:0,2");
    assert_eq!(from(None, None).seen().0, "c:0,2 a:1,3");
    assert!(from(None, None).choose().expect("a map").asked);
    let error = from(Some("a,b,c"), Some(2)).error();
    assert!(error.contains("line 1, column 5") && error.contains("\"c\""), "{error}");
    let error = from(None, Some(1)).error();
    assert!(error.contains("2 hosts") && error.contains("-N 2"), "{error}");
    let error = from(Some("a:1,c"), None).error();
    assert!(error.contains("2 ranks on the host a") && error.contains("1 too many"), "{error}");
    let gone = Case { map: MapRule::File("/nonexistent/map".into()), ..Case::default() };
    assert!(gone.error().contains("--map /nonexistent/map"), "{}", gone.error());
}

#[test]
fn bad_lists() {
    for (set, parts) in [
        (("GASNET_SSH_SERVERS", " , "), &["GASNET_SSH_SERVERS names no host", "n1.cluster"][..]),
        (("GASNET_SSH_SERVERS", "a b:x"), &["GASNET_SSH_SERVERS, line 1, column 3", "b:x"]),
        (("SLURM_JOB_NODELIST", "n[3-1]"), &["SLURM_JOB_NODELIST, line 1, column 1", "3-1"]),
        (("PBS_NODEFILE", "/nonexistent"), &["PBS_NODEFILE=/nonexistent", "No such file"]),
        (("GASNET_SSH_NODEFILE", "/"), &["GASNET_SSH_NODEFILE=/", "directory"]),
    ] {
        let error = servers(&[set]).error();
        for part in parts {
            assert!(error.contains(part), "{error} lacks {part}");
        }
    }
    let (_, warnings) = servers(&[("SLURM_JOB_ID", "7")]).seen();
    assert!(warnings[0].contains("SLURM_JOB_NODELIST"), "{warnings:?}");
}

#[test]
fn lists_that_mean_this_host_and_lists_that_do_not() {
    let map = |list: &str| servers(&[("GASNET_SSH_SERVERS", list)]).choose().expect("a map").map;
    for list in ["n1", "N1.cluster", "localhost", "::1", "n1 n1"] {
        assert!(map(list).is_here_only(), "{list}");
    }
    for list in ["n2", "n1 n2", "n1.other", "10.0.0.1", "n1:22"] {
        assert!(!map(list).is_here_only(), "{list}");
    }
}
