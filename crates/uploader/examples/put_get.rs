//! Puts two objects into a store, lists them, and reads them back:
//!
//! ```sh
//! cargo run -p xb-uploader --example put_get -- file:///tmp/objects
//! cargo run -p xb-uploader --example put_get -- s3://bucket/folder    # keys from the environment
//! ```

use std::error::Error;

use xb_uploader::{Location, PartData, PartSender, Policy, StoreSettings, open};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let place = std::env::args().nth(1).ok_or("name a place, such as file:///tmp/objects")?;
    let location = Location::parse(&place).ok_or("not a place")??;
    let settings = StoreSettings::default();
    let (store, prefix) = open(&location, &settings, Policy::default(), true)?;

    // An object that fits in one part is one request; a larger one is sent as parts 0, 1, 2 and so
    // on.
    let mut sender = PartSender::new(store.clone(), 2);
    for name in ["one", "two"] {
        let key = format!("{prefix}{name}").into();
        let payload = vec![format!("object {name}").into()];
        sender.send(PartData { key, index: 0, payload, end: true }).await?;
    }
    let uploaded = sender.finish().await?;
    println!("{} objects, {} bytes acknowledged", uploaded.objects, uploaded.bytes);

    for listed in store.list(&prefix).await? {
        let content = store.get(&listed.key).await?;
        println!("{:>12} {}: {}", listed.size, listed.key, String::from_utf8_lossy(&content));
    }
    Ok(())
}
