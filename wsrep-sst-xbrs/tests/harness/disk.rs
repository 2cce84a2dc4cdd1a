//! Small disks for tests of what a transfer does without room.

pub(crate) use xb_testkit::small_disk::SmallDisk as Disk;
