//! Messages while a clone is received.

/// Message while a clone is received, from the thread that receives or from another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice<'a> {
    /// Something that the user should know.
    Text(&'a str),
    /// The changed pages begin to come. From now on the server keeps its redo log until all the rest was written, so
    /// writing should not wait.
    Changes,
    /// The clone was ended, for this reason, because the server would have to keep too much of its redo log. If the
    /// output takes nothing, [`receive`](crate::receive) returns later.
    LetGo(&'a str),
}

/// Takes notices.
pub(crate) type Notify<'a> = dyn Fn(Notice<'_>) + Sync + 'a;
