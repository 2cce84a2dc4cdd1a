//! Lists the frames of an unsealed native stream and checks the checksum of each:
//!
//! ```sh
//! cargo run -p xb-frame --example frames < native-stream
//! ```

use std::error::Error;
use std::io::{self, Read};

use xb_frame::{Event, Kind, Limits, StreamReader};

fn main() -> Result<(), Box<dyn Error>> {
    let mut input = io::stdin().lock();
    let mut reader = StreamReader::new(Limits::default());
    let (mut buffer, mut payload) = (vec![0; 64 << 10], Vec::new());
    loop {
        let len = input.read(&mut buffer)?;
        if len == 0 {
            break;
        }
        let mut piece = &buffer[..len];
        while let Some(event) = reader.next(&mut piece)? {
            match event {
                Event::Header(header) => println!("stream {}", header.id()),
                Event::Frame(_) => payload.clear(),
                Event::Payload(bytes) => payload.extend_from_slice(bytes),
                Event::FrameEnd(frame) => {
                    if frame.kind == Kind::Data {
                        frame.check_payload(&payload)?;
                    }
                    println!(
                        "{:>12} {:?} {:?}: {} bytes stored for {}",
                        frame.position, frame.kind, frame.codec, frame.stored_len, frame.plain_len
                    );
                }
                _ => {}
            }
        }
    }
    // Only `finish` proves that the stream is complete.
    let summary = reader.finish()?;
    println!("complete: {} bytes", summary.stream_len);
    Ok(())
}
