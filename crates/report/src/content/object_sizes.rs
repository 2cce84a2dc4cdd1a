//! Sizes of the objects of a backup.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Number of different sizes that are kept exactly. Objects of one size need two: the last one is
/// shorter.
const MAX_EXACT: usize = 8;

/// Objects by size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Objects {
    /// Number of objects.
    pub objects: u64,
    /// Bytes of all objects.
    pub bytes: u64,
    /// Size of the smallest one in bytes.
    pub smallest: u64,
    /// Size of the largest one in bytes.
    pub largest: u64,
    /// The smallest first: exact sizes if there are few, else powers of two, with the empty classes
    /// in between.
    pub sizes: Vec<SizeClass>,
}

/// Objects whose size is in a range.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeClass {
    /// Smallest size of the class in bytes.
    pub from: u64,
    /// Largest size of the class in bytes.
    pub to: u64,
    /// Number of objects.
    pub objects: u64,
}

/// Counts how many objects have which size.
#[derive(Debug)]
pub(crate) struct ObjectSizes {
    objects: u64,
    bytes: u64,
    smallest: u64,
    largest: u64,
    /// Exact sizes; `None` if there are too many.
    exact: Option<BTreeMap<u64, u64>>,
    /// Objects by the number of binary digits of their size.
    classes: [u64; 65],
}

impl Default for ObjectSizes {
    fn default() -> Self {
        Self {
            objects: 0,
            bytes: 0,
            smallest: u64::MAX,
            largest: 0,
            exact: Some(BTreeMap::new()),
            classes: [0; 65],
        }
    }
}

impl ObjectSizes {
    /// Adds an object.
    pub(crate) fn add(&mut self, size: u64) {
        self.add_many(size, 1);
    }

    /// Adds so many objects of one size.
    pub(crate) fn add_many(&mut self, size: u64, objects: u64) {
        if objects == 0 {
            return;
        }
        self.objects += objects;
        self.bytes = self.bytes.saturating_add(size.saturating_mul(objects));
        self.smallest = self.smallest.min(size);
        self.largest = self.largest.max(size);
        if let Some(class) = self.classes.get_mut((u64::BITS - size.leading_zeros()) as usize) {
            *class += objects;
        }
        if let Some(exact) = &mut self.exact {
            *exact.entry(size).or_default() += objects;
        }
        self.exact.take_if(|exact| exact.len() > MAX_EXACT);
    }

    /// Returns what was counted, if it is any object.
    pub(crate) fn summary(&self) -> Option<Objects> {
        let &Self { objects, bytes, smallest, largest, .. } = self;
        let sizes = self.histogram();
        (objects > 0).then_some(Objects { objects, bytes, smallest, largest, sizes })
    }

    fn histogram(&self) -> Vec<SizeClass> {
        if let Some(exact) = &self.exact {
            let class = |(size, objects): (&u64, &u64)| SizeClass {
                from: *size,
                to: *size,
                objects: *objects,
            };
            return exact.iter().map(class).collect();
        }
        let used = |(_, objects): &(usize, &u64)| **objects > 0;
        let mut all = self.classes.iter().enumerate();
        let (Some((first, _)), last) = (all.clone().find(used), all.rfind(used)) else {
            return Vec::new();
        };
        let last = last.map_or(first, |(last, _)| last);
        (first..=last)
            .map(|digits| SizeClass {
                from: lowest(digits),
                to: highest(digits),
                objects: self.classes.get(digits).copied().unwrap_or_default(),
            })
            .collect()
    }
}

/// Smallest number with this many binary digits, at most 64.
fn lowest(digits: usize) -> u64 {
    match digits {
        0 => 0,
        digits => highest(digits - 1) + 1,
    }
}

/// Largest number with this many binary digits, at most 64.
fn highest(digits: usize) -> u64 {
    let unused = u64::BITS.saturating_sub(u32::try_from(digits).unwrap_or(u64::BITS));
    u64::MAX.checked_shr(unused).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_sizes_are_shown_exactly() {
        let mut sizes = ObjectSizes::default();
        for size in [64, 64, 64, 13] {
            sizes.add(size);
        }
        let class = |size, objects| SizeClass { from: size, to: size, objects };
        assert_eq!(sizes.histogram(), [class(13, 1), class(64, 3)]);
        assert_eq!((sizes.smallest, sizes.largest, sizes.bytes), (13, 64, 205));
    }

    #[test]
    fn objects_of_one_size_are_added_at_once() {
        let mut sizes = ObjectSizes::default();
        sizes.add_many(64, 3);
        sizes.add_many(13, 1);
        sizes.add_many(1, 0);
        let class = |size, objects| SizeClass { from: size, to: size, objects };
        assert_eq!(sizes.histogram(), [class(13, 1), class(64, 3)]);
        assert_eq!((sizes.smallest, sizes.objects, sizes.bytes), (13, 4, 205));
    }

    #[test]
    fn many_sizes_are_shown_by_powers_of_two() {
        let mut sizes = ObjectSizes::default();
        for size in (0..=20).chain([1 << 63]) {
            sizes.add(size);
        }
        let histogram = sizes.histogram();
        assert_eq!(histogram.len(), 65);
        assert_eq!(histogram[0], SizeClass { from: 0, to: 0, objects: 1 });
        assert_eq!(histogram[3], SizeClass { from: 4, to: 7, objects: 4 });
        assert_eq!(histogram.iter().map(|class| class.objects).sum::<u64>(), 22);
    }

    #[test]
    fn no_objects_give_no_histogram() {
        assert_eq!(ObjectSizes::default().histogram(), []);
        assert_eq!(ObjectSizes::default().summary(), None);
    }
}
