//! The message buffers of a rank: all in one pool, those for sending in one list.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use fabric::Device;

use super::lists::FreeList;
use super::pool::{Buffer, Pool};
use crate::trace::{self, Cause, Counter};
use crate::transport::net::am::header::{PAYLOAD_AT, SEND_BUFFER};
use crate::transport::net::error::Error;

/// Send buffers that only replies and the library's messages may take.
pub(crate) const RESERVED_BUFFERS: u32 = 2;

#[derive(Debug)]
pub(crate) struct MessageBuffers {
    pub(crate) pool: Pool,
    /// Those for sending that are not in use.
    pub(crate) send: FreeList,
    made: AtomicU32,
    /// Bytes of receive buffers and rings.
    receive_bytes: AtomicU64,
}

impl MessageBuffers {
    pub(crate) fn new(huge_pages: bool) -> Self {
        let pool = Pool::with_pages(huge_pages);
        let (made, receive_bytes) = (AtomicU32::new(0), AtomicU64::new(0));
        Self { pool, send: FreeList::default(), made, receive_bytes }
    }

    /// Counts receive buffers that were made, or a ring; neither ever goes while the network is open.
    pub(crate) fn made_receives(&self, count: u32, each: usize) {
        let bytes = u64::from(count) * each as u64;
        self.receive_bytes.fetch_add(bytes, Ordering::Relaxed);
        trace::makes_receives(count, bytes);
    }

    /// Bytes of receive buffers and rings that there are.
    pub(crate) fn receive_bytes(&self) -> u64 {
        self.receive_bytes.load(Ordering::Relaxed)
    }

    /// Takes a send buffer if more than `reserve` are left.
    pub(crate) fn take_send(&self, reserve: u32) -> Option<Buffer> {
        let taken = self.send.take(&self.pool, reserve);
        match taken {
            Some(_) => trace::count(Counter::SendBuffer, 0),
            None => trace::lacks(Cause::SendBuffer),
        }
        taken
    }

    pub(crate) fn put_send(&self, buffer: Buffer) {
        self.send.put(&self.pool, buffer);
    }

    /// A send buffer that was lent for a request which was not posted.
    pub(crate) fn reclaim_send(&self, index: Option<u32>) {
        if let Some(buffer) = index.and_then(|index| self.pool.reclaim(index)) {
            self.put_send(buffer);
        }
    }

    /// Send buffers that there are.
    #[cfg(test)]
    pub(crate) fn made_for_sending(&self) -> u32 {
        self.made.load(Ordering::Relaxed)
    }

    /// Makes `wanted` more send buffers, but at most `most` in all.
    pub(crate) fn grow_send(
        &self,
        wanted: u32,
        most: u32,
        devices: &[Option<&dyn Device>],
    ) -> Result<(), Error> {
        let most = most.max(RESERVED_BUFFERS + 1);
        let room = most.saturating_sub(self.made.load(Ordering::Relaxed));
        for buffer in self.pool.grow(wanted.min(room), SEND_BUFFER, devices)? {
            self.put_send(buffer);
            self.made.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// A send buffer that the client fills for a negotiated payload. Goes back when dropped.
#[derive(Debug)]
pub struct SendBuffer {
    buffers: Arc<MessageBuffers>,
    buffer: Option<Buffer>,
}

impl SendBuffer {
    /// Takes one; `None` when no more than `reserve` are left.
    pub(crate) fn take(buffers: &Arc<MessageBuffers>, reserve: u32) -> Option<Self> {
        let buffer = buffers.take_send(reserve)?;
        Some(Self { buffers: Arc::clone(buffers), buffer: Some(buffer) })
    }

    /// Room for the payload, aligned to 8.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        match &mut self.buffer {
            Some(buffer) => &mut self.buffers.pool.bytes(buffer)[PAYLOAD_AT..],
            None => &mut [],
        }
    }

    /// Gives the buffer to `send`; what `send` gives back can be sent later.
    pub(crate) fn send<T>(
        mut self,
        send: impl FnOnce(Buffer) -> (T, Option<Buffer>),
    ) -> Option<(T, Option<Self>)> {
        let (sent, back) = send(self.buffer.take()?);
        self.buffer = back;
        let back = self.buffer.is_some().then_some(self);
        Some((sent, back))
    }
}

impl Drop for SendBuffer {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.buffers.put_send(buffer);
        }
    }
}
