//! Packs an xbstream into objects of one size in a directory, and reads it back:
//!
//! ```sh
//! cargo run --release -p xb-pipeline --example objects -- backup.xbs objects/
//! ```

use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;

use bytes::Bytes;
use xb_frame::{StreamHeader, StreamId};
use xb_pipeline::{
    Budget, Closed, Content, EndRule, NativeStream, ObjectLayout, ObjectSize, Observer, PackPlan,
    PackSettings, PackSizing, Part, PartLimits, UnpackPlan, XbstreamInput, object_key, start_pack,
    unpack,
};
use xb_reader::Dialect;

const MEMORY: u64 = 128 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args_os().skip(1);
    let (Some(stream), Some(dir)) = (args.next(), args.next().map(PathBuf::from)) else {
        return Err("name an xbstream and a directory".into());
    };
    fs::create_dir_all(&dir)?;

    let limits =
        PartLimits { min: 1, max: u64::MAX, count: u64::MAX, object: u64::MAX, equal: false };
    let object_size = ObjectSize::new(16 << 20);
    let sizing = PackSizing {
        memory: MEMORY,
        codec_memory: 0,
        object_size,
        threads: 2,
        parallel: 1,
        limits,
    };
    let plan = PackPlan::new(sizing)?;
    let id = StreamId(xb_encryptor::new_stream_id()?);
    let layout = ObjectLayout::Packed {
        content: Content::Xbstream(XbstreamInput { rule: EndRule::AnyEnd, dialect: Dialect::Auto }),
        stream: NativeStream {
            header: StreamHeader::new(id),
            compress: "zstd".parse::<xb_compressor::Algorithm>()?.into(),
            sealer: None,
        },
    };
    let into = dir.clone();
    let write = move |part: Part| {
        let mut options = OpenOptions::new();
        options.create(true).append(part.index > 0).write(true).truncate(part.index == 0);
        // The sink has the cause and must report it.
        let mut object = options.open(into.join(&*part.object)).map_err(|_| Closed)?;
        part.payload.iter().try_for_each(|bytes| object.write_all(bytes)).map_err(|_| Closed)
    };
    let settings = PackSettings { plan, layout };
    let (budget, observer) = (Budget::new(MEMORY), Observer::default());
    let packed = start_pack(File::open(&stream)?, settings, &budget, &observer, write)?.join()?;
    println!("{} bytes, {} files, packed", packed.scanned.bytes, packed.scanned.files);

    // `None` would mean that an object cannot be read.
    let objects = (0..).map(move |number| dir.join(object_key(number)));
    let ranges = objects.take_while(|path| path.exists()).map(|path| fs::read(path).ok());
    let (mut plain, plan) = (0, UnpackPlan::new(MEMORY, 2, 1)?);
    unpack(ranges.map(|range| range.map(Bytes::from)), None, &plan, &observer, |piece| {
        plain += piece.len() as u64;
        Ok::<_, std::convert::Infallible>(())
    })?;
    assert_eq!(plain, packed.scanned.bytes);
    println!("{plain} bytes unpacked");
    Ok(())
}
