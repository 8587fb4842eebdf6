//! Datagram queue pairs: UDP packets between the ports of the devices' listeners.

use super::device::Dev;
use super::qp::Qp;
use crate::{Error, PostError, Send};

/// Whether datagram queue pairs can be made.
pub(super) fn available(dev: &Dev) -> Result<(), Error> {
    Err(Error::Unsupported { device: dev.name().to_owned(), what: "datagram queue pairs" })
}

/// Sends a datagram.
pub(super) fn post(_qp: &Qp, _send: &Send<'_>) -> Result<(), PostError> {
    Err(PostError::Invalid("no datagrams"))
}

/// Takes the datagrams that wait on the device's socket; true: there were some.
pub(super) fn receive(_dev: &Dev, _scratch: &mut [u8]) -> bool {
    false
}
