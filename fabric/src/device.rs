//! What a fabric offers. Objects are shared and thread safe; each lives as long as somebody holds
//! it, and a holder keeps alive what it was made from.

use std::any::Any;
use std::fmt::Debug;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::{
    Access, Address, AsyncEvent, Caps, Completion, Data, DeviceInfo, Error, Operation, PortInfo,
    PostError, QpSpec, QpState, RcPeer, RecvWr, Retry, SendWr, Sleep,
};

/// A way to reach other hosts.
pub trait Fabric: Send + Sync + Debug {
    /// `verbs` or `soft`.
    fn name(&self) -> &'static str;

    /// Devices, in the order of the driver.
    fn devices(&self) -> &[DeviceInfo];

    /// Opens a device by its position in [`Fabric::devices`].
    ///
    /// # Errors
    /// The driver refuses.
    fn open(&self, index: usize) -> Result<Arc<dyn Device>, Error>;
}

/// An open device with one protection domain.
pub trait Device: Send + Sync + Debug {
    /// As in [`Fabric::devices`].
    fn info(&self) -> &DeviceInfo;

    /// What it can do.
    fn caps(&self) -> &Caps;

    /// A port as it is now; numbers start at 1.
    ///
    /// # Errors
    /// No such port, or the driver refuses.
    fn port(&self, number: u8) -> Result<PortInfo, Error>;

    /// Makes `len` bytes from `base` known to the device.
    ///
    /// # Safety
    /// The memory is mapped (and writable, when `access` has any write) as long as anybody may use
    /// the region: until it is dropped, where peers have a right to it; else while a request that
    /// names it is under way. The program expects that they read and change it at any such time
    /// within `access`.
    ///
    /// # Errors
    /// Too many or too large regions, a limit on locked memory (the text says which), memory that
    /// cannot be pinned.
    #[expect(unsafe_code, reason = "a promise about memory that only the caller can keep")]
    unsafe fn register(
        &self,
        base: NonNull<u8>,
        len: usize,
        access: Access,
    ) -> Result<Arc<dyn Region>, Error>;

    /// Makes all memory of the process known to the device, which pages it in on demand
    /// ([`Caps::odp`]): whatever is mapped when a request names it. Peers get no right to it.
    ///
    /// # Safety
    /// As [`Device::register`] of all that requests name with its key.
    ///
    /// # Errors
    /// [`Error::Unsupported`] without paging on demand; the driver refuses.
    #[expect(unsafe_code, reason = "a promise about memory that only the caller can keep")]
    unsafe fn register_all_memory(&self, write: bool) -> Result<Arc<dyn Region>, Error> {
        let _ = write;
        Err(Error::unsupported(&self.info().name, "paging on demand (ODP)"))
    }

    /// A channel for events of completion queues.
    ///
    /// # Errors
    /// No descriptors.
    fn channel(&self) -> Result<Arc<dyn Channel>, Error>;

    /// A completion queue of at least `depth` entries. With a channel it can be armed.
    ///
    /// # Errors
    /// Too deep, or the driver refuses.
    fn completion_queue(
        &self,
        depth: u32,
        channel: Option<&Arc<dyn Channel>>,
    ) -> Result<Arc<dyn CompletionQueue>, Error>;

    /// A receive queue that several queue pairs share.
    ///
    /// # Errors
    /// None on this device, too deep, or the driver refuses.
    fn shared_receive_queue(&self, depth: u32) -> Result<Arc<dyn SharedReceiveQueue>, Error>;

    /// A queue pair in state [`QpState::Reset`].
    ///
    /// # Errors
    /// More than the device has, or the driver refuses.
    fn queue_pair(&self, spec: &QpSpec<'_>) -> Result<Arc<dyn QueuePair>, Error>;

    /// A domain of extended reliable connections: processes of one host that open it on the same
    /// `file` (which need not contain anything, and may have no name) share its receiving queue
    /// pairs. Without a file it is this process's own.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with what the device lacks; the driver refuses.
    fn xrc_domain(&self, file: Option<BorrowedFd<'_>>) -> Result<Arc<dyn XrcDomain>, Error> {
        let _ = file;
        Err(Error::unsupported(&self.info().name, "extended reliable connections (XRC)"))
    }

    /// How to reach a port with datagrams from port `port` of this device.
    ///
    /// # Errors
    /// The driver refuses.
    fn address_handle(&self, port: u8, to: &Address) -> Result<Arc<dyn AddressHandle>, Error>;

    /// The next event that happened to the device, if any. Does not wait.
    ///
    /// # Errors
    /// The driver refuses.
    fn next_event(&self) -> Result<Option<AsyncEvent>, Error>;

    /// Readable when an event waits.
    fn event_fd(&self) -> BorrowedFd<'_>;

    /// How often the process has found something that a peer sent, whether or not anything was
    /// completed by it; 0 where the device does all of that itself. It wraps around.
    fn arrivals(&self) -> u32 {
        0
    }

    /// Whether a thread that polls, and has nothing else to wait for, sleeps by
    /// [`Device::begin_sleep`] instead of arming its completion queues: where a thread of the device
    /// would have to wake it, that is one wake-up less.
    fn has_sleep(&self) -> bool {
        false
    }

    /// The caller has polled all completion queues, found nothing, and is about to sleep: what it
    /// sleeps on. `None`: not now, poll again.
    fn begin_sleep(&self) -> Option<Sleep> {
        None
    }

    /// The caller, to which [`Device::begin_sleep`] gave a sleep, is awake and polls.
    fn end_sleep(&self) {}
}

/// What processes of one host share on extended reliable connections. A connection goes from a
/// queue pair of kind [`crate::QpType::XrcSend`] of one process to a *receiver* of a domain, and
/// each request names the receive queue of the domain that it is for: so one connection reaches all
/// processes that have a queue in the domain.
pub trait XrcDomain: Send + Sync + Debug {
    /// A receive queue with a number that senders name. Ends of its receives are reported on `cq`,
    /// with the receiver's number as their queue pair. Writes, reads and atomics reach only memory
    /// of the device object that made the queue.
    ///
    /// # Errors
    /// Too deep, a completion queue of another device, or the driver refuses.
    fn receive_queue(
        &self,
        depth: u32,
        cq: &Arc<dyn CompletionQueue>,
    ) -> Result<Arc<dyn SharedReceiveQueue>, Error>;

    /// The receiving half of a connection, new and in state [`QpState::Reset`], or, by its
    /// `number`, one that another holder of the domain made. It lives until its last holder drops
    /// it; any holder may change its state, as for a reliable connection. Nothing can be posted to
    /// it.
    ///
    /// # Errors
    /// None of that number in the domain; the driver refuses.
    fn receiver(&self, number: Option<u32>) -> Result<Arc<dyn QueuePair>, Error>;
}

/// Memory known to a device; dropping it ends that.
pub trait Region: Send + Sync + Debug {
    /// Key for local work requests.
    fn lkey(&self) -> u32;

    /// Key that peers need.
    fn rkey(&self) -> u32;
}

/// Where armed completion queues report.
pub trait Channel: Any + Send + Sync + Debug {
    /// Readable when an armed completion queue of this channel got a completion.
    fn fd(&self) -> BorrowedFd<'_>;

    /// Takes all events that wait, so that the descriptor is no longer readable. Does not wait.
    /// Returns how many.
    ///
    /// # Errors
    /// The driver refuses.
    fn consume(&self) -> Result<u32, Error>;

    /// From now on the thread that finds the completion calls `ringer` instead of waking who waits
    /// for the descriptor, which saves a change of threads; `None`: no more. It is called with locks
    /// of the device held, in any thread: it may not call the device. A device whose events come from
    /// elsewhere cannot do that, and goes on as before.
    fn set_ringer(&self, ringer: Option<Ringer>) {
        let _ = ringer;
    }
}

/// What a channel does with an event instead of making its descriptor readable.
pub type Ringer = Arc<dyn Fn() + Send + Sync>;

/// What [`CompletionQueue::look`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Look {
    /// No completion.
    Nothing,
    /// One, which was taken.
    One,
    /// [`CompletionQueue::poll`] fails, and says why.
    Failed,
}

/// Ends of work requests.
pub trait CompletionQueue: Any + Send + Sync + Debug {
    /// Entries that it really has.
    fn depth(&self) -> u32;

    /// Takes up to `into.len()` completions; returns how many. Any thread may poll; each completion
    /// is seen once. On the software adapter this also moves data.
    ///
    /// # Errors
    /// The queue overflowed or the device is gone; nothing more will come.
    fn poll(&self, into: &mut [Completion]) -> Result<usize, Error>;

    /// Takes one completion, if there is one; for loops of looks that mostly find nothing.
    fn look(&self, into: &mut Completion) -> Look {
        match self.poll(std::slice::from_mut(into)) {
            Ok(0) => Look::Nothing,
            Ok(_) => Look::One,
            Err(_) => Look::Failed,
        }
    }

    /// The next completion makes an event on the channel, once. Poll after arming: what came before
    /// makes none.
    ///
    /// # Errors
    /// No channel, or the driver refuses.
    fn arm(&self) -> Result<(), Error>;
}

/// Receive buffers that several queue pairs share.
pub trait SharedReceiveQueue: Any + Send + Sync + Debug {
    /// Adds a buffer.
    ///
    /// # Errors
    /// No room.
    fn post(&self, receive: &RecvWr) -> Result<(), PostError>;

    /// Adds buffers in their order. Returns how many; fewer than all: [`SharedReceiveQueue::post`]
    /// says why.
    fn post_list(&self, receives: &[RecvWr]) -> usize {
        receives.iter().take_while(|receive| self.post(receive).is_ok()).count()
    }

    /// Entries that it really has.
    fn depth(&self) -> u32;

    /// What senders name it by: 24 bits, only for one of an [`XrcDomain`].
    fn number(&self) -> Option<u32> {
        None
    }
}

/// A queue pair. Dropping it destroys it; work that is not complete is lost without completions.
pub trait QueuePair: Send + Sync + Debug {
    /// Number; peers need it.
    fn number(&self) -> u32;

    /// Most bytes of [`crate::Data::Inline`].
    fn max_inline(&self) -> u32;

    /// Last known state. (An error in flight may not be known yet.)
    fn state(&self) -> QpState;

    /// RESET to INIT on a port, with an index into its partition key table; a datagram queue pair
    /// gets its key. `access` is what peers may do through a reliable one.
    ///
    /// # Errors
    /// [`Error::Transition`] that names the attribute.
    fn to_init(&self, port: u8, pkey_index: u16, qkey: u32, access: Access) -> Result<(), Error>;

    /// INIT to RTR. `peer` for a reliable connection, `None` for datagrams.
    ///
    /// # Errors
    /// As [`QueuePair::to_init`].
    fn to_rtr(&self, peer: Option<&RcPeer>, retry: &Retry) -> Result<(), Error>;

    /// RTR to RTS. `psn` is the first packet sequence number sent (24 bits), `rd_atom` the reads
    /// and atomics in flight from here.
    ///
    /// # Errors
    /// As [`QueuePair::to_init`].
    fn to_rts(&self, psn: u32, rd_atom: u8, retry: &Retry) -> Result<(), Error>;

    /// Any state to ERROR: everything posted completes as [`crate::Status::Flushed`].
    ///
    /// # Errors
    /// The driver refuses.
    fn to_error(&self) -> Result<(), Error>;

    /// Any state to RESET: everything posted is forgotten.
    ///
    /// # Errors
    /// The driver refuses.
    fn to_reset(&self) -> Result<(), Error>;

    /// Posts a send request. Legal in RTS (in ERROR it completes as flushed).
    ///
    /// # Errors
    /// [`PostError`]; nothing was done then.
    fn post_send(&self, send: &SendWr<'_>) -> Result<(), PostError>;

    /// As [`QueuePair::post_send`], of several in their order: an adapter is told of them once. Returns
    /// how many were posted; fewer than all: [`QueuePair::post_send`] says why.
    fn post_sends(&self, sends: &[SendWr<'_>]) -> usize {
        sends.iter().take_while(|send| self.post_send(send).is_ok()).count()
    }

    /// As [`QueuePair::post_send`], of a message with a number that goes inline. Whether it was posted;
    /// where not, nothing was done, and [`QueuePair::post_send`] says why.
    fn post_message(&self, id: u64, imm: u32, bytes: &[u8], signaled: bool) -> bool {
        let (operation, data) = (Operation::Send { imm: Some(imm) }, Data::Inline(&[bytes]));
        self.post_send(&SendWr { id, operation, data, signaled, to: None }).is_ok()
    }

    /// As [`QueuePair::post_message`], of a write to an address with its key.
    fn post_write(&self, id: u64, to: (u64, u32), bytes: &[u8], signaled: bool) -> bool {
        let (operation, data) =
            (Operation::Write { remote: to.0, rkey: to.1 }, Data::Inline(&[bytes]));
        self.post_send(&SendWr { id, operation, data, signaled, to: None }).is_ok()
    }

    /// As [`QueuePair::post_send`], from a queue pair of kind [`crate::QpType::XrcSend`] to a
    /// receive queue of the peer's domain. Operations on memory name it too: it says whose memory.
    ///
    /// # Errors
    /// As [`QueuePair::post_send`]; also for another kind.
    fn post_send_to(&self, send: &SendWr<'_>, queue: u32) -> Result<(), PostError> {
        let _ = (send, queue);
        Err(PostError::Invalid("only extended reliable connections name a receive queue"))
    }

    /// Posts a receive request. Legal from INIT on; not with a shared receive queue.
    ///
    /// # Errors
    /// As [`QueuePair::post_send`].
    fn post_receive(&self, receive: &RecvWr) -> Result<(), PostError>;

    /// Posts receive requests in their order. Returns how many; fewer than all:
    /// [`QueuePair::post_receive`] says why.
    fn post_receives(&self, receives: &[RecvWr]) -> usize {
        receives.iter().take_while(|receive| self.post_receive(receive).is_ok()).count()
    }
}

/// A port to send datagrams to.
pub trait AddressHandle: Any + Send + Sync + Debug {}
