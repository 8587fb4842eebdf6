//! What client and server of PMIx have in common: the layouts that the PMIx standard froze.

/// Name of the library as distributions install it since PMIx 2.
pub(crate) const NAME: &str = "libpmix.so.2";
pub(crate) const RANK_WILDCARD: u32 = 0xffff_fffe;
pub(crate) const SUCCESS: i32 = 0;
// Types of values.
pub(crate) const BOOL: u16 = 1;
pub(crate) const STRING: u16 = 3;
pub(crate) const UINT32: u16 = 14;

#[repr(C)]
#[derive(Clone)]
pub(crate) struct Proc {
    pub(crate) nspace: [u8; 256],
    pub(crate) rank: u32,
}

#[repr(C)]
pub(crate) struct Value {
    pub(crate) kind: u16,
    /// A union whose largest members have three words.
    pub(crate) data: [u64; 3],
}

#[repr(C)]
pub(crate) struct Info {
    pub(crate) key: [u8; 512],
    pub(crate) flags: u32,
    pub(crate) value: Value,
}

const _: () =
    assert!(size_of::<Proc>() == 260 && size_of::<Value>() == 32 && size_of::<Info>() == 552);

impl Info {
    /// A value of one word.
    pub(crate) fn new(key: &str, kind: u16, word: u64) -> Self {
        Self { key: terminated(key), flags: 0, value: Value { kind, data: [word, 0, 0] } }
    }
}

/// A text in a field of fixed length, with a zero behind it.
pub(crate) fn terminated<const N: usize>(text: &str) -> [u8; N] {
    let mut field = [0; N];
    let len = text.len().min(N - 1);
    field[..len].copy_from_slice(&text.as_bytes()[..len]);
    field
}
