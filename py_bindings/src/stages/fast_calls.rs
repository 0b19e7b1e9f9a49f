//! Fast paths for `with stage:`, calls of decorated functions, and `stage(name)`, without PyO3's bookkeeping.
//!
//! The bookkeeping and the allocations cost twice as much as the rest of a call. For each `with` block,
//! Python creates bound methods of `__enter__` and `__exit__`, unless their descriptors return existing ones.
//! So [`Stage`] has its own descriptors, which return two bound methods that each handle keeps. As in
//! [`fast_next`](crate::loops::fast_next), the functions touch no Python objects except those that they pass
//! on.

use std::ffi::{CStr, CString};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::atomic::Ordering;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyModule, PyString};
use pyo3::{Borrowed, PyTypeInfo, ffi};

use crate::interpreter::calls::{self, call_function};
use crate::interpreter::type_with_slot::type_with_slot;
use crate::stages::changed_calls::change_call;
use crate::stages::handles_by_name::handles;
use crate::stages::how_ended::how_ended;
use crate::stages::open_calls::{self, End, LocalSlot};
use crate::stages::process_slots;
use crate::stages::stage::Stage;

/// An entry of a method table. Python only reads it.
pub(crate) struct Method(pub(crate) ffi::PyMethodDef);

// SAFETY: never written. Its pointers refer to constants and functions.
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

/// The functions of the class itself, which take the handle as an argument.
static OF_CLASS: [PyOnceLock<Py<PyAny>>; 2] = [PyOnceLock::new(), PyOnceLock::new()];

/// Creates the bound methods of a handle.
///
/// # Errors
///
/// Python's, if memory is exhausted.
pub(crate) fn make_methods(handle: &Bound<'_, Stage>) -> PyResult<()> {
    for (place, method) in handle.get().methods.iter().zip([&ENTER, &EXIT]) {
        // SAFETY: the entry is static, and the handle is alive.
        let made = unsafe {
            let made = ffi::PyCFunction_NewEx(method.entry(), handle.as_ptr(), null_mut());
            Bound::from_owned_ptr_or_err(handle.py(), made)?
        };
        place.store(made.into_ptr(), Ordering::Release);
    }
    Ok(())
}

/// Adds the methods to the class, and the fast `stage` to the module.
///
/// # Errors
///
/// Python's, if memory is exhausted.
pub(crate) fn install(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let class = Stage::type_object(py);
    let plain = |method: &'static Method| {
        // SAFETY: the class is alive, and the entry is static, as the descriptor requires.
        unsafe {
            let made = ffi::PyDescr_NewMethod(class.as_type_ptr(), method.entry());
            Bound::from_owned_ptr_or_err(py, made)
        }
    };
    let methods = [(c"__enter__", &ENTER), (c"__exit__", &EXIT)];
    let getters = [get::<0> as ffi::descrgetfunc, get::<1>];
    for (((name, method), getter), of_class) in methods.into_iter().zip(getters).zip(&OF_CLASS) {
        let plain = plain(method)?;
        of_class.get_or_init(py, || plain.unbind());
        class.setattr(name.to_string_lossy().as_ref(), descriptor(py, getter)?)?;
    }
    class.setattr("_call", plain(&CALL)?)?;
    replace_stage(module)
}

/// An object that has only a `__get__`.
fn descriptor(py: Python<'_>, get: ffi::descrgetfunc) -> PyResult<Bound<'_, PyAny>> {
    let slot = ffi::PyType_Slot {
        slot: ffi::Py_tp_descr_get,
        pfunc: get as *mut libc::c_void,
    };
    // SAFETY: the function is what the slot holds. The type has no base.
    let class = unsafe { type_with_slot(py, c"headspace._native._Method", slot, null_mut())? };
    calls::call(&class, ())
}

/// `__get__` of a method: the function of the class, or the bound method of the handle.
unsafe extern "C" fn get<const WHICH: usize>(
    _: *mut ffi::PyObject,
    handle: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // Only the class of handles has the descriptor. But a program may take it from the class's `__dict__` and
    // call it with any object, so the type is checked. SAFETY: called attached to the interpreter, with null
    // or an object that stays alive during the call. A new reference is returned.
    unsafe {
        let py = Python::assume_attached();
        let is_stage = !handle.is_null() && ffi::Py_TYPE(handle) == Stage::type_object_raw(py);
        let kept = if is_stage {
            stage(py, handle).get().methods[WHICH].load(Ordering::Acquire)
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

/// The stage whose method was called.
///
/// # Safety
///
/// `this` is a live `Stage` and stays alive; the caller is attached to the interpreter.
unsafe fn stage(py: Python<'_>, this: *mut ffi::PyObject) -> Borrowed<'_, '_, Stage> {
    // SAFETY: as in the contract of this function.
    unsafe { Borrowed::from_ptr(py, this).cast_unchecked::<Stage>() }
}

unsafe extern "C" fn enter(this: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: called attached to the interpreter, with the handle to which the function is bound, or one that
    // its descriptor has checked. It stays alive during the call. A new reference is returned.
    unsafe {
        let py = Python::assume_attached();
        let stage = stage(py, this);
        // A panic must not leave this function, because it would end the process. The call is not counted.
        let _ = catch_unwind(AssertUnwindSafe(|| stage.get().enter(py)));
        ffi::Py_INCREF(this);
    }
    this
}

unsafe extern "C" fn exit(
    this: *mut ffi::PyObject,
    arguments: *mut *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    // SAFETY: as in `enter`. There are `count` arguments, borrowed for the call.
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
    // SAFETY: as in `exit`. The result of `PyObject_Call` is returned, and its exception stays set, except
    // while `how_raised` reads its type.
    unsafe {
        let py = Python::assume_attached();
        let stage = stage(py, this);
        if count != 3 || ffi::PyTuple_Check(*arguments.add(1)) == 0 {
            let what = c"`_call` takes a function, a tuple and a dictionary";
            ffi::PyErr_SetString(ffi::PyExc_TypeError, what.as_ptr());
            return null_mut();
        }
        let (function, by_position, by_name) = (*arguments, *arguments.add(1), *arguments.add(2));
        call_counted(stage.get(), || {
            call_function(function, by_position, by_name)
        })
    }
}

/// Makes a call, counts it as a call of the stage, and returns its result.
///
/// # Safety
///
/// The caller is attached to the interpreter. `call` returns a new reference, or null with an exception set.
#[inline]
pub(crate) unsafe fn call_counted(
    stage: &Stage,
    call: impl FnOnce() -> *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let local = stage.local_slot();
    if let Some(switch) = &local.switch
        && switch.is_due()
    {
        // SAFETY: as in the contract of this function.
        return unsafe { change_call(switch, || count_call(stage, local, call)) };
    }
    // SAFETY: as in the contract of this function.
    unsafe { count_call(stage, local, call) }
}

/// Makes a call, counts it, and returns its result.
///
/// # Safety
///
/// As for [`call_counted`].
#[inline]
unsafe fn count_call(
    stage: &Stage,
    local: &'static LocalSlot,
    call: impl FnOnce() -> *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let on_the_stack = 0_u8;
    let marker = std::ptr::from_ref(&on_the_stack) as usize;
    let _ = catch_unwind(AssertUnwindSafe(|| {
        open_calls::begin_marked(stage.handle(), local, marker);
    }));
    let answer = call();
    let how = if answer.is_null() {
        // SAFETY: as in the contract of this function.
        unsafe { how_raised() }
    } else {
        End::Done
    };
    let _ = catch_unwind(AssertUnwindSafe(|| {
        let begun = open_calls::end_marked(stage.handle(), marker, how);
        // The search may run Python code, which must not run while the exception of the call is set.
        if let Some(begun) = begun
            && !answer.is_null()
        {
            process_slots::search_if_due(begun);
        }
    }));
    answer
}

/// How a call ended, by the exception that is set. It stays set.
///
/// # Safety
///
/// The caller is attached to the interpreter.
#[cold]
unsafe fn how_raised() -> End {
    // SAFETY: as in the contract of this function. The exception is fetched while its type is read, and then
    // restored.
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

/// Replaces the module's `stage` by a function that returns known handles, and calls the replaced one in all
/// other cases.
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
    // SAFETY: the entry is leaked, so it lives for ever. The function is bound to its module, so that it is
    // pickled by name.
    let fast = unsafe {
        let made = ffi::PyCFunction_NewEx(entry, module.as_ptr(), name.as_ptr());
        Bound::from_owned_ptr_or_err(py, made)?
    };
    module.setattr("stage", fast)
}

/// The replaced `stage`, which accepts any name.
static SLOW: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// `stage(name)` for a known name. All other calls go to [`SLOW`].
unsafe extern "C" fn known_stage(
    _: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: called attached to the interpreter, with `count` positional arguments, then the keyword
    // arguments, and null or a tuple of their names. All are borrowed for the call. References created here
    // are released or returned.
    unsafe {
        let py = Python::assume_attached();
        if count == 1 && names.is_null() {
            let found = ffi::PyDict_GetItemWithError(handles(py).as_ptr(), *arguments);
            if !found.is_null() {
                ffi::Py_INCREF(found);
                return found;
            }
            ffi::PyErr_Clear();
        }
        match SLOW.get(py) {
            Some(slow) => call_any(slow.as_ptr(), null_mut(), arguments, count, names),
            None => null_mut(),
        }
    }
}

/// Calls a function with any arguments: `count` positional ones, then those by keyword.
///
/// # Safety
///
/// This thread is attached to the interpreter. `owner` is null, or alive; it is then the first argument.
/// `names` is null, or the tuple of the keywords. All arguments are borrowed for the call.
#[cold]
pub(crate) unsafe fn call_any(
    function: *mut ffi::PyObject,
    owner: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: as in the contract of this function. References created here are released or returned.
    unsafe {
        let owners = ffi::Py_ssize_t::from(!owner.is_null());
        let by_position = ffi::PyTuple_New(owners + count);
        let by_name = ffi::PyDict_New();
        let mut answer = null_mut();
        if !by_position.is_null() && !by_name.is_null() {
            if !owner.is_null() {
                ffi::Py_INCREF(owner);
                ffi::PyTuple_SetItem(by_position, 0, owner);
            }
            for index in 0..count {
                let argument = *arguments.offset(index);
                ffi::Py_INCREF(argument);
                ffi::PyTuple_SetItem(by_position, owners + index, argument);
            }
            let keywords = (!names.is_null()).then(|| ffi::PyTuple_Size(names));
            let is_complete = (0..keywords.unwrap_or(0)).all(|index| {
                let name = ffi::PyTuple_GetItem(names, index);
                ffi::PyDict_SetItem(by_name, name, *arguments.offset(count + index)) == 0
            });
            if is_complete {
                answer = call_function(function, by_position, by_name);
            }
        }
        ffi::Py_XDECREF(by_position);
        ffi::Py_XDECREF(by_name);
        answer
    }
}
