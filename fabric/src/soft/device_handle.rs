//! A device as its user holds it: the trait [`Device`], with the checks of arguments.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use super::channel::SoftChannel;
use super::context::Context;
use super::cq::Cq;
use super::device::SoftDevice;
use super::limits::{MAX_CQE, MAX_INLINE, MAX_MESSAGE, MAX_QP, MAX_RD_ATOM, MAX_SGE, MAX_WR};
use super::memory::{Keys, MAX_REGIONS};
use super::qp_handle::QpHandle;
use super::qp_shared::{Queues, Receives};
use super::queue_handles::{CqHandle, SrqHandle};
use super::random::random_u32;
use super::rq::Rq;
use super::ud::SoftAddress;
use crate::{
    Access, Address, AddressHandle, AsyncEvent, Caps, Channel, CompletionQueue, Device, DeviceInfo,
    Error, Gid, GidEntry, GidKind, LinkLayer, PortInfo, PortState, QpSpec, QpType, QueuePair,
    Region, SharedReceiveQueue,
};

const MAKE_QP: &str = "make a queue pair";

/// What every device of the software adapter can do.
const CAPS: Caps = Caps {
    max_qp: MAX_QP - 1,
    max_qp_wr: MAX_WR,
    max_sge: MAX_SGE,
    max_cqe: MAX_CQE,
    max_mr: MAX_REGIONS,
    max_mr_size: 1 << 47,
    max_rd_atom: MAX_RD_ATOM,
    max_init_rd_atom: MAX_RD_ATOM,
    max_srq_wr: MAX_WR,
    max_srq_sge: 1,
    atomics: true,
    xrc: false,
    odp: false,
    // Inline bytes go from where they are into the socket.
    cheap_inline: MAX_INLINE,
    cheap_poll: false,
};

/// An open device.
#[derive(Debug)]
pub(super) struct DeviceHandle(pub(super) Arc<SoftDevice>);

impl Drop for DeviceHandle {
    fn drop(&mut self) {
        // The progress thread lets go of the device.
        self.0.ctx.activity.wake_now();
    }
}

#[derive(Debug)]
struct SoftRegion {
    ctx: Arc<Context>,
    keys: Keys,
}

impl Region for SoftRegion {
    fn lkey(&self) -> u32 {
        self.keys.lkey
    }

    fn rkey(&self) -> u32 {
        self.keys.rkey
    }
}

impl Drop for SoftRegion {
    fn drop(&mut self) {
        self.ctx.regions.leave(self.keys);
    }
}

impl DeviceHandle {
    fn check_port(&self, operation: &'static str, port: u8) -> Result<(), Error> {
        if port == 0 || port > self.0.ctx.info.ports {
            let problem =
                format!("port {port}, the device has ports 1 to {}", self.0.ctx.info.ports);
            return Err(self.0.ctx.invalid(operation, problem));
        }
        Ok(())
    }

    /// Its completion queue, if `any` is one of this device.
    fn own_cq(&self, any: &Arc<dyn CompletionQueue>) -> Result<Arc<Cq>, Error> {
        let own = any.as_any().downcast_ref::<CqHandle>();
        own.filter(|own| Arc::ptr_eq(&own.device, &self.0))
            .map(|own| Arc::clone(&own.cq))
            .ok_or_else(|| self.0.ctx.invalid(MAKE_QP, "a completion queue is of another device"))
    }

    /// Where the receives of a new queue pair come from.
    fn receives(&self, spec: &QpSpec<'_>) -> Result<Receives, Error> {
        let Some(srq) = spec.srq else { return Ok(Receives::Own(Rq::new(spec.max_recv))) };
        let own = srq.as_any().downcast_ref::<SrqHandle>();
        let Some(own) = own.filter(|own| Arc::ptr_eq(&own.device, &self.0)) else {
            let problem = "the shared receive queue is of another device";
            return Err(self.0.ctx.invalid(MAKE_QP, problem));
        };
        if spec.max_recv != 0 {
            let problem = format!("{} receives beside a shared receive queue", spec.max_recv);
            return Err(self.0.ctx.invalid(MAKE_QP, problem));
        }
        Ok(Receives::Shared(Arc::clone(&own.rq)))
    }

    fn check_spec(&self, spec: &QpSpec<'_>) -> Result<(), Error> {
        if matches!(spec.qp_type, QpType::XrcSend | QpType::XrcRecv) {
            let device = self.info().name.clone();
            let what = "extended reliable connections (XRC): a process cannot receive for another";
            return Err(Error::Unsupported { device, what });
        }
        let limits = [
            ("send requests", spec.max_send, MAX_WR),
            ("receive requests", spec.max_recv, MAX_WR),
            ("gather entries", spec.send_sge, MAX_SGE),
            ("scatter entries", spec.recv_sge, 1),
        ];
        match limits.iter().find(|(_, seen, most)| seen > most) {
            Some((what, seen, most)) => {
                let problem = format!("{seen} {what}, at most {most}");
                Err(self.0.ctx.invalid(MAKE_QP, problem))
            }
            None => Ok(()),
        }
    }
}

impl Device for DeviceHandle {
    fn info(&self) -> &DeviceInfo {
        &self.0.ctx.info
    }

    fn caps(&self) -> &Caps {
        &CAPS
    }

    fn port(&self, number: u8) -> Result<PortInfo, Error> {
        self.check_port("query a port", number)?;
        let ctx = &self.0.ctx;
        Ok(PortInfo {
            number,
            state: if ctx.is_up(number) { PortState::Active } else { PortState::Down },
            link: LinkLayer::Ethernet,
            lid: 0,
            active_mtu: ctx.mtu,
            max_message: MAX_MESSAGE,
            gids: vec![GidEntry { index: 0, gid: Gid::of(ctx.ip), kind: GidKind::Soft }],
            pkeys: vec![0xffff],
            service: ctx.service,
        })
    }

    #[expect(unsafe_code, reason = "the trait's promise, kept by the caller")]
    unsafe fn register(
        &self,
        base: NonNull<u8>,
        len: usize,
        access: Access,
    ) -> Result<Arc<dyn Region>, Error> {
        const OPERATION: &str = "register memory";
        let writes = Access::REMOTE_WRITE.0 | Access::REMOTE_ATOMIC.0;
        if !Access::ALL.has(access) {
            return Err(self
                .0
                .ctx
                .invalid(OPERATION, format!("rights {:#x} do not exist", access.0)));
        }
        if access.0 & writes != 0 && !access.has(Access::LOCAL_WRITE) {
            let problem = "remote writes and atomics need local writes too".to_owned();
            return Err(self.0.ctx.invalid(OPERATION, problem));
        }
        let len = len as u64;
        if len > CAPS.max_mr_size {
            let problem = format!("{len} bytes, at most {}", CAPS.max_mr_size);
            return Err(self.0.ctx.invalid(OPERATION, problem));
        }
        if self.0.ctx.faults.plan.refuse_registration() {
            return Err(Error::Os {
                device: self.0.ctx.name().to_owned(),
                operation: format!("register {len} bytes"),
                source: io::Error::from_raw_os_error(libc::ENOMEM),
            });
        }
        let base = base.as_ptr() as u64;
        let keys = self.0.ctx.regions.enter(base, len, access, random_u32);
        let Some(keys) = keys else {
            return Err(self
                .0
                .ctx
                .invalid(OPERATION, format!("all {MAX_REGIONS} regions are in use")));
        };
        Ok(Arc::new(SoftRegion { ctx: Arc::clone(&self.0.ctx), keys }))
    }

    fn channel(&self) -> Result<Arc<dyn Channel>, Error> {
        Ok(Arc::new(SoftChannel::new(self.0.ctx.name())?))
    }

    fn completion_queue(
        &self,
        depth: u32,
        channel: Option<&Arc<dyn Channel>>,
    ) -> Result<Arc<dyn CompletionQueue>, Error> {
        const OPERATION: &str = "make a completion queue";
        if depth == 0 || depth > MAX_CQE {
            return Err(self.0.ctx.invalid(OPERATION, format!("{depth} entries, 1 to {MAX_CQE}")));
        }
        let channel = match channel {
            None => None,
            Some(channel) => match channel.as_any().downcast_ref::<SoftChannel>() {
                Some(channel) => Some(channel.clone()),
                None => {
                    let problem = "the channel is of another device".to_owned();
                    return Err(self.0.ctx.invalid(OPERATION, problem));
                }
            },
        };
        let cq = Arc::new(Cq::new(&self.0.ctx, depth, channel));
        Ok(Arc::new(CqHandle { cq, device: Arc::clone(&self.0) }))
    }

    fn shared_receive_queue(&self, depth: u32) -> Result<Arc<dyn SharedReceiveQueue>, Error> {
        if depth == 0 || depth > MAX_WR {
            let problem = format!("{depth} receives, 1 to {MAX_WR}");
            return Err(self.0.ctx.invalid("make a shared receive queue", problem));
        }
        Ok(Arc::new(SrqHandle { rq: Arc::new(Rq::new(depth)), device: Arc::clone(&self.0) }))
    }

    fn queue_pair(&self, spec: &QpSpec<'_>) -> Result<Arc<dyn QueuePair>, Error> {
        self.check_spec(spec)?;
        let (send, recv) = (self.own_cq(spec.send_cq)?, self.own_cq(spec.recv_cq)?);
        let queues = Queues { send, recv, receives: self.receives(spec)? };
        let qp = self.0.qps.make(&self.0.ctx, spec, queues)?;
        Ok(Arc::new(QpHandle { qp, device: Arc::clone(&self.0) }))
    }

    fn address_handle(&self, port: u8, to: &Address) -> Result<Arc<dyn AddressHandle>, Error> {
        const OPERATION: &str = "make an address handle";
        self.check_port(OPERATION, port)?;
        if !to.global || to.gid.is_empty() || to.service == 0 {
            let problem = "the address needs a GID and a service number".to_owned();
            return Err(self.0.ctx.invalid(OPERATION, problem));
        }
        Ok(Arc::new(SoftAddress { to: SocketAddr::new(to.gid.ip(), to.service) }))
    }

    fn next_event(&self) -> Result<Option<AsyncEvent>, Error> {
        Ok(self.0.ctx.events.pop())
    }

    fn event_fd(&self) -> BorrowedFd<'_> {
        self.0.ctx.events.fd()
    }
}
