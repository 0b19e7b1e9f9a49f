//! `with stage:` and calls of decorated functions without PyO3's bookkeeping and without allocations, which cost twice as much as the
//! rest of a call.
//!
//! Python makes a bound method out of `__enter__` and `__exit__` anew for every block, unless their
//! descriptors already have one. So [`Stage`] has descriptors of our own that give the two that each
//! handle keeps. As in [`crate::fast_next`], the functions touch no Python object but those that they
//! pass on. Looking a handle up by name alone passes PyO3 by, too.

use std::ffi::{CStr, CString};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyModule, PyString};
use pyo3::{Borrowed, PyTypeInfo, ffi};

use crate::stages::calls::End;
use crate::stages::stage::{self, Stage, how_ended};

/// A method table entry, which Python only reads.
pub(crate) struct Method(pub(crate) ffi::PyMethodDef);

// SAFETY: never written to; its pointers are to constants and functions.
unsafe impl Sync for Method {}

static ENTER: Method = Method(ffi::PyMethodDef {
    ml_name: c"__enter__".as_ptr(),
    ml_meth: ffi::PyMethodDefPointer { PyCFunction: enter },
    ml_flags: ffi::METH_NOARGS,
    ml_doc: c"__enter__($self, /)\n--\n\n".as_ptr(),
});

static EXIT: Method = Method(ffi::PyMethodDef {
    ml_name: c"__exit__".as_ptr(),
    ml_meth: ffi::PyMethodDefPointer {
        PyCFunctionFast: exit,
    },
    ml_flags: ffi::METH_FASTCALL,
    ml_doc: c"__exit__($self, kind, error, traceback, /)\n--\n\n".as_ptr(),
});

static CALL: Method = Method(ffi::PyMethodDef {
    ml_name: c"_call".as_ptr(),
    ml_meth: ffi::PyMethodDefPointer {
        PyCFunctionFast: call,
    },
    ml_flags: ffi::METH_FASTCALL,
    ml_doc:
        c"_call($self, function, args, kwargs, /)\n--\n\nCalls the function as a call of the stage."
            .as_ptr(),
});

impl Method {
    pub(crate) fn entry(&'static self) -> *mut ffi::PyMethodDef {
        std::ptr::from_ref(&self.0).cast_mut()
    }
}

/// What the class itself has: functions that take the handle.
static OF_CLASS: [PyOnceLock<Py<PyAny>>; 2] = [PyOnceLock::new(), PyOnceLock::new()];

/// The bound methods of a handle. Handles are kept for ever, and so are these.
pub(crate) struct Methods([AtomicPtr<ffi::PyObject>; 2]);

impl Methods {
    /// To be made by [`Methods::make`] before anyone has the handle.
    pub(crate) fn none() -> Self {
        Self([null_mut(), null_mut()].map(AtomicPtr::new))
    }

    /// # Errors
    ///
    /// Those of Python, for want of memory.
    pub(crate) fn make(handle: &Bound<'_, Stage>) -> PyResult<()> {
        for (place, method) in handle.get().methods().0.iter().zip([&ENTER, &EXIT]) {
            // SAFETY: the entry lives for ever, and the handle is alive.
            let made = unsafe {
                let made = ffi::PyCFunction_NewEx(method.entry(), handle.as_ptr(), null_mut());
                Bound::from_owned_ptr_or_err(handle.py(), made)?
            };
            place.store(made.into_ptr(), Ordering::Release);
        }
        Ok(())
    }
}

/// Gives the class its two methods, and the module its `stage`.
///
/// # Errors
///
/// Those of Python, for want of memory.
pub(crate) fn install(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let class = Stage::type_object(py);
    let methods = [(c"__enter__", &ENTER), (c"__exit__", &EXIT)];
    let getters = [get::<0> as ffi::descrgetfunc, get::<1>];
    for (((name, method), getter), of_class) in methods.into_iter().zip(getters).zip(&OF_CLASS) {
        // SAFETY: the class is alive, and the entry lives for ever, as the descriptor needs it to.
        let plain = unsafe {
            let made = ffi::PyDescr_NewMethod(class.as_type_ptr(), method.entry());
            Bound::from_owned_ptr_or_err(py, made)?
        };
        of_class.get_or_init(py, || plain.unbind());
        class.setattr(name.to_string_lossy().as_ref(), descriptor(py, getter)?)?;
    }
    // SAFETY: as above.
    let call = unsafe {
        let made = ffi::PyDescr_NewMethod(class.as_type_ptr(), CALL.entry());
        Bound::from_owned_ptr_or_err(py, made)?
    };
    class.setattr("_call", call)?;
    replace_stage(module)
}

/// An object that is nothing but a `__get__`.
fn descriptor(py: Python<'_>, get: ffi::descrgetfunc) -> PyResult<Bound<'_, PyAny>> {
    let mut slots = [
        ffi::PyType_Slot {
            slot: ffi::Py_tp_descr_get,
            pfunc: get as *mut libc::c_void,
        },
        ffi::PyType_Slot {
            slot: 0,
            pfunc: null_mut(),
        },
    ];
    let mut spec = ffi::PyType_Spec {
        name: c"headspace._native._Method".as_ptr(),
        // 0 inherits the base's size: nothing is added.
        basicsize: 0,
        itemsize: 0,
        flags: u32::try_from(ffi::Py_TPFLAGS_DEFAULT).unwrap_or_default(),
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: the spec and its slots, ended by a zero one, live through the call, which copies
    // them; the name is static. The result is a new type or null with an exception set.
    let class = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyType_FromSpec(&raw mut spec))? };
    class.call0()
}

/// `__get__` of a method: that of the class, or the one that the handle keeps.
unsafe extern "C" fn get<const WHICH: usize>(
    _: *mut ffi::PyObject,
    handle: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // The descriptor is in the class of handles only. Whoever takes it out of the class's `__dict__` may
    // call it with anything: hence the check of the type.
    // SAFETY: called attached to the interpreter, with null or an object that is kept alive meanwhile.
    // A new reference is returned.
    unsafe {
        let py = Python::assume_attached();
        let kept = if handle.is_null() {
            null_mut()
        } else if ffi::Py_TYPE(handle) == Stage::type_object_raw(py) {
            stage(py, handle).get().methods().0[WHICH].load(Ordering::Acquire)
        } else {
            null_mut()
        };
        let found = if kept.is_null() {
            OF_CLASS[WHICH].get(py).map_or(ffi::Py_None(), Py::as_ptr)
        } else {
            kept
        };
        ffi::Py_INCREF(found);
        found
    }
}

/// The stage that a method was called on.
///
/// # Safety
///
/// `this` is a live `Stage` and stays alive; the caller is attached to the interpreter.
unsafe fn stage(py: Python<'_>, this: *mut ffi::PyObject) -> Borrowed<'_, '_, Stage> {
    // SAFETY: as our caller says.
    unsafe { Borrowed::from_ptr(py, this).cast_unchecked::<Stage>() }
}

unsafe extern "C" fn enter(this: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: called attached to the interpreter, with the handle that the function is bound to or
    // that its descriptor has checked, and which is kept alive meanwhile. One more reference is
    // returned.
    unsafe {
        let stage = stage(Python::assume_attached(), this);
        // A panic would end the process here. What was to be counted is not.
        let _ = catch_unwind(AssertUnwindSafe(|| stage.get().enter()));
        ffi::Py_INCREF(this);
    }
    this
}

unsafe extern "C" fn exit(
    this: *mut ffi::PyObject,
    arguments: *mut *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    // SAFETY: as above; there are so many arguments, borrowed for the call.
    unsafe {
        let py = Python::assume_attached();
        let stage = stage(py, this);
        let kind = if count > 0 {
            Borrowed::from_ptr(py, *arguments)
        } else {
            Borrowed::from_ptr(py, ffi::Py_None())
        };
        let _ = catch_unwind(AssertUnwindSafe(|| stage.get().exit(&kind)));
        let none = ffi::Py_None();
        ffi::Py_INCREF(none);
        none
    }
}

/// Calls a function with a tuple and a dictionary of arguments, as a call of the stage.
unsafe extern "C" fn call(
    this: *mut ffi::PyObject,
    arguments: *mut *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    // SAFETY: as above; the arguments are borrowed for the call. What `PyObject_Call` gives is passed
    // on, and so is the exception that it leaves, which is put aside while its type is looked at.
    unsafe {
        let py = Python::assume_attached();
        let stage = stage(py, this);
        if count != 3 || ffi::PyTuple_Check(*arguments.add(1)) == 0 {
            let what = c"`_call` takes a function, a tuple and a dictionary";
            ffi::PyErr_SetString(ffi::PyExc_TypeError, what.as_ptr());
            return null_mut();
        }
        let (function, by_position, by_name) = (*arguments, *arguments.add(1), *arguments.add(2));
        counted(stage.get(), || {
            ffi::PyObject_Call(function, by_position, by_name)
        })
    }
}

/// Makes a call as one of the stage, and gives what it gives.
///
/// # Safety
///
/// Attached to the interpreter. The call gives a new reference, or null with an exception set.
#[inline]
pub(crate) unsafe fn counted(
    stage: &Stage,
    call: impl FnOnce() -> *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let on_the_stack = 0_u8;
    let marker = std::ptr::from_ref(&on_the_stack) as usize;
    let _ = catch_unwind(AssertUnwindSafe(|| stage.enter_call(marker)));
    let answer = call();
    let how = if answer.is_null() {
        // SAFETY: as our caller says.
        unsafe { how_raised() }
    } else {
        End::Done
    };
    let _ = catch_unwind(AssertUnwindSafe(|| stage.exit_call(marker, how)));
    answer
}

/// What the exception that is set says of the call. It stays set.
///
/// # Safety
///
/// Attached to the interpreter.
#[cold]
unsafe fn how_raised() -> End {
    // SAFETY: as our caller says; the exception is put aside while its type is looked at, and then
    // back.
    unsafe {
        let py = Python::assume_attached();
        let (mut kind, mut error, mut traceback) = (null_mut(), null_mut(), null_mut());
        ffi::PyErr_Fetch(&raw mut kind, &raw mut error, &raw mut traceback);
        let how = catch_unwind(AssertUnwindSafe(|| {
            Borrowed::from_ptr_or_opt(py, kind).map_or(End::Failed, |kind| how_ended(&kind))
        }));
        ffi::PyErr_Restore(kind, error, traceback);
        how.unwrap_or(End::Failed)
    }
}

/// Puts a function before the module's `stage` that answers for names that are known, and hands all
/// else to it.
fn replace_stage(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let slow = module.getattr("stage")?;
    let signature: String = slow.getattr("__text_signature__")?.extract()?;
    let text: String = slow.getattr("__doc__")?.extract()?;
    let text = CString::new(format!("stage{signature}\n--\n\n{text}"))?;
    let text: &'static CStr = Box::leak(text.into_boxed_c_str());
    let entry: &'static mut ffi::PyMethodDef = Box::leak(Box::new(ffi::PyMethodDef {
        ml_name: c"stage".as_ptr(),
        ml_meth: ffi::PyMethodDefPointer {
            PyCFunctionFastWithKeywords: known_stage,
        },
        ml_flags: ffi::METH_FASTCALL | ffi::METH_KEYWORDS,
        ml_doc: text.as_ptr(),
    }));
    let name = PyString::new(py, "headspace._native");
    SLOW.get_or_init(py, || slow.unbind());
    // SAFETY: the entry lives for ever. Bound to its module, the function is pickled by its name.
    let fast = unsafe {
        let made = ffi::PyCFunction_NewEx(entry, module.as_ptr(), name.as_ptr());
        Bound::from_owned_ptr_or_err(py, made)?
    };
    module.setattr("stage", fast)
}

/// The function that looks up any name.
static SLOW: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// `stage(name)` where that name is known; all else goes to [`SLOW`].
unsafe extern "C" fn known_stage(
    _: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: called attached to the interpreter, with so many arguments by position, those by name
    // after them, and null or a tuple of their names. All are borrowed for the call. The references
    // that are made here are given back or returned.
    unsafe {
        let py = Python::assume_attached();
        if count == 1
            && names.is_null()
            && let Some(handles) = stage::handles(py)
        {
            let found = ffi::PyDict_GetItemWithError(handles.as_ptr(), *arguments);
            if !found.is_null() {
                ffi::Py_INCREF(found);
                return found;
            }
            ffi::PyErr_Clear();
        }
        let by_position = ffi::PyTuple_New(count);
        let by_name = ffi::PyDict_New();
        let mut answer = null_mut();
        if !by_position.is_null() && !by_name.is_null() {
            for index in 0..count {
                let argument = *arguments.offset(index);
                ffi::Py_INCREF(argument);
                ffi::PyTuple_SetItem(by_position, index, argument);
            }
            let keywords = if names.is_null() {
                0
            } else {
                ffi::PyTuple_Size(names)
            };
            let told = (0..keywords).all(|index| {
                let name = ffi::PyTuple_GetItem(names, index);
                ffi::PyDict_SetItem(by_name, name, *arguments.offset(count + index)) == 0
            });
            if let (true, Some(slow)) = (told, SLOW.get(py)) {
                answer = ffi::PyObject_Call(slow.as_ptr(), by_position, by_name);
            }
        }
        ffi::Py_XDECREF(by_position);
        ffi::Py_XDECREF(by_name);
        answer
    }
}
