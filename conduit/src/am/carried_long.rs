//! Longs whose destination no adapter and no mapping writes: one message of the library brings
//! handler, arguments, destination and payload; its handler copies the payload and runs the client's.
//! What is longer than such a message goes ahead as a put.

use crate::error::Error;
use crate::handler::{Function, Registered, Role};
use crate::mode::Mode;
use crate::rank::RankContext;
use crate::rma::remote::RemoteOp;
use crate::token::RawToken;
use crate::transport::limits::{MAX_ARGS, MAX_CARRIED};
use crate::transport::message::{AmMessage, AmPayload, MessageClass};
use crate::vis::own::Lack;

/// Its handler, below the client's indices.
const CARRIED: u8 = 79;

/// A Long as it travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Carried<'a> {
    handler: u8,
    args: [i32; MAX_ARGS],
    nargs: usize,
    dest: u64,
    len: usize,
    /// `None`: it is at the destination already.
    payload: Option<&'a [u8]>,
}

impl<'a> Carried<'a> {
    fn encode(&self) -> Vec<u8> {
        let nargs = u8::try_from(self.nargs).unwrap_or(0);
        let mut bytes = vec![self.handler, nargs, u8::from(self.payload.is_some()), 0, 0, 0, 0, 0];
        bytes.extend(self.dest.to_le_bytes());
        bytes.extend((self.len as u64).to_le_bytes());
        bytes.extend(self.args.iter().take(self.nargs).flat_map(|arg| arg.to_le_bytes()));
        bytes.extend(self.payload.unwrap_or_default());
        bytes
    }

    /// `None` for what is none.
    fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (&[handler, nargs, has, ..], rest) = bytes.split_first_chunk::<8>()?;
        let (dest, rest) = rest.split_first_chunk()?;
        let (len, rest) = rest.split_first_chunk()?;
        let nargs = usize::from(nargs);
        let (words, rest) = rest.split_at_checked(4 * nargs)?;
        let mut args = [0; MAX_ARGS];
        for (arg, word) in args.get_mut(..nargs)?.iter_mut().zip(words.as_chunks().0) {
            *arg = i32::from_le_bytes(*word);
        }
        let len = usize::try_from(u64::from_le_bytes(*len)).ok()?;
        let payload = (has != 0).then_some(rest);
        if payload.map_or(!rest.is_empty(), |payload| payload.len() != len) {
            return None;
        }
        Some(Self { handler, args, nargs, dest: u64::from_le_bytes(*dest), len, payload })
    }
}

impl RankContext {
    /// The payload of the message that carries a Long. `None`: it travels as usual. What is too
    /// long for it has been put when this returns.
    ///
    /// # Errors
    /// A reply that is too long, the end of the job.
    #[inline(always)]
    pub(super) fn carry<M: Mode>(
        &self,
        call: &'static str,
        message: &AmMessage<'_>,
    ) -> Result<Option<Vec<u8>>, Error> {
        match message.payload {
            AmPayload::Long { payload, dest } if self.goes_by_message(message.target, dest) => {
                self.carried::<M>(call, message, (payload, dest)).map(Some)
            }
            _ => Ok(None),
        }
    }

    #[cold]
    fn carried<M: Mode>(
        &self,
        call: &'static str,
        message: &AmMessage<'_>,
        (payload, dest): (&[u8], u64),
    ) -> Result<Vec<u8>, Error> {
        let (len, nargs) = (payload.len(), message.args.len().min(MAX_ARGS));
        let fits = len <= MAX_CARRIED;
        if !fits && message.class != MessageClass::Request {
            return Err(Error::PayloadSize { call, len, max: MAX_CARRIED });
        }
        if !fits {
            let (target, offset) = (message.target, dest);
            self.put_remote::<M>(RemoteOp { call, target, offset, immediate: false }, payload)?;
        }
        let mut args = [0; MAX_ARGS];
        args.iter_mut().zip(message.args).for_each(|(to, arg)| *to = *arg);
        let payload = fits.then_some(payload);
        let handler = message.handler;
        Ok(Carried { handler, args, nargs, dest, len, payload }.encode())
    }

    /// Registers its handler, before the first message can come.
    pub(crate) fn register_carried_longs(&self) {
        let arrived = |token: &RawToken<'_>, bytes: &mut [u8], _: &[i32]| {
            let Some(carried) = Carried::decode(bytes) else {
                return malformed(token);
            };
            token.context.land(token, &carried);
        };
        let function = Function::Medium(Box::new(arrived));
        let name = "a Long in a message".to_owned();
        self.handlers.register_library(Registered::new(CARRIED, name, 0, Role::ReqRep, function));
    }

    fn land(&self, token: &RawToken<'_>, carried: &Carried<'_>) {
        let &Carried { handler, ref args, nargs, dest, len, payload } = carried;
        let at = usize::try_from(dest).unwrap_or(usize::MAX);
        let landed = match (payload, self.own_memory(0)) {
            (None | Some([]), _) => Ok(()),
            (Some(payload), Some((memory, _))) => memory.write(at, payload),
            (Some(_), None) => Err(Lack::Outside),
        };
        if let Err(lack) = landed {
            self.not_landed(token, (at, len), &lack);
        }
        let args = args.get(..nargs).unwrap_or_default();
        self.deliver_carried(token, handler, args, (dest, len));
    }

    #[cold]
    fn not_landed(&self, token: &RawToken<'_>, (at, len): (usize, usize), lack: &Lack) -> ! {
        let (rank, source, end) = (self.rank_info.rank, token.source(), at.saturating_add(len));
        let why = match lack {
            Lack::Outside => "they are not in its segment".to_owned(),
            Lack::Unmapped(unmapped) => {
                let error = std::io::Error::from_raw_os_error(unmapped.errno);
                format!("it has not mapped all of them so: {error}")
            }
        };
        self.fatal(&format!(
            "rank {rank} received a Long from rank {source} for bytes {at:#x}..{end:#x}: {why}"
        ))
    }
}

/// The message that brings what [`RankContext::carry`] has made of a Long.
pub(super) const fn carrier<'m>(long: &AmMessage<'_>, bytes: &'m [u8]) -> AmMessage<'m> {
    let (class, target) = (long.class, long.target);
    let payload = AmPayload::Medium(bytes);
    AmMessage { class, target, handler: CARRIED, args: &[], payload }
}

#[cold]
fn malformed(token: &RawToken<'_>) {
    let (rank, source) = (token.context.rank_info.rank, token.source());
    token.context.fatal(&format!("rank {rank} received a malformed Long from rank {source}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::transport::limits::CARRIED_HEAD;

    proptest! {
        #[test]
        fn a_long_is_read_as_it_was_written(
            (handler, dest, len) in any::<(u8, u64, u32)>(),
            words in proptest::collection::vec(any::<i32>(), 0..=MAX_ARGS),
            payload in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..100)),
        ) {
            let mut args = [0; MAX_ARGS];
            args[..words.len()].copy_from_slice(&words);
            let len = payload.as_ref().map_or(len as usize, Vec::len);
            let nargs = words.len();
            let long = Carried { handler, args, nargs, dest, len, payload: payload.as_deref() };
            let bytes = long.encode();
            prop_assert_eq!(Carried::decode(&bytes), Some(long));
            prop_assert!(bytes.len() <= CARRIED_HEAD + 100);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            if let Some(long) = Carried::decode(&bytes) {
                prop_assert!(long.nargs <= MAX_ARGS);
                prop_assert!(long.payload.is_none_or(|payload| payload.len() == long.len));
            }
        }
    }
}
