//! The names of a classic backup's files. They follow its checksums, because nothing else tells the keys of a file that a
//! listing hides.

use std::collections::BTreeMap;

/// Maximum length of a list in bytes. A longer one is left out.
pub(crate) const MAX_LEN: u64 = 8 << 20;

/// Path to number of objects, which are numbered from 0.
pub(crate) type FileNames = BTreeMap<String, u64>;

/// Encodes paths, which ascend, with their numbers of objects; empty if that is too long.
pub(crate) fn encode<'a>(files: impl Iterator<Item = (&'a str, u64)>) -> Vec<u8> {
    let mut list = Vec::new();
    for (path, objects) in files {
        // No store takes a key of 4 GiB.
        list.extend(u32::try_from(path.len()).unwrap_or(u32::MAX).to_le_bytes());
        list.extend(path.as_bytes());
        list.extend(objects.to_le_bytes());
        if list.len() as u64 > MAX_LEN {
            return Vec::new();
        }
    }
    list
}

/// Decodes a stored list; `None` if it is none.
pub(crate) fn decode(mut list: &[u8]) -> Option<FileNames> {
    let mut names = FileNames::new();
    while !list.is_empty() {
        let (len, rest) = list.split_first_chunk()?;
        let (path, rest) =
            rest.split_at_checked(usize::try_from(u32::from_le_bytes(*len)).ok()?)?;
        let (objects, rest) = rest.split_first_chunk()?;
        let path = String::from_utf8(path.to_owned()).ok()?;
        names.insert(path, u64::from_le_bytes(*objects));
        list = rest;
    }
    Some(names)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn names_come_back(names in proptest::collection::btree_map(".{0,20}", any::<u64>(), 0..9)) {
            let list = encode(names.iter().map(|(path, objects)| (path.as_str(), *objects)));
            prop_assert_eq!(decode(&list), Some(names));
            for cut in 1..list.len().min(12) {
                prop_assert_eq!(decode(&list[..cut]), None);
            }
        }

        #[test]
        fn arbitrary_lists_do_not_panic(list in proptest::collection::vec(any::<u8>(), 0..99)) {
            let _ = decode(&list);
        }
    }

    #[test]
    fn a_list_that_is_too_long_is_left_out() {
        let path = "x".repeat(1 << 20);
        assert!(encode(std::iter::repeat_n((&*path, 1), 9)).is_empty());
    }
}
