//! Active messages: requests on their way out, arrived messages on their way to handlers.

pub(crate) mod carried_long;
pub(crate) mod deferred;
mod deliver;
pub(crate) mod internal;
pub(crate) mod lend;
mod request;
mod traced;

pub(crate) use deliver::{NetReceiver, ShmReceiver};
