//! Every target handles its seeds, and a few thousand mutations of them. A fuzzer finds more; this
//! finds a target or a seed that a change has broken.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use xb_fuzzing::TARGETS;
use xb_testkit::data::Noise;

/// Mutations of each target's seeds, together.
const MUTATIONS: u64 = 600;

fn run(name: &str, input: &[u8]) {
    let handled = catch_unwind(AssertUnwindSafe(|| xb_fuzzing::run(name, input)));
    assert!(handled.is_ok(), "{name} fails on {}", hex(input));
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Changes some bytes, cuts the input, or repeats a part.
fn mutate(input: &mut Vec<u8>, draw: &mut Noise) {
    let mut below = |limit: usize| usize::try_from(draw.below(limit.max(1) as u64)).unwrap();
    match below(8) {
        0 => input.truncate(below(input.len() + 1)),
        1 => {
            let at = below(input.len());
            let part = input[at.min(input.len())..].to_vec();
            input.extend(part.iter().take(64));
        }
        _ => {
            for _ in 0..=below(3) {
                let (at, value) = (below(input.len().min(200)), below(256));
                if let Some(byte) = input.get_mut(at) {
                    *byte = u8::try_from(value).unwrap();
                }
            }
        }
    }
}

#[test]
fn every_target_handles_its_seeds_and_what_is_close_to_them() {
    for target in TARGETS {
        let seeds = (target.seeds)();
        assert!(!seeds.is_empty(), "{} has no seeds", target.name);
        seeds.iter().for_each(|seed| run(target.name, seed));
        let (mut draw, small) = (Noise::new(1), seeds.iter().filter(|seed| seed.len() < 20_000));
        let small: Vec<_> = small.collect();
        for n in 0..MUTATIONS {
            let mut input = small[usize::try_from(n).unwrap() % small.len()].clone();
            mutate(&mut input, &mut draw);
            run(target.name, &input);
        }
    }
}

/// Each target is a program in `fuzz/`, and each of these is a target.
#[test]
fn the_programs_are_the_targets() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let text = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
    let mut programs: Vec<_> =
        text.lines().filter_map(|line| line.strip_prefix("path = \"fuzz_targets/")).collect();
    let mut targets: Vec<_> =
        TARGETS.iter().map(|target| format!("{}.rs\"", target.name)).collect();
    programs.sort_unstable();
    targets.sort_unstable();
    assert_eq!(programs, targets);
    for target in TARGETS {
        let program = folder.join(format!("fuzz_targets/{}.rs", target.name));
        let call = format!("run(\"{}\", data)", target.name);
        assert!(std::fs::read_to_string(program).unwrap().contains(&call), "{}", target.name);
    }
}
