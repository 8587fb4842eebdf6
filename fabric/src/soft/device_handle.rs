//! A device as its user holds it: the trait [`Device`], with the checks of arguments.

use std::io;
use std::net::SocketAddr;
use std::ops::Deref;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::context::Context;
use super::cq::{Cq, SoftChannel};
use super::device::SoftDevice;
use super::limits::{MAX_CQE, MAX_INLINE, MAX_MESSAGE, MAX_QP, MAX_RD_ATOM, MAX_SGE, MAX_WR};
use super::memory::{Keys, MAX_REGIONS};
use super::qp_handle::QpHandle;
use super::qp_shared::{Queues, Receives};
use super::queue_handles::{CqHandle, SrqHandle};
use super::random::random_u32;
use super::rq::Rq;
use super::ud::SoftAddress;
use crate::checks::{self, MAKE_QP};
use crate::{
    Access, Address, AddressHandle, AsyncEvent, AtomicCap, Caps, Channel, CompletionQueue, Device,
    DeviceInfo, Error, Gid, GidEntry, GidKind, LinkLayer, PortInfo, PortState, QpSpec, QpType,
    QueuePair, Region, SharedReceiveQueue, Sleep,
};

/// What every device of the software adapter can do.
const CAPS: Caps = caps(AtomicCap::Global);

/// The same with atomics that a script of faults allows.
const fn caps(atomics: AtomicCap) -> Caps {
    Caps {
        max_qp: MAX_QP - 1,
        max_qp_wr: MAX_WR,
        max_sge: MAX_SGE,
        max_sge_rd: MAX_SGE,
        max_cqe: MAX_CQE,
        max_mr: MAX_REGIONS,
        max_mr_size: 1 << 47,
        max_rd_atom: MAX_RD_ATOM,
        max_init_rd_atom: MAX_RD_ATOM,
        max_srq_wr: MAX_WR,
        max_srq_sge: 1,
        atomics,
        xrc: false,
        odp: false,
        // Inline bytes go from where they are into the socket.
        cheap_inline: MAX_INLINE,
        cheap_poll: false,
    }
}

#[derive(Debug)]
pub(super) struct DeviceHandle(pub(super) Arc<SoftDevice>);

impl Drop for DeviceHandle {
    fn drop(&mut self) {
        // The progress thread lets go of the device.
        self.activity.waker.wake();
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

impl Deref for DeviceHandle {
    type Target = Context;

    fn deref(&self) -> &Context {
        &self.0.ctx
    }
}

impl DeviceHandle {
    /// Its completion queue, if `any` is one of this device.
    fn own_cq(&self, any: &Arc<dyn CompletionQueue>) -> Result<Arc<Cq>, Error> {
        let own = |own: &CqHandle| Arc::ptr_eq(&own.device, &self.0);
        let own = checks::own(&self.info, MAKE_QP, "the completion queue", &**any, own)?;
        Ok(Arc::clone(&own.cq))
    }

    /// Where the receives of a new queue pair come from.
    fn receives(&self, spec: &QpSpec<'_>) -> Result<Receives, Error> {
        let Some(srq) = spec.srq else { return Ok(Receives::Own(Rq::new(spec.max_recv))) };
        let own = |own: &SrqHandle| Arc::ptr_eq(&own.device, &self.0);
        let own = checks::own(&self.info, MAKE_QP, "the shared receive queue", &**srq, own)?;
        Ok(Receives::Shared(Arc::clone(&own.rq)))
    }
}

impl Device for DeviceHandle {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn caps(&self) -> &Caps {
        // By default the processor of the target does them.
        match self.faults.plan.atomics() {
            AtomicCap::None => &const { caps(AtomicCap::None) },
            AtomicCap::Device => &const { caps(AtomicCap::Device) },
            AtomicCap::Global => &CAPS,
        }
    }

    fn port(&self, number: u8) -> Result<PortInfo, Error> {
        checks::port(&self.info, "query a port", number)?;
        Ok(PortInfo {
            number,
            state: if self.is_up(number) { PortState::Active } else { PortState::Down },
            link: LinkLayer::Ethernet,
            lid: 0,
            active_mtu: self.mtu,
            max_message: MAX_MESSAGE,
            gids: vec![GidEntry { index: 0, gid: Gid::of(self.ip), kind: GidKind::Soft }],
            pkeys: vec![0xffff],
            service: self.service,
        })
    }

    #[expect(unsafe_code, reason = "the trait's promise, kept by the caller")]
    unsafe fn register(
        &self,
        base: NonNull<u8>,
        len: usize,
        access: Access,
    ) -> Result<Arc<dyn Region>, Error> {
        let refuse = |problem: String| Err(self.invalid("register memory", problem));
        let writes = Access::REMOTE_WRITE.0 | Access::REMOTE_ATOMIC.0;
        if !Access::ALL.has(access) {
            return refuse(format!("rights {:#x} do not exist", access.0));
        }
        if access.0 & writes != 0 && !access.has(Access::LOCAL_WRITE) {
            return refuse("remote writes and atomics need local writes too".to_owned());
        }
        let len = len as u64;
        if len > CAPS.max_mr_size {
            return refuse(format!("{len} bytes, at most {}", CAPS.max_mr_size));
        }
        if self.faults.plan.refuse_registration(len) {
            let source = io::Error::from_raw_os_error(libc::ENOMEM);
            return Err(Error::os(self.name(), format!("register {len} bytes"), source));
        }
        match self.regions.enter(base.as_ptr() as u64, len, access, random_u32) {
            Some(keys) => Ok(Arc::new(SoftRegion { ctx: Arc::clone(&self.0.ctx), keys })),
            None => refuse(format!("all {MAX_REGIONS} regions are in use")),
        }
    }

    fn channel(&self) -> Result<Arc<dyn Channel>, Error> {
        Ok(Arc::new(SoftChannel::new(self.name())?))
    }

    fn completion_queue(
        &self,
        depth: u32,
        channel: Option<&Arc<dyn Channel>>,
    ) -> Result<Arc<dyn CompletionQueue>, Error> {
        const OPERATION: &str = "make a completion queue";
        checks::depth(&self.info, OPERATION, depth, MAX_CQE)?;
        let own = |any: &Arc<dyn Channel>| {
            checks::own::<SoftChannel>(&self.info, OPERATION, "the channel", &**any, |_| true)
                .cloned()
        };
        let cq = Arc::new(Cq::new(&self.0.ctx, depth, channel.map(own).transpose()?));
        Ok(Arc::new(CqHandle { cq, device: Arc::clone(&self.0) }))
    }

    fn shared_receive_queue(&self, depth: u32) -> Result<Arc<dyn SharedReceiveQueue>, Error> {
        checks::depth(&self.info, "make a shared receive queue", depth, MAX_WR)?;
        Ok(Arc::new(SrqHandle { rq: Arc::new(Rq::new(depth)), device: Arc::clone(&self.0) }))
    }

    fn queue_pair(&self, spec: &QpSpec<'_>) -> Result<Arc<dyn QueuePair>, Error> {
        if matches!(spec.qp_type, QpType::XrcSend | QpType::XrcRecv) {
            let what = "extended reliable connections (XRC): a process cannot receive for another";
            return Err(Error::unsupported(self.name(), what));
        }
        checks::queue_pair(&self.info, &CAPS, 1, spec)?;
        let (send, recv) = (self.own_cq(spec.send_cq)?, self.own_cq(spec.recv_cq)?);
        let queues = Queues { send, recv, receives: self.receives(spec)? };
        let qp = self.0.qps.make(&self.0.ctx, spec, queues)?;
        Ok(Arc::new(QpHandle { qp, device: Arc::clone(&self.0) }))
    }

    fn address_handle(&self, port: u8, to: &Address) -> Result<Arc<dyn AddressHandle>, Error> {
        const OPERATION: &str = "make an address handle";
        checks::port(&self.info, OPERATION, port)?;
        if !to.global || to.gid.is_empty() || to.service == 0 {
            return Err(self.invalid(OPERATION, "the address needs a GID and a service number"));
        }
        Ok(Arc::new(SoftAddress { to: SocketAddr::new(to.gid.ip(), to.service) }))
    }

    fn next_event(&self) -> Result<Option<AsyncEvent>, Error> {
        Ok(self.events.pop())
    }

    fn event_fd(&self) -> BorrowedFd<'_> {
        self.events.fd()
    }

    fn arrivals(&self) -> u32 {
        self.activity.arrivals.load(Ordering::Relaxed)
    }

    fn has_sleep(&self) -> bool {
        true
    }

    fn begin_sleep(&self) -> Option<Sleep> {
        self.0.begin_sleep()
    }

    fn end_sleep(&self) {
        self.activity.end_sleep();
    }
}
