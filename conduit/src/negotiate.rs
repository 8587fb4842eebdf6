//! Messages with a negotiated payload: prepare, fill, commit.

use std::marker::PhantomData;

use crate::error::Error;
use crate::handler::HandlerIndex;
use crate::message::{Flags, Outcome};
use crate::mode::Mode;
use crate::segment::SegmentOffset;

macro_rules! prepared {
    ($name:ident, $what:literal) => {
        #[doc = $what]
        /// Dropping it cancels it.
        #[must_use = "a prepared message is sent by commit; dropping cancels it"]
        pub struct $name<'a, M: Mode> {
            life: PhantomData<(&'a (), M)>,
        }

        impl<M: Mode> $name<'_, M> {
            /// Bytes that may be committed: between the `least` and the `most` asked for.
            #[must_use]
            pub fn size(&self) -> usize {
                let _ = self.life;
                todo!()
            }

            /// The library's buffer, to be filled before commit. Empty when the client gave its own.
            pub fn buffer_mut(&mut self) -> &mut [u8] {
                todo!()
            }

            /// Gives the buffer and the right to send back.
            pub fn cancel(self) {}
        }
    };
}

prepared!(PreparedRequestMedium, "A Medium request between prepare and commit.");
prepared!(PreparedReplyMedium, "A Medium reply between prepare and commit.");
prepared!(PreparedRequestLong, "A Long request between prepare and commit.");
prepared!(PreparedReplyLong, "A Long reply between prepare and commit.");

macro_rules! commit_medium {
    ($name:ident) => {
        impl<'a, M: Mode> $name<'a, M> {
            /// Sends the first `nbytes` bytes with `args` (as many as announced).
            ///
            /// # Errors
            /// More bytes than prepared, another number of arguments, the end of the job.
            pub fn commit(self, handler: HandlerIndex, nbytes: usize, args: &[i32]) -> Result<(), Error> {
                let _ = (handler, nbytes, args);
                todo!()
            }

            /// As `commit`, but hands the prepared message back instead of waiting.
            ///
            /// # Errors
            /// As `commit`.
            pub fn try_commit(
                self,
                handler: HandlerIndex,
                nbytes: usize,
                args: &[i32],
            ) -> Result<Option<Self>, Error> {
                let _ = (handler, nbytes, args, Flags::IMMEDIATE, Outcome::Sent);
                todo!()
            }
        }
    };
}

macro_rules! commit_long {
    ($name:ident) => {
        impl<'a, M: Mode> $name<'a, M> {
            /// Writes the first `nbytes` bytes to `dest` in the target's segment, then sends with `args`.
            ///
            /// # Errors
            /// More bytes than prepared, another number of arguments or destination, a destination outside the
            /// target's segment, the end of the job.
            pub fn commit(
                self,
                handler: HandlerIndex,
                nbytes: usize,
                dest: SegmentOffset,
                args: &[i32],
            ) -> Result<(), Error> {
                let _ = (handler, nbytes, dest, args);
                todo!()
            }
        }
    };
}

commit_medium!(PreparedRequestMedium);
commit_medium!(PreparedReplyMedium);
commit_long!(PreparedRequestLong);
commit_long!(PreparedReplyLong);
