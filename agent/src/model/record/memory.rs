//! What makes the memory of a run grow.

use serde::{Deserialize, Serialize};

use super::codes;

codes! {
    /// Kind of memory that grows.
    #[derive(Default)]
    GrowthCause {
        /// A container, or the number of objects of a type.
        Objects = "objects",
        /// The graph of torch's automatic differentiation that a tensor keeps, or the graphs of the tensors in a container.
        AutogradGraph = "autograd_graph",
        /// Memory that the counted Python objects do not account for. Native code has probably
        /// allocated it.
        #[default]
        Native = "native",
        /// A container or a declared queue with a maximum size, which is not full yet. This is no leak.
        BoundedBuffer = "bounded_buffer",
    }
}

codes! {
    /// How an object is held.
    HolderKind {
        /// By a local variable of a running function, of a generator, or of a function whose frame an exception keeps.
        Local = "local",
        /// By a global variable of a module.
        Global = "global",
        /// By an attribute of an object.
        Attribute = "attribute",
        /// By an attribute of a class.
        ClassAttribute = "class_attribute",
        /// By a variable of an enclosing function, which an inner function keeps.
        Closure = "closure",
        /// By an attribute of a `threading.local`.
        ThreadLocal = "thread_local",
        /// By the results that `functools.lru_cache` keeps.
        Cache = "cache",
    }
}

/// What makes the memory grow. Found by counting Python objects several times during a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct MemoryGrowthRecord {
    /// Kind of memory that grows.
    pub cause: GrowthCause,
    /// Name of the worker process whose memory grows. Absent if it is the training process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// Bytes per step that the growing objects account for, estimated from some of them.
    pub explained_bytes_per_step: f64,
    /// Containers and types whose number of items or objects grows, the largest growth in bytes first: at most 8.
    pub objects: Vec<GrownObjectsRecord>,
}

/// A growing container, a type whose objects become more, or a growing graph.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct GrownObjectsRecord {
    /// Type of the container, or of the objects, with its module. `headspace.queue` for a declared queue.
    pub type_name: String,
    /// Whether the items of one container become more. Otherwise the objects of the type do.
    pub is_container: bool,
    /// Type of the container's newest items; with shape and number format if they are arrays or tensors. Absent for
    /// objects of a type, and if the items differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub items: Option<String>,
    /// Growth of the number of items, objects or graph nodes, per step.
    pub count_per_step: f64,
    /// Growth in bytes per step. Absent for a graph, and for tensors that keep graphs, because
    /// the size of their nodes is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_step: Option<f64>,
    /// Maximum number of items of the container. Absent if it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub most_items: Option<u64>,
    /// What holds the container, or one of the objects, from the innermost holder to a variable. Empty if unknown.
    pub holders: Vec<HolderRecord>,
    /// Line of the program that allocated the newest of them. Present with `HEADSPACE_MEMORY=tracemalloc`, and for
    /// exceptions: the line that raised them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub site: Option<SiteRecord>,
}

/// An object or a variable that holds a growing object.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HolderRecord {
    /// How the object is held.
    pub kind: HolderKind,
    /// Name of the variable or attribute; of the function, for a cache.
    pub name: String,
    /// Name of the function, class or module that the variable or attribute belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// Line of the program: where the function runs, or where it begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<SiteRecord>,
}

/// A line of the program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SiteRecord {
    /// Path of the source file.
    pub file: String,
    /// Line number in the source file.
    pub line: u32,
}
