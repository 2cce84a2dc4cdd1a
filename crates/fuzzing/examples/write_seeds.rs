//! Writes the seeds of all targets, each into the folder `FOLDER/TARGET`, for a fuzzer to begin
//! with: `write_seeds FOLDER`.

use std::path::PathBuf;

use xb_fuzzing::TARGETS;

fn main() -> std::io::Result<()> {
    let Some(folder) = std::env::args_os().nth(1).map(PathBuf::from) else {
        return Err(std::io::Error::other("usage: write_seeds FOLDER"));
    };
    for target in TARGETS {
        let folder = folder.join(target.name);
        std::fs::create_dir_all(&folder)?;
        for (number, seed) in (target.seeds)().iter().enumerate() {
            std::fs::write(folder.join(format!("seed-{number:03}")), seed)?;
        }
    }
    Ok(())
}
