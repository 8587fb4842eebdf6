//! Does nothing: what starting a process costs.

fn main() {}
