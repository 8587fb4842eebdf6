use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> Result<Template, TemplateError> {
    Template::parse("MPIRUN_CMD", OsStr::new(text), false)
}

fn values() -> Values {
    let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
    Values {
        ranks: 4,
        hosts: Some(2),
        layout: words(&["-ppn", "2"]),
        environment: words(&["-x", "A"]),
        program: "/bin/my prog".into(),
        arguments: words(&["a b", "", "it's", "%N"]),
        verbose: words(&["-v"]),
        host_file: Some("/h".into()),
        directory: "/d d".into(),
    }
}

fn expand(text: &str) -> Vec<String> {
    let words = parse(text).expect(text).expand(&values()).expect(text);
    words.into_iter().map(|word| word.into_string().expect("text")).collect()
}

#[test]
fn whole_words_become_words() {
    assert_eq!(
        expand("mpirun -np %N %C"),
        ["mpirun", "-np", "4", "-ppn", "2", "-x", "A", "/bin/my prog", "a b", "", "it's", "%N"]
    );
    assert_eq!(
        expand("srun -K0 -W60 %V -mblock -n %N %P %Q"),
        [
            "srun",
            "-K0",
            "-W60",
            "-v",
            "-mblock",
            "-n",
            "4",
            "-ppn",
            "2",
            "-x",
            "A",
            "/bin/my prog",
            "'a b'",
            "''",
            "\"it's\"",
            "'%N'"
        ]
    );
    assert_eq!(expand("run %N %M %H %D %C")[4..7], ["2", "/h", "/d d"]);
}

#[test]
fn inside_a_word_there_is_text() {
    assert_eq!(
        expand("x -n%N --hosts=%M --file=%H -d'%D' 100%% %C")[..6],
        ["x", "-n4", "--hosts=2", "--file=/h", "-d/d d", "100%"]
    );
    let word = expand("x %N sh -c 'exec %C'").pop().expect("words");
    assert_eq!(word, "exec -x A '/bin/my prog' 'a b' '' \"it's\" '%N'");
    assert_eq!(
        shlex::split(&word).expect("quoted"),
        ["exec", "-x", "A", "/bin/my prog", "a b", "", "it's", "%N"]
    );
}

#[test]
fn quotes_protect() {
    assert_eq!(expand("mpirun --mca a 'b c' -np %N %C")[1..4], ["--mca", "a", "b c"]);
}

#[test]
fn the_launcher_may_stand_behind_env() {
    for (text, launcher) in [
        ("mpirun -np %N %C", "mpirun"),
        ("env A=B C='d e' /opt/mpi/bin/mpirun -np %N %C", "/opt/mpi/bin/mpirun"),
        ("/usr/bin/env -u X -i A=B srun -n %N %C", "srun"),
    ] {
        assert_eq!(parse(text).expect(text).launcher(), launcher);
    }
    for text in ["", "  ", "env A=B", "env", "env -u"] {
        let error = parse(text).expect_err(text).to_string();
        assert!(
            error.contains("names no launcher") && error.contains("mpirun -np %N %C"),
            "{error}"
        );
    }
}

#[test]
fn options_of_the_template_are_known() {
    let template = parse("srun --export=NONE -n %N %C").expect("a template");
    assert!(
        template.has_option("--export")
            && !template.has_option("--exp")
            && !template.has_option("srun")
    );
    assert!(parse("srun --export A -n %N %C").expect("a template").has_option("--export"));
}

#[test]
fn what_must_be_there() {
    for (text, missing) in [
        ("mpirun -np 4 %C", "%N"),
        ("mpirun -np %N", "%C or %P"),
        ("mpirun -np %N %P", "%A"),
        ("mpirun -np %N %A", "%P"),
    ] {
        let error = parse(text).expect_err(text).to_string();
        assert!(error.contains(missing) && error.contains("MPIRUN_CMD_OK=1"), "{error}");
        assert!(Template::parse("MPIRUN_CMD", OsStr::new(text), true).is_ok());
        let with_token = parse(&format!("{text} MPIRUN_CMD_OK")).expect("bypassed");
        assert!(!with_token.expand(&values()).expect("words").contains(&"MPIRUN_CMD_OK".into()));
    }
    assert!(parse("x %N %P %Q").is_ok());
}

#[test]
fn mistakes_are_named() {
    let error = parse("mpirun -np %n %C").expect_err("escape").to_string();
    assert!(
        error.contains("\"%n\"") && error.contains("%N") && error.contains("MPIRUN_CMD="),
        "{error}"
    );
    assert!(parse("mpirun %N %C 5%").expect_err("end").to_string().contains("\"%\""));
    assert!(parse("mpirun '%N %C").expect_err("quote").to_string().contains("not closed"));
    let nowhere = Values { host_file: None, ..values() };
    for text in ["x -f %H %N %C", "x -f=%H %N %C"] {
        let error = parse(text).expect(text).expand(&nowhere).expect_err("no file").to_string();
        assert!(error.contains("%H") && error.contains("GASNET_NODEFILE"), "{error}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_a_template_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
        let text = OsString::from_vec(bytes);
        if let Ok(template) = Template::parse("PMIRUN_CMD", &text, false) {
            let words = template.expand(&values()).expect("there is a host file");
            prop_assert!(!words.is_empty());
        }
    }

    #[test]
    fn arguments_arrive_as_they_are(arguments in proptest::collection::vec("[^\0]{0,8}", 0..6)) {
        let arguments: Vec<OsString> = arguments.into_iter().map(Into::into).collect();
        let values = Values { arguments: arguments.clone(), ..values() };
        let words = parse("x %N %C").expect("a template").expand(&values).expect("words");
        prop_assert_eq!(&words[words.len() - arguments.len()..], &arguments[..]);
        // Through a shell as well.
        let line = parse("x %N 'run %C'").expect("a template").expand(&values).expect("words");
        let line = line.last().expect("a word").to_str().expect("text").to_owned();
        let back = shlex::split(&line).expect("quoted well");
        let tail: Vec<OsString> = back[back.len() - arguments.len()..].iter().map(Into::into).collect();
        prop_assert_eq!(tail, arguments);
    }
}
