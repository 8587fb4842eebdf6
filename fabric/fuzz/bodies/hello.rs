//! Any bytes as messages of the handshake: nobody gets in without the key.

use fabric::soft::testing::handshake::{
    CHALLENGE, HELLO, Mode, PROOF, Target, VERDICT, challenge, check, prove, read_hello,
    read_verdict,
};

/// One input.
pub(crate) fn run(bytes: &[u8]) {
    let key = *b"0123456789abcdef";
    let nonce = [7; 16];
    let mut mode = Mode::Plain;
    if let Some(Ok((theirs, said))) = bytes.first_chunk::<HELLO>().map(read_hello) {
        mode = said;
        let _ = challenge(&key, mode, &theirs, &nonce);
    }
    let target = Target { to: 1, from: 2, psn: 3, rnr: 7 };
    if let Some(answer) = bytes.first_chunk::<CHALLENGE>() {
        assert!(prove(&key, mode, &nonce, answer, target).is_err());
    }
    if let Some(proof) = bytes.first_chunk::<PROOF>() {
        assert!(check(&key, mode, &[1; 16], &nonce, proof).is_err());
    }
    if let Some(verdict) = bytes.first_chunk::<VERDICT>() {
        let _ = read_verdict(*verdict);
    }
}
