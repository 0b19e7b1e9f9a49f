//! Finds objects that the garbage collector tracks. Python code never gets a tuple that is still being filled.
//!
//! CPython fills a tuple of unknown length in place (`tuple(generator)`, `f(*generator)`), and runs code of the
//! program meanwhile. If anything else refers to that tuple when it is resized, CPython raises `SystemError` in the
//! program. Therefore, no Python code runs while a [`Heap`] lives. A tuple is returned only if another tracked object
//! refers to it: nothing refers to an unfinished tuple. The same holds for a `frozenset`, to which C code adds items.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::{c_int, c_void};
use std::hash::{BuildHasherDefault, Hasher};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::interpreter::calls::call_method;

/// All tracked objects. While it lives, the interpreter lock must not be released, and no object may be created that
/// the garbage collector tracks: before Python 3.12, that may start a collection, and so code of the program.
pub(super) struct Heap<'py>(Bound<'py, PyList>);

impl<'py> Heap<'py> {
    pub(super) fn snapshot(py: Python<'py>) -> PyResult<Self> {
        // An audit hook (`sys.addaudithook`) runs before the list is filled.
        let gc = py.import("gc")?;
        let objects = call_method(&gc, "get_objects", ())?;
        Ok(Self(objects.cast_into()?))
    }

    /// The objects, which live as long as the heap.
    pub(super) fn objects(&self) -> impl ExactSizeIterator<Item = *mut ffi::PyObject> + '_ {
        (0..self.0.len()).map(|index| {
            let index = isize::try_from(index).unwrap_or_default();
            // SAFETY: the list is alive, no other code has it, and the index is below its length.
            unsafe { ffi::PyList_GetItem(self.0.as_ptr(), index) }
        })
    }

    /// Makes references to `found`, and drops the heap. Leaves out tuples to which no tracked object refers.
    ///
    /// # Safety
    ///
    /// `found` are addresses of objects that are alive.
    unsafe fn keep(self, found: &[*mut ffi::PyObject]) -> Vec<Bound<'py, PyAny>> {
        // Addresses of static types, which are only compared.
        let filled_in_place = [&raw mut ffi::PyTuple_Type, &raw mut ffi::PyFrozenSet_Type];
        let may_be_unfinished = |object: &*mut ffi::PyObject| {
            // SAFETY: these objects are alive.
            filled_in_place.contains(&unsafe { ffi::Py_TYPE(*object) })
        };
        let mut unheld: Addresses = found.iter().copied().filter(may_be_unfinished).collect();
        let mut traversals = Traversals::default();
        for object in self.objects() {
            if unheld.is_empty() {
                break;
            }
            let mut visit = |referent| {
                unheld.remove(&referent);
                false
            };
            // SAFETY: the heap holds the object, so it is alive. The garbage collector tracks it, and the interpreter
            // lock is held.
            unsafe { traversals.visit_referents(object, &mut visit) };
        }
        let kept = found.iter().filter(|object| !unheld.contains(*object));
        // SAFETY: these objects are alive, and the interpreter lock is held.
        kept.map(|object| unsafe { Bound::from_borrowed_ptr(self.0.py(), *object) })
            .collect()
    }
}

/// Finds objects. Never returns a tuple that is still being filled.
///
/// Args:
///     types: Addresses of types of which a sample is returned: the last objects in the list of the garbage collector.
///     sample: Size of this sample, for each type.
///     all_of: Addresses of types of which all objects are returned.
///     containers: Addresses of objects, and of dictionaries that the garbage collector does not track.
#[pyfunction]
pub(crate) fn find_objects(
    py: Python<'_>,
    types: HashSet<usize>,
    sample: usize,
    all_of: HashSet<usize>,
    containers: HashSet<usize>,
) -> PyResult<Bound<'_, PyList>> {
    let all_of: HashSet<usize, BuildHasherDefault<AddressHasher>> = all_of.into_iter().collect();
    let mut samples: AddressMap<VecDeque<*mut ffi::PyObject>> = types
        .into_iter()
        .map(|kind| (kind, VecDeque::new()))
        .collect();
    let mut missing: Addresses = (containers.into_iter())
        .map(|address| address as *mut ffi::PyObject)
        .collect();
    let heap = Heap::snapshot(py)?;
    let mut found = Vec::new();
    for object in heap.objects() {
        // SAFETY: the heap holds the object.
        let kind = unsafe { ffi::Py_TYPE(object) } as usize;
        if missing.remove(&object) || all_of.contains(&kind) {
            found.push(object);
        }
        if let Some(last) = samples.get_mut(&kind) {
            last.push_back(object);
            if last.len() > sample {
                last.pop_front();
            }
        }
    }
    let untracked = untracked_dicts(&heap, missing);
    found.extend(samples.into_values().flatten().chain(untracked));
    let mut seen = Addresses::default();
    found.retain(|object| seen.insert(*object));
    // SAFETY: the heap holds these objects, or objects that refer to them, and no Python code runs.
    PyList::new(py, unsafe { heap.keep(&found) })
}

/// The untracked dictionaries among these addresses to which a tracked object refers.
fn untracked_dicts(heap: &Heap<'_>, mut missing: Addresses) -> Vec<*mut ffi::PyObject> {
    let mut found = Vec::new();
    let mut traversals = Traversals::default();
    for object in heap.objects() {
        if missing.is_empty() {
            break;
        }
        let mut visit = |referent| {
            // SAFETY: a live object refers to it.
            let is_dict = unsafe { ffi::PyDict_CheckExact(referent) } != 0;
            if is_dict && missing.remove(&referent) {
                found.push(referent);
            }
            false
        };
        // SAFETY: the heap holds the object, so it is alive. The garbage collector tracks it, and the interpreter
        // lock is held.
        unsafe { traversals.visit_referents(object, &mut visit) };
    }
    found
}

/// The tracked objects that refer to at least one of `items`, without tuples that are still being filled.
#[pyfunction]
pub(crate) fn find_holders<'py>(
    py: Python<'py>,
    items: Vec<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyList>> {
    let items: Addresses = items.iter().map(Bound::as_ptr).collect();
    let heap = Heap::snapshot(py)?;
    let mut traversals = Traversals::default();
    let mut found = Vec::new();
    for object in heap.objects() {
        let mut holds = false;
        let mut visit = |referent| {
            holds |= items.contains(&referent);
            holds
        };
        // SAFETY: the heap holds the object, so it is alive. The garbage collector tracks it, and the interpreter
        // lock is held.
        unsafe { traversals.visit_referents(object, &mut visit) };
        if holds {
            found.push(object);
        }
    }
    // SAFETY: the heap holds these objects.
    PyList::new(py, unsafe { heap.keep(&found) })
}

type Addresses = HashSet<*mut ffi::PyObject, BuildHasherDefault<AddressHasher>>;

/// The functions of types that visit what an object refers to.
#[derive(Default)]
struct Traversals(AddressMap<Option<ffi::traverseproc>>);

impl Traversals {
    /// Calls `visit` for each object to which this one refers, until it returns true.
    ///
    /// # Safety
    ///
    /// The object is alive and tracked, and the interpreter lock is held. `visit` runs no Python code.
    unsafe fn visit_referents<Visit: FnMut(*mut ffi::PyObject) -> bool>(
        &mut self,
        object: *mut ffi::PyObject,
        visit: &mut Visit,
    ) {
        // SAFETY: the object is alive, and so is its type.
        let traverse = unsafe {
            let kind = ffi::Py_TYPE(object);
            *(self.0.entry(kind as usize)).or_insert_with(|| traversal_of(kind))
        };
        if let Some(traverse) = traverse {
            // SAFETY: the function is that of the object's type. The rest is this function's contract.
            unsafe { visit_referents(traverse, object, visit) };
        }
    }
}

/// Calls `visit` for each object to which this one refers, until it returns true.
///
/// # Safety
///
/// The object is alive, `traverse` is the function of its type, and the interpreter lock is held. `visit` runs no Python
/// code.
pub(super) unsafe fn visit_referents<Visit: FnMut(*mut ffi::PyObject) -> bool>(
    traverse: ffi::traverseproc,
    object: *mut ffi::PyObject,
    visit: &mut Visit,
) {
    let argument = std::ptr::from_mut(visit).cast();
    // SAFETY: this is how the garbage collector calls the function. `visit` outlives the call.
    unsafe { traverse(object, call_visitor::<Visit>, argument) };
}

/// Passes an object to the closure to which `visit` points.
unsafe extern "C" fn call_visitor<Visit: FnMut(*mut ffi::PyObject) -> bool>(
    object: *mut ffi::PyObject,
    visit: *mut c_void,
) -> c_int {
    // SAFETY: `visit_referents` passes a closure of this type, which no other code uses meanwhile.
    let is_done = unsafe { (*visit.cast::<Visit>())(object) };
    c_int::from(is_done)
}

/// The function of a type that visits what its objects refer to.
///
/// # Safety
///
/// The type is alive, and the interpreter lock is held.
pub(super) unsafe fn traversal_of(kind: *mut ffi::PyTypeObject) -> Option<ffi::traverseproc> {
    // SAFETY: the type is alive. From Python 3.10 on, static types have slots too.
    let slot = unsafe { ffi::PyType_GetSlot(kind, ffi::Py_tp_traverse) };
    // SAFETY: the slot holds a function of this type.
    (!slot.is_null())
        .then(|| unsafe { std::mem::transmute::<*mut c_void, ffi::traverseproc>(slot) })
}

/// A table by the address of an object.
pub(super) type AddressMap<Value> = HashMap<usize, Value, BuildHasherDefault<AddressHasher>>;

/// Hashes addresses, which differ in their middle bits.
#[derive(Default)]
pub(super) struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_usize(usize::from(*byte));
        }
    }

    fn write_usize(&mut self, address: usize) {
        self.0 = (self.0 ^ address as u64)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29);
    }
}
