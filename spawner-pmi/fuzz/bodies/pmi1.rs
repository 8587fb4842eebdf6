//! Any bytes as what a PMI-1 server says: the rank ends with a value or an error, without panic and
//! without waiting.

use spawner_pmi::client::PmiVersion;
use spawner_pmi::client::fuzz_harness::converse;

pub(crate) fn run(said: &[u8]) {
    if let Err(error) = converse(PmiVersion::One, 4, said) {
        assert!(error.to_string().starts_with("bootstrap: "));
    }
}
