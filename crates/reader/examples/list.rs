//! Lists and checks the files of an xbstream:
//!
//! ```sh
//! cargo run -p xb-reader --example list < backup.xbs
//! ```

use std::error::Error;
use std::io;

use xb_reader::{Change, ChunkReader, Dialect, Item, Limits};

fn main() -> Result<(), Box<dyn Error>> {
    let input = io::stdin().lock();
    let mut reader = ChunkReader::new(input, Dialect::Auto, Limits::default());
    // An error means a damaged chunk or a file without its end: the whole list is then invalid.
    while let Some(item) = reader.next()? {
        if let Item::Chunk(head, Change::Ended { size, .. }) = item {
            println!("{size:>12} {}", head.path);
        }
    }
    Ok(())
}
