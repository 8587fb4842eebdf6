//! Calls of the launcher that start nothing: dry runs, bad input, documents.

mod bad_input;
mod documents;
mod dry_run;
mod room;
