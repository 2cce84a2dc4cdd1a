//! What was stored: bytes by table, and sizes of objects, both in bounded memory.

pub(crate) mod object_sizes;
pub(crate) mod table_totals;
