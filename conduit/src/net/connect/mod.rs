//! Connections between ranks: all at the start, those of a list at the start, or each when it is needed first.
//!
//! * `machine`, `table`: the handshake of dynamic connections, pure. `wire`: its packets.
//! * `file`: lists of connections (`GASNET_CONNECTFILE_IN`, `_OUT`).
//!
//! `docs/design/connect.md` has the protocol. Nothing here knows what a queue pair is used for.

pub(crate) mod file;
pub(crate) mod machine;
pub(crate) mod table;
pub(crate) mod wire;

#[cfg(test)]
mod sim;
#[cfg(test)]
mod table_document;
