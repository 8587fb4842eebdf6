//! Extended reliable connections: domains, their receive queues and receivers.

use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use crate::{CompletionQueue, Error, QueuePair, SharedReceiveQueue, XrcDomain};

use super::domain::Domain;
use super::ffi;
use super::qp::VerbsQp;
use super::queues::{VerbsCq, VerbsSrq};
use super::xrc_functions::Functions;
use super::xrcd::Xrcd;

/// A domain as the conduit sees it.
#[derive(Debug)]
pub(super) struct VerbsXrcDomain(Arc<Xrcd>);

impl VerbsXrcDomain {
    pub(super) fn open(domain: &Arc<Domain>, file: Option<BorrowedFd<'_>>) -> Result<Self, Error> {
        let opened = &domain.opened;
        let functions = Functions::of(opened).map_err(|what| opened.unsupported(what))?;
        if !opened.has_xrc_bit()? {
            return Err(opened.unsupported("extended reliable connections (XRC)"));
        }
        let xrcd = opened.made(functions.open(opened, file), "open an XRC domain")?;
        Ok(Self(Arc::new(Xrcd { domain: Arc::clone(domain), xrcd, functions })))
    }

    fn make(&self) -> Result<NonNull<ffi::Qp>, Error> {
        let Xrcd { domain, xrcd, functions } = &*self.0;
        let opened = &domain.opened;
        let mut wanted = ffi::QpInitAttrEx::NONE;
        wanted.qp_type = ffi::QPT_XRC_RECV;
        wanted.comp_mask = ffi::QP_INIT_XRCD;
        wanted.xrcd = xrcd.as_ptr();
        // SAFETY: an open context and domain; a queue pair of this type has no queues.
        let made = unsafe { (functions.create_qp)(opened.context.as_ptr(), &raw mut wanted) };
        opened.made(made, "make a receiver of an XRC domain")
    }

    fn find(&self, number: u32) -> Result<NonNull<ffi::Qp>, Error> {
        let Xrcd { domain, xrcd, functions } = &*self.0;
        let opened = &domain.opened;
        let mut wanted = ffi::QpOpenAttr {
            comp_mask: ffi::QP_OPEN_NUMBER_DOMAIN_AND_TYPE,
            qp_num: number,
            xrcd: xrcd.as_ptr(),
            qp_context: ptr::null_mut(),
            qp_type: ffi::QPT_XRC_RECV,
        };
        // SAFETY: an open context and domain; the attributes are only read.
        let made = unsafe { (functions.open_qp)(opened.context.as_ptr(), &raw mut wanted) };
        opened.made(made, &format!("open receiver {number:#x} of an XRC domain"))
    }
}

impl XrcDomain for VerbsXrcDomain {
    fn receive_queue(
        &self,
        depth: u32,
        cq: &Arc<dyn CompletionQueue>,
    ) -> Result<Arc<dyn SharedReceiveQueue>, Error> {
        const MAKE: &str = "make a receive queue of an XRC domain";
        let Xrcd { domain, xrcd, functions } = &*self.0;
        let opened = &domain.opened;
        let own = cq.as_any().downcast_ref::<VerbsCq>();
        let own = own.filter(|own| Arc::ptr_eq(&own.domain, domain)).ok_or_else(|| {
            opened.argument(MAKE, "the completion queue is of another device".to_owned())
        })?;
        let post = VerbsSrq::check(domain, MAKE, depth)?;
        let mut wanted = ffi::SrqInitAttrEx {
            srq_context: ptr::null_mut(),
            max_wr: depth,
            max_sge: 1,
            srq_limit: 0,
            comp_mask: ffi::SRQ_INIT_TYPE_PD_DOMAIN_AND_CQ,
            srq_type: ffi::SRQT_XRC,
            pd: domain.pd.as_ptr(),
            xrcd: xrcd.as_ptr(),
            cq: own.cq.as_ptr(),
            tag_matching: [0; 2],
        };
        // SAFETY: objects of one open device, all of which the queue will hold; the library writes
        // what it really gave.
        let made = unsafe { (functions.create_srq)(opened.context.as_ptr(), &raw mut wanted) };
        let srq = opened.made(made, &format!("{MAKE} of {depth} entries"))?;
        let mut made = VerbsSrq::of(domain, srq, post, wanted.max_wr);
        made.hold(Arc::clone(&self.0), Arc::clone(cq));
        let mut number = 0;
        // SAFETY: the queue that was just made, and room for the answer.
        let result = unsafe { (functions.srq_number)(srq.as_ptr(), &raw mut number) };
        opened.check(result, "ask for the number of a receive queue")?;
        made.number = Some(number);
        Ok(Arc::new(made))
    }

    fn receiver(&self, number: Option<u32>) -> Result<Arc<dyn QueuePair>, Error> {
        let qp = number.map_or_else(|| self.make(), |number| self.find(number))?;
        let domain = &self.0.domain;
        let qp = Arc::new(VerbsQp::receiver(domain, Arc::clone(&self.0), qp));
        qp.enter_domain();
        Ok(qp)
    }
}
