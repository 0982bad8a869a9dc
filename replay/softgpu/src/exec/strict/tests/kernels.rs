//! Strict mode on all shipped kernels: nothing is found, and the bytes are those of the fast path.

use super::cases::all;
use super::keeper::Keeper;
use super::support::Gpu;
use crate::exec::strict::run_strict;
use crate::isa::Target;

#[test]
fn shipped_kernels_are_silent_and_agree_with_the_fast_path() {
    for target in Target::ALL {
        let (fast, strict) = (Gpu::shipped(target), Gpu::shipped(target));
        let pairs = all(&fast).into_iter().zip(all(&strict));
        for (f, s) in pairs {
            let mut keeper = Keeper::default();
            let stats = fast.go(std::slice::from_ref(&f.dispatch)).unwrap();
            let batch = [s.dispatch];
            let got = run_strict(&strict.memory, &batch, &strict.config, &mut keeper).unwrap();
            assert_eq!(stats, got, "{target} {}", f.name);
            let program = batch[0].program.strict();
            let texts: Vec<String> = keeper
                .found
                .iter()
                .take(6)
                .map(|(who, finding)| {
                    let at = program.program.index_of(who.pc).unwrap_or(0);
                    format!("{who:x?} {}: {finding:?}", program.program.text_of(at))
                })
                .collect();
            assert!(
                texts.is_empty(),
                "{target} {}\n{}",
                f.name,
                texts.join("\n")
            );
            assert!(keeper.loads > 0, "{}", f.name);
            for (a, b) in f.outputs.iter().zip(&s.outputs) {
                assert!(
                    fast.read_u32s(a.0, a.1) == strict.read_u32s(b.0, b.1),
                    "{target} {}",
                    f.name
                );
            }
        }
    }
}
