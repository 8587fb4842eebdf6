//! Any bytes as headers of a stream: no panic, no length over the limit, and nothing that is
//! accepted is overlooked.

use fabric::soft::testing::wire::{REQUEST, RESPONSE, Request, Response};

/// One input.
pub(crate) fn run(bytes: &[u8]) {
    for chunk in bytes.chunks_exact(REQUEST) {
        let Ok(chunk) = chunk.try_into() else { continue };
        if let Ok(request) = Request::decode(chunk) {
            assert!(request.body() <= 1 << 30);
            assert_eq!(Request::decode(&request.encode()), Ok(request));
        }
    }
    for chunk in bytes.chunks_exact(RESPONSE) {
        let Ok(chunk) = chunk.try_into() else { continue };
        if let Ok(response) = Response::decode(chunk) {
            assert_eq!(Response::decode(&response.encode()), Ok(response));
        }
    }
}
