//! NVML's return codes, under their names in the header.

use std::ffi::{CStr, c_uint};

use nvml_wrapper_sys::bindings as sys;

/// The error of a function: a non-zero `nvmlReturn_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) c_uint);

/// The result of a function. The function writes values through its output pointers.
pub(crate) type Answer = Result<(), Code>;

pub(crate) const UNINITIALIZED: Code = Code(sys::nvmlReturn_enum_NVML_ERROR_UNINITIALIZED);
pub(crate) const INVALID_ARGUMENT: Code = Code(sys::nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT);
pub(crate) const NOT_SUPPORTED: Code = Code(sys::nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED);
pub(crate) const NOT_FOUND: Code = Code(sys::nvmlReturn_enum_NVML_ERROR_NOT_FOUND);
pub(crate) const INSUFFICIENT_SIZE: Code = Code(sys::nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE);
pub(crate) const VERSION_MISMATCH: Code =
    Code(sys::nvmlReturn_enum_NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
pub(crate) const UNKNOWN: Code = Code(sys::nvmlReturn_enum_NVML_ERROR_UNKNOWN);

/// Converts an answer to an `nvmlReturn_t`.
pub(crate) fn returned(answer: Answer) -> c_uint {
    match answer {
        Ok(()) => sys::nvmlReturn_enum_NVML_SUCCESS,
        Err(Code(code)) => code,
    }
}

/// The text that `nvmlErrorString` returns for a code.
pub(crate) fn text(code: c_uint) -> &'static CStr {
    match code {
        0 => c"Success",
        1 => c"Uninitialized",
        2 => c"Invalid Argument",
        3 => c"Not Supported",
        4 => c"Insufficient Permissions",
        6 => c"Not Found",
        7 => c"Insufficient Size",
        9 => c"Driver Not Loaded",
        10 => c"Timeout",
        15 => c"GPU is lost",
        18 => c"Driver/library version mismatch",
        25 => c"Argument version mismatch",
        _ => c"Unknown Error",
    }
}
