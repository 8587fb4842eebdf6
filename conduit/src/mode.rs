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

/// One thread, always the same, calls the library: the client is neither `Send` nor `Sync`.
#[derive(Debug)]
pub enum Seq {}

/// Any thread may call, one at a time: the client is `Send`, not `Sync`.
#[derive(Debug)]
pub enum ParSync {}

/// Any number of threads may be inside the library: the client is `Send` and `Sync`.
#[derive(Debug)]
pub enum Par {}

impl sealed::Sealed for Seq {}
impl sealed::Sealed for ParSync {}
impl sealed::Sealed for Par {}

impl Mode for Seq {
    const THREADED: bool = false;
    const NAME: &'static str = "SEQ";
    type Marker = PhantomData<*const ()>;
}

impl Mode for ParSync {
    const THREADED: bool = false;
    const NAME: &'static str = "PARSYNC";
    type Marker = PhantomData<Cell<()>>;
}

impl Mode for Par {
    const THREADED: bool = true;
    const NAME: &'static str = "PAR";
    type Marker = PhantomData<()>;
}
