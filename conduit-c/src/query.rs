//! Queries of what handles name, and the data that a program keeps with it.

use std::ffi::{c_char, c_void};
use std::ptr::{null, null_mut, with_exposed_provenance_mut};
use std::sync::atomic::Ordering;

use crate::fail::value;
use crate::state::{self, CLIENT, Endpoint, Object};
use crate::types::{Flags, Handle, RANK_INVALID};

/// Queries of what a function finds by its handle: name (and that of the inline function before it),
/// answer for a wrong handle, answer.
macro_rules! answers {
    ($find:path: $($name:ident $(= $call:literal)? -> $type:ty, $other:expr, $answer:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(handle: Handle) -> $type {
            let call = [$($call,)? stringify!($name)][0];
            $crate::fail::value(call, $other, || $find(handle).map($answer))
        }
    )*};
}
pub(crate) use answers;

/// For each kind of handle the object with its data, and the queries.
macro_rules! queries {
    ($($kind:ident => |$of:pat_param| $object:expr, $set_data:ident, $data:ident {
        $($name:ident $(= $call:literal)? -> $type:ty, $other:expr, $answer:expr;)*
    })*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $set_data(handle: Handle, data: Handle) {
            value(stringify!($set_data), (), || {
                let found = state::$kind(handle)?;
                let $of = &found;
                let object: &Object = $object;
                object.cdata.store(data.cast_mut(), Ordering::Release);
                Ok(())
            });
        }

        #[unsafe(no_mangle)]
        pub extern "C" fn $data(handle: Handle) -> *mut c_void {
            value(stringify!($data), null_mut(), || {
                let found = state::$kind(handle)?;
                let $of = &found;
                let object: &Object = $object;
                Ok(object.cdata.load(Ordering::Acquire))
            })
        }

        answers! { state::$kind: $($name $(= $call)? -> $type, $other, $answer;)* }
    )*};
}

queries! {
    client => |_| &CLIENT, gex_Client_SetCData, gex_Client_QueryCData {
        gex_Client_QueryFlags -> Flags, 0, |state| state.flags;
        gex_Client_QueryName -> *const c_char, null(), |state| state.name.as_ptr();
    }
    team => |team| team.data(), gex_TM_SetCData, gex_TM_QueryCData {
        gexi_TM_QueryRank = "gex_TM_QueryRank" -> u32, RANK_INVALID, |team| team.rank();
        gexi_TM_QuerySize = "gex_TM_QuerySize" -> u32, 0, |team| team.size();
        gex_TM_QueryClient -> *mut c_void, null_mut(), |_| CLIENT.handle();
        gex_TM_QueryEP -> *mut c_void, null_mut(), |team| team.state.ep0.object.handle();
        gex_TM_QueryFlags -> Flags, 0, |_| 0;
    }
    endpoint => |found| &found.object, gex_EP_SetCData, gex_EP_QueryCData {
        gex_EP_QueryClient -> *mut c_void, null_mut(), |_| CLIENT.handle();
        gex_EP_QueryFlags -> Flags, 0, |_| 0;
        gex_EP_QuerySegment -> *mut c_void, null_mut(), Endpoint::segment_handle;
        gex_EP_QueryIndex -> u16, u16::MAX, |found| found.index;
    }
    segment => |found| &found.object, gex_Segment_SetCData, gex_Segment_QueryCData {
        gex_Segment_QueryClient -> *mut c_void, null_mut(), |_| CLIENT.handle();
        gex_Segment_QueryFlags -> Flags, 0, |_| 0;
        gex_Segment_QueryAddr -> *mut c_void, null_mut(),
            |found| with_exposed_provenance_mut(found.address);
        gex_Segment_QuerySize -> usize, 0, |found| found.size;
    }
}
