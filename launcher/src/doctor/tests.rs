use super::*;

fn finding(check: &str, level: Level, seen: &str, fix: &str) -> Finding {
    Finding { check: check.into(), level, seen: seen.into(), fix: fix.into() }
}

fn host(name: &str, findings: &[Finding]) -> Health {
    Health { host: name.into(), failure: None, findings: findings.to_vec() }
}

fn entries(health: &[Health]) -> Vec<HostEntry> {
    health.iter().map(|health| HostEntry::new(health.host.as_str())).collect()
}

#[test]
fn the_same_trouble_is_one_line() {
    let low = |host: &str| {
        finding("descriptors", Level::Problem, &format!("{host} is limited to 64"), "raise it")
    };
    let fine = finding("descriptors", Level::Ok, "enough", "");
    let health = [host("a", &[low("a")]), host("b", &[fine]), host("c", &[low("c")])];
    let text = text(&lines(&health, &entries(&health)), 3);
    assert_eq!(
        text,
        "ok       login            3 of 3 hosts: the agent answers\n\
         ok       version          3 of 3 hosts: 0.1.0\n\
         problem  descriptors      2 of 3 hosts (a c): a is limited to 64\n\
         \x20                         fix: raise it\n\
         ok       descriptors      1 of 3 hosts: enough\n\
         1 problem, 0 warnings\n"
            .replace("0.1.0", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn what_is_well_in_different_ways_is_one_line() {
    let with = |seen: &str| finding("other launchers", Level::Ok, seen, "");
    let health = [host("a", &[with("srun")]), host("b", &[with("mpirun")])];
    let lines = lines(&health, &entries(&health));
    assert_eq!(lines.len(), 3);
    assert_eq!(
        (lines[2].finding.seen.as_str(), lines[2].hosts.len()),
        ("differs, see --report", 2)
    );
}

#[test]
fn which_client_logs_in_is_said_of_every_host() {
    let with = |client: &str| finding(CLIENT, Level::Ok, client, "");
    let (ours, other) = (with("the built-in ssh client"), with("the ssh program (ProxyJump j)"));
    let health = [
        host("n1", std::slice::from_ref(&ours)),
        host("n2", &[other]),
        host("n3", std::slice::from_ref(&ours)),
    ];
    let text = text(&lines(&health, &entries(&health)), 3);
    for line in [
        "ok       ssh client       2 of 3 hosts (n1 n3): the built-in ssh client\n",
        "ok       ssh client       1 of 3 hosts (n2): the ssh program (ProxyJump j)\n",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
}

#[test]
fn a_host_that_was_not_reached_is_a_problem_of_its_step() {
    let failure = spawner_ssh::diagnosis::Failure {
        class: Class::HostKey,
        seen: "Host key verification failed.".into(),
    };
    let mut health = vec![host("a", &[])];
    health[0].failure = Some(failure);
    let lines = lines(&health, &entries(&health));
    assert_eq!(
        (lines.len(), lines[0].finding.check.as_str(), lines[0].finding.level),
        (1, "login", Level::Problem)
    );
    assert!(
        lines[0].finding.seen.starts_with("at the step `host key`")
            && !lines[0].finding.fix.is_empty()
    );
}

#[test]
fn command_lines() {
    let parsed = |words: &[&str]| parse(&words.iter().map(OsString::from).collect::<Vec<_>>());
    let flags = parsed(&["n1", "n2:4", "--report", "x"]).expect("good");
    assert_eq!(named(&flags), Some("n1 n2:4".into()));
    assert_eq!(named(&parsed(&["--hosts", "n1"]).expect("good")), None);
    for bad in [&["--hosts", "n1", "n2"][..], &["--nothing"], &["--stage", "perhaps"]] {
        let error = parsed(bad).expect_err("bad");
        assert_eq!(error.code(), 2, "{error}");
    }
    command().debug_assert();
}
