//! Runs the benchmarks and judges their figures. (Being written here; `scripts/bench` starts it.)

fn main() {}
