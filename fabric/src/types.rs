//! Values that all fabrics speak in. Names and meanings are those of InfiniBand verbs.

pub(crate) mod connection;
pub(crate) mod device;
pub(crate) mod work;
