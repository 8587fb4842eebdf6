//! Manual page and completions, made from the option table.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::exit_code;
use crate::flags::Flags;

/// The completion script of a shell.
#[must_use]
pub fn completions(shell: Shell) -> String {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Flags::command(), "gasnetrun_ibv", &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// The manual page, in roff.
#[must_use]
pub fn man_page() -> String {
    let man = clap_mangen::Man::new(Flags::command());
    let mut page = Vec::new();
    // Writing to memory cannot fail.
    let _ = man.render(&mut page);
    let mut text = String::from_utf8_lossy(&page).into_owned();
    text.push_str(".SH \"EXIT STATUS\"\n");
    for row in exit_code::TABLE {
        text.push_str(&format!(".TP\n{}\n{}\n", row.code, row.meaning));
    }
    text
}
