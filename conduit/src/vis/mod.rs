//! Vector, indexed and strided transfers.
//!
//! A transfer is two descriptions of equally many bytes: lists of ranges ([`list`]) or a box of
//! elements ([`grid`]), both pure. Inside a neighbourhood its runs are copied when it is called.
//! Over the network each run is put or got by itself, or with others that follow it at the target
//! ([`group`]: gather and scatter entries of the adapter), or many short ones share *packets*
//! ([`cost`]): Mediums of the library. A packet of a put carries bytes and says where they go
//! ([`wire`]); its handler unpacks them and answers. A packet of a get says which bytes are wanted;
//! the answer has them ([`flights`] knows where they go). So every packet is one request with one
//! answer, many are in flight, and their flow control is that of requests.
//!
//! A *fill* is one Short that says which range gets which byte ([`fill`]), answered like a packet.
//!
//! Packets of the segment mode EVERYTHING name addresses ([`own`]): what is not mapped there is
//! refused, and the rank that asked says so.
//!
//! Operations are counted as puts and gets are (`rma::operations`). Lists and strides are used
//! during the call alone.

mod arrive;
mod cost;
pub(crate) mod describe;
pub(crate) mod fill;
pub(crate) mod flights;
#[cfg(test)]
mod fuzz_seeds;
pub(crate) mod grid;
mod group;
mod here;
pub(crate) mod list;
pub(crate) mod memory;
pub mod overlap;
pub(crate) mod own;
pub(crate) mod peer;
pub(crate) mod send;
pub(crate) mod state;
pub(crate) mod ticket;
mod wire;
