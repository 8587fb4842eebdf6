//! The exit machine without anything around it: its state table, random histories under a virtual
//! clock, every interleaving of small jobs, and one job of a million ranks.

use exit::machine::Tree;
use gasnet_ibv::exit;

#[path = "../shared/blocks.rs"]
mod blocks;
mod counts;
mod exhaustive;
mod histories;
mod million;
#[path = "../shared/state_table.rs"]
mod state_table;
mod table;
mod world;
