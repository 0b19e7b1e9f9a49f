//! Titled sections: the content of a report, independent of its format.
//!
//! Each output renders them: a terminal as columns of text, a page as cards and tables.

/// One section.
#[derive(Debug, Clone, PartialEq)]
pub struct Section {
    /// Its subject. Several sections with the same subject may follow each other.
    pub id: SectionId,
    /// Its content, in order.
    pub blocks: Vec<Block>,
}

/// Declares the subjects of sections, each with its label and its title on a page if that differs.
macro_rules! section_ids {
    ($($(#[$doc:meta])+ $id:ident = $label:literal $(, $title:literal)?;)+) => {
        /// Subject of a section, in the order of a report.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum SectionId {
            $($(#[$doc])+ $id,)+
        }

        impl SectionId {
            /// Its name in a narrow column.
            pub fn label(self) -> &'static str {
                match self {
                    $(Self::$id => $label,)+
                }
            }

            /// Its title on a page.
            pub fn title(self) -> &'static str {
                match self {
                    $($(Self::$id => $title,)?)+
                    other => other.label(),
                }
            }
        }
    };
}

section_ids! {
    /// The run, and the location of its records.
    Run = "headspace", "The run";
    /// How the run ended, if not normally.
    Ended = "ended";
    /// The rank that the numbers describe.
    Rank = "rank";
    /// The loop that the numbers describe.
    Loop = "loop", "Loops";
    /// Parts of the step time.
    Step = "step";
    /// The step time with free data.
    Floor = "floor";
    /// What free data would save.
    Savings = "free data";
    /// Steps on repeated batches.
    Repeated = "repeated";
    /// Slow parts of the run.
    Episodes = "episodes", "Slow parts";
    /// Answers of a what-if.
    WhatIf = "what if", "What if: measured";
    /// The bottleneck.
    Bottleneck = "bottleneck", "Bottleneck";
    /// Remedies.
    Remedies = "remedies", "Remedies";
    /// A smaller queue that is enough.
    Buffer = "buffer", "Smaller buffer";
    /// Duration of an epoch and of the run.
    Time = "time", "Time of an epoch and of the run";
    /// Lines of the program.
    Lines = "lines", "Lines";
    /// Lines that hold the interpreter lock.
    Gil = "GIL", "Lines that hold the interpreter lock (GIL)";
    /// Kinds of work of the stages.
    Work = "work", "Work of the stages";
    /// Stages of the loader.
    Stages = "stages", "Stages";
    /// Queues between stages.
    Queues = "queues", "Queues";
    /// How often a batch was ready.
    Ready = "ready";
    /// GPUs.
    Gpu = "gpu", "GPUs";
    /// Cores.
    Cpu = "cpu", "CPU, memory and data";
    /// Memory.
    Memory = "memory";
    /// Files, storage and network.
    Data = "data";
    /// Findings.
    Found = "found", "Findings and notices";
    /// Dropped steps and records.
    Dropped = "dropped";
    /// Cost of measuring.
    Cost = "cost";
    /// All ranks together.
    Ranks = "ranks", "Ranks";
    /// The slowest rank.
    Slowest = "slowest";
    /// Ranks without a summary.
    Missing = "missing";
    /// Different numbers of steps of the ranks.
    Steps = "steps";
}

/// A part of a section.
#[derive(Debug, Clone, PartialEq)]
pub enum Block {
    /// The run, and the location of its records.
    Heading {
        /// Number of steps and length of the run.
        what: String,
        /// The run's folder or file; empty if unknown.
        location: String,
    },
    /// Facts side by side.
    Facts(Vec<Fact>),
    /// One or more sentences, with code between backticks.
    Sentence(String),
    /// Items with a description each.
    Entries(Vec<Entry>),
    /// Terms and their values.
    Terms(Vec<(String, String)>),
    /// A table.
    Table(Table),
}

/// A quantity of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantity {
    /// Length of the step.
    Step,
    /// Wait for data.
    Wait,
    /// Compute.
    Compute,
    /// Length of the step with free data.
    Floor,
    /// Share of the step that free data would save.
    Headspace,
}

/// A measured fact.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Fact {
    /// What was measured, if it is a quantity of a step.
    pub quantity: Option<Quantity>,
    /// What was measured; empty if the value states it.
    pub label: &'static str,
    /// Its value with unit.
    pub value: String,
    /// Words after the value.
    pub note: String,
    /// More details, for an output with room for them.
    pub detail: String,
}

/// An item with its description.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Entry {
    /// The item, in a few words.
    pub head: String,
    /// Its description.
    pub body: String,
    /// More details, for an output with room for them.
    pub detail: String,
}

/// A table. The first column names the row.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Table {
    /// The columns.
    pub columns: Vec<Column>,
    /// The rows.
    pub rows: Vec<Row>,
    /// Number of rows that are only in the records.
    pub more: usize,
}

/// A column's head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: &'static str,
    /// What its values mean.
    pub about: &'static str,
}

/// A row of a table.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Row {
    /// One cell for each column; empty if the value is unknown.
    pub cells: Vec<String>,
    /// Why the row is highlighted, in one or two words.
    pub mark: Option<&'static str>,
}

/// Returns the words with a capital first letter.
pub fn capitalized(words: &str) -> String {
    let mut chars = words.chars();
    let first = chars.next().map(|c| c.to_ascii_uppercase());
    first.into_iter().chain(chars).collect()
}

/// Says how many items are only in the records.
pub fn more_in_records(more: usize) -> String {
    format!("and {more} more, in the records")
}

impl Section {
    /// A section of one block.
    pub fn new(id: SectionId, block: Block) -> Self {
        Self {
            id,
            blocks: vec![block],
        }
    }

    /// A section of facts.
    pub fn facts(id: SectionId, facts: Vec<Fact>) -> Self {
        Self::new(id, Block::Facts(facts))
    }

    /// A section of sentences.
    pub fn sentence(id: SectionId, words: impl Into<String>) -> Self {
        Self::new(id, Block::Sentence(words.into()))
    }

    /// The same with one more block.
    #[must_use]
    pub fn and(mut self, block: Block) -> Self {
        self.blocks.push(block);
        self
    }
}

impl Fact {
    /// A label and a value.
    pub fn new(label: &'static str, value: String) -> Self {
        Self {
            label,
            value,
            ..Self::default()
        }
    }

    /// The value of a quantity of a step.
    pub fn measured(quantity: Quantity, value: String) -> Self {
        let label = match quantity {
            Quantity::Step => "step",
            Quantity::Wait => "waiting for data",
            Quantity::Compute => "compute",
            Quantity::Floor => "floor",
            Quantity::Headspace => "headspace",
        };
        Self {
            quantity: Some(quantity),
            ..Self::new(label, value)
        }
    }

    /// A fact whose value states what was measured.
    pub fn phrase(value: impl Into<String>) -> Self {
        Self::new("", value.into())
    }

    /// The same with words after the value.
    #[must_use]
    pub fn note(self, note: impl Into<String>) -> Self {
        Self {
            note: note.into(),
            ..self
        }
    }

    /// The same with more details.
    #[must_use]
    pub fn detail(self, detail: impl Into<String>) -> Self {
        Self {
            detail: detail.into(),
            ..self
        }
    }
}

impl Entry {
    /// An item and its description.
    pub fn new(head: impl Into<String>, body: impl Into<String>) -> Self {
        Self {
            head: head.into(),
            body: body.into(),
            detail: String::new(),
        }
    }
}

impl Column {
    /// A name and what the values mean.
    pub const fn new(name: &'static str, about: &'static str) -> Self {
        Self { name, about }
    }
}

impl Row {
    /// An ordinary row.
    pub fn new(cells: Vec<String>) -> Self {
        Self { cells, mark: None }
    }

    /// The same, highlighted for that reason if `is_marked`.
    #[must_use]
    pub fn marked_if(self, is_marked: bool, reason: &'static str) -> Self {
        Self {
            mark: is_marked.then_some(reason),
            ..self
        }
    }
}
