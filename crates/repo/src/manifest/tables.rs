//! Tables in a manifest, by number and first names.

use serde::{Deserialize, Serialize};

/// Maximum number of tables that are named.
const NAMED: usize = 10;

/// Tables that a manifest names for a reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tables {
    /// Number of tables.
    pub tables: u64,
    /// The first of them by name.
    pub first: Vec<String>,
}

impl Tables {
    /// Tables without files that a scan found; `None` if there are no such tables.
    #[must_use]
    pub fn found(found: &xb_pipeline::TablesWithoutFiles) -> Option<Self> {
        let first = found.first.iter().take(NAMED).cloned().collect();
        (found.tables > 0).then_some(Self { tables: found.tables, first })
    }
}

/// Number and first names: `2 tables: shop/a, shop/b`.
impl std::fmt::Display for Tables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let plural = if self.tables == 1 { "" } else { "s" };
        write!(f, "{} table{plural}: {}", self.tables, self.first.join(", "))?;
        match self.tables > self.first.len() as u64 {
            true => f.write_str(", …"),
            false => Ok(()),
        }
    }
}
