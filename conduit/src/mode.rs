//! Thread modes: what the client promises about its own threads.

use std::cell::Cell;
use std::marker::PhantomData;

mod sealed {
    pub trait Sealed {}
}

/// A promise about which threads of the client call the library. Chosen as a type, so that a
/// program which breaks the promise does not compile and [`Seq`] pays for no lock.
pub trait Mode: sealed::Sealed + Sized + 'static {
    /// Whether several threads may be inside the library at the same time.
    const THREADED: bool;
    /// Name in messages.
    const NAME: &'static str;
    /// Gives [`Client`](crate::Client) the auto traits that the mode allows.
    type Marker: Default;
}

macro_rules! modes {
    ($($(#[$doc:meta])* $mode:ident: $name:literal, $threaded:literal, $marker:ty;)*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub enum $mode {}

        impl sealed::Sealed for $mode {}

        impl Mode for $mode {
            const THREADED: bool = $threaded;
            const NAME: &'static str = $name;
            type Marker = PhantomData<$marker>;
        }
    )*};
}

modes! {
    /// One thread, always the same, calls the library: the client is neither `Send` nor `Sync`.
    Seq: "SEQ", false, *const ();
    /// Any thread may call, one at a time: the client is `Send`, not `Sync`.
    ParSync: "PARSYNC", false, Cell<()>;
    /// Any number of threads may be inside the library: the client is `Send` and `Sync`.
    Par: "PAR", true, ();
}
