//! Objects that handles name: client, team, endpoints, segments.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use crate::fail::Fail;

/// An object without contents of its own: handle and client data.
#[repr(C, align(16))]
pub struct Object {
    pub cdata: AtomicPtr<c_void>,
}

impl Object {
    pub const fn new() -> Self {
        Self { cdata: AtomicPtr::new(null_mut()) }
    }

    pub const fn handle(&self) -> *mut c_void {
        std::ptr::from_ref(self).cast_mut().cast()
    }
}

pub static CLIENT: Object = Object::new();
pub static TM0: Object = Object::new();

/// An endpoint.
pub struct Endpoint {
    pub object: Object,
    pub index: u16,
    pub segment: AtomicPtr<Segment>,
}

/// Objects that the program made.
pub struct Objects {
    /// At the place of their index; the first is there from init on.
    pub endpoints: Vec<&'static Endpoint>,
    pub segments: Vec<&'static Segment>,
}

impl Endpoint {
    /// The segment bound to a local endpoint.
    pub fn segment(&self) -> Option<&'static Segment> {
        // SAFETY: null, or a segment of this process: those that were bound are never freed.
        unsafe { self.segment.load(Ordering::Acquire).as_ref() }
    }

    /// Binds; the endpoint has none yet.
    pub fn bind(&self, segment: &'static Segment) -> Result<(), Fail> {
        let (to, order) = (std::ptr::from_ref(segment).cast_mut(), Ordering::AcqRel);
        if self.segment.compare_exchange(null_mut(), to, order, Ordering::Relaxed).is_err() {
            return Err(Fail::bad(format!("endpoint {} has a segment already", self.index)));
        }
        segment.bound.store(true, Ordering::Relaxed);
        Ok(())
    }
}

/// A local segment.
pub struct Segment {
    pub object: Object,
    pub address: usize,
    pub size: usize,
    /// Memory that the library made and frees.
    pub owned: bool,
    /// Made by attach, so that all ranks of the host map it.
    pub attached: bool,
    pub bound: AtomicBool,
}

/// A segment of any rank, in its owner's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    pub address: usize,
    pub size: usize,
    pub process: i32,
}
