//! The arguments that callers pass: output pointers, strings and handles.
//!
//! By NVML's contract, a pointer is either null or valid for its type. This module relies on that
//! contract, so most exported functions are safe code. Each type has the layout of the pointer that
//! it holds.

use std::ffi::{CStr, c_char, c_uint};

use crate::code::{Answer, Code, INSUFFICIENT_SIZE, INVALID_ARGUMENT};

/// Pointer to the place of one value, or to the first element of an array.
#[repr(transparent)]
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Writes `value`, or refuses a null pointer as NVML does.
    pub(crate) fn put(&self, value: T) -> Answer {
        self.check()?;
        // SAFETY: the pointer is not null. By NVML's contract it is valid for writing one `T`.
        unsafe { self.0.write(value) };
        Ok(())
    }

    /// Reads the value that the caller wrote there, for example a size or a version.
    pub(crate) fn get(&self) -> Result<T, Code>
    where
        T: Copy,
    {
        self.check()?;
        // SAFETY: the pointer is not null. By NVML's contract it points to an initialised `T`.
        Ok(unsafe { self.0.read() })
    }

    /// Refuses a null pointer.
    pub(crate) fn check(&self) -> Answer {
        if self.0.is_null() {
            return Err(INVALID_ARGUMENT);
        }
        Ok(())
    }

    /// The unchecked pointer.
    pub(crate) fn raw(&self) -> *mut T {
        self.0
    }

    /// Wraps a pointer from inside a caller's struct. By NVML's contract it is null or valid.
    pub(crate) fn from_raw(pointer: *mut T) -> Self {
        Self(pointer)
    }

    /// Writes `items` into an array of length `count`, and their number to `count`.
    ///
    /// If the array is null or too short, writes only the number and returns `INSUFFICIENT_SIZE`.
    pub(crate) fn fill(&self, count: &Out<c_uint>, items: &[T]) -> Answer
    where
        T: Copy,
    {
        let places = count.get()?;
        let needed = c_uint::try_from(items.len()).unwrap_or(c_uint::MAX);
        count.put(needed)?;
        if needed == 0 {
            return Ok(());
        }
        if self.0.is_null() || places < needed {
            return Err(INSUFFICIENT_SIZE);
        }
        // SAFETY: by NVML's contract the array has `places` elements, and `items` is not longer.
        // The two cannot overlap, because the caller has no pointer to `items`.
        unsafe { std::ptr::copy_nonoverlapping(items.as_ptr(), self.0, items.len()) };
        Ok(())
    }
}

impl Out<c_char> {
    /// Writes `text` and a terminating NUL into a buffer of `length` bytes.
    pub(crate) fn put_text(&self, length: c_uint, text: &str) -> Answer {
        self.check()?;
        if text.len() >= length as usize {
            return Err(INSUFFICIENT_SIZE);
        }
        // SAFETY: by NVML's contract the buffer has `length` bytes, and `text` is shorter.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr().cast(), self.0, text.len());
            self.0.add(text.len()).write(0);
        }
        Ok(())
    }
}

/// A NUL-terminated string.
#[repr(transparent)]
pub(crate) struct Text(*const c_char);

impl Text {
    /// The string, or an error if the pointer is null or the bytes are not UTF-8.
    pub(crate) fn get(&self) -> Result<&str, Code> {
        if self.0.is_null() {
            return Err(INVALID_ARGUMENT);
        }
        // SAFETY: the pointer is not null. By contract the string is NUL-terminated and outlives
        // the call.
        unsafe { CStr::from_ptr(self.0) }
            .to_str()
            .map_err(|_| INVALID_ARGUMENT)
    }
}

/// An opaque handle: a number where NVML has a pointer.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Handle(pub(crate) usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_null_pointer_is_an_invalid_argument() {
        let nowhere: Out<c_uint> = Out(std::ptr::null_mut());

        assert_eq!(nowhere.put(1), Err(INVALID_ARGUMENT));
    }

    #[test]
    fn a_text_that_does_not_fit_with_its_zero_is_refused() {
        let mut buffer = [1; 4];
        let out = Out(buffer.as_mut_ptr());

        assert_eq!(out.put_text(4, "four"), Err(INSUFFICIENT_SIZE));
        assert_eq!(out.put_text(4, "two"), Ok(()));
        assert_eq!(buffer[3], 0);
    }

    #[test]
    fn an_array_that_is_too_small_gets_the_needed_size() {
        let mut count = 1;
        let mut places = [0_u64; 1];
        let (count_out, out) = (Out(&raw mut count), Out(places.as_mut_ptr()));

        assert_eq!(out.fill(&count_out, &[7, 8]), Err(INSUFFICIENT_SIZE));
        assert_eq!(count, 2);
        assert_eq!(places, [0]);
    }
}
