//! Examines growing objects, with the functions of `headspace/_memory/`.

use std::collections::HashMap;

use headspace_agent::model::census::{
    AutogradGraph, Examination, Growing, GrownObjects, ObjectKey,
};
use headspace_agent::model::record::{HolderKind, HolderRecord, SiteRecord};
use pyo3::prelude::*;

use crate::interpreter::busy_threads::current_frames;
use crate::interpreter::calls::call_method;

/// A growing container or type, as `_memory/examine.py` describes it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Grown {
    per_s: f64,
    is_container: bool,
    type_name: String,
    items: Option<String>,
    bytes_each: f64,
    keep_graphs: bool,
    most_items: Option<u64>,
    site: Option<(String, u32)>,
    holders: Vec<Holder>,
}

/// A tensor that keeps a large graph.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Graph {
    nodes: u64,
    type_name: String,
    holders: Vec<Holder>,
}

/// Kind, name, owner, file and line of a holder.
#[derive(FromPyObject)]
struct Holder(String, String, Option<String>, Option<String>, Option<u32>);

/// Examines these objects.
///
/// # Errors
///
/// An error of headspace's own functions, or an interrupt of the program.
pub(crate) fn examine(py: Python<'_>, growing: &[Growing], at_s: f64) -> PyResult<Examination> {
    let (mut types, mut containers) = (HashMap::new(), HashMap::new());
    for grown in growing {
        match grown.key {
            ObjectKey::Type(address) => {
                types.insert(address, grown.per_s);
            }
            ObjectKey::Container(address) => {
                containers.insert(address, grown.per_s);
            }
            ObjectKey::Memory => {}
        }
    }
    let frames = current_frames(py)?.values();
    let module = py.import("headspace._memory.examine")?;
    let found = call_method(&module, "examine", (types, containers, frames))?;
    let (objects, graphs): (Vec<Grown>, Vec<Graph>) = found.extract()?;
    Ok(Examination {
        at_s,
        censuses: 0,
        objects: objects.into_iter().map(Grown::into_model).collect(),
        graphs: graphs.into_iter().map(Graph::into_model).collect(),
    })
}

impl Grown {
    fn into_model(self) -> GrownObjects {
        GrownObjects {
            per_s: self.per_s,
            is_container: self.is_container,
            type_name: self.type_name,
            items: self.items,
            bytes_each: self.bytes_each,
            keep_graphs: self.keep_graphs,
            most_items: self.most_items,
            holders: holders(self.holders),
            site: self.site.map(|(file, line)| SiteRecord { file, line }),
        }
    }
}

impl Graph {
    fn into_model(self) -> AutogradGraph {
        AutogradGraph {
            nodes: self.nodes,
            type_name: self.type_name,
            holders: holders(self.holders),
        }
    }
}

fn holders(all: Vec<Holder>) -> Vec<HolderRecord> {
    let record = |Holder(kind, name, of, file, line): Holder| {
        Some(HolderRecord {
            kind: HolderKind::named(&kind)?,
            name,
            of,
            site: (file.zip(line)).map(|(file, line)| SiteRecord { file, line }),
        })
    };
    all.into_iter().filter_map(record).collect()
}
