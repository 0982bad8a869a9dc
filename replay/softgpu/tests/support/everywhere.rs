//! The same launches on every target and on the objects of every compiler: all buffers, after every
//! launch, are equal byte for byte.
#![allow(
    clippy::panic,
    clippy::print_stdout,
    reason = "test support: failing loudly is the point, and a comparison says how far it went"
)]

use crate::support::Gpu;
use refrain_softgpu::isa::Target;
use std::collections::BTreeSet;

/// Runs `check` for every target and, where `REFRAIN_SECOND_OBJECTS` is set, for the objects of
/// other compilers; demands equal words and equal buffers from all of them.
pub fn on_all_targets(check: impl Fn(&Gpu) -> Vec<u32>) {
    let mut first: Option<(Gpu, Vec<u32>)> = None;
    for target in Target::ALL {
        let gpus = Gpu::of_every_compiler(target);
        let several = gpus.len() > 1;
        for (set, gpu) in gpus {
            let got = check(&gpu);
            let what = format!("{target} {set}");
            if several {
                let kernels = gpu.launched();
                let names: BTreeSet<&str> = kernels.iter().map(|k| &**k).collect();
                let names: Vec<&str> = names.into_iter().collect();
                println!("{what}: {} launches of {}", kernels.len(), names.join(" "));
            }
            let Some((gpu1, words)) = &first else {
                first = Some((gpu, got));
                continue;
            };
            if let Err(difference) = gpu.agrees_with(gpu1) {
                panic!("{what} differs from gfx1100 shipped: {difference}");
            }
            assert!(*words == got, "{what} differs from gfx1100 shipped");
        }
    }
}
