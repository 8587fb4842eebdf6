//! Checks of arguments that both fabrics make.

use std::any::Any;

use crate::{Caps, DeviceInfo, Error, QpSpec};

pub(crate) const MAKE_QP: &str = "make a queue pair";

/// The device has this port.
pub(crate) fn port(device: &DeviceInfo, operation: &'static str, port: u8) -> Result<(), Error> {
    if port == 0 || port > device.ports {
        let problem = format!("there is no port {port}, only 1 to {}", device.ports);
        return Err(Error::argument(&device.name, operation, problem));
    }
    Ok(())
}

/// A queue may be that deep.
pub(crate) fn depth(
    device: &DeviceInfo,
    operation: &'static str,
    depth: u32,
    most: u32,
) -> Result<(), Error> {
    if depth == 0 || depth > most {
        let problem = format!("{depth} entries, allowed are 1 to {most}");
        return Err(Error::argument(&device.name, operation, problem));
    }
    Ok(())
}

/// The device can make such a queue pair. `scatter`: entries of a receive request.
pub(crate) fn queue_pair(
    device: &DeviceInfo,
    caps: &Caps,
    scatter: u32,
    spec: &QpSpec<'_>,
) -> Result<(), Error> {
    let most = [
        ("send requests", spec.max_send, caps.max_qp_wr),
        ("receive requests", spec.max_recv, caps.max_qp_wr),
        ("gather entries", spec.send_sge, caps.max_sge),
        ("scatter entries", spec.recv_sge, scatter),
    ];
    if let Some((what, value, limit)) = most.iter().find(|(_, value, limit)| value > limit) {
        let problem = format!("{value} {what}, the device has {limit}");
        return Err(Error::argument(&device.name, MAKE_QP, problem));
    }
    if spec.srq.is_some() && spec.max_recv > 0 {
        let problem = format!("{} receive requests beside a shared receive queue", spec.max_recv);
        return Err(Error::argument(&device.name, MAKE_QP, problem));
    }
    Ok(())
}

/// The object behind a trait, when it was made from this device. `what`: the object.
pub(crate) fn own<'a, T: Any>(
    device: &DeviceInfo,
    operation: &'static str,
    what: &str,
    any: &'a dyn Any,
    is_own: impl FnOnce(&T) -> bool,
) -> Result<&'a T, Error> {
    any.downcast_ref::<T>().filter(|own| is_own(own)).ok_or_else(|| {
        Error::argument(&device.name, operation, format!("{what} is of another device"))
    })
}
