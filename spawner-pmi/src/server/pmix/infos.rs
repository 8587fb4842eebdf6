//! Values for libpmix's server half, in the layouts that PMIx 3, 4 and 5 have in common.

use std::ffi::{CString, c_void};

use crate::pmix::Info;

/// Types of values.
pub(super) mod kind {
    pub(in super::super) use crate::pmix::{BOOL, STRING, UINT32};

    pub(in super::super) const UINT16: u16 = 13;
    pub(in super::super) const INFO: u16 = 24;
    pub(in super::super) const ARRAY: u16 = 39;
    pub(in super::super) const RANK: u16 = 40;
}

/// An array of values.
#[repr(C)]
pub(super) struct Array {
    kind: u16,
    size: usize,
    items: *mut c_void,
}

const _: () = assert!(size_of::<Array>() == 24);

/// Infos for libpmix, with what they point to.
#[derive(Default)]
pub(super) struct Infos {
    pub(super) list: Vec<Info>,
    texts: Vec<CString>,
    arrays: Vec<(Box<Array>, Self)>,
}

impl Infos {
    fn push(&mut self, key: &str, kind: u16, word: u64) {
        self.list.push(Info::new(key, kind, word));
    }

    pub(super) fn number(&mut self, key: &str, kind: u16, number: u32) -> &mut Self {
        self.push(key, kind, number.into());
        self
    }

    pub(super) fn text(&mut self, key: &str, text: &str) -> &mut Self {
        let text = CString::new(text).unwrap_or_default();
        // The bytes stay where they are when the text is moved.
        self.push(key, kind::STRING, text.as_ptr().expose_provenance() as u64);
        self.texts.push(text);
        self
    }

    /// An array of infos.
    pub(super) fn array(&mut self, key: &str, mut infos: Self) -> &mut Self {
        let items = infos.list.as_mut_ptr().cast();
        let array = Box::new(Array { kind: kind::INFO, size: infos.list.len(), items });
        self.push(key, kind::ARRAY, (&raw const *array).expose_provenance() as u64);
        self.arrays.push((array, infos));
        self
    }
}
