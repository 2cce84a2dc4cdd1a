//! The first page of a file that DDL created while the clone ran: what comes of such a file is in the redo log, which
//! applies to the page that the server made when it created the file.

use xb_mysql::clone::{CloneFile, TableKey};
use xb_pages::FirstPage;

use crate::error::Error;
use crate::keys;

/// Offsets in a page of its tablespace, which is there twice, and of the flags of that.
const SPACE: [usize; 2] = [34, 38];
const FLAGS: usize = 54;

/// Makes the first page of a file.
pub(crate) fn first_page(file: &CloneFile) -> Result<Vec<u8>, Error> {
    let mut page = vec![0; usize::try_from(file.page_size).unwrap_or(0)];
    let space = file.space.unwrap_or(0);
    for (at, field) in SPACE.map(|at| (at, space)).into_iter().chain([(FLAGS, file.space_flags)]) {
        if let Some(to) = page.get_mut(at..at + 4) {
            to.copy_from_slice(&field.to_be_bytes());
        }
    }
    let Some(first) = FirstPage::of(&page) else {
        return Err(Error::Damaged(format!(
            "{} was created while the clone ran, with the unknown flags {:#x}",
            file.name, file.space_flags
        )));
    };
    if let Some(key) = file.key.as_ref().map(TableKey::bytes) {
        let key = keys::clear(key);
        let at = first.key_offset();
        match page.get_mut(at..at + key.len()) {
            Some(to) => to.copy_from_slice(&key),
            None => return Err(Error::Damaged(format!("{} has no room for its key", file.name))),
        }
    }
    first.set_checksum(&mut page);
    Ok(page)
}
