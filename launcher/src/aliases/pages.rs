//! What is made of the tables for people: the end of `--help`, a section of the manual, a page, and
//! the options that completions know.

use std::fmt::Write;

use clap::builder::Str;
use clap::{Arg, ArgAction};

use super::{ALIASES, Alias, OTHER_MEANINGS, REFUSED, names};

/// Our options with the spellings of others, for the end of `--help`.
#[must_use]
pub fn help() -> String {
    let mut rows: Vec<(&str, Vec<&str>)> = Vec::new();
    for alias in ALIASES {
        match rows.iter_mut().find(|(ours, _)| *ours == alias.ours) {
            Some((_, words)) => words.extend(alias.words),
            None => rows.push((alias.ours, alias.words.to_vec())),
        }
    }
    let row =
        |(ours, words): &(&str, Vec<&str>)| format!("  {ours}\n          {}\n", words.join(" "));
    let rows: String = rows.iter().map(row).collect();
    format!("Also understood, as other launchers write it (the manual says whose and how):\n{rows}")
}

/// Entries of the manual: the spellings with their values, and what they are.
#[must_use]
pub fn entries() -> Vec<(String, String)> {
    let entry = |alias: &Alias| {
        let words: Vec<String> = alias.words.iter().map(|word| alias.form(word)).collect();
        let note = if alias.note.is_empty() { String::new() } else { format!(": {}", alias.note) };
        let text = format!("{} ({}){note}.", alias.ours, names(alias.origins));
        (words.join(", "), text)
    };
    ALIASES.iter().map(entry).collect()
}

/// Entries of the manual for what does not exist here.
#[must_use]
pub fn refused_entries() -> Vec<(String, String)> {
    REFUSED
        .iter()
        .map(|row| {
            let text = format!("{} ({}).", sentence(row.instead), names(row.origins));
            (row.words.join(", "), text)
        })
        .collect()
}

/// Entries of the manual for words with another meaning.
#[must_use]
pub fn other_meanings() -> Vec<(String, String)> {
    OTHER_MEANINGS
        .iter()
        .map(|(word, origins, there, here)| {
            let text = format!("There ({}): {there}; here: {here}.", names(origins));
            ((*word).to_owned(), text)
        })
        .collect()
}

fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    // An option or a variable stays as it is.
    match letters.next() {
        Some(first) if first.is_ascii_lowercase() && !text.starts_with("sh ") => {
            first.to_ascii_uppercase().to_string() + letters.as_str()
        }
        _ => text.to_owned(),
    }
}

/// The page `docs/options-of-others.md`.
#[must_use]
pub fn page() -> String {
    let mut text = "# Options as other launchers write them\n\n\
        Made from the tables in `launcher/src/aliases`; `GASNETRUN_UPDATE_DOCUMENTS=1 cargo test -p gasnetrun-ibv --test cli\n\
        documents` renews it. A value is the next word, or stands behind `=`. Options end at the first word that is none, as\n\
        everywhere.\n\n\
        | as others write it | who | here |\n|---|---|---|\n"
        .to_owned();
    for alias in ALIASES {
        let words: Vec<String> =
            alias.words.iter().map(|word| format!("`{}`", cell(&alias.form(word)))).collect();
        let note = if alias.note.is_empty() { String::new() } else { format!(" ({})", alias.note) };
        let (words, who) = (words.join(" "), names(alias.origins));
        let _ = writeln!(text, "| {words} | {who} | {}{} |", cell(alias.ours), cell(&note));
    }
    text +=
        "\n## Words that mean something else\n\n| word | who | there | here |\n|---|---|---|---|\n";
    for (word, origins, there, here) in OTHER_MEANINGS {
        let _ = writeln!(text, "| `{word}` | {} | {there} | {here} |", names(origins));
    }
    text += "\n## What does not exist here, and what serves\n\n| option | who | instead |\n|---|---|---|\n";
    for row in REFUSED {
        let words: Vec<String> = row.words.iter().map(|word| format!("`{word}`")).collect();
        let (words, who) = (words.join(" "), names(row.origins));
        let _ = writeln!(text, "| {words} | {who} | {} |", cell(row.instead));
    }
    text
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;")
}

/// The option table with the spellings of others that a completion script can know: those with one
/// letter, or with two dashes.
#[must_use]
pub fn with_aliases(mut table: clap::Command) -> clap::Command {
    for alias in ALIASES {
        for word in alias.words {
            let action = match alias.values {
                [] => ArgAction::SetTrue,
                _ => ArgAction::Append,
            };
            let arg = Arg::new(Str::from(*word)).action(action).help(alias.ours);
            let arg = match word.strip_prefix("--") {
                Some(long) => arg.long(long),
                None => match word.as_bytes() {
                    [b'-', letter] => arg.short(char::from(*letter)),
                    _ => continue,
                },
            };
            table = table.arg(match alias.values {
                [] => arg,
                values => arg.num_args(values.len()).value_names(values),
            });
        }
    }
    table
}
