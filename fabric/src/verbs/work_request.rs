//! Parts of work requests, and what a post returned.

use std::ffi::c_int;
use std::ptr;

use crate::{PostError, Sge};

use super::context::failure;
use super::ffi;

#[inline]
pub(super) fn sge(from: &Sge) -> ffi::Sge {
    ffi::Sge { addr: from.addr, length: from.len, lkey: from.lkey }
}

#[inline]
pub(super) fn receive(id: u64, sge: &mut ffi::Sge) -> ffi::RecvWr {
    ffi::RecvWr { wr_id: id, next: ptr::null_mut(), sg_list: ptr::from_mut(sge), num_sge: 1 }
}

/// What a post function returned.
#[inline]
pub(super) fn outcome(result: c_int) -> Result<(), PostError> {
    if result == 0 { Ok(()) } else { Err(refused(result)) }
}

#[cold]
fn refused(result: c_int) -> PostError {
    match failure(result).raw_os_error() {
        Some(libc::ENOMEM | libc::EAGAIN) => PostError::Full,
        number => PostError::Os(number.unwrap_or(libc::EIO)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_is_told_by_number_whatever_its_sign() {
        assert_eq!(outcome(0), Ok(()));
        assert_eq!(outcome(libc::ENOMEM), Err(PostError::Full));
        assert_eq!(outcome(-libc::ENOMEM), Err(PostError::Full));
        assert_eq!(outcome(libc::EINVAL), Err(PostError::Os(libc::EINVAL)));
    }
}
