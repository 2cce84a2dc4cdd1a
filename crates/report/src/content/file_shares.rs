//! Divides what is stored of a part of the stream among the files in it.

/// The files in the current part of the stream, and the bytes of each.
#[derive(Debug, Default)]
pub(crate) struct FileShares(Vec<(Vec<u8>, u64)>);

impl FileShares {
    /// Adds the next bytes of the stream.
    pub(crate) fn add(&mut self, path: &[u8], len: u64) {
        match self.0.last_mut() {
            Some((last, bytes)) if last == path => *bytes += len,
            _ => self.0.push((path.to_owned(), len)),
        }
    }

    /// Ends the part, which is stored in this many bytes, or as it is: calls `each` with the path, the
    /// bytes and the stored bytes of each file. What surrounds the files counts in proportion to them.
    pub(crate) fn divide(&mut self, stored: Option<u64>, mut each: impl FnMut(&[u8], u64, u64)) {
        let mut bytes: u64 = self.0.iter().map(|(_, bytes)| bytes).sum();
        let mut left = stored.unwrap_or(bytes);
        for (path, plain) in self.0.drain(..) {
            let share = u128::from(left) * u128::from(plain) / u128::from(bytes.max(1));
            let share = u64::try_from(share).unwrap_or(left);
            left -= share;
            bytes -= plain;
            each(&path, plain, share);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_divided_without_a_rest() {
        let (mut shares, mut heard) = (FileShares::default(), Vec::new());
        let mut hear = |path: &[u8], plain, stored| {
            heard.push((String::from_utf8_lossy(path).into_owned(), plain, stored));
        };
        for (path, len) in [("a", 1000), ("b", 10), ("b", 20), ("a", 70)] {
            shares.add(path.as_bytes(), len);
        }
        shares.divide(Some(997), &mut hear);
        // The rest of the chunk is in the next slab, whose files are transformed.
        shares.add(b"a", 5);
        shares.divide(Some(0), &mut hear);
        // Stored as they are.
        shares.add(b"a", 6);
        shares.add(b"c", 7);
        shares.divide(None, &mut hear);
        let plain: Vec<u64> = heard.iter().map(|(_, plain, _)| *plain).collect();
        assert_eq!(plain, [1000, 30, 70, 5, 6, 7]);
        assert_eq!(heard[..3].iter().map(|(_, _, stored)| stored).sum::<u64>(), 997);
        assert_eq!(heard[3], ("a".to_owned(), 5, 0));
        assert_eq!(heard[4..], [("a".to_owned(), 6, 6), ("c".to_owned(), 7, 7)]);
    }
}
