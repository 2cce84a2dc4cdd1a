//! Checks the tablespace files of a server that was shut down:
//!
//! ```sh
//! cargo run -p xb-pages --example check -- /var/lib/mysql/ibdata1 /var/lib/mysql/shop/*.ibd
//! ```
#![allow(clippy::print_stdout, reason = "an example")]

use std::fs::File;
use std::io::Read as _;

use xb_pages::PageChecker;

fn main() -> std::io::Result<()> {
    let mut piece = vec![0; 1 << 20];
    for name in std::env::args().skip(1) {
        let Some(mut checker) = PageChecker::of_name(name.as_bytes()) else {
            println!("{name}: not a tablespace");
            continue;
        };
        let mut bad = |page: xb_pages::BadPage| {
            println!("{name}: page {} at {}: {}", page.page, page.offset, page.fault);
        };
        let mut file = File::open(&name)?;
        while let len @ 1.. = file.read(&mut piece)? {
            checker.feed(piece.get(..len).unwrap_or_default(), &mut bad);
        }
        let found = checker.finish(&mut bad);
        println!("{name}: {:?}", found.counts);
    }
    Ok(())
}
