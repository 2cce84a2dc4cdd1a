//! Lists the events of a binary log:
//!
//! ```sh
//! cargo run -p xb-binlog --example list_events < bin.000001
//! ```

use std::io::Read as _;

use xb_binlog::Reader;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut reader = Reader::new();
    let mut buffer = vec![0; 1 << 16];
    let mut input = std::io::stdin().lock();
    loop {
        let len = input.read(&mut buffer)?;
        let mut piece = buffer.get(..len).unwrap_or_default();
        if piece.is_empty() {
            break;
        }
        while let Some(entry) = reader.next(&mut piece)? {
            let name = entry.header.event_type.name().unwrap_or("unknown");
            println!("{}..{} {name} {:?}", entry.begin, entry.end, entry.event);
        }
    }
    println!("{:?}", reader.finish()?);
    Ok(())
}
