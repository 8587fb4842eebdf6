//! The manual page and the completions in the tree are those that the tables make.
//!
//! `GASNETRUN_UPDATE_DOCUMENTS=1 cargo test -p gasnetrun-ibv documents` writes them anew.

use std::path::PathBuf;

use clap_complete::Shell;
use launcher::aliases::{ALIASES, REFUSED, pages};
use launcher::{documents, exit_code, flags::command};

fn compare(path: &str, made: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path);
    if settings::variable("GASNETRUN_UPDATE_DOCUMENTS").is_some() {
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("make directory");
        std::fs::write(&path, made).expect("write document");
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        there == made,
        "{} is not what the tables make; set GASNETRUN_UPDATE_DOCUMENTS=1 to write it",
        path.display()
    );
}

#[test]
fn manual_page_is_current() {
    compare("../man/gasnetrun_ibv.1", &documents::man_page().expect("made in memory"));
}

#[test]
fn the_page_of_other_options_is_current() {
    compare("../docs/options-of-others.md", &pages::page());
}

/// Everything that is made from the tables knows every alias.
#[test]
fn help_manual_and_completions_know_the_options_of_others() {
    let help = command().render_long_help().to_string();
    let page = documents::man_page().expect("made in memory").replace("\\-", "-");
    let bash = documents::completions(Shell::Bash);
    for alias in ALIASES {
        for word in alias.words {
            assert!(help.contains(word), "{word}");
            assert!(page.contains(&alias.form(word)), "{word}");
            let known = word.starts_with("--") || word.len() == 2;
            assert!(!known || bash.contains(&format!(" {word} ")), "{word}");
        }
    }
    for word in REFUSED.iter().flat_map(|row| row.words) {
        assert!(page.contains(word), "{word}");
    }
}

#[test]
fn completions_are_current() {
    for (shell, name) in [
        (Shell::Bash, "gasnetrun_ibv.bash"),
        (Shell::Zsh, "_gasnetrun_ibv"),
        (Shell::Fish, "gasnetrun_ibv.fish"),
    ] {
        compare(&format!("completions/{name}"), &documents::completions(shell));
    }
}

#[test]
fn manual_page_has_every_option_code_and_variable() {
    let page = documents::man_page().expect("made in memory").replace("\\-", "-");
    for arg in command().get_arguments().filter(|arg| !arg.is_hide_set()) {
        let short = arg.get_short().map(|c| format!("-{c}"));
        let long = arg.get_long().map(|name| format!("--{name}"));
        for name in short.into_iter().chain(long) {
            assert!(page.contains(&format!("\\fB{name}\\fR")), "{name}");
        }
    }
    for (code, _) in exit_code::TABLE {
        assert!(page.contains(&format!("\\fB{code}\\fR\n")), "{code}");
    }
    let idle = settings::without_effect().map(|(name, _)| name);
    for name in settings::rows().map(|row| row.name).chain(idle) {
        assert!(page.contains(name), "{name}");
    }
}
