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

#[cfg(test)]
mod tests {
    use xb_mysql::clone::{CloneEvent, Ddl, Recipient, Stage};
    use xb_testkit::donor::{Content, Message, Side, recorded};

    use super::*;

    const KEY: [u8; 64] = [0xa5; 64];

    /// A file as a donor with pages of this size describes it.
    fn described(page_size: u32, space_flags: u32) -> CloneFile {
        let (mut recipient, _) = Recipient::new(Ddl::Runs);
        for Message { from, content } in recorded() {
            let Content::Bytes(mut bytes) = content else { panic!("data") };
            let name = b"innodb_page_size";
            if bytes.get(5..).is_some_and(|rest| rest.starts_with(name)) {
                bytes.truncate(5 + name.len());
                let size = page_size.to_string();
                bytes.extend(u32::try_from(size.len()).unwrap().to_le_bytes());
                bytes.extend(size.as_bytes());
            }
            match from {
                Side::Donor => match recipient.receive(&bytes).unwrap() {
                    CloneEvent::Ready => drop(recipient.execute().unwrap()),
                    CloneEvent::Stage(Stage::File, _) => break,
                    _ => {}
                },
                Side::DonorAside => recipient.answered(&bytes).unwrap(),
                Side::Recipient | Side::RecipientAside => {}
            }
        }
        let name = b"./t/late.ibd\0";
        // Stage; size twice; flags, block of the file system; that it is encrypted, and a key follows; tablespace, index, chunks.
        let mut head = 2_u32.to_be_bytes().to_vec();
        head.extend([7 * u64::from(page_size); 2].map(u64::to_be_bytes).concat());
        head.extend([space_flags, 4096].map(u32::to_be_bytes).concat());
        head.extend(36_u16.to_be_bytes());
        head.extend([77, 0, 1, 1, 13].map(u32::to_be_bytes).concat());
        head.extend([&name[..], &KEY].concat());
        let len = u32::try_from(head.len() + 12).unwrap();
        let mut message = vec![2, 12, 0];
        message.extend([100, len, 4].map(u32::to_be_bytes).concat());
        message.extend(head);
        assert_eq!(recipient.receive(&message), Ok(CloneEvent::File(0)));
        recipient.files()[0].clone()
    }

    #[test]
    fn a_late_file_begins_as_its_server_made_it_in_every_page_size() {
        for (server, code, zip, page_size, key_at) in [
            (4096, 3, 0, 4096, 1558),
            (8192, 4, 0, 8192, 3734),
            (16384, 0, 0, 16384, 10390),
            (32768, 6, 0, 32768, 20630),
            (65536, 7, 0, 65536, 41110),
            (16384, 0, 4, 8192, 5270),
            (16384, 0, 3, 4096, 2710),
        ] {
            let flags = 0x6021 | code << 6 | zip << 1;
            let page = first_page(&described(server, flags)).unwrap();
            assert_eq!(page.len(), page_size, "{server} {zip}");
            let field = |at: usize| u32::from_be_bytes(*page[at..].first_chunk().unwrap());
            assert_eq!([4, 34, 38, 54].map(field), [0, 77, 77, flags], "{server} {zip}");
            assert_eq!(page[key_at..key_at + 43], *[b"lCC\0\0\0\0", &[b'0'; 36][..]].concat());
            assert_eq!(page[key_at + 43..key_at + 107], KEY, "{server} {zip}");
            assert!(FirstPage::of(&page).unwrap().is_intact(&page), "{server} {zip}");
        }
    }
}
