//! Calls of the launcher that start nothing: dry runs, bad input, documents, settings.

mod bad_input;
mod documents;
mod dry_run;
mod room;
mod settings;
