//! temp
#![allow(clippy::all, clippy::unwrap_used, clippy::print_stdout, reason = "temp")]
use refrain_kernels::{Target, code_object};
use refrain_lower::*;
use refrain_planner::gguf::GgufFile;
use refrain_planner::machine::Machine;
use refrain_planner::{CompileOptions, compile};
#[test]
fn t() {
    for entry in std::fs::read_dir("../../golden/models").unwrap().chain(std::fs::read_dir("../../tests/models").unwrap()) {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "gguf") { continue; }
        for target in Target::ALL {
            let Ok(file) = GgufFile::open(&path) else { continue };
            let Ok(plan) = compile(&file, &Machine::load(target.name()).unwrap(), &CompileOptions::default()) else { println!("no plan {path:?}"); continue };
            let mut images = KernelImages::new();
            images.add(code_object(target).bytes).unwrap();
            for tr in Transport::ALL {
                let l = lower(&plan, &images, tr, Policy::default()).unwrap();
                let k = kernel_images(&plan, &images).unwrap();
                let t = std::time::Instant::now();
                let r = lint(&plan, &k, &l).unwrap();
                println!("{path:?} {target} {tr} steps {} findings {} {:?} {:?}", plan.steps.len(), r.findings.len(), r.findings.first().map(|f| f.to_string()), t.elapsed());
            }
        }
    }
}
