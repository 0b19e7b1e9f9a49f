//! Titled sections: what is told of a run, without a format.
//!
//! An output renders them as it can: a terminal in columns of text, a page as cards and tables.

/// One section.
#[derive(Debug, Clone, PartialEq)]
pub struct Section {
    /// Which one it is. Several of one kind may follow each other.
    pub id: SectionId,
    /// What it says, in order.
    pub blocks: Vec<Block>,
}

/// What a section is about, in the order in which sections stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SectionId {
    /// What was watched, and where the records are.
    Run,
    /// How the run ended, if not by itself.
    Ended,
    /// Which rank the numbers are of.
    Rank,
    /// Which loop the numbers are of.
    Loop,
    /// Where a step's time goes.
    Step,
    /// The step with free data.
    Floor,
    /// What free data would save.
    Savings,
    /// Steps on repeated batches.
    Repeated,
    /// What limits the loop.
    Bottleneck,
    /// What would help.
    Remedies,
    /// Stages of the loader.
    Stages,
    /// Queues between stages.
    Queues,
    /// How often a batch was ready.
    Ready,
    /// GPUs.
    Gpu,
    /// Cores.
    Cpu,
    /// Memory.
    Memory,
    /// Files, storage and network.
    Data,
    /// What stands out.
    Found,
    /// What was lost.
    Lost,
    /// What measuring cost.
    Cost,
    /// The ranks together.
    Ranks,
    /// The slowest rank.
    Slowest,
    /// Ranks without a summary.
    Missing,
    /// Ranks that took different numbers of steps.
    Steps,
}

/// A part of a section.
#[derive(Debug, Clone, PartialEq)]
pub enum Block {
    /// What was watched, and where the records are.
    Heading {
        /// What was watched.
        what: String,
        /// The run's folder or file; empty where it is not known.
        location: String,
    },
    /// Facts side by side.
    Facts(Vec<Fact>),
    /// A sentence or more. Code stands between backticks.
    Sentence(String),
    /// Things and what is said of each.
    Entries(Vec<Entry>),
    /// Terms and their values.
    Terms(Vec<(String, String)>),
    /// A table.
    Table(Table),
}

/// A measured fact.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Fact {
    /// What was measured; empty where the value says it.
    pub label: &'static str,
    /// Its value with unit.
    pub value: String,
    /// Words that belong to the value.
    pub note: String,
    /// More about it, for an output that has room.
    pub detail: String,
}

/// One thing and what is said of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Entry {
    /// The thing: short.
    pub head: String,
    /// What is said of it.
    pub body: String,
    /// More about it, for an output that has room.
    pub detail: String,
}

/// A table. The first column names the row.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Table {
    /// The columns.
    pub columns: Vec<Column>,
    /// The rows.
    pub rows: Vec<Row>,
    /// How many rows are only in the records.
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
    /// One cell a column; empty where the value is not known.
    pub cells: Vec<String>,
    /// Why the row stands out, if it does: a word or two.
    pub mark: Option<&'static str>,
}

impl SectionId {
    /// Its name in a narrow column.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Run => "headspace",
            Self::Ended => "ended",
            Self::Rank => "rank",
            Self::Loop => "loop",
            Self::Step => "step",
            Self::Floor => "floor",
            Self::Savings => "would save",
            Self::Repeated => "repeated",
            Self::Bottleneck => "bottleneck",
            Self::Remedies => "remedies",
            Self::Stages => "stages",
            Self::Queues => "queues",
            Self::Ready => "ready",
            Self::Gpu => "gpu",
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Data => "data",
            Self::Found => "found",
            Self::Lost => "lost",
            Self::Cost => "cost",
            Self::Ranks => "ranks",
            Self::Slowest => "slowest",
            Self::Missing => "missing",
            Self::Steps => "steps",
        }
    }

    /// Its title over a part of a page.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Run => "The run",
            Self::Bottleneck => "Bottleneck",
            Self::Remedies => "Remedies",
            Self::Loop => "Loops",
            Self::Stages => "Stages",
            Self::Queues => "Queues",
            Self::Gpu => "GPUs",
            Self::Cpu => "CPU, memory and data",
            Self::Found => "Findings and notices",
            Self::Ranks => "Ranks",
            other => other.label(),
        }
    }
}

impl Section {
    /// A section of one block.
    #[must_use]
    pub fn new(id: SectionId, block: Block) -> Self {
        Self {
            id,
            blocks: vec![block],
        }
    }

    /// A section of facts.
    #[must_use]
    pub fn facts(id: SectionId, facts: Vec<Fact>) -> Self {
        Self::new(id, Block::Facts(facts))
    }

    /// A section of sentences.
    #[must_use]
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
    #[must_use]
    pub fn new(label: &'static str, value: String) -> Self {
        Self {
            label,
            value,
            ..Self::default()
        }
    }

    /// A fact whose value says what was measured.
    #[must_use]
    pub fn phrase(value: impl Into<String>) -> Self {
        Self::new("", value.into())
    }

    /// The same with words that belong to the value.
    #[must_use]
    pub fn note(self, note: impl Into<String>) -> Self {
        Self {
            note: note.into(),
            ..self
        }
    }

    /// The same with more about it.
    #[must_use]
    pub fn detail(self, detail: impl Into<String>) -> Self {
        Self {
            detail: detail.into(),
            ..self
        }
    }
}

impl Entry {
    /// A thing and what is said of it.
    #[must_use]
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
    #[must_use]
    pub const fn new(name: &'static str, about: &'static str) -> Self {
        Self { name, about }
    }
}

impl Row {
    /// An ordinary row.
    #[must_use]
    pub fn new(cells: Vec<String>) -> Self {
        Self { cells, mark: None }
    }

    /// The same, standing out for that reason where `is_marked`.
    #[must_use]
    pub fn marked_if(self, is_marked: bool, reason: &'static str) -> Self {
        Self {
            mark: is_marked.then_some(reason),
            ..self
        }
    }
}
