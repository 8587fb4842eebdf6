//! The tables against each other and against our own options; what every alias becomes.

use std::collections::BTreeSet;

use super::*;
use crate::flags::command;
use crate::normalise::{LineError, Spellings};

fn made(line: &[&str]) -> Result<Vec<String>, String> {
    let words = line.iter().map(OsString::from);
    let line = Spellings::of(command()).cut(words).map_err(|error| error.to_string())?;
    Ok(line.options.iter().map(|word| word.to_string_lossy().into_owned()).collect())
}

#[test]
fn every_word_stands_once_and_none_is_our_own() {
    let mut seen = BTreeSet::new();
    let table = command();
    for word in ALIASES.iter().map(|a| a.words).chain(REFUSED.iter().map(|r| r.words)).flatten() {
        assert!(seen.insert(*word), "{word} stands twice");
        let own = table.get_arguments().any(|arg| {
            arg.get_long().is_some_and(|long| format!("--{long}") == **word)
                || arg.get_short().is_some_and(|short| format!("-{short}") == **word)
        });
        assert!(!own, "{word} is our own");
    }
    for alias in ALIASES {
        assert!(!alias.origins.is_empty() && !alias.ours.is_empty(), "{:?}", alias.words);
        if let Becomes::Option(option) | Becomes::List(option) = alias.becomes {
            assert!(alias.ours.starts_with(option), "{:?}", alias.words);
        }
    }
    assert!(REFUSED.iter().all(|row| !row.origins.is_empty() && !row.instead.is_empty()));
}

#[test]
fn every_alias_refuses_a_missing_value_and_names_ours() {
    for alias in ALIASES.iter().filter(|alias| !alias.values.is_empty()) {
        for word in alias.words {
            let error = made(&[word]).expect_err(word);
            assert!(error.contains(word) && error.contains(alias.ours), "{error}");
            let error = made(&[word, "-v"]).expect_err(word);
            assert!(error.contains("\"-v\"") && error.contains(alias.ours), "{error}");
        }
    }
    for alias in ALIASES.iter().filter(|alias| alias.values.is_empty()) {
        let word = format!("{}=1", alias.words[0]);
        let error = made(&[&word]).expect_err(&word);
        assert!(error.contains("takes no value") && error.contains(alias.ours), "{error}");
    }
    for word in REFUSED.iter().flat_map(|row| row.words) {
        let error = made(&[word, "x"]).expect_err(word);
        assert!(error.starts_with(&format!("option {word} of ")), "{error}");
    }
}

#[test]
fn what_others_type_becomes_ours() {
    for (typed, ours) in [
        (&["-np", "4"][..], &["-n=4"][..]),
        (&["--ntasks=4"], &["-n=4"]),
        (&["-ppn", "2"], &["--ranks-per-host=2"]),
        (&["--pernode"], &["--ranks-per-host=1"]),
        (&["--host", "a:2", "-H", "b"], &["--hosts=a:2,b"]),
        (&["-hosts", "a,b"], &["--hosts=a,b"]),
        (&["-w", "n[1-3]"], &["--hosts=n[1-3]"]),
        (&["-f", "list"], &["--hostfile=list"]),
        (&["-machinefile", "list"], &["--hostfile=list"]),
        (&["--map-by", "slot"], &["--map=slots"]),
        (&["--map-by", "node:OVERSUBSCRIBE"], &["--map=cyclic", "--oversubscribe"]),
        (&["-map-by", "socket"], &["--place=socket"]),
        (&["--map-by", "ppr:2:node"], &["--ranks-per-host=2"]),
        (&["--map-by", "ppr:2:package:PE=3"], &["--place=2:socket", "-c=3", "--bind-to=core"]),
        (&["--map-by", ":NOOVERSUBSCRIBE"], &["--no-oversubscribe"]),
        (&["-m", "cyclic"], &["--map=cyclic"]),
        (&["-bind-to", "core:2"], &["-c=2", "--bind-to=core"]),
        (&["-bind-to", "hwthread"], &["-c=1"]),
        (&["-bind-to", "socket"], &["--bind-to=socket"]),
        (&["--cpu-bind=verbose,cores"], &["--report-bindings", "--bind-to=core"]),
        (&["-xterm", "0,2-3"], &["--debugger=xterm -e", "--debugger-ranks=0,2-3"]),
        (&["--xterm=-1!"], &["--debugger=xterm -hold -e"]),
        (&["-x", "A", "-x", "B=1,2"], &["--env=A", "--env=B=1,2"]),
        (&["-genv", "A", "-1"], &["--env-all=A=-1"]),
        (&["-env", "A", "-1"], &["--env=A=-1"]),
        (&["-genvlist", "A,B"], &["-E=A,B"]),
        (&["-genvall"], &["-E=ALL"]),
        (&["--export=ALL,A=1"], &["-E=ALL", "-E=A=1"]),
        (&["-wdir", "/d"], &["--wdir=/d"]),
        (&["-D", "/d"], &["--wdir=/d"]),
        (&["-l"], &["--tag-output"]),
        (&["--output", "tag,dir=x"], &["--tag-output", "--output-dir=x"]),
        (&["--input=none"], &["--stdin=none"]),
        (&["--time", "1:30:00"], &["--timeout=5400"]),
        (&["--time", "2-12"], &["--timeout=216000"]),
        (&["--time=5"], &["--timeout=300"]),
        (&["-timeout", "5"], &["--timeout=5"]),
        (&["-verbose"], &["-v"]),
        (&["--do-not-launch"], &["-t"]),
    ] {
        assert_eq!(made(typed).as_deref(), Ok(ours.map_text().as_slice()), "{typed:?}");
    }
}

trait MapText {
    fn map_text(&self) -> Vec<String>;
}

impl MapText for &[&str] {
    fn map_text(&self) -> Vec<String> {
        self.iter().map(|word| (*word).to_owned()).collect()
    }
}

#[test]
fn wrong_values_are_named_with_what_is_right() {
    for (typed, parts) in [
        (&["-np", "x"][..], &["-np x", "'x'", "-n 4"][..]),
        (&["-ppn", "0"], &["-ppn 0", "at least 1", "--ranks-per-host 4"]),
        (&["--map-by", "board"], &["--map-by board", "write slot, node"]),
        (&["--map-by", "slot:SPAN"], &["--map-by slot:SPAN", "\"span\"", "PE=K"]),
        (&["--map-by", "ppr:x:node"], &["ppr:N:node"]),
        (&["-m", "plane=4"], &["-m plane=4", "--ranks-per-host K"]),
        (&["-bind-to", "l2cache"], &["-bind-to l2cache", "write core, socket"]),
        (&["-bind-to", "socket:2"], &["core:K"]),
        (&["--cpu-bind", "map_cpu:0"], &["taskset"]),
        (&["--export", "NONE"], &["env -i"]),
        (&["--output", "job-%t.out"], &["--output-dir DIR"]),
        (&["--input", "file"], &["< FILE"]),
        (&["--time", "soon"], &["--time soon", "--timeout 90s"]),
        (&["--time", "0"], &["--time 0", "at once"]),
        (&["-w", "./hosts"], &["--hostfile FILE"]),
        (&["-genv", "A=1", "x"], &["blank between NAME and VALUE"]),
    ] {
        let error = made(typed).expect_err("wrong");
        assert!(parts.iter().all(|part| error.contains(part)), "{typed:?}: {error}");
    }
}

#[test]
fn words_of_the_program_are_left_alone() {
    let words = ["-n", "1", "prog", "-x", "--mca", "-genv"].map(OsString::from);
    let line = Spellings::of(command()).cut(words).expect("legal");
    assert_eq!(line.command.len(), 4);
    assert!(matches!(
        Spellings::of(command()).cut(["--mca".into()]),
        Err(LineError::Alias(AliasError::Refused(..)))
    ));
}
