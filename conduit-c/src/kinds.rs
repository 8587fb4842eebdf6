//! Kinds of memory: that of the host, which is all that is built in.

use std::ffi::c_void;

use crate::arguments::{answer, check_place, no_flags};
use crate::fail::{Fail, code, ensure, value};
use crate::state;
use crate::types::{Flags, Handle, MK_HOST};

/// `gex_MK_Create_args_t`, without what belongs to devices.
#[repr(C)]
pub struct CreateArgs {
    flags: u64,
    class: u32,
}

/// Classes in the order of `gex_MK_Class_t`, and how a program asks whether one is there.
const CLASSES: [(&str, &str); 4] = [
    ("GEX_MK_CLASS_HOST", "GASNET_HAVE_MK_CLASS_HOST"),
    ("GEX_MK_CLASS_CUDA_UVA", "GASNET_HAVE_MK_CLASS_CUDA_UVA"),
    ("GEX_MK_CLASS_HIP", "GASNET_HAVE_MK_CLASS_HIP"),
    ("GEX_MK_CLASS_ZE", "GASNET_HAVE_MK_CLASS_ZE"),
];

/// A kind of the class, `GEX_MK_HOST` for memory of the host.
fn create(class: u32) -> Result<*mut c_void, Fail> {
    let Some((name, asked)) = CLASSES.get(class as usize) else {
        return Err(Fail::bad(format!("args->gex_class {class} does not exist")));
    };
    if class == 0 {
        return Ok(std::ptr::without_provenance_mut(MK_HOST));
    }
    Err(Fail::bad(format!(
        "args->gex_class {name}: memory of devices is not built into this library ({asked} is not defined); \
         only GEX_MK_CLASS_HOST, that is GEX_MK_HOST, is there"
    )))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gex_MK_Create(
    mk_p: *mut *mut c_void,
    client: Handle,
    args: *const CreateArgs,
    flags: Flags,
) -> i32 {
    code("gex_MK_Create", || {
        state::client(client)?;
        check_place(mk_p)?;
        no_flags(flags)?;
        ensure!(!args.is_null(), "args is null");
        // SAFETY: not null, and such a structure by the program's promise.
        let CreateArgs { flags, class } = *unsafe { &*args };
        ensure!(flags == 0, "args->gex_flags {flags:#x}: only 0 is possible");
        answer(mk_p, create(class)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_MK_Destroy(kind: Handle, flags: Flags) {
    value("gex_MK_Destroy", (), || {
        state::open()?;
        no_flags(flags)?;
        // Nothing belongs to the kind of the host's memory: it may be used again afterwards.
        ensure!(kind.addr() == MK_HOST, "{kind:p} is not a kind of memory");
        Ok(())
    });
}
