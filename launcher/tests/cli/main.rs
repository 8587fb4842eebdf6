//! Calls of the launcher: dry runs, bad input, documents, settings, and small jobs of plain
//! programs.

mod bad_input;
mod documents;
mod dry_run;
mod room;
mod runs;
mod settings;
mod vocabulary;
