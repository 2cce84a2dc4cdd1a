//! The usual size of the backups of one kind of one server, and whether a backup is much smaller.

use std::collections::VecDeque;

/// Number of backups whose median is the usual size.
const LAST: usize = 5;

/// Size of a backup, as far as known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Bytes of the stream.
    pub bytes: Option<u64>,
    /// Files in the stream.
    pub files: Option<u64>,
    /// Tables of users in the stream.
    pub tables: Option<u64>,
}

/// One part of a size.
type Part = fn(Size) -> Option<u64>;

/// The last backups of one kind of one server.
#[derive(Debug, Default)]
pub struct UsualSize {
    last: VecDeque<Size>,
}

impl UsualSize {
    /// The usual size after a backup whose size was accepted.
    #[must_use]
    pub fn of(size: Size) -> Self {
        Self { last: VecDeque::from([size]) }
    }

    /// Adds the next backup, which is not much smaller.
    pub fn add(&mut self, size: Size) {
        self.last.push_back(size);
        if self.last.len() > LAST {
            self.last.pop_front();
        }
    }

    /// Starts again with a backup whose size was accepted.
    pub fn restart(&mut self, size: Size) {
        *self = Self::of(size);
    }

    /// The usual number of bytes, the median of the last five, if any is known.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        self.median(|size| size.bytes)
    }

    fn median(&self, of: Part) -> Option<u64> {
        let mut last: Vec<u64> = self.last.iter().copied().filter_map(of).collect();
        last.sort_unstable();
        last.get(last.len().checked_sub(1)? / 2).copied()
    }

    /// Describes in what a backup is below half of the usual size, the median of the last five; `None`
    /// if in nothing.
    #[must_use]
    pub fn shrunk(&self, size: Size) -> Option<String> {
        let parts: [(&str, Part); 3] = [
            ("bytes", |size| size.bytes),
            ("files", |size| size.files),
            ("tables", |size| size.tables),
        ];
        let below = parts.into_iter().filter_map(|(what, of)| {
            let usual = self.median(of)?;
            let now = of(size)?;
            (now < usual.div_ceil(2)).then(|| format!("{now} {what} instead of {usual}"))
        });
        let below: Vec<String> = below.collect();
        (!below.is_empty()).then(|| below.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(bytes: u64, tables: u64) -> Size {
        Size { bytes: Some(bytes), files: Some(9), tables: Some(tables) }
    }

    fn usual(all: &[u64]) -> UsualSize {
        let mut usual = UsualSize::default();
        all.iter().for_each(|bytes| usual.add(size(*bytes, 10)));
        usual
    }

    #[test]
    fn half_of_the_median_of_the_last_five_is_the_bound() {
        assert_eq!(
            UsualSize::default().shrunk(size(0, 0)),
            None,
            "there is nothing to compare with"
        );
        let five = usual(&[1, 1, 1, 100, 90, 100, 5, 110]);
        assert_eq!(five.shrunk(size(50, 10)), None);
        assert_eq!(five.shrunk(size(49, 10)).as_deref(), Some("49 bytes instead of 100"));
        assert_eq!(five.shrunk(size(90, 4)).as_deref(), Some("4 tables instead of 10"));
        let unknown = Size { bytes: Some(90), files: None, tables: None };
        assert_eq!(five.shrunk(unknown), None);
        assert_eq!(usual(&[0, 0]).shrunk(size(0, 10)), None);
    }

    #[test]
    fn an_accepted_size_is_the_usual_one() {
        let mut usual = usual(&[100, 100, 100]);
        usual.restart(size(10, 1));
        assert_eq!(usual.shrunk(size(6, 1)), None);
        assert!(usual.shrunk(size(4, 1)).is_some());
    }
}
