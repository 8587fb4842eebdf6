//! The one check of what a client sends.

use crate::error::Error;
use crate::transport::limits::{MAX_ARGS, MAX_LONG, max_medium};
use crate::transport::message::{AmMessage, AmPayload};

impl AmMessage<'_> {
    /// Checks counts and sizes against the limits. Nothing below checks them again.
    #[inline]
    pub(crate) fn check(&self, call: &'static str) -> Result<(), Error> {
        let count = self.args.len();
        if count > MAX_ARGS {
            return Err(Error::TooManyArgs { call, count });
        }
        let (len, max) = match self.payload {
            AmPayload::Medium(payload) => (payload.len(), max_medium(count)),
            AmPayload::Long { payload, .. } => (payload.len(), MAX_LONG),
            // Checked when they were prepared.
            AmPayload::None
            | AmPayload::Block { .. }
            | AmPayload::Placed { .. }
            | AmPayload::SendBuffer { .. }
            | AmPayload::ZeroCopy(_) => return Ok(()),
        };
        if len > max {
            return Err(Error::PayloadSize { call, len, max });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::message::MessageClass;

    #[test]
    fn messages_over_the_limits_are_refused() {
        let refused = |args: &[i32], payload: AmPayload<'_>| {
            let class = MessageClass::Request;
            let message = AmMessage { class, target: 0, handler: 200, args, payload };
            message.check("test").map_err(|error| error.to_string())
        };
        assert!(refused(&[0; 16], AmPayload::Medium(&[0; 65_464])).is_ok());
        let text = refused(&[0; 17], AmPayload::None).unwrap_err();
        assert!(text.contains("17 arguments"), "{text}");
        let text = refused(&[], AmPayload::Medium(&vec![0; 70_000])).unwrap_err();
        assert!(text.contains("70000"), "{text}");
        let text = refused(&[0; 16], AmPayload::Medium(&[0; 65_465])).unwrap_err();
        assert!(text.contains("65465") && text.contains("65464"), "{text}");
    }
}
