//! Extended reliable connections: domains, their receive queues and receivers.

use std::ffi::c_void;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::{CompletionQueue, Error, QueuePair, SharedReceiveQueue, XrcDomain};

use super::domain::{Domain, Object};
use super::ffi;
use super::qp::VerbsQp;
use super::queues::{VerbsCq, VerbsSrq};
use super::xrc_functions::Functions;

/// A domain, as the library has it, and the functions that reach it.
#[derive(Debug)]
pub(super) struct VerbsXrcDomain {
    xrcd: Arc<Object<c_void>>,
    functions: Functions,
}

impl VerbsXrcDomain {
    pub(super) fn open(domain: &Arc<Domain>, file: Option<BorrowedFd<'_>>) -> Result<Self, Error> {
        let opened = &domain.opened;
        let functions = Functions::of(opened).map_err(|what| opened.unsupported(what))?;
        if opened.attributes()?.device_cap_flags & ffi::DEVICE_XRC == 0 {
            return Err(opened.unsupported("extended reliable connections (XRC)"));
        }
        let (made, end) = (functions.open(opened, file), functions.close_domain);
        let xrcd = Arc::new(Object::new(domain, made, end, "open an XRC domain")?);
        Ok(Self { xrcd, functions })
    }

    /// A new receiver, or the one of that number, as the library has it.
    fn make(&self, number: Option<u32>) -> Result<Object<ffi::Qp>, Error> {
        let Self { xrcd, functions } = self;
        let (domain, opened) = (&xrcd.domain, &xrcd.domain.opened);
        let (made, operation) = match number {
            None => {
                let mut wanted = ffi::QpInitAttrEx {
                    qp_type: ffi::QPT_XRC_RECV,
                    comp_mask: ffi::QP_INIT_XRCD,
                    xrcd: xrcd.as_ptr(),
                    ..ffi::QpInitAttrEx::ZERO
                };
                // SAFETY: an open context and domain; a queue pair of this type has no queues.
                let made =
                    unsafe { (functions.create_qp)(opened.context.as_ptr(), &raw mut wanted) };
                (made, "make a receiver of an XRC domain".to_owned())
            }
            Some(number) => {
                let mut wanted = ffi::QpOpenAttr {
                    comp_mask: ffi::QP_OPEN_NUMBER_DOMAIN_AND_TYPE,
                    qp_num: number,
                    xrcd: xrcd.as_ptr(),
                    qp_type: ffi::QPT_XRC_RECV,
                    ..ffi::QpOpenAttr::ZERO
                };
                // SAFETY: an open context and domain; the attributes are only read.
                let made = unsafe { (functions.open_qp)(opened.context.as_ptr(), &raw mut wanted) };
                (made, format!("open receiver {number:#x} of an XRC domain"))
            }
        };
        Object::new(domain, made, opened.library.destroy_qp, &operation)
    }
}

impl XrcDomain for VerbsXrcDomain {
    fn receive_queue(
        &self,
        depth: u32,
        cq: &Arc<dyn CompletionQueue>,
    ) -> Result<Arc<dyn SharedReceiveQueue>, Error> {
        const MAKE: &str = "make a receive queue of an XRC domain";
        let Self { xrcd, functions } = self;
        let (domain, opened) = (&xrcd.domain, &xrcd.domain.opened);
        let own = VerbsCq::own(domain, MAKE, cq)?;
        let post = VerbsSrq::check(domain, MAKE, depth)?;
        let mut wanted = ffi::SrqInitAttrEx {
            max_wr: depth,
            max_sge: 1,
            comp_mask: ffi::SRQ_INIT_TYPE_PD_DOMAIN_AND_CQ,
            srq_type: ffi::SRQT_XRC,
            pd: domain.pd.as_ptr(),
            xrcd: xrcd.as_ptr(),
            cq: own.as_ptr(),
            ..ffi::SrqInitAttrEx::ZERO
        };
        // SAFETY: objects of one open device, all of which the queue will hold; the library writes
        // what it really gave.
        let made = unsafe { (functions.create_srq)(opened.context.as_ptr(), &raw mut wanted) };
        let operation = format!("{MAKE} of {depth} entries");
        let srq = Object::new(domain, made, opened.library.destroy_srq, &operation)?;
        let mut number = 0;
        // SAFETY: the queue that was just made, and room for the answer.
        let result = unsafe { (functions.srq_number)(made, &raw mut number) };
        opened.check(result, "ask for the number of a receive queue")?;
        let (_xrcd, _cq) = (Some(Arc::clone(xrcd)), Some(Arc::clone(cq)));
        let (depth, number) = (wanted.max_wr, Some(number));
        Ok(Arc::new(VerbsSrq { srq, post, depth, number, _xrcd, _cq }))
    }

    fn receiver(&self, number: Option<u32>) -> Result<Arc<dyn QueuePair>, Error> {
        let qp = Arc::new(VerbsQp::receiver(Arc::clone(&self.xrcd), self.make(number)?));
        qp.enter_domain();
        Ok(qp)
    }
}
