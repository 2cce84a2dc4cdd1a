//! The recipient, as a state machine.

use std::collections::BTreeMap;

use super::answer::Answer;
use super::command::{self, Ddl};
use super::descriptor::{DataHead, Descriptor, Stage, State, StateMark, own_fields};
use super::error::{CloneError, broken, unsupported};
use super::file::CloneFile;
use super::redo::RedoFile;
use super::stages::{Block, FileDescription, Stages, Totals};

/// Longest block of data, in bytes. Donors send 1 MiB.
const MAX_BLOCK: u32 = 16 << 20;
/// Bytes of settings and plugins that are kept.
const MAX_SETUP: usize = 1 << 20;

/// Facts that the donor states before it sends data.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Donor {
    /// Version of the clone's protocol that both sides use.
    pub protocol: u32,
    /// Settings, by name: `version`, `innodb_page_size` and others.
    pub settings: BTreeMap<String, String>,
    /// Plugins that are not part of the server: the name and library of each.
    pub plugins: Vec<(String, String)>,
}

impl Donor {
    /// The server's version, such as `9.7.4`.
    #[must_use]
    pub fn version(&self) -> &str {
        self.settings.get("version").map_or("", String::as_str)
    }

    /// Bytes of a page of most of its tables: 4096 to 65536.
    #[must_use]
    pub fn page_size(&self) -> u32 {
        self.settings.get("innodb_page_size").and_then(|size| size.parse().ok()).unwrap_or(0)
    }
}

/// Meaning of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CloneEvent<'a> {
    /// Nothing yet.
    Nothing,
    /// The donor has said what it is, and waits for [`Recipient::execute`].
    Ready,
    /// A stage begins.
    Stage(Stage, Totals),
    /// There is a file with this index, or DDL has created, renamed or removed it.
    File(u32),
    /// There is a file of the redo log with this index.
    Redo(u32),
    /// Data.
    Block(Block<'a>),
    /// A stage is complete. Send these bytes on the auxiliary connection, and pass the answer to
    /// [`Recipient::answered`].
    Acknowledge(Vec<u8>),
    /// The donor has sent everything, and waits for [`Recipient::leave`].
    Complete,
    /// The donor has let the data connection go.
    Left,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The donor says what it is.
    Setup,
    /// The donor says whether it continues; whether it has named the clone.
    Again {
        is_named: bool,
    },
    /// The donor waits for EXECUTE.
    Ready,
    /// The task comes next.
    Task,
    /// The begin of this stage comes next.
    Before(Stage),
    In(Stage),
    /// This stage is complete, and not yet acknowledged.
    Owed(Stage),
    /// This stage is complete; whether it was acknowledged when the connections broke is unknown.
    After(Stage),
    /// The completion comes next.
    Done,
    /// The donor waits for EXIT.
    Complete,
    Leaving {
        data: bool,
        auxiliary: bool,
    },
    Failed,
}

/// The recipient of a clone over one data connection and an auxiliary one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipient {
    phase: Phase,
    donor: Donor,
    /// Bytes of settings and plugins that came.
    setup: usize,
    locator: Vec<u8>,
    stages: Stages,
    /// The block whose data comes next, and the stage in which it was announced.
    pending: Option<(Stage, DataHead)>,
    ddl: Ddl,
    /// Where a clone whose connections broke continues.
    resumed: Option<Phase>,
}

impl Recipient {
    /// Begins a clone. Returns the first message of the data connection as well.
    #[must_use]
    pub fn new(ddl: Ddl) -> (Self, Vec<u8>) {
        let recipient = Self {
            phase: Phase::Setup,
            donor: Donor::default(),
            setup: 0,
            locator: Vec::new(),
            stages: Stages::new(ddl == Ddl::Runs),
            pending: None,
            ddl,
            resumed: None,
        };
        (recipient, command::init(ddl))
    }

    /// Returns the facts about the donor; complete after [`CloneEvent::Ready`].
    #[must_use]
    pub fn donor(&self) -> &Donor {
        &self.donor
    }

    /// The files, by index, as far as they are announced.
    #[must_use]
    pub fn files(&self) -> &[CloneFile] {
        &self.stages.files
    }

    /// The files of the redo log, by index, as far as they are announced.
    #[must_use]
    pub fn redo(&self) -> &[RedoFile] {
        &self.stages.redo
    }

    /// Returns whether everything came, and the donor has let both connections go. Only then may what was
    /// received be used.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.phase == Phase::Leaving { data: true, auxiliary: true }
    }

    /// Has the clone continue on new connections after these broke: returns the first message of the new data
    /// connection, after which the donor is as before [`CloneEvent::Ready`]. What came is not sent again. `None` if
    /// the clone cannot continue where it is: before the first block of a stage, and after the last stage.
    #[must_use]
    pub fn resume(&mut self) -> Option<Vec<u8>> {
        let phase = match self.phase {
            Phase::In(stage) => Phase::In(stage),
            Phase::Owed(stage) | Phase::After(stage) => Phase::After(stage),
            Phase::Before(Stage::Page) => Phase::After(Stage::File),
            Phase::Before(Stage::Redo) => Phase::After(Stage::Page),
            Phase::Before(Stage::Done) => Phase::After(Stage::Redo),
            Phase::Again { .. } | Phase::Ready | Phase::Task => self.resumed?,
            _ => return None,
        };
        let (Phase::In(stage) | Phase::After(stage)) = phase else { return None };
        let place = self.stages.place(stage)?;
        (self.resumed, self.phase, self.pending) =
            (Some(phase), Phase::Again { is_named: false }, None);
        Some(command::reinit(self.ddl, &self.locator, &place))
    }

    /// Returns the message that asks for the data.
    ///
    /// # Errors
    /// If the donor is not ready.
    pub fn execute(&mut self) -> Result<Vec<u8>, CloneError> {
        self.advance(Phase::Ready, Phase::Task)?;
        Ok(command::execute())
    }

    /// Returns the message that leaves the clone, for each of both connections.
    ///
    /// # Errors
    /// If the clone is not complete.
    pub fn leave(&mut self) -> Result<Vec<u8>, CloneError> {
        self.advance(Phase::Complete, Phase::Leaving { data: false, auxiliary: false })?;
        Ok(command::exit())
    }

    /// Returns the message that ends a clone early, on the auxiliary connection: without it, the donor keeps what it
    /// needs to continue.
    #[must_use]
    pub fn fail(&self) -> Vec<u8> {
        command::fail(&self.locator)
    }

    /// Returns the message that leaves a clone before its data, on the data connection alone. The donor answers
    /// with [`DECLINED`](Self::DECLINED).
    #[must_use]
    pub fn decline(self) -> Vec<u8> {
        command::exit()
    }

    /// The donor's answer to [`decline`](Self::decline).
    pub const DECLINED: &'static [u8] = &[99];

    fn advance(&mut self, from: Phase, to: Phase) -> Result<(), CloneError> {
        if self.phase == from {
            self.phase = to;
            return Ok(());
        }
        self.phase = Phase::Failed;
        broken("the recipient spoke at the wrong time")
    }

    /// Takes a message of the data connection.
    ///
    /// # Errors
    /// The donor's error, or anything that a donor must not send then. The clone is over.
    pub fn receive<'a>(&mut self, message: &'a [u8]) -> Result<CloneEvent<'a>, CloneError> {
        let result = self.step(message);
        // A donor that does not continue yet can be asked again.
        if result.is_err() && !matches!(self.phase, Phase::Again { .. }) {
            self.phase = Phase::Failed;
        }
        result
    }

    /// Takes a message of the auxiliary connection: the answer to an acknowledgement, or to leaving.
    ///
    /// # Errors
    /// As [`Recipient::receive`].
    pub fn answered(&mut self, message: &[u8]) -> Result<(), CloneError> {
        let answer = Answer::parse(message);
        let phase = std::mem::replace(&mut self.phase, Phase::Failed);
        self.phase = match (phase, answer?) {
            (Phase::Owed(stage), Answer::Complete) => Phase::Before(stage.next()),
            (Phase::Leaving { data, auxiliary: false }, Answer::Complete) => {
                Phase::Leaving { data, auxiliary: true }
            }
            (_, answer) => return broken(format!("{} on the auxiliary connection", answer.kind())),
        };
        Ok(())
    }

    fn step<'a>(&mut self, message: &'a [u8]) -> Result<CloneEvent<'a>, CloneError> {
        let answer = Answer::parse(message)?;
        if let Some((stage, head)) = self.pending.take() {
            let mut block = block(head, &answer)?;
            // Counted only now: what is not here comes again after a broken connection.
            self.stages.data(stage, &head)?;
            if head.stage == Stage::Page {
                block.is_behind_end = self.stages.whole_page(&block)?;
            }
            return Ok(CloneEvent::Block(block));
        }
        if self.phase == Phase::Setup {
            self.setup = self.setup.saturating_add(message.len());
            return self.set_up(answer);
        }
        if let Phase::Again { is_named } = self.phase {
            return self.again(&answer, is_named);
        }
        match (self.phase, answer) {
            (Phase::Task, Answer::Descriptor(Descriptor::Task { task: 0, chunk: 0, block: 0 })) => {
                self.phase = self.resumed.take().unwrap_or(Phase::In(Stage::Init));
                Ok(CloneEvent::Nothing)
            }
            (_, Answer::Descriptor(Descriptor::State(state))) => self.state(state),
            (phase, Answer::Descriptor(Descriptor::File(head)))
                if may_describe(phase, head.stage) =>
            {
                match self.stages.file(head.stage, &head)? {
                    FileDescription::File => Ok(CloneEvent::File(head.index)),
                    FileDescription::Redo => Ok(CloneEvent::Redo(head.index)),
                    FileDescription::Again => Ok(CloneEvent::Nothing),
                }
            }
            (Phase::In(stage), Answer::Descriptor(Descriptor::Data(head))) => {
                if head.len > MAX_BLOCK {
                    return broken(format!("a block of {} bytes", head.len));
                }
                self.pending = Some((stage, head));
                Ok(CloneEvent::Nothing)
            }
            (Phase::Done, Answer::Complete) => {
                self.phase = Phase::Complete;
                Ok(CloneEvent::Complete)
            }
            (Phase::Leaving { data: false, auxiliary }, Answer::Complete) => {
                self.phase = Phase::Leaving { data: true, auxiliary };
                Ok(CloneEvent::Left)
            }
            (phase, answer) => broken(format!("{} came {}", answer.kind(), when(phase))),
        }
    }

    fn set_up(&mut self, answer: Answer<'_>) -> Result<CloneEvent<'static>, CloneError> {
        if self.setup > MAX_SETUP {
            return broken(format!("more than {MAX_SETUP} bytes of settings and plugins"));
        }
        match answer {
            Answer::Locators { version, locator } if self.locator.is_empty() => {
                if !(command::OLDEST..=command::NEWEST).contains(&version) {
                    return broken(format!("version {version:#x} of the protocol"));
                }
                self.donor.protocol = version;
                self.locator = locator.to_vec();
            }
            Answer::Plugin { name, library } => {
                self.donor.plugins.extend(library.map(|library| (name, library)));
            }
            Answer::Setting { name, value } => {
                if let Some(twice) = self.donor.settings.insert(name, value) {
                    return broken(format!("a setting was sent twice, first as {twice:?}"));
                }
            }
            Answer::Collation => {}
            Answer::Complete => return self.ready(),
            other => return broken(format!("{} came {}", other.kind(), when(Phase::Setup))),
        }
        Ok(CloneEvent::Nothing)
    }

    /// Takes the answer to REINIT: the locator of the same clone, and a completion.
    fn again(
        &mut self,
        answer: &Answer<'_>,
        is_named: bool,
    ) -> Result<CloneEvent<'static>, CloneError> {
        match answer {
            Answer::Locators { version, locator } => {
                let is_it = *version == self.donor.protocol
                    && own_fields(locator) == own_fields(&self.locator);
                if !is_it {
                    return broken("the donor continues another clone");
                }
                self.phase = Phase::Again { is_named: true };
                Ok(CloneEvent::Nothing)
            }
            Answer::Complete if is_named => {
                self.phase = Phase::Ready;
                Ok(CloneEvent::Ready)
            }
            other => broken(format!("{} came {}", other.kind(), when(self.phase))),
        }
    }

    fn ready(&mut self) -> Result<CloneEvent<'static>, CloneError> {
        if self.locator.is_empty() || self.donor.version().is_empty() {
            return broken("the donor did not identify itself");
        }
        let page_size = self.donor.page_size();
        if !page_size.is_power_of_two() || !(4096..=65536).contains(&page_size) {
            return unsupported(format!(
                "the donor has pages of {:?} bytes",
                self.donor.settings.get("innodb_page_size")
            ));
        }
        self.stages.page_size = page_size;
        self.phase = Phase::Ready;
        Ok(CloneEvent::Ready)
    }

    fn state(&mut self, state: State) -> Result<CloneEvent<'static>, CloneError> {
        if state.task == 0 {
            let phase = match self.phase {
                Phase::After(stage) if state.is_begin => Phase::Before(stage.next()),
                phase => phase,
            };
            match (phase, state.is_alive, state.is_begin) {
                (Phase::Owed(stage) | Phase::In(stage) | Phase::After(stage), true, false)
                    if stage == state.stage =>
                {
                    return Ok(CloneEvent::Nothing);
                }
                (Phase::Before(Stage::Done), false, true)
                    if (state.mark, state.bytes) != (StateMark::default(), 0) => {}
                (Phase::Before(stage), false, true) if stage == state.stage => {
                    let totals = self.stages.begin(&state)?;
                    self.phase = if stage == Stage::Done { Phase::Done } else { Phase::In(stage) };
                    return Ok(CloneEvent::Stage(stage, totals));
                }
                (Phase::In(stage) | Phase::After(stage), false, false) if stage == state.stage => {
                    self.stages.end(&state)?;
                    self.phase = Phase::Owed(stage);
                    let message = command::acknowledge(&self.locator, stage, state.mark);
                    return Ok(CloneEvent::Acknowledge(message));
                }
                _ => {}
            }
        }
        broken(format!(
            "the {} of the {} stage of task {} came {}",
            if state.is_begin { "begin" } else { "end" },
            state.stage.name(),
            state.task,
            when(self.phase)
        ))
    }
}

/// Returns whether a file of this stage may be described. What DDL did in a stage is told before the next one begins.
fn may_describe(phase: Phase, stage: Stage) -> bool {
    match phase {
        Phase::In(now) => now == stage,
        Phase::Before(next) => next == stage,
        Phase::After(last) => last == stage || last.next() == stage,
        _ => false,
    }
}

fn block<'a>(head: DataHead, answer: &Answer<'a>) -> Result<Block<'a>, CloneError> {
    match answer {
        Answer::Data(bytes) if usize::try_from(head.len) == Ok(bytes.len()) => {
            let DataHead { stage, file, offset, .. } = head;
            Ok(Block { stage, file, offset, bytes, is_behind_end: false })
        }
        Answer::Data(bytes) => {
            broken(format!("a block has {} bytes instead of {}", bytes.len(), head.len))
        }
        other => broken(format!("{} was sent instead of data", other.kind())),
    }
}

/// Where the clone is, for errors.
fn when(phase: Phase) -> String {
    match phase {
        Phase::Setup => "before the data".to_owned(),
        Phase::Again { .. } => "before the clone continues".to_owned(),
        Phase::Ready | Phase::Task => "at the beginning of the data".to_owned(),
        Phase::Before(stage) => format!("before the {} stage", stage.name()),
        Phase::In(stage) => format!("in the {} stage", stage.name()),
        Phase::Owed(stage) | Phase::After(stage) => format!("after the {} stage", stage.name()),
        Phase::Done => "after the last stage".to_owned(),
        Phase::Complete | Phase::Leaving { .. } => "after the completion".to_owned(),
        Phase::Failed => "after an error".to_owned(),
    }
}
