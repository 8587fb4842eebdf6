//! Identification strings. The launcher looks for them in an executable before it starts anything.

use std::hint::black_box;

/// Names the conduit that the program links.
#[used]
static CONDUIT: [u8; 29] = *b"$GASNetConduitName: IBV $\0\0\0\0";
/// Says that the program can be started through ssh (and on one host without it).
#[used]
static SSH_SPAWNER: [u8; 24] = *b"$GASNetSSHSpawner: 1 $\0\0";

/// Says that a launcher that speaks PMI can start it.
#[used]
static PMI_SPAWNER: [u8; 24] = *b"$GASNetPMISpawner: 1 $\0\0";
/// Says that an MPI's launcher can start it.
#[used]
static MPI_SPAWNER: [u8; 24] = *b"$GASNetMPISpawner: 1 $\0\0";

/// Keeps the strings in every program that calls it: a linker that drops unused sections, or an
/// optimiser that sees the whole program, cannot know that they are not needed.
pub(crate) fn keep() {
    black_box(&raw const CONDUIT);
    black_box(&raw const SSH_SPAWNER);
    black_box(&raw const PMI_SPAWNER);
    black_box(&raw const MPI_SPAWNER);
}
